"""The commands as a user gives them, in one process, on the embedded corpus."""

import csv
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
import yaml

from attnlight.__main__ import main
from attnlight.batch import AttentionModel
from attnlight.records import read_record
from attnlight.tasks import AttentionClassifier

ROOT = Path(__file__).parents[2]
CONFIGS = ROOT / "configs"
SMALL = [
    "--data.train_size=300",
    "--data.validation_size=101",
    "--data.test_size=111",
    "--model.net.embedding_size=16",
    "--model.net.hidden_size=8",
    "--trainer.max_epochs=2",
    "--trainer.enable_progress_bar=false",
]
FIT = ["fit", "-c", f"{CONFIGS}/trainer.yaml", "-c", f"{CONFIGS}/experiments/planted_bilstm.yaml"]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["attnlight"])
    return tmp_path


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One small run with both tests attached on its validation epochs."""
    folder = tmp_path_factory.mktemp("fitted")
    tests = ["-c", f"{CONFIGS}/tests/cheap.yaml"]
    place = [f"--root={folder}", "--experiment=e", "--run=r"]
    assert main([*FIT, *tests, *SMALL, *place]) == 0
    return folder / "e" / "r"


def test_fit_leaves_a_whole_run(fitted: Path) -> None:
    assert {"best.ckpt", "last.ckpt", "fit.yaml", "status.json"} <= set(os.listdir(fitted))
    assert json.loads((fitted / "status.json").read_text())["state"] == "finished"
    for epoch in range(2):
        for test in ("predictions", "attention_permutation"):
            record = read_record(fitted / f"records/val/{test}-{epoch}.parquet")
            assert len(record.columns["index"]) == 101
    (metrics,) = fitted.glob("logs/version_*/metrics.csv")
    with metrics.open() as file:
        names = set(next(csv.reader(file)))
    assert {"val/accuracy", "val/attention_permutation/median_tvd_low", "train/loss"} <= names


def test_saved_configuration_is_whole_and_has_no_run_of_its_own(fitted: Path) -> None:
    config = yaml.safe_load((fitted / "fit.yaml").read_text())
    assert config["model"]["init_args"]["net"]["encoder"] == "bilstm"
    assert config["data"]["init_args"]["train_size"] == 300
    assert config["trainer"]["max_epochs"] == 2
    assert config["overwrite"] is False
    assert config["ckpt_path"] is None
    assert (config["experiment"], config["run"]) == ("e", "r")
    assert str(fitted) not in (fitted / "fit.yaml").read_text().replace(str(fitted.parents[1]), "")


def test_test_predict_report(fitted: Path, capsys: pytest.CaptureFixture[str]) -> None:
    common = ["-c", f"{fitted}/fit.yaml", f"--ckpt_path={fitted}/best.ckpt"]
    assert main(["test", *common, "--tests=predictions,attention_permutation"]) == 0
    assert "median_tvd" in capsys.readouterr().out
    record = read_record(fitted / "records/test/attention_permutation.parquet")
    assert len(record.columns["index"]) == 111
    assert record.metadata["checkpoint"] == "best.ckpt"
    for ending in ("svg", "pdf", "png"):
        assert (fitted / f"figures/test/attention_permutation.{ending}").stat().st_size > 1000
    assert main(["validate", *common, "-c", f"{CONFIGS}/tests/predictions.yaml"]) == 0
    assert len(read_record(fitted / "records/val/predictions.parquet").columns["index"]) == 101
    assert main(["predict", *common]) == 0
    assert main(["report", str(fitted)]) == 0
    assert "attention_permutation" in (fitted / "report/index.html").read_text()


def test_predictions_suffice_to_recompute_the_probabilities(fitted: Path) -> None:
    common = ["-c", f"{fitted}/fit.yaml", f"--ckpt_path={fitted}/best.ckpt"]
    assert main(["predict", *common]) == 0
    rows = pq.read_table(fitted / "predictions.parquet").to_pylist()
    assert len(rows) == 111
    task = AttentionClassifier.load_from_checkpoint(fitted / "best.ckpt")
    for row in rows[:20]:
        attention = np.array(row["attention"])  # (H, items)
        logits = np.einsum("hn,hnc->c", attention, np.array(row["item_logits"]))
        odds = np.exp(logits - logits.max())
        np.testing.assert_allclose(odds / odds.sum(), row["probabilities"], atol=1e-5)
        assert len(row["items"]) == attention.shape[1]
        text = " ".join(row["tokens"][start] for start, _ in row["items"])
        np.testing.assert_allclose(task.classify([text])[0], row["probabilities"], atol=1e-5)


def test_checkpoint_alone_reads_raw_text(fitted: Path) -> None:
    task = AttentionClassifier.load_from_checkpoint(fitted / "best.ckpt")
    assert isinstance(task.model, AttentionModel)
    probabilities = task.classify(["Unknown WORDS only", ""])
    assert probabilities.shape == (2, 2)
    torch.testing.assert_close(probabilities.sum(-1), torch.ones(2))


def test_same_command_is_the_same_folder_and_is_refused(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = [*FIT, *SMALL, "--trainer.max_epochs=1"]
    assert main(command) == 0
    (run,) = (here / "checkpoints/planted_bilstm").iterdir()
    assert run.name.startswith("seed0-")
    before = (run / "last.ckpt").stat().st_mtime_ns
    assert main(command) == 2
    assert "--overwrite" in capsys.readouterr().err
    assert (run / "last.ckpt").stat().st_mtime_ns == before
    assert main([*command, "--overwrite"]) == 0
    assert (run / "last.ckpt").stat().st_mtime_ns > before
    assert main([*command, "--seed_everything=1"]) == 0
    assert {path.name.split("-")[0] for path in run.parent.iterdir()} == {"seed0", "seed1"}


def test_later_test_configuration_replaces_the_earlier(fitted: Path) -> None:
    other = fitted / "other.yaml"
    other.write_text(
        "trainer:\n  callbacks+:\n    - class_path: attnlight.callbacks.AttentionPermutation\n"
        "      init_args: {draws: 3, max_instances: 5}\n"
    )
    common = ["-c", f"{fitted}/fit.yaml", f"--ckpt_path={fitted}/best.ckpt", "--overwrite"]
    earlier = ["-c", f"{CONFIGS}/tests/attention_permutation.yaml"]
    assert main(["test", *common, *earlier, "-c", str(other)]) == 0
    record = read_record(fitted / "records/test/attention_permutation.parquet")
    assert len(record.columns["index"]) == 5


def evaluated(run: Path, *tests: str, more: Sequence[str] = ()) -> int:
    """Exit status of a `test` with some files of configs/tests."""
    files = [word for name in tests for word in ("-c", f"{CONFIGS}/tests/{name}.yaml")]
    return main(["test", "-c", f"{run}/fit.yaml", *files, f"--ckpt_path={run}/best.ckpt", *more])


@pytest.fixture
def run(fitted: Path, tmp_path: Path) -> Path:
    """A copy of the small run without its records."""
    copy = tmp_path / "e" / "copy"
    shutil.copytree(fitted, copy, ignore=shutil.ignore_patterns("records", "figures", "test.yaml"))
    return copy


def test_fit_yaml_gives_test_no_tests(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert evaluated(run) == 0
    said = capsys.readouterr().out
    assert "No test is selected" in said
    assert "accuracy" in said
    assert not (run / "records").exists()


def test_test_leaves_other_records_alone(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command that failed: a second `test` measured again, and more poorly, what was there."""
    frontier = tmp_path / "frontier.yaml"
    frontier.write_text(
        "trainer:\n  callbacks+:\n    - class_path: attnlight.callbacks.AdversarialAttention\n"
        "      init_args: {frontier: true}\n"
    )
    assert evaluated(run, more=["-c", str(frontier)]) == 0
    record = run / "records/test/adversarial_attention.parquet"
    before = record.read_bytes()
    assert evaluated(run, "predictions") == 0
    assert record.read_bytes() == before
    assert "frontier_js" in read_record(record).columns
    # What repeats them is whole, so that the page's command is not refused.
    again = ["test", "-c", f"{run}/test.yaml", f"--ckpt_path={run}/best.ckpt"]
    assert main(again) == 0
    assert read_record(record).metadata["settings"]["frontier"] is True
    capsys.readouterr()
    own = "--trainer.callbacks+=attnlight.callbacks.AdversarialAttention"
    for more, told in (
        ([own], "frontier"),
        (["-c", str(frontier), "--trainer.limit_test_batches=1"], "limit_batches"),
    ):
        before = record.read_bytes()
        assert evaluated(run, more=more) == 2
        error = capsys.readouterr().err
        assert str(record) in error
        assert told in error
        assert "--overwrite" in error
        assert record.read_bytes() == before
    assert evaluated(run, more=[own, "--overwrite"]) == 0
    assert read_record(record).metadata["settings"]["frontier"] is False
    assert (run / "records/test/predictions.parquet").is_file()
    assert (run / "last.ckpt").is_file()


@pytest.mark.parametrize(
    "wrong", ["--model.net.hidden_size=9", "--data.num_classes=3", "--trainer.inference_mode=true"]
)
def test_a_refused_test_leaves_its_configuration_alone(run: Path, wrong: str) -> None:
    assert evaluated(run, "predictions") == 0
    before = (run / "test.yaml").read_text()
    assert evaluated(run, "importance_correlation", more=[wrong]) == 2
    assert (run / "test.yaml").read_text() == before


def test_fast_dev_run_leaves_the_configuration_alone(run: Path) -> None:
    assert evaluated(run, "predictions") == 0
    before = (run / "test.yaml").read_text()
    assert evaluated(run, "single_erasure", more=["--trainer.fast_dev_run=true"]) == 0
    assert (run / "test.yaml").read_text() == before


@pytest.mark.parametrize("verb", ["fit", "validate", "test", "predict"])
def test_bare_verb_prints_its_usage(
    verb: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([verb]) == 2
    what = "NAME" if verb == "fit" else "RUN"
    assert capsys.readouterr().err.startswith(f"usage: attnlight {verb} {what} ")
    assert not list(here.iterdir())


def process(*arguments: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=cwd,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("verb", ["--help", "report"])
def test_help_imports_no_torch(tmp_path: Path, verb: str) -> None:
    arguments = ["--help"] if verb == "--help" else ["report", "--help"]
    code = (
        "import sys; from attnlight.__main__ import main\n"
        f"try: main({arguments!r})\nexcept SystemExit: pass\n"
        "assert 'torch' not in sys.modules and 'lightning' not in sys.modules"
    )
    done = process("-c", code, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "usage: attnlight" in done.stdout


class TestBadInput:
    """One clear sentence, exit status 2, no traceback."""

    def refused(self, capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
        assert main(list(arguments)) == 2
        message = capsys.readouterr().err.strip().splitlines()[-1]
        assert message.startswith("attnlight: ")
        return message

    def test_unknown_verb(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert "'train'" in self.refused(capsys, "train")

    def test_resume_with_nothing_there(
        self, here: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert "last.ckpt" in self.refused(capsys, *FIT, *SMALL, "--ckpt_path", "last")

    def test_test_without_checkpoint(self, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert "--ckpt_path" in self.refused(capsys, "test", *FIT[1:], *SMALL)

    @pytest.mark.parametrize("content", [b"not a checkpoint", b""])
    def test_corrupt_checkpoint(
        self, here: Path, capsys: pytest.CaptureFixture[str], content: bytes
    ) -> None:
        (here / "broken.ckpt").write_bytes(content)
        message = self.refused(capsys, "test", *FIT[1:], *SMALL, "--ckpt_path=broken.ckpt")
        assert "broken.ckpt" in message

    def test_truncated_checkpoint(
        self, fitted: Path, here: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        whole = (fitted / "best.ckpt").read_bytes()
        (here / "half.ckpt").write_bytes(whole[: len(whole) // 2])
        message = self.refused(capsys, "test", "-c", f"{fitted}/fit.yaml", "--ckpt_path=half.ckpt")
        assert "half.ckpt" in message

    def test_foreign_checkpoint(self, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
        torch.save({"state_dict": {}, "pytorch-lightning_version": "2.6.6"}, "foreign.ckpt")
        message = self.refused(capsys, "test", *FIT[1:], *SMALL, "--ckpt_path=foreign.ckpt")
        assert "not a checkpoint of attnlight" in message

    def test_checkpoint_of_another_architecture(
        self, fitted: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        common = ["-c", f"{fitted}/fit.yaml", f"--ckpt_path={fitted}/best.ckpt"]
        assert "hidden_size" in self.refused(capsys, "test", *common, "--model.net.hidden_size=9")

    def test_checkpoint_of_other_classes(
        self, fitted: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        common = ["-c", f"{fitted}/fit.yaml", f"--ckpt_path={fitted}/best.ckpt"]
        assert "classes" in self.refused(capsys, "test", *common, "--data.num_classes=3")

    def test_training_goes_on_with_another_vocabulary(
        self, fitted: Path, here: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        more = ["--data.vocabulary=333", f"--ckpt_path={fitted}/last.ckpt"]
        assert "vocabulary" in self.refused(capsys, *FIT, *SMALL, *more)

    def test_run_folder_whose_parent_is_a_file(
        self, here: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        (here / "file").write_text("")
        message = self.refused(capsys, *FIT, *SMALL, "--root=file", "--experiment=e", "--run=r")
        assert "file/e/r" in message
