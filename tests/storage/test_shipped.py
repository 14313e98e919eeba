"""The shipped configuration files are found by name: on command lines and in files."""

import hashlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import torch
import yaml

import attnlight
from attnlight.cli.composition import compose
from attnlight.errors import InputError
from attnlight.storage.checkpoint_file import read_checkpoint
from attnlight.storage.shipped import CONFIGS, TRAINED, find_config, find_trained, shipped_configs
from attnlight.studies.estimate import Estimate
from attnlight.studies.plan import digests, plan
from attnlight.studies.spec import Study, read_studies
from tests.commands import Printed, Refused

EXPERIMENT = {"model": "bilstm_additive", "data": "planted", "trainer": {"max_epochs": 2}}
KEYS = {"model", "data", "trainer.max_epochs"}
STUDY = {"experiment": "planted_bilstm", "tests": ["cheap"], "base": {"seeds": [0]}}


def write(path: Path, **content: Any) -> Path:
    path.write_text(yaml.safe_dump(content))
    return path


def composed(path: Path) -> dict[str, Any]:
    return compose("fit", ["-c", str(path)], KEYS).config


def hashes(study: Study) -> dict[str, str]:
    return digests(study, plan(study))


def test_every_file_has_a_name_which_the_verb_lists(printed: Printed) -> None:
    shipped = shipped_configs()
    assert set(shipped.values()) == {path for path in CONFIGS.rglob("*") if path.suffix == ".yaml"}
    assert list(shipped) == sorted(shipped)
    assert shipped["tests/cheap"] == CONFIGS / "tests/cheap.yaml"
    for name, path in shipped.items():
        assert find_config(name, "experiments") == str(path)
    assert printed("configs").splitlines() == list(shipped)


class TestVerb:
    @pytest.mark.parametrize("name", ["sst_bilstm", "experiments/sst_bilstm"])
    def test_prints(self, name: str, printed: Printed) -> None:
        path = CONFIGS / "experiments/sst_bilstm.yaml"
        assert printed("configs", name) == f"# {path}\n{path.read_text()}"

    def test_names_the_nearest(self, refused: Refused) -> None:
        refused("configs", "sst_bilstn", names=["'sst_bilstn' (did you mean 'sst_bilstm'?)"])


class TestExperimentFile:
    def test_names_are_the_files_unless_one_lies_beside_it(self, tmp_path: Path) -> None:
        model, data = CONFIGS / "models/bilstm_additive.yaml", CONFIGS / "data/planted.yaml"
        files = {"model": str(model), "data": str(data)}
        short = write(tmp_path / "short.yaml", **EXPERIMENT)
        long = write(tmp_path / "long.yaml", **(EXPERIMENT | files))
        assert composed(short) == composed(long)
        assert compose("fit", ["-c", str(short)], KEYS).corpus == "planted"
        write(tmp_path / "planted", class_path="PlantedEvidence", init_args={"train_size": 7})
        assert composed(short)["data"]["init_args"] == {"train_size": 7}

    def test_a_typo(self, tmp_path: Path) -> None:
        path = write(tmp_path / "mine.yaml", **(EXPERIMENT | {"model": "bilstm_aditive"}))
        told = r"mine.yaml: model: there is no .*did you mean 'bilstm_additive'\?"
        with pytest.raises(InputError, match=told):
            composed(path)


class TestStudyFile:
    def test_names_are_the_files(self, tmp_path: Path) -> None:
        files = {
            "trainer": f"{CONFIGS}/trainer.yaml",
            "experiment": f"{CONFIGS}/experiments/planted_bilstm.yaml",
            "tests": [f"{CONFIGS}/tests/cheap.yaml"],
        }
        (short,) = read_studies(write(tmp_path / "short.yaml", **STUDY))
        (long,) = read_studies(write(tmp_path / "long.yaml", **(STUDY | files)))
        assert hashes(short) == hashes(long)
        for key in ("trainer", "experiment", "tests"):
            assert getattr(short, key) == getattr(long, key)

    @pytest.mark.parametrize(
        ("key", "value", "hint"),
        [
            ("experiment", "planted_bilstn", "planted_bilstm"),
            ("tests", ["chep"], "cheap"),
            ("trainer", "trainr", "trainer"),
        ],
    )
    def test_a_typo(self, key: str, value: object, hint: str, tmp_path: Path) -> None:
        path = write(tmp_path / "study.yaml", **(STUDY | {key: value}))
        with pytest.raises(InputError, match=rf"study.yaml: {key}: .*did you mean '{hint}'\?"):
            read_studies(path)

    def test_the_verb_takes_a_name(
        self, here: Path, monkeypatch: pytest.MonkeyPatch, printed: Printed, refused: Refused
    ) -> None:
        (here / "planted").mkdir()
        monkeypatch.setattr("attnlight.studies.cli.estimate", lambda *_: Estimate({}))
        long = printed("study", str(CONFIGS / "studies/planted.yaml"), "--dry-run")
        assert printed("study", "planted", "--dry-run") == long
        refused("study", "plantd", "--dry-run", names=["did you mean 'planted'?"])
        (named,) = read_studies(Path("planted"))
        (given,) = read_studies(CONFIGS / "studies/planted.yaml")
        assert hashes(named) == hashes(given)


class TestTrainedModels:
    FOLDER = TRAINED / "sst"

    def test_a_path_comes_before_a_name(
        self, here: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert find_trained("sst") == self.FOLDER
        assert find_config("sst", "data") == str(CONFIGS / "data/sst.yaml")
        assert capsys.readouterr().err == ""
        (here / "sst").mkdir()
        assert find_trained("sst") == Path("sst")
        assert Path(find_config("sst", "data")) == Path("sst")
        for line, shipped in zip(
            capsys.readouterr().err.splitlines(),
            (self.FOLDER, CONFIGS / "data/sst.yaml"),
            strict=True,
        ):
            assert line == f"sst is read, not what attnlight has of that name: {shipped}."
        assert find_config("./sst", "data") == "./sst"  # of whom nothing else has the name
        assert capsys.readouterr().err == ""

    @pytest.mark.parametrize("name", ["sts", "sst/best.ckpt", "SST"])
    def test_an_unknown_name_is_one_sentence(self, name: str, here: Path) -> None:
        told = r"no run or checkpoint .* come with attnlight are babi_answers, sst"
        with pytest.raises(InputError, match=told):
            attnlight.load(name)

    def test_its_verdict_is_of_its_checkpoint(self) -> None:
        card = json.loads((self.FOLDER / "report/verdict.json").read_text(encoding="utf-8"))
        digest = hashlib.sha256((self.FOLDER / "best.ckpt").read_bytes()).hexdigest()
        assert digest.startswith(card["checkpoint"])
        assert "not measured" not in {line["answer"] for line in card["lines"]}

    def test_is_small_and_is_what_its_configuration_says(self) -> None:
        assert sum(path.stat().st_size for path in self.FOLDER.iterdir()) <= 3_000_000
        options = read_checkpoint(self.FOLDER / "best.ckpt")["hyper_parameters"]
        kept = yaml.safe_load((self.FOLDER / "fit.yaml").read_text())
        recipe = compose("fit", ["-c", str(CONFIGS / "experiments/sst_small.yaml")], KEYS).config
        assert kept["trainer"]["max_epochs"] == recipe["trainer"]["max_epochs"]
        for name, value in recipe["data"]["init_args"].items():
            used = kept["data"]["init_args"][name]
            assert value.items() <= used.items() if name == "train" else used == value
        for group, values in recipe["model"]["init_args"].items():
            for name, value in values.items():
                assert kept["model"]["init_args"][group][name] == options[group][name] == value

    def test_is_as_accurate_as_its_page_says(self, corpora: Path) -> None:
        table = pq.read_table(corpora / "sst5/data/test-00000-of-00001.parquet").to_pydict()
        rows = [
            (text, "positive" if label > 2 else "negative")
            for text, label in zip(table["text"], table["label"], strict=True)
            if label != 2
        ]
        model = attnlight.load("sst")
        right = 0
        for start in range(0, len(rows), 100):
            texts, labels = zip(*rows[start : start + 100], strict=True)
            with torch.no_grad():
                found = model.model(model.encode(texts)).logits.argmax(-1).tolist()
            right += sum(model.classes[k] == label for k, label in zip(found, labels, strict=True))
        page = (self.FOLDER / "README.md").read_text(encoding="utf-8")
        said = re.search(r"\| ([\d,]+): accuracy ([\d.]+)", page)
        assert said is not None
        assert said[1] == f"{len(rows):,}"
        assert f"{right / len(rows):.3f}" == said[2]

    def test_explains_at_once(self, tmp_path: Path) -> None:
        """Without the packages whose imports take longer than the explanation."""
        script = (
            "import sys\n"
            "from attnlight.__main__ import main\n"
            "assert main(['explain', 'sst', 'a gripping, funny film']) == 0\n"
            "heavy = {'lightning', 'torchmetrics', 'jsonargparse', 'pandas', 'datasets', 'scipy'}\n"
            "print(sorted(heavy & sys.modules.keys()))\n"
        )
        environment = os.environ | {"PYTHONPATH": str(CONFIGS.parents[1]), "OMP_NUM_THREADS": "1"}
        command = [sys.executable, "-c", script]
        printed = subprocess.check_output(command, cwd=tmp_path, env=environment, text=True)
        first, *_, heavy = printed.splitlines()
        assert first.startswith("Prediction: positive (positive 1.000")
        assert heavy == "[]"
