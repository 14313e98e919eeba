"""The commands as a user gives them, in one process, on the embedded corpus."""

import csv
import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
import yaml

from attnlight.__main__ import main
from attnlight.batch import AttentionModel, AttentionOutput
from attnlight.records import read_record
from attnlight.tasks import AttentionClassifier
from tests.commands import Printed, Refused, attached, content, experiment, without_figures
from tests.outside import TwoHeads

SMALL = ["--data.train_size=300", "--data.validation_size=101", "--data.test_size=111"]
SMALL += ["--model.net.embedding_size=16", "--model.net.hidden_size=8"]
SMALL += ["--trainer.max_epochs=2", "--trainer.enable_progress_bar=false"]
FIT = ["fit", *experiment("planted_bilstm")]


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One small run with both tests attached on its validation epochs."""
    folder = tmp_path_factory.mktemp("fitted")
    tests = without_figures(folder / "tests.yaml", "predictions", "attention_permutation")
    place = [f"--root={folder}", "--experiment=e", "--run=r"]
    assert main([*FIT, *tests, *SMALL, *place]) == 0
    return folder / "e" / "r"


def test_fit_leaves_a_whole_run(fitted: Path) -> None:
    assert {"best.ckpt", "last.ckpt", "fit.yaml", "status.json"} <= content(fitted).keys()
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
    expected = {"overwrite": False, "ckpt_path": None, "experiment": "e", "run": "r"}
    assert expected.items() <= config.items()
    assert str(fitted) not in (fitted / "fit.yaml").read_text().replace(str(fitted.parents[1]), "")


class OwnNetwork(TwoHeads):
    """A network of the user's own, whose weights sum to `total`."""

    def __init__(self, vocab_size: int, num_classes: int, total: float) -> None:
        super().__init__(affine=True, classes=num_classes)
        self.table, self.total = torch.nn.Embedding(vocab_size, 8, padding_idx=0), total

    def forward(self, *given: Any, **named: Any) -> AttentionOutput:
        output = super().forward(*given, **named)
        return dataclasses.replace(output, weights=self.total * output.weights)


@pytest.mark.parametrize("total", [1.0, 1.1])
def test_promises_that_a_network_of_the_users_own_breaks_are_said(
    here: Path, capsys: pytest.CaptureFixture[str], total: float
) -> None:
    net = f"--model.net={{class_path: {__name__}.OwnNetwork, init_args: {{total: {total}}}}}"
    options = [
        "--data.train_size=60",
        "--trainer.max_epochs=1",
        "--trainer.enable_progress_bar=false",
    ]
    assert main(["fit", net, *options, "--experiment=e", "--run=r"]) == 0
    told = "OwnNetwork breaks a promise that all tests rely on: weights: "
    assert (told in capsys.readouterr().err) == (total != 1)
    assert main(["test", str(here / "checkpoints/e/r")]) == 0
    assert (told in capsys.readouterr().err) == (total != 1)


@pytest.mark.usefixtures("pictures")
def test_figures_are_of_three_kinds(fitted: Path) -> None:
    assert main(["test", str(fitted), *attached("attention_permutation"), "--overwrite"]) == 0
    for ending in ("svg", "pdf", "png"):
        assert (fitted / f"figures/test/attention_permutation.{ending}").stat().st_size > 1000


def test_test_validate_report(fitted: Path, printed: Printed) -> None:
    tests = attached("predictions", "attention_permutation")
    said = printed("test", str(fitted), *tests, "--overwrite")
    assert "Shuffling attention moves the prediction by" in said
    assert said.splitlines()[-1] == str(fitted)
    record = read_record(fitted / "records/test/attention_permutation.parquet")
    assert len(record.columns["index"]) == 111
    assert record.metadata["checkpoint"] == "best.ckpt"
    said = printed("validate", str(fitted), *without_figures(fitted / "v.yaml", "predictions"))
    assert "of the predictions equal the label" in said
    assert "May the attention" not in said
    assert max(len(line) for line in said.splitlines() if str(fitted) not in line) <= 80
    assert len(said.splitlines()) < 10
    assert len(read_record(fitted / "records/val/predictions.parquet").columns["index"]) == 101
    assert main(["report", str(fitted)]) == 0
    assert "attention_permutation" in (fitted / "report/index.html").read_text()


def test_predictions_suffice_to_recompute_the_probabilities(fitted: Path) -> None:
    assert main(["predict", str(fitted)]) == 0
    rows = pq.read_table(fitted / "predictions.parquet").to_pylist()
    assert len(rows) == 111
    task = AttentionClassifier.load_from_checkpoint(fitted / "best.ckpt")
    assert isinstance(task.model, AttentionModel)
    for row in rows[:20]:
        attention = np.array(row["attention"])  # (H, items)
        logits = np.einsum("hn,hnc->c", attention, np.array(row["item_logits"]))
        odds = np.exp(logits - logits.max())
        np.testing.assert_allclose(odds / odds.sum(), row["probabilities"], atol=1e-5)
        assert len(row["items"]) == attention.shape[1]
        text = " ".join(row["tokens"][start] for start, _ in row["items"])
        np.testing.assert_allclose(task.classify([text])[0], row["probabilities"], atol=1e-5)
    probabilities = task.classify(["Unknown WORDS only", ""])
    torch.testing.assert_close(probabilities.sum(-1), torch.ones(2))


def test_same_command_is_the_same_folder_and_is_refused(here: Path, refused: Refused) -> None:
    command = [*FIT, *SMALL, "--trainer.max_epochs=1"]
    assert main(command) == 0
    (run,) = (here / "checkpoints/planted_bilstm").iterdir()
    assert run.name.startswith("seed0-")
    before = (run / "last.ckpt").stat().st_mtime_ns
    refused(*command, names=["--overwrite"])
    assert (run / "last.ckpt").stat().st_mtime_ns == before
    assert main([*command, "--overwrite"]) == 0
    assert (run / "last.ckpt").stat().st_mtime_ns > before
    assert main([*command, "--seed_everything=1"]) == 0
    assert {path.name.split("-")[0] for path in run.parent.iterdir()} == {"seed0", "seed1"}


def test_later_test_configuration_replaces_the_earlier(fitted: Path) -> None:
    own = "--trainer.callbacks+=[{class_path: AttentionPermutation, init_args: {draws: 3, "
    own += "max_instances: 5, figures: false}}]"
    earlier = attached("attention_permutation")
    assert main(["test", str(fitted), *earlier, "--overwrite", own]) == 0
    record = read_record(fitted / "records/test/attention_permutation.parquet")
    assert len(record.columns["index"]) == 5


@pytest.fixture
def run(fitted: Path, tmp_path: Path) -> Path:
    """A copy of the small run without its records."""
    copy = tmp_path / "e" / "copy"
    shutil.copytree(fitted, copy, ignore=shutil.ignore_patterns("records", "figures", "test.yaml"))
    return copy


def test_fit_yaml_gives_test_no_tests(run: Path, printed: Printed) -> None:
    said = printed("test", str(run))
    assert "No test is selected" in said
    assert "unfinished" not in said
    assert "attnlight report" not in said
    assert "accuracy" in said
    assert not (run / "records").exists()


def test_a_run_that_was_killed_is_said_to_be_unfinished(run: Path, printed: Printed) -> None:
    (run / "status.json").unlink()
    assert "is unfinished: what follows is of its epochs so far" in printed("test", str(run))


@pytest.mark.slow
def test_test_leaves_other_records_alone(run: Path, tmp_path: Path, refused: Refused) -> None:
    """A second `test` does not measure again, more poorly, what is there."""
    frontier = tmp_path / "frontier.yaml"
    frontier.write_text(
        "trainer:\n  callbacks+:\n    - class_path: attnlight.callbacks.AdversarialAttention\n"
        "      init_args: {frontier: true, figures: false}\n"
    )
    assert main(["test", str(run), "-c", str(frontier)]) == 0
    record = run / "records/test/adversarial_attention.parquet"
    before = record.read_bytes()
    assert main(["test", str(run), *without_figures(run / "p.yaml", "predictions")]) == 0
    assert record.read_bytes() == before
    assert "frontier_js" in read_record(record).columns
    # What repeats them is whole, so that the page's command is not refused.
    again = ["test", "-c", f"{run}/test.yaml", f"--ckpt_path={run}/best.ckpt"]
    assert main(again) == 0
    assert read_record(record).metadata["settings"]["frontier"] is True
    own = "--trainer.callbacks+={class_path: AdversarialAttention, init_args: {figures: false}}"
    for more, told in (
        ([own], "frontier"),
        (["-c", str(frontier), "--trainer.limit_test_batches=1"], "limit_batches"),
    ):
        names = (str(record), told, "--overwrite")
        refused("test", str(run), *more, names=names, leaving=record.parent)
    assert main(["test", str(run), own, "--overwrite"]) == 0
    assert read_record(record).metadata["settings"]["frontier"] is False
    assert (run / "records/test/predictions.parquet").is_file()
    assert (run / "last.ckpt").is_file()


@pytest.mark.parametrize(
    ("option", "status"),
    [
        ("--model.net.hidden_size=9", 2),
        ("--data.num_classes=3", 2),
        ("--trainer.inference_mode=true", 2),
        ("--trainer.fast_dev_run=true", 0),
    ],
)
def test_what_leaves_the_configuration_alone(run: Path, option: str, status: int) -> None:
    (run / "test.yaml").write_text("mine")
    assert main(["test", str(run), "--tests=importance_correlation", option]) == status
    assert (run / "test.yaml").read_text() == "mine"


@pytest.mark.parametrize("verb", ["fit", "validate", "test", "predict"])
def test_bare_verb_prints_its_usage(
    verb: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([verb]) == 2
    what = "NAME" if verb == "fit" else "RUN"
    assert capsys.readouterr().err.startswith(f"usage: attnlight {verb} {what} ")
    assert not list(here.iterdir())
