"""Every test on every model built by hand, and whether it tells F from D."""

from __future__ import annotations

import logging
import tempfile
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import lightning.pytorch as pl
import numpy as np
from numpy.typing import NDArray
from results_page.measures import auroc

from attnlight.callbacks import (
    AdversarialAttention,
    AttentionPermutation,
    DecisionFlip,
    ImportanceCorrelation,
    InterpretabilityTest,
    SingleErasure,
)
from attnlight.records import read_record
from attnlight.report.run import stored_records
from attnlight.report.summary import Line, summarise
from known_answers_page.models import MODELS, KnownAnswer, KnownTask, loader

EFFECT = 0.9  # least area under the ROC curve over texts by which a measure tells D from F


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
    lines: Mapping[str, Line]
    values: Mapping[str, NDArray[np.float64]]

    @property
    def effect(self) -> float:
        """Area under the ROC curve of D against the nearest F, all three from one side.

        It is the chance that D's value of a text is the larger one (of a measure that is smaller
        under D: the smaller one), ties half. 0.5 says nothing; NaN where a model has no value.
        """
        (off,) = self._defined("D")
        areas = [_area(off, values) for values in self._defined("F")]
        return max(min(areas), min(1 - area for area in areas))

    @property
    def separates(self) -> bool:
        """Whether the measure tells a text of D from one of any F, mostly."""
        return self.effect >= EFFECT

    def _defined(self, kind: str) -> list[NDArray[np.float64]]:
        of_kind = (self.values[known.name] for known in MODELS if known.kind == kind)
        return [values[~np.isnan(values)] for values in of_kind]


def _area(above: NDArray[np.float64], below: NDArray[np.float64]) -> float:
    """Chance that a value of the first is larger than one of the second; NaN without values."""
    if not (len(above) and len(below)):
        return float("nan")
    label = np.repeat([1, 0], [len(above), len(below)])
    return auroc(label, np.concatenate([above, below]))


def tests() -> list[InterpretabilityTest]:
    """All tests of a single model, by their defaults."""
    return [
        ImportanceCorrelation(figures=False),
        AttentionPermutation(figures=False),
        AdversarialAttention(figures=False),
        SingleErasure(figures=False),
        DecisionFlip(figures=False),
    ]


def measure_all(models: Sequence[KnownAnswer] = MODELS) -> list[Measured]:
    """Run the tests on the models and average what they measured."""
    found = {known.name: _measured(known) for known in models}
    names = list(found[models[0].name])
    return [
        Measured(
            test,
            measure,
            {name: of_model[test, measure][0] for name, of_model in found.items()},
            {name: of_model[test, measure][1] for name, of_model in found.items()},
        )
        for test, measure in names
    ]


def _measured(known: KnownAnswer) -> dict[tuple[str, str], tuple[Line, NDArray[np.float64]]]:
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
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
                callbacks=tests(),
            )
            trainer.test(KnownTask(known), loader(known), verbose=False)
        return {
            (record.test, line.measure): (line, columns[line.measure].astype(np.float64))
            for record in stored_records(Path(folder) / "records")
            for columns in [read_record(record.path).columns]
            for line in summarise(record, by_class=False).lines
        }
