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
from functools import cached_property
from pathlib import Path

import lightning.pytorch as pl
import numpy as np
from build_results import put
from known_models import MODELS, TEXTS, KnownTask, loader
from numpy.typing import NDArray
from results_page.measures import auroc
from results_page.tables import DASH

from attnlight import callbacks
from attnlight.records import read_record
from attnlight.report.figures import describe
from attnlight.report.tables import markdown_table as table
from attnlight.statistics.bootstrap import MeanInterval, bootstrap_means

PAGE = Path(__file__).parent / "known_answers.md"
TESTS = ("AdversarialAttention", "AttentionPermutation", "DecisionFlip", "ImportanceCorrelation")
TESTS = (*TESTS, "SingleErasure")  # all of a single model
EFFECT = 0.9  # least area under the ROC curve over texts by which a measure tells D from F
_NUMBER = re.compile(r"-?\d+\.\d{4}")
_ROUNDING = 5e-4
_DIGITS = 5  # of a value: beyond them rounding would order texts that are alike
# Where all items are alike, erasing one changes nothing: what is measured of it is rounding.
_OF_ONE_ERASURE = re.compile(r"_loo$|^outdone_")


@dataclass(frozen=True)
class Measured:
    """One measure of one test on every model.

    Attributes:
        test: The test's name in snake case.
        measure: Its column.
        values: The value of each text by name of the model, NaN where undefined.
    """

    test: str
    measure: str
    values: Mapping[str, NDArray[np.float64]]

    @cached_property
    def lines(self) -> dict[str, MeanInterval]:
        """Mean and interval by name of the model."""
        texts = np.arange(TEXTS)
        return {m: bootstrap_means(v[:, None], texts)[0] for m, v in self.values.items()}

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
    """Run the tests by their defaults on each model."""
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    found: dict[tuple[str, str], dict[str, NDArray[np.float64]]] = {}
    for known in MODELS:
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
                    callbacks=[getattr(callbacks, name)(figures=False) for name in TESTS],
                )
                trainer.test(KnownTask(known), loader(known), verbose=False)
            for path in sorted((Path(folder) / "records/test").glob("*.parquet")):
                record = read_record(path)
                for measure in record.metadata["measures"]:
                    of_models = found.setdefault((path.stem, measure), {})
                    values = record.columns[measure].astype(np.float64)
                    exact = known.kind != "R" or not _OF_ONE_ERASURE.search(measure)
                    of_models[known.name] = values.round(_DIGITS) if exact else values * np.nan
    return [Measured(*key, values) for key, values in found.items()]


def measures_table(found: Sequence[Measured]) -> str:
    """Mean and interval of each measure on each model, and whether it tells F from D."""
    rows, before = [], ""
    for row in found:
        title = "" if row.test == before else describe(row.test).title
        means = [row.lines[known.name] for known in MODELS]
        cells = [
            f"{_number(m.mean)} [{_number(m.low)}, {_number(m.high)}]" if m.defined else DASH
            for m in means
        ]
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
