"""`fit` and `test` of variants as a user gives them."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml

from attnlight.__main__ import main
from attnlight.cli.composition import compose
from attnlight.cli.shorthand import expand
from attnlight.datamodules import PlantedEvidence
from attnlight.errors import InputError
from attnlight.records import read_metadata, read_record
from attnlight.reference import frozen_base, read_base
from attnlight.storage.checkpoint_file import read_checkpoint
from tests.bases import InSentences, save_base
from tests.commands import CONFIGS, CPU, QUIET, attnlight_on, experiment
from tests.tasks.conftest import TOKENS, Scene
from tests.tasks.tagged import arguments, written

SIZES = {"train_size": 60, "validation_size": 30, "test_size": 31}


class TestCommands:
    sizes = tuple(f"--data.{name}={size}" for name, size in SIZES.items())
    divergence = ("-c", f"{CONFIGS}/tests/base_divergence.yaml")

    @pytest.fixture
    def base(self, here: Path) -> Path:
        return save_base(here / "base.ckpt", PlantedEvidence(**SIZES))  # type: ignore[arg-type]

    def fit(self, name: str, *options: str) -> int:
        short = ["--trainer.max_epochs=2", "--trainer.logger=false", "--run=r", *CPU, *QUIET]
        return main(["fit", *experiment(name), *self.sizes, *short, *options])

    def fit_tagger(self, scene: Scene, base: Path, root: Path) -> list[str]:
        """A short `fit` of a tagger's adversary with its divergence from the base."""
        model = f"--model={CONFIGS}/models/tagger_adversarial.yaml"
        start = ["-c", f"{CONFIGS}/trainer.yaml", model, *self.divergence]
        given = [*arguments(scene.corpus), f"--model.base={base}"]  # type: ignore[arg-type]
        short = ["--trainer.max_epochs=2", "--trainer.logger=false", *QUIET]
        return [*start, *given, *short, f"--root={root}", "--experiment=e", "--run=r"]

    @pytest.mark.parametrize("kind", [pytest.param("texts", marks=pytest.mark.slow), "tokens"])
    def test_a_run_without_its_base(self, kind: str, here: Path, scenes: dict[str, Scene]) -> None:
        if kind == "texts":
            base = save_base(here / "base.ckpt", texts := PlantedEvidence(**SIZES))
            name, count = "planted_adversarial", len(texts.dataset("test"))
            options = [*experiment(name), *self.sizes, *self.divergence, f"--model.base={base}"]
            options += ["--trainer.max_epochs=2", "--trainer.logger=false", "--run=r", *QUIET]
            run = here / "checkpoints" / name / "r"
        else:
            base = scenes["tokens"].base(here, optimizer={"betas": (0.9, 0.98)})
            options, run = self.fit_tagger(scenes["tokens"], base, here), here / "e" / "r"
            count = int(scenes["tokens"].corpus.dataset("test").lengths.sum())
        assert main(["fit", *options, *CPU]) == 0
        said = yaml.safe_load((run / "fit.yaml").read_text())["model"]["init_args"]
        assert json.loads(said["inherited"])["base"] == asdict(read_base(base).identity)
        command = ["test", "-c", f"{run}/fit.yaml", *self.divergence, *CPU, *QUIET]
        command += [f"--ckpt_path={run}/best.ckpt"]
        assert main(command) == 0  # evaluates the base on the test split
        base.unlink()
        assert main(command) == 0
        record = read_record(run / "records/test/base_divergence.parquet").columns
        assert len(record["index"]) == count
        assert kind == "texts" or len(record["attention_js_heads"][0]) == 2
        for epoch in range(2):
            assert (run / f"records/val/base_divergence-{epoch}.parquet").exists()

    @pytest.mark.parametrize(
        ("scene", "file", "kind"),
        [
            ("two", "texts.csv", "Text"),
            ("sentences", "texts.csv", "Text"),
            ("pairs", "texts.csv", "Pair"),
            ("symbols", "texts.csv", "Translation"),
            ("tokens", "texts.csv", "Chunking"),
            ("tokens", "tags.conll", "Chunking"),
        ],
        indirect=["scene"],
    )
    def test_a_file_is_read_as_the_base_reads_it(
        self, scene: Scene, file: str, kind: str, tmp_path: Path
    ) -> None:
        base, read = scene.base(tmp_path), {"path": file}
        if isinstance(scene.corpus.dataset("train"), InSentences):
            read |= {"sentences": "nested", "boundary_tokens": False}
        for model in ("uniform", "seed", "guided", "adversarial"):
            words = expand(["fit", "--data", file, "--model.base", str(base), "--model", model])
            found = compose("fit", words[1:], ()).config["data"]
            assert found == {
                "class_path": f"attnlight.datamodules.{kind}DataModule",
                "init_args": read,
            }
        if kind != "Chunking":
            with pytest.raises(
                InputError, match=r"tags\.conll has a tag for each .*`--model\.base RUN`"
            ):
                compose("fit", [*words[2:], "--data=tags.conll"], ())

    def test_a_file_of_tags(self, here: Path) -> None:
        """A tagger and its variants, by their short names."""
        (here / "tags.conll").write_text((written(here / "chunks") / "train.txt").read_text())
        short = [
            "--data=tags.conll",
            "--trainer.max_epochs=1",
            "--trainer.logger=false",
            *CPU,
            *QUIET,
        ]
        net = ["--model.net.hidden_size=8", "--model.net.embedding_size=8"]
        assert main(["fit", "--model=tagger_bilstm", *net, *short, "--run=base"]) == 0
        base = "--model.base=checkpoints/tags/base"
        for name, option in (
            ("seed", "--seed_everything=1"),
            ("adversarial", "--model.released=true"),
        ):
            assert main(["fit", f"--model={name}", base, option, *short, f"--run={name}"]) == 0
            options = read_checkpoint(Path(f"checkpoints/tags/{name}/best.ckpt"))[
                "hyper_parameters"
            ]
            assert options["problem"] == "tagging"
        assert options["prediction_term"] == "nll"

    @pytest.mark.parametrize(
        ("name", "monitor"), [("adversarial", "val/loss"), ("uniform", "val/accuracy")]
    )
    def test_the_task_says_which_epoch_is_best(
        self, base: Path, name: str, monitor: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        read: list[str] = []
        monkeypatch.setattr(frozen_base, "read_base", lambda p: read.append(str(p)) or read_base(p))  # type: ignore[func-returns-value]
        assert self.fit(f"planted_{name}", f"--model.base={base}") == 0
        saved = torch.load(f"checkpoints/planted_{name}/r/last.ckpt", weights_only=True)
        best = [state for key, state in saved["callbacks"].items() if "ModelCheckpoint" in key]
        assert monitor in [state["monitor"] for state in best]
        assert len(read) == 1 or name == "adversarial"  # whose steps read the base's outputs

    @pytest.mark.ddp
    @pytest.mark.slow
    @TOKENS
    def test_two_devices(self, scene: Scene, tmp_path: Path) -> None:
        """Plain ddp; one process evaluates the base; both match heads alike."""
        base = scene.base(tmp_path)
        cache = str(tmp_path / "cache")
        place: Any = {"cwd": tmp_path, "ATTNLIGHT_CACHE": cache, "ATTNLIGHT_DATA": ""}
        said = attnlight_on(2, "fit", *self.fit_tagger(scene, base, tmp_path), **place)
        assert said.count("validation texts, once") == said.count("train texts, once") == 1
        found = []
        for devices in (2, 1):
            run, logs = tmp_path / "e" / "r", tmp_path / f"on_{devices}"
            best = f"--ckpt_path={run}/best.ckpt"
            logger = ["--trainer.logger=CSVLogger", f"--trainer.logger.save_dir={logs}"]
            given = ["-c", f"{run}/fit.yaml", *self.divergence, best, *QUIET, *logger]
            attnlight_on(devices, "test", *given, **place)
            (metrics,) = logs.rglob("metrics.csv")
            header, row = metrics.read_text().split()[:2]
            logged = dict(zip(header.split(","), row.split(","), strict=True))
            scores = [logged[f"test/{name}"] for name in ("f1", "precision", "recall")]
            path = run / "records/test/base_divergence.parquet"
            found.append((read_record(path).columns, read_metadata(path)["heads"], scores))
        (two, *said_of_two), (one, *said_of_one) = found
        assert said_of_two == said_of_one
        assert two["index"].tolist() == one["index"].tolist()
        for name, values in one.items():
            np.testing.assert_allclose(values, two[name], atol=5e-6, err_msg=name)
