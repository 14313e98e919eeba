"""Every test on every model built by hand, and whether it tells F from D."""

from __future__ import annotations

import logging
import tempfile
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import lightning.pytorch as pl

from attnlight.callbacks import (
    AdversarialAttention,
    AttentionPermutation,
    DecisionFlip,
    ImportanceCorrelation,
    InterpretabilityTest,
    SingleErasure,
)
from attnlight.report.runs import stored_records
from attnlight.report.tables import Line, summarise
from known_answers_page.models import MODELS, KnownAnswer, KnownTask, loader


@dataclass(frozen=True)
class Measured:
    """One measure of one test on every model.

    Attributes:
        test: The test's name in snake case.
        measure: Its column.
        lines: Mean and interval by name of the model.
    """

    test: str
    measure: str
    lines: Mapping[str, Line]

    @property
    def separates(self) -> bool:
        """Whether D's interval lies beyond those of all F, on one side."""
        ends = [self.lines[known.name] for known in MODELS if known.kind == "F"]
        (off,) = (self.lines[known.name] for known in MODELS if known.kind == "D")
        if any(line.defined == 0 for line in [*ends, off]):
            return False
        return off.low > max(line.high for line in ends) or off.high < min(x.low for x in ends)


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
    found = {known.name: _means(known) for known in models}
    names = list(found[models[0].name])
    return [
        Measured(test, measure, {name: lines[test, measure] for name, lines in found.items()})
        for test, measure in names
    ]


def _means(known: KnownAnswer) -> dict[tuple[str, str], Line]:
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
            (record.test, line.measure): line
            for record in stored_records(Path(folder) / "records")
            for line in summarise(record, by_class=False).lines
        }
