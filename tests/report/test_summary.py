"""Means and intervals of records, and the tables that show them."""

import csv
import io
import re
from collections.abc import Mapping
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from attnlight.report.run import StoredRecord
from attnlight.report.summary import RecordSummary, summarise, to_texts
from attnlight.statistics.bootstrap import MeanInterval, bootstrap_means
from tests.report.fake import Rows, rows_of, write_record

Means = Mapping[tuple[str, int | None], MeanInterval]


def stored(path: Path) -> StoredRecord:
    return StoredRecord(path, "test", path.stem, None)


def undefined(rows: Rows) -> Rows:
    """The rows with some values of each kind undefined."""
    label = rows["label"].astype(np.float64)
    label[::5] = np.nan
    label[1::7] = -1
    entropy = rows["attention_entropy"].copy()
    entropy[::3] = np.nan
    return rows | {"label": label, "attention_entropy": entropy}


def summary(
    folder: Path, rows: Rows, measures: list[str], by_class: bool = True, **about: Any
) -> Means:
    path = write_record(folder / "predictions.parquet", rows, measures=measures, **about)
    return summarise(stored(path), by_class).means


class TestSummary:
    def test_means_and_counts_equal_a_naive_loop(self, tmp_path: Path) -> None:
        rows = undefined(rows_of("predictions", n=90, classes=3))
        means = summary(tmp_path, rows, ["attention_entropy"], excluded=[(999, 0)])
        assert list(means) == [*product(("accuracy", "attention_entropy"), (None, 0, 1, 2))]
        for (measure, predicted), found in means.items():
            values = []
            for r in (r for r in range(90) if predicted in (None, rows["prediction"][r])):
                if measure == "accuracy" and rows["label"][r] >= 0:
                    values.append(float(rows["label"][r] == rows["prediction"][r]))
                if measure != "accuracy" and not np.isnan(rows[measure][r]):
                    values.append(float(rows[measure][r]))
            assert found.defined == len(values) < 90
            assert found.mean == pytest.approx(sum(values) / len(values), rel=1e-12)
            assert found.low < found.mean < found.high

    def test_intervals_resample_texts_not_rows(self, tmp_path: Path) -> None:
        rows = rows_of("attention_permutation", n=80)
        rows["median_tvd"] = np.repeat(rows["median_tvd"][::4], 4)
        rows["index"], rows["position"] = np.repeat(np.arange(20), 4), np.arange(80) % 4
        (found,) = summary(tmp_path, rows, ["median_tvd"], by_class=False).values()
        (expected,) = bootstrap_means(rows["median_tvd"][:, None], rows["index"])
        assert tuple(found) == pytest.approx(tuple(expected))
        apart_rows = rows | {"index": np.arange(80), "position": np.zeros(80, dtype=np.int64)}
        (apart,) = summary(tmp_path, apart_rows, ["median_tvd"], by_class=False).values()
        assert found.high - found.low > 1.5 * (apart.high - apart.low)


class TestSummarise:
    def test_a_record_says_which_columns_are_measures(self, tmp_path: Path) -> None:
        rows = undefined(rows_of("predictions"))
        measures = ["attention_entropy"]
        path = write_record(tmp_path / "predictions.parquet", rows, measures=measures)
        found = summarise(stored(path))
        assert (found.metadata["rows"], found.metadata.get("partial")) == (60, None)
        assert {measure for measure, _ in found.means} == {"accuracy", "attention_entropy"}
        del rows["label"]  # otherwise all single numbers with a fraction are
        path = write_record(tmp_path / "predictions.parquet", rows)
        means = [measure for measure, _ in summarise(stored(path), by_class=False).means]
        assert means == ["max_attention", "attention_entropy"]

    def test_pieces_do_not_show(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        rows = rows_of("attention_permutation", classes=3)
        path = write_record(tmp_path / "x.parquet", rows, measures=["median_tvd"])
        whole = summarise(stored(path))
        monkeypatch.setattr("attnlight.records.reading.PIECE_ROWS", 7)
        pieces = summarise(stored(path))
        assert [predicted for _, predicted in pieces.means] == [None, 0, 1, 2]
        for key, found in whole.means.items():
            np.testing.assert_allclose(found, pieces.means[key])

    def test_a_record_without_rows(self, tmp_path: Path) -> None:
        rows = {name: values[:0] for name, values in rows_of("predictions").items()}
        path = write_record(tmp_path / "predictions.parquet", rows)
        means = summarise(stored(path)).means.values()
        assert [(found.defined, np.isnan(found.mean)) for found in means] == [(0, True)] * 3


class TestFormats:
    def part(self, *classes: str) -> RecordSummary:
        known = {None: (0.25, 1 / 3, 0.5, 1_234), 0: (np.nan, np.nan, np.nan, 0)}
        by_class = (known | {1: (0.5, 0.5, 0.5, 1)}).items()
        means = {("median_tvd", group): MeanInterval(*numbers) for group, numbers in by_class}
        record = StoredRecord(Path("x"), "test", "attention_permutation", None)
        return RecordSummary(record, {"rows": 9, "classes": classes, "partial": True}, means)

    def test_csv_keeps_every_digit(self) -> None:
        text = to_texts([self.part('a,"b"')])["csv"]
        first, second, third = csv.DictReader(io.StringIO(text))
        known = {"stage": "test", "test": "attention_permutation", "measure": "median_tvd"}
        known |= {"predicted_class": "", "mean": "0.25", "low": "0.3333333333333333"}
        assert first == known | {"high": "0.5", "n": "1234", "partial": "true"}
        names = ("predicted_class", "mean", "low", "n")
        assert [second[name] for name in names] == ['a,"b"', "", "", "0"]
        assert third["predicted_class"] == "class 1"

    def test_markdown_is_a_table_whatever_a_class_is_called(self) -> None:
        lines = to_texts([self.part("a|b\nc")])["md"].splitlines()
        cells = [[c.strip() for c in re.split(r"(?<!\\)\|", line)] for line in lines[2:]]
        named = ["", "test", "attention_permutation (partial)", "median_tvd"]
        assert cells[0] == [*named, "all", "0.250", "[0.333, 0.500]", "1,234", ""]
        assert (len(cells), cells[1][4]) == (3, r"a\|b c")
