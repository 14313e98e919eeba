"""Cost by the length of texts, by classes and by texts, each a curve with its exponent."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import lightning.pytorch as pl
import numpy as np
import torch

from attnlight.callbacks import InterpretabilityTest, Predictions
from attnlight.datamodules import PlantedEvidence
from attnlight.models import FlatClassifier
from attnlight.probing.input_gradient import input_gradient
from attnlight.probing.leave_one_out import leave_one_out
from attnlight.tasks import AttentionClassifier
from tests.bases import trainer
from tests.benchmarks.measuring import Measured, timed
from tests.benchmarks.scene import WORDS, arguments, configured_tests, random_texts

LENGTHS, CLASSES, TEXTS = (20, 100, 500, 2000, 4000), (2, 10, 100, 1000), (1000, 10_000, 100_000)
_QUADRATIC = 500  # items beyond which leave-one-out takes seconds for each text


def curves(
    lengths: Sequence[int] = LENGTHS,
    classes: Sequence[int] = CLASSES,
    texts: Sequence[int] = TEXTS,
    size: int = 4,
) -> Measured:
    """The exponent of each curve, and the curve in words."""
    found = Measured({}, {})
    by_length: dict[str, dict[int, float]] = {}
    for length in lengths:
        for name, seconds in _of_classifier(2, length, size, length <= _QUADRATIC).items():
            by_length.setdefault(name, {})[length] = seconds
    by_classes: dict[str, dict[int, float]] = {}
    for count in classes:
        for name, seconds in _of_classifier(count, 20, size, False).items():
            by_classes.setdefault(name, {})[count] = seconds
    for kind, group in (("length", by_length), ("classes", by_classes)):
        for name, curve in group.items():
            found |= _curve(f"{name}_by_{kind}", curve, size)
    tested = {count: _test(count) for count in (texts[0], *texts)}  # the first once to warm up
    return found | _curve("test_by_texts", tested, 0)


def _curve(name: str, curve: Mapping[int, float], texts: int) -> Measured:
    """The slope of log seconds by log size, and milliseconds for each of `texts`, or 0: of that many."""
    slope = float(np.polyfit(np.log([*curve]), np.log([*curve.values()]), 1)[0])
    points = "; ".join(f"{x:,}: {1000 * y / (texts or x):,.2f} ms" for x, y in curve.items())
    return Measured({name: [slope]}, {name.replace("_", " "): points})


def _of_classifier(classes: int, tokens: int, texts: int, quadratic: bool) -> dict[str, float]:
    """Processor seconds of a forward pass and of what tests compute, of texts of equal length."""
    torch.manual_seed(0)
    model = FlatClassifier(WORDS, num_classes=classes).eval()
    batch, tests = random_texts(0, texts, tokens, WORDS), configured_tests("cheap")
    with torch.no_grad():
        output = model(batch)

    def measure(test: InterpretabilityTest) -> Callable[[], object]:
        return lambda: test.measure(batch, output, model)

    def measure_all() -> None:
        for test in tests:
            measure(test)()

    ways: dict[str, Callable[[], object]] = {"cheap": torch.no_grad()(measure_all)}
    ways["forward"] = torch.no_grad()(lambda: model(batch))
    ways["gradient"] = lambda: input_gradient(model, batch, output)
    if quadratic:
        ways["leave_one_out"] = lambda: leave_one_out(model, batch, output)
    return {name: min(timed(way) for _ in range(3)) for name, way in ways.items()}


def _test(texts: int) -> float:
    """Processor seconds of `Trainer.test` with records on so many planted texts of 20 words."""
    data = PlantedEvidence(60, 20, texts, min_tokens=20, max_tokens=20)
    data.prepare()
    pl.seed_everything(0, verbose=False)
    task = AttentionClassifier(data.spec, **arguments("models/bilstm_small"))
    with tempfile.TemporaryDirectory(prefix="attnlight-curves-") as folder:
        tester = trainer(Path(folder), Predictions(figures=False))
        return timed(lambda: tester.test(task, data, verbose=False))
