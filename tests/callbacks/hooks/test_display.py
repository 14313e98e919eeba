"""A picture is drawn for who takes it: on validation epochs the loggers alone."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from lightning.pytorch.trainer.states import TrainerFn
from matplotlib.figure import Figure

from attnlight.callbacks.hooks.display import show_figure
from attnlight.callbacks.predictions import Predictions
from tests.callbacks.test_base import run_test


class Logger:
    """What W&B's logger has of one: images, and a run that may be disabled."""

    def __init__(self, disabled: bool) -> None:
        self.experiment = SimpleNamespace(disabled=disabled)
        self.images: list[tuple[str, Any, int]] = []

    def log_image(self, key: str, images: list[Any], step: int) -> None:
        self.images.append((key, images[0], step))


@pytest.fixture
def record(tmp_path: Path) -> Path:
    run_test(tmp_path, Predictions(figures=False))
    return tmp_path / "records/test/predictions.parquet"


@pytest.mark.parametrize(
    ("stage", "disabled", "drawn", "kept"),
    [
        (TrainerFn.FITTING, [], 0, False),
        (TrainerFn.FITTING, [True], 0, False),
        (TrainerFn.FITTING, [True, False], 1, False),
        (TrainerFn.TESTING, [True], 1, True),
        (TrainerFn.TESTING, [False], 1, True),
    ],
)
def test_figures_go_to_the_loggers_that_take_them(
    record: Path, stage: TrainerFn, disabled: list[bool], drawn: int, kept: bool
) -> None:
    loggers = [Logger(off) for off in disabled]
    trainer: Any = SimpleNamespace(
        loggers=[*loggers, SimpleNamespace(experiment=None)],
        state=SimpleNamespace(fn=stage),
        fit_loop=SimpleNamespace(epoch_loop=SimpleNamespace(_batches_that_stepped=7)),
    )
    asked = []

    def draw(rows: Any) -> Figure:
        asked.append(rows)
        figure = Figure(figsize=(1, 1))
        figure.add_subplot().plot(np.arange(3))
        return figure

    show_figure(trainer, "test", "predictions", record, draw)
    assert len(asked) == drawn
    assert bool(list(record.parents[2].glob("figures/test/predictions.*"))) == kept
    for logger, off in zip(loggers, disabled, strict=True):
        told = [(key, image.format, step) for key, image, step in logger.images]
        assert told == ([] if off else [("test/predictions/figure", "PNG", 7)])
