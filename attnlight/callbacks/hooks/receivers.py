"""How the loggers of a Trainer take figures and texts: by what each offers, without importing any."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

from attnlight.figures.style import figure_bytes

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@runtime_checkable
class _Images(Protocol):
    """A logger of images, as that of W&B."""

    def log_image(self, key: str, images: list[Any], step: int) -> None: ...


@runtime_checkable
class _Writer(Protocol):
    """What a logger for TensorBoard writes by, of torch or of tensorboardX."""

    def add_figure(self, tag: str, figure: Figure, global_step: int) -> None: ...

    def add_text(self, tag: str, text_string: str, global_step: int) -> None: ...


@runtime_checkable
class _OfClient(Protocol):
    """A logger that writes files of a run by a client, as that of MLflow."""

    run_id: str


@runtime_checkable
class _Client(Protocol):
    """A client that keeps files of runs."""

    def log_figure(self, run_id: str, figure: Figure, artifact_file: str) -> None: ...

    def log_text(self, run_id: str, text: str, artifact_file: str) -> None: ...


def receivers(
    loggers: Iterable[Any], kind: Literal["figure", "text"]
) -> list[Callable[[str, Any, int], None]]:
    """For each logger that takes figures or texts, a function of key, content and step that sends one.

    W&B and TensorBoard take figures, and TensorBoard texts, as Markdown; a client such as MLflow's takes
    both as files `<key>/<step>.png` and `.md`. W&B has its tables of `WandbRun`.
    """
    found: list[Callable[[str, Any, int], None]] = []
    for logger in loggers:
        run = logger.experiment
        if isinstance(logger, _Images):
            if kind == "figure" and not getattr(run, "disabled", False):
                found.append(partial(_send_image, logger))
        elif isinstance(run, _Writer):
            found.append(run.add_figure if kind == "figure" else run.add_text)
        elif isinstance(logger, _OfClient) and isinstance(run, _Client):
            send, ending = (run.log_figure, "png") if kind == "figure" else (run.log_text, "md")
            found.append(partial(_send_file, send, logger.run_id, ending))
    return found


def _send_image(logger: _Images, key: str, figure: Figure, step: int) -> None:
    from PIL import Image

    image = Image.open(io.BytesIO(figure_bytes(figure, "png", dpi=150)))
    logger.log_image(key=key, images=[image], step=step)


def _send_file(send: Any, run: str, ending: str, key: str, content: Any, step: int) -> None:  # noqa: ANN401
    send(run, content, f"{key}/{step}.{ending}")
