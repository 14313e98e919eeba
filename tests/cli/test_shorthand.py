"""Short command lines are the long ones: the same arguments, run folder and ranks."""

import json
import sys
from pathlib import Path

import pytest

import attnlight.__main__ as program
from attnlight.__main__ import main
from attnlight.cli.shorthand import expand
from attnlight.storage.shipped import CONFIGS
from tests.commands import CPU, QUIET, TWO, Refused, attnlight, attnlight_here

SST = f"--config={CONFIGS}/experiments/sst_bilstm.yaml"
CHEAP, ALL = (f"--config={CONFIGS}/tests/{name}.yaml" for name in ("cheap", "all"))
IMDB, MODEL = f"--data={CONFIGS}/data/imdb.yaml", f"--model={CONFIGS}/models/bilstm_additive.yaml"
LONG = [f"-c={CONFIGS}/{name}.yaml" for name in ("experiments/planted_bilstm", "tests/cheap")]
SMALL = ["--data.train_size=64", "--data.validation_size=16", "--data.test_size=16"]
SMALL += ["--trainer.max_epochs=1", "--trainer.logger=false", *QUIET]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run that a short command line trained."""
    folder = tmp_path_factory.mktemp("short")
    attnlight_here("fit", "planted_bilstm", "--tests", "cheap", *SMALL, *CPU, cwd=folder)
    (written,) = folder.glob("checkpoints/planted_bilstm/*/fit.yaml")
    return written.parent


class TestFit:
    @pytest.mark.parametrize(
        ("short", "long"),
        [
            ("sst_bilstm", [SST]),
            ("experiments/sst_bilstm", [SST]),
            ("--config sst_bilstm", [SST]),
            ("-c sst_bilstm -c tests/cheap", [SST, CHEAP]),
            ("--tests cheap sst_bilstm", [SST, CHEAP]),
            ("--tests=cheap,all sst_bilstm", [SST, CHEAP, ALL]),
            ("--data imdb --model bilstm_additive", [IMDB, MODEL]),
            ("--run r sst_bilstm --data.seed 1", [SST, "--run=r", "--data.seed=1"]),
            ("--overwrite sst_bilstm", [SST, "--overwrite"]),
            ("--model.net.size -1 sst_bilstm", [SST, "--model.net.size=-1"]),
            ("--overwrit --run r", ["--overwrit", "--run=r"]),
            ("-c mine.yaml --data ../imdb.yaml", ["--config=mine.yaml", "--data=../imdb.yaml"]),
            ("mine.yaml -c /dev/fd/63", ["--config=mine.yaml", "--config=/dev/fd/63"]),
            ("--model ChunkTagger --data my.Data", ["--model=ChunkTagger", "--data=my.Data"]),
            ("--data {path: imdb}", None),
        ],
    )
    def test_expands(self, short: str, long: list[str] | None) -> None:
        words = short.split(maxsplit=1 if long is None else -1)
        assert expand(["fit", *words]) == ["fit", *(long or ["--data={path: imdb}"])]

    def test_a_long_command_line_stays(self) -> None:
        long = expand(["fit", "sst_bilstm", "--tests", "cheap", "--run", "r", "--data", "imdb"])
        assert expand(long) == long

    def test_a_model_splits_the_texts_that_it_is_trained_on(self, here: Path) -> None:
        (here / "films").mkdir()
        (here / "films/config.json").touch()
        for name, path in (("films", str(here / "films")), ("some/films", "some/films")):
            found = expand(["fit", "--model", name, "--data", "imdb"])
            assert found[2:] == [f"--model.net.path={path}", IMDB, f"--data.tokenizer={path}"]
            own = ["--data.tokenizer=other"]
            assert expand(["fit", "--model", name, *own])[-2:] == [f"--model.net.path={path}", *own]
            assert expand(["test", "--model", name]) == expand(["test", name])
            assert expand(["test", name])[2:] == [f"--model.net.path={path}", "--experiment=films"]
        assert expand(["fit", "--model=some/films.yaml"]) == ["fit", "--model=some/films.yaml"]

    def test_a_file_of_that_path_comes_first(self, here: Path) -> None:
        (here / "imdb").mkdir()
        assert expand(["fit", "--data", "imdb"]) == ["fit", "--data=./imdb"]
        (here / "sst_bilstm").touch()
        assert expand(["fit", "sst_bilstm"]) == ["fit", "--config=./sst_bilstm"]

    @pytest.mark.parametrize(
        ("arguments", "sentence"),
        [
            ("fit sst_bilstn", "did you mean 'sst_bilstm'?"),
            ("fit SST_bilstm", "did you mean 'sst_bilstm'?"),
            ("fit -c cheap", "did you mean 'tests/cheap'?"),
            ("fit sst_bilstm --tests=all,chep", "did you mean 'cheap'?"),
            ("fit --data imbd", "no file imbd and no shipped configuration of that name"),
            ("fit --tests", "--tests needs a value"),
            ("test --heads", "--heads needs a value"),
            ("fit -c --overwrite", "-c needs a value"),
            ("fit one two", "fit takes one name or folder, not 2: one, two"),
            ("fit films", "films is a model: attnlight fit --model films --data FILE trains it"),
            ("fit --model models/bilstm-additive", "did you mean 'models/bilstm_additive'?"),
            ("test sst_bilstm", "no trained run sst_bilstm: there is no such folder"),
        ],
    )
    def test_refuses(self, arguments: str, sentence: str, here: Path, refused: Refused) -> None:
        (here / "films").mkdir()
        (here / "films/config.json").touch()
        refused(*arguments.split(), names=[sentence], alone=True)

    def test_has_the_folder_of_the_long_command_line(
        self, run: Path, monkeypatch: pytest.MonkeyPatch, refused: Refused
    ) -> None:
        monkeypatch.chdir(run.parents[2])
        folder = run.relative_to(run.parents[2])
        refused("fit", *LONG, *SMALL, *CPU, names=[f"{folder} already contains this run, finished"])


class TestEvaluation:
    @pytest.mark.parametrize("slash", ["", "/"])
    def test_expands(self, run: Path, slash: str) -> None:
        config, best = f"--config={run}/fit.yaml", f"--ckpt_path={run}/best.ckpt"
        for verb in ("validate", "test", "predict"):
            assert expand([verb, f"{run}{slash}"]) == [verb, config, best]
        options = ["--tests", "all", "--trainer.devices", "1"]
        long = ["test", config, best, ALL, "--trainer.devices=1"]
        assert expand(["test", f"{run}{slash}", *options]) == long
        assert expand(["test", *options, f"{run}{slash}"]) == long

    @pytest.mark.parametrize(("verb", "option"), [("validate", "learn"), ("test", "heads")])
    def test_heads_are_learned_by_validate_and_read_by_test(self, verb: str, option: str) -> None:
        *_, added = expand([verb, "--data", "imdb", "--heads", "heads.json"])
        name, _, value = added.partition("=")
        (test,) = json.loads(value)
        assert name == "--trainer.callbacks+"
        assert test["class_path"] == "attnlight.callbacks.ContextAblation"
        assert test["init_args"] == {"max_instances": 500, option: "heads.json"}
        assert expand(["predict", "--heads", "x"]) == ["predict", "--heads=x"]

    @pytest.mark.parametrize(
        ("given", "chosen"), [("best", "best.ckpt"), ("last", "last.ckpt"), ("x.ckpt", None)]
    )
    def test_a_checkpoint_of_the_run(self, run: Path, given: str, chosen: str | None) -> None:
        long = expand(["test", str(run), "--ckpt_path", given])
        assert long[-1] == f"--ckpt_path={run / chosen if chosen else given}"

    def test_a_run_without_its_checkpoint_and_a_mistyped_one(
        self, tmp_path: Path, run: Path, refused: Refused
    ) -> None:
        (tmp_path / "fit.yaml").write_bytes((run / "fit.yaml").read_bytes())
        refused("test", str(tmp_path), names=[f"there is no checkpoint {tmp_path}/best.ckpt"])
        refused("test", f"{run}x/", names=[f"did you mean {run.name!r}?"])


def test_the_arguments_of_the_process_become_long(monkeypatch: pytest.MonkeyPatch) -> None:
    class Cli:
        @staticmethod
        def run(arguments: object) -> None:
            assert arguments is None  # those of the process

    monkeypatch.setattr(program, "import_module", lambda _: Cli)
    monkeypatch.setattr(sys, "argv", ["attnlight", "fit", "sst_bilstm", "--tests", "cheap"])
    assert main() == 0
    assert sys.argv == ["attnlight", "fit", SST, CHEAP]


RECORDER = """\
import json, sys
from lightning.pytorch import Callback

class Recorder(Callback):
    def setup(self, trainer, pl_module, stage):
        content = {"arguments": sys.argv[1:], "folder": trainer.default_root_dir}
        with open(f"rank{trainer.global_rank}.json", "w") as file:
            json.dump(content, file)
"""


@pytest.mark.ddp
@pytest.mark.slow
def test_ranks_are_started_with_the_long_command_line(tmp_path: Path) -> None:
    (tmp_path / "recorder.py").write_text(RECORDER)
    options = ["--trainer.callbacks+=recorder.Recorder", *SMALL, *TWO]
    attnlight("fit", "planted_bilstm", "--tests", "cheap", *options, cwd=tmp_path)
    first, second = (json.loads((tmp_path / f"rank{n}.json").read_text()) for n in range(2))
    assert first == second
    assert first["arguments"][:3] == ["fit", SST.replace("sst", "planted"), CHEAP]
    assert (tmp_path / first["folder"] / "best.ckpt").is_file()
    told = attnlight("fit", *LONG, *options, cwd=tmp_path, status=2)
    assert f"{first['folder']} already contains this run, finished" in told
