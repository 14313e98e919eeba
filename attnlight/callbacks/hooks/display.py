"""Scalars for the loggers and a figure from a test's record."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lightning.pytorch as pl
import numpy as np
from lightning.pytorch.trainer.states import TrainerFn
from numpy.typing import NDArray

from attnlight.callbacks.hooks.receivers import receivers
from attnlight.figures import describe, figure_rows
from attnlight.records import EXCLUDED, read_metadata, read_pieces
from attnlight.report import save_figure
from attnlight.report.run import StoredRecord
from attnlight.report.summary import summarise

if TYPE_CHECKING:
    from matplotlib.figure import Figure


FIGURE_ROWS = 200_000
_NAMED = 5  # number of texts that a warning names
# The step at which Lightning logs the values of an evaluation; `global_step` is one later.
_step = attrgetter("fit_loop.epoch_loop._batches_that_stepped")


def interval_scalars(path: Path, measures: Sequence[str]) -> dict[str, float]:
    """Mean of each measure of a record and, as `<measure>_low` and `_high`, its 95 % interval."""
    if not measures:
        return {}
    means = summarise(StoredRecord(path, "", "", None), by_class=False).means
    ends = ("", "_low", "_high")
    return {f"{n}{end}": x for n in measures for end, x in zip(ends, means[n, None], strict=False)}


def unmeasured(path: Path, stage: str, epoch: int | None) -> str:
    """A warning with the number of unmeasured rows of a record and the first five of their texts."""
    pieces = read_pieces(path, ["index", "prediction"])
    index = np.concatenate([piece["index"][piece["prediction"] == EXCLUDED] for piece in pieces])
    when = stage if epoch is None else f"{stage}, epoch {epoch}"
    texts = np.unique(index)
    named = ", ".join(map(str, texts[:_NAMED])) + (", ..." if len(texts) > _NAMED else "")
    return (
        f"{when}: not measured, because their logits or attention are not finite: {len(index):,} "
        f"instances (dataset index {named})."
    )


def show_figure(
    trainer: pl.Trainer,
    stage: str,
    name: str,
    path: Path,
    draw: Callable[[Mapping[str, NDArray[Any]]], Figure | None],
) -> None:
    """Draw a record's figure for the loggers that take figures and, outside fit, for the run folder.

    Records of more than 200,000 rows are left to `attnlight report`, so that a figure of a million
    rows does not delay training.
    """
    takers = receivers(trainer.loggers, "figure")
    fitting = trainer.state.fn == TrainerFn.FITTING
    if (fitting and not takers) or read_metadata(path)["rows"] > FIGURE_ROWS:
        return
    figure = draw(figure_rows(path, describe(name).columns)[0])
    if figure is None:
        return
    if not fitting:
        save_figure(figure, path.parents[2] / "figures" / path.parent.name / name)
    for send in takers:
        send(f"{stage}/{name}/figure", figure, _step(trainer))


def show_table(trainer: pl.Trainer, stage: str, name: str, scalars: Mapping[str, float]) -> None:
    """Send what `interval_scalars` found to the loggers that take texts, as a table in Markdown."""
    lines = ["| measure | mean | low | high |", "|---|---|---|---|"]
    for measure in (key for key in scalars if f"{key}_low" in scalars):
        ends = (f"{scalars[measure + end]:.6g}" for end in ("", "_low", "_high"))
        lines.append(f"| {measure} | {' | '.join(ends)} |")
    for send in receivers(trainer.loggers, "text"):
        send(f"{stage}/{name}/measures", "\n".join(lines), _step(trainer))
