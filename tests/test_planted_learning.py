"""What can be learnt of planted corpora is learnt, and no more: docs/results.md in little."""

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from attnlight.__main__ import main
from attnlight.datamodules import PlantedEvidence
from attnlight.records import read_record
from tests.commands import CONFIGS, CPU, QUIET, experiment
from tests.datamodules.reading import negated

NARROW = [
    "--data.train_size=4000",
    "--model.net.embedding_size=64",
    "--model.net.hidden_size=64",
    "--model.optimizer.learning_rate=3e-3",
    "--trainer.max_epochs=4",
]
WORDS_ALONE = ["--data.train_size=8000", "--trainer.max_epochs=2"]


def right(name: str, *options: str) -> NDArray[np.bool_]:
    """Train an experiment, then say which test texts its best epoch classifies rightly, (n,)."""
    run = Path("checkpoints", name, "r")
    assert main(["fit", *experiment(name), *CPU, *QUIET, "--run=r", *options]) == 0
    tests = ["-c", f"{CONFIGS}/tests/predictions.yaml", *CPU, *QUIET]
    assert main(["test", "-c", f"{run}/fit.yaml", *tests, f"--ckpt_path={run}/best.ckpt"]) == 0
    columns = read_record(run / "records/test/predictions.parquet").columns
    found: NDArray[np.bool_] = columns["prediction"] == columns["label"]
    return found


@pytest.mark.slow
def test_words_alone_decide_where_nothing_is_negated(here: Path) -> None:
    assert right("planted_none", "--trainer.max_epochs=2").mean() >= 0.98


@pytest.mark.slow
def test_negation_takes_a_reader_of_word_order(here: Path) -> None:
    turned = negated(PlantedEvidence(negation=0.4), "test")
    assert 0.3 < turned.mean() < 0.5
    assert right("planted_negation_bilstm", *NARROW).mean() >= 0.95
    words_alone = right("planted_negation_none", *WORDS_ALONE)
    assert words_alone[turned].mean() <= 0.6
    assert words_alone[~turned].mean() >= 0.8  # it did learn what words say by themselves
