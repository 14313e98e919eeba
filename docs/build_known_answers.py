"""Build docs/known_answers.md: every test on models whose answer is known.

    python docs/build_known_answers.py            run the tests and write the tables into the page
    python docs/build_known_answers.py --check    run the tests; fail where the page differs

The prose of the page is its own; what stands between `<!-- NAME: begin -->` and `<!-- NAME: end -->`
is written here.
"""

from __future__ import annotations

import argparse
import logging
import re
import sys
import tempfile
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import lightning.pytorch as pl
import numpy as np
from build_results import put
from known_models import MODELS, KnownAnswer, KnownTask, loader
from numpy.typing import NDArray
from results_page.measures import auroc
from results_page.tables import DASH, table

from attnlight import callbacks
from attnlight.records import read_record
from attnlight.report.figures import describe
from attnlight.statistics.bootstrap import MeanInterval, bootstrap_means

PAGE = Path(__file__).parent / "known_answers.md"
TESTS = ("adversarial_attention", "attention_permutation", "decision_flip")
TESTS = (*TESTS, "importance_correlation", "single_erasure")
EFFECT = 0.9  # least area under the ROC curve over texts by which a measure tells D from F
_NUMBER = re.compile(r"-?\d+\.\d{4}")
_ROUNDING = 5e-4


@dataclass(frozen=True)
class Measured:
    """One measure of one test on every model.

    Attributes:
        test: The test's name in snake case.
        measure: Its column.
        lines: Mean and interval by name of the model.
        values: The value of each instance by name of the model, NaN where undefined.
    """

    test: str
    measure: str
    lines: Mapping[str, MeanInterval]
    values: Mapping[str, NDArray[np.float64]]

    @property
    def effect(self) -> float:
        """Area under the ROC curve of D against the nearest F, all three from one side.

        It is the chance that D's value of a text is the larger one (of a measure that is smaller
        under D: the smaller one), ties half. 0.5 says nothing; NaN where a model has no value.
        """
        (off,), on = ([self.values[m.name] for m in MODELS if m.kind == kind] for kind in "DF")
        areas = []
        for faithful in on:
            both = np.concatenate([off, faithful])
            label, known = np.repeat([1, 0], [len(off), len(faithful)]), ~np.isnan(both)
            with np.errstate(invalid="ignore"):
                area = auroc(label[known], both[known], np.ones((1, known.sum()), dtype=int))
            areas.append(float(area[0]))
        return max(min(areas), min(1 - area for area in areas))

    @property
    def separates(self) -> bool:
        """Whether the measure tells a text of D from one of any F, mostly."""
        return self.effect >= EFFECT


def measure_all() -> list[Measured]:
    """Run all tests of a single model by their defaults on each, and average what they measured."""
    found = {known.name: _measured(known) for known in MODELS}
    return [
        Measured(
            *key,
            {name: of_model[key][0] for name, of_model in found.items()},
            {name: of_model[key][1] for name, of_model in found.items()},
        )
        for key in found[MODELS[0].name]
    ]


def _measured(
    known: KnownAnswer,
) -> dict[tuple[str, str], tuple[MeanInterval, NDArray[np.float64]]]:
    """Mean and values of each measure of each test."""
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    classes = ["".join(word.title() for word in test.split("_")) for test in TESTS]
    found = {}
    with tempfile.TemporaryDirectory(prefix="attnlight-known-") as folder:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            trainer = pl.Trainer(
                accelerator="cpu",
                devices=1,
                logger=False,
                inference_mode=False,
                enable_progress_bar=False,
                enable_model_summary=False,
                default_root_dir=folder,
                callbacks=[getattr(callbacks, name)(figures=False) for name in classes],
            )
            trainer.test(KnownTask(known), loader(known), verbose=False)
        for test in TESTS:
            record = read_record(Path(folder) / f"records/test/{test}.parquet")
            names = record.metadata["measures"]
            values = np.stack([record.columns[name].astype(np.float64) for name in names], axis=1)
            means = bootstrap_means(values, record.columns["index"])
            for name, mean, column in zip(names, means, values.T, strict=True):
                found[test, name] = (mean, column)
    return found


def measures_table(found: Sequence[Measured]) -> str:
    """Mean and interval of each measure on each model, and whether it tells F from D."""
    rows, before = [], ""
    for row in found:
        title = "" if row.test == before else describe(row.test).title
        cells = [_cell(row.lines[known.name]) for known in MODELS]
        told = "yes" if row.separates else "**no**"
        rows.append([title, f"`{row.measure}`", *cells, _number(row.effect), told])
        before = row.test
    head = ["test", "measure", *(known.name for known in MODELS), "AUROC", "tells F from D"]
    return table(head, rows, 2)


def verdict(found: Sequence[Measured]) -> str:
    """Which measures tell F from D and which do not, test by test."""
    lines = []
    for test in dict.fromkeys(row.test for row in found):
        words = []
        for told, label in ((True, "tells F from D by"), (False, "does not tell them apart by")):
            mine = [row for row in found if row.test == test and row.separates == told]
            if mine:
                words.append(f"{label}: {', '.join(f'`{row.measure}`' for row in mine)}")
        lines.append(f"* **{describe(test).title}** {'; '.join(words)}.\n")
    return "".join(lines)


def _cell(mean: MeanInterval) -> str:
    if not mean.defined:
        return DASH
    return f"{_number(mean.mean)} [{_number(mean.low)}, {_number(mean.high)}]"


def _number(value: float) -> str:
    return DASH if np.isnan(value) else f"{value + 0.0:.4f}".replace("-0.0000", "0.0000")


def agree(page: str, other: str) -> bool:
    """Whether two pages differ in nothing but the rounding of another processor."""
    if _NUMBER.sub("", page) != _NUMBER.sub("", other):
        return False
    pairs = zip(_NUMBER.findall(page), _NUMBER.findall(other), strict=True)
    return all(abs(float(left) - float(right)) <= _ROUNDING for left, right in pairs)


def main(argv: Sequence[str] | None = None) -> int:
    """Build or check the page; 1 where it differs from what the tests say."""
    parser = argparse.ArgumentParser(description="Build docs/known_answers.md.")
    parser.add_argument("--check", action="store_true", help="compare, write nothing")
    arguments = parser.parse_args(argv)
    found = measure_all()
    blocks = {"measures": measures_table(found), "verdict": verdict(found)}
    return put(PAGE, blocks, arguments.check, agree)


if __name__ == "__main__":
    sys.exit(main())
