"""What the page says of the taggers."""

from __future__ import annotations

import csv
from itertools import groupby
from pathlib import Path

import numpy as np
import pytest
from seqeval.metrics import f1_score

from attnlight.records import read_metadata, read_record
from tests.kept import DOCS, page

chunking = page("chunking")
RECORDS = DOCS / "results"
RUNS = sorted(path for name in chunking.NAMES for path in (RECORDS / name).glob("seed*"))


def tags_of(run: Path) -> list[list[list[str]]]:
    """True and predicted tags, sentence by sentence."""
    path = run / "records/test/predictions.parquet"
    columns, names = read_record(path).columns, read_metadata(path)["classes"]
    rows = list(zip(*(columns[name].tolist() for name in chunking.COLUMNS), strict=True))
    groups = [list(group) for _, group in groupby(rows, key=lambda row: row[0])]
    return [[[names[row[part]] for row in group] for group in groups] for part in (2, 3)]


@pytest.mark.parametrize("run", RUNS, ids=lambda run: f"{run.parent.name}-{run.name}")
def test_f1_is_seqeval_s_and_what_the_run_logged(run: Path) -> None:
    there, found = tags_of(run)
    experiment = chunking.Experiment.read(RECORDS, run.parent.name)
    said = chunking.test_f1(experiment)[0][experiment.folders.index(run)]
    assert said == pytest.approx(f1_score(there, found), abs=1e-12)
    with (run / "logs/version_1/metrics.csv").open() as file:
        logged = [row["test/f1"] for row in csv.DictReader(file) if row["test/f1"]]
    assert said == pytest.approx(float(logged[-1]), abs=1e-6)
    assert len(there) == 2_012


def test_counts_by_sentence_by_hand() -> None:
    tags = ["O", "B-NP", "I-NP", "B-VP"]
    label = np.array([1, 2, 3, 0, 1, 1])  # [NP NP] VP O | NP NP
    prediction = np.array([1, 2, 0, 3, 1, 2])  # [NP NP] O VP | [NP NP]
    index = np.array([4, 4, 4, 4, 9, 9])
    right, either = chunking.chunks(index, label, prediction, tags)
    assert right.tolist() == [1, 0]
    assert either.tolist() == [2 + 2, 1 + 2]
