"""Style of figures, and their reproducible output as files and as parts of a page."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from attnlight.figures.tables import class_name
from attnlight.storage.files import replacing

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe & Ito (2008), without black and yellow, which are illegible in dark mode or on paper.
PALETTE = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00")
POOLED = "#8a919a"
# Colours that the page replaces by its variables, so that figures follow its light and dark modes.
INK, MUTED, GRID, PAPER = "#1f2329", "#5a646f", "#d9dee4", "#fefefe"
_LINK = "text:"  # and the number of a link, in place of its address
_COLUMN_WIDTH = 5.2  # inches; at 10 pt readable on a phone as on paper

_STYLE = Path(__file__).with_name("figure.mplstyle")
# Without dates and program names the same figure gives the same file.
_METADATA = {
    "svg": {"Date": None, "Creator": None},
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
    "png": {"Software": None},
}
_MIN_SCALE = 0.68  # share of its width to which a figure may shrink on a phone
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")  # an SVG is XML
_PAGE_COLORS = {INK: "--ink", MUTED: "--muted", GRID: "--line", PAPER: "--paper"}


def styled(**settings: Any) -> AbstractContextManager[None]:  # noqa: ANN401
    """Matplotlib's settings for figures of this package, independent of the user's settings."""
    from matplotlib import style

    return style.context([_STYLE, settings], after_reset=True)


class Group(NamedTuple):
    """Name and colour of rows in the legend, and their mask, (R,) bool."""

    name: str
    color: str
    members: NDArray[np.bool_]


def predicted_groups(prediction: NDArray[np.int64], classes: Sequence[str] | None) -> list[Group]:
    """Rows by predicted class; one group of all rows if there are more classes than colours."""
    predicted = np.unique(prediction).tolist()
    if not predicted or predicted[-1] >= len(PALETTE):
        all_rows = np.ones(len(prediction), dtype=bool)
        return [Group(f"all {len(predicted)} predicted classes", POOLED, all_rows)]
    names = [f"predicted {class_name(c, classes)}" for c in predicted]
    return [Group(n, PALETTE[c], prediction == c) for n, c in zip(names, predicted, strict=True)]


@contextmanager
def canvas(height: float, groups: Sequence[Group] = ()) -> Iterator[Figure]:
    """An empty figure of one column with a legend of groups and lines; `height` in inches.

    It is not registered with pyplot.
    """
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

    with styled():
        figure = Figure(figsize=(_COLUMN_WIDTH, height), layout="constrained")
        yield figure
        for axes in figure.axes:
            # Labels of a shared axis stand at the first panel alone, and so do its ticks.
            shared = len(axes.get_shared_y_axes().get_siblings(axes)) > 1
            place = axes.get_subplotspec()
            if shared and place is not None and not place.is_first_col():
                axes.tick_params(axis="y", length=0)
        # Labelled lines are in the legend too, each once, unless they have one of their own.
        open_axes = [a for a in figure.axes if a.get_legend() is None and not figure.legends]
        labelled = [axes.get_legend_handles_labels() for axes in open_axes]
        lines = {name: line for found in labelled for line, name in zip(*found, strict=True)}
        if not groups and not lines:
            return
        names = [g.name if len(g.name) <= 36 else f"{g.name[:35]}…" for g in groups]
        # About 15 characters per inch at 9 pt; a patch with its space is five characters wide.
        fitting = int(15 * _COLUMN_WIDTH) // (max(map(len, [*names, *lines])) + 5)
        columns = min(max(1, fitting), 3, len(groups) + len(lines))
        handles: list[Any] = [
            Patch(facecolor=group.color, edgecolor=INK, linewidth=0.6, label=name)
            for group, name in zip(groups, names, strict=True)
        ]
        handles += lines.values()
        figure.legend(handles=handles, loc="outside upper left", ncols=columns, handlelength=1.2)


def link_points(
    axes: Axes, x: NDArray[np.floating], y: NDArray[np.floating], links: NDArray[np.floating]
) -> None:
    """Ring the points of instances whose texts a page shows; the rings are on the page alone.

    `links` (P,) are numbers of links in the argument of `inline_svg`, NaN for points without one.
    The limits of the axes must not depend on the points.
    """
    linked = ~np.isnan(links)
    if linked.any():
        urls = [f"{_LINK}{number:.0f}" for number in links[linked]]
        rings = axes.scatter(x[linked], y[linked], s=20, color=PAPER, edgecolor=INK, linewidth=1)
        rings.set(urls=urls, visible=False, in_layout=False, clip_on=False, zorder=5)


def save_figure(figure: Figure, stem: Path) -> list[Path]:
    """Write a figure as SVG, PDF and PNG to a stem, a path without a suffix; return the three paths."""
    paths = [stem.with_name(f"{stem.name}.{kind}") for kind in _METADATA]
    for path in paths:
        with replacing(path) as temporary:
            temporary.write_bytes(figure_bytes(figure, path.suffix[1:]))
    return paths


def inline_svg(
    figure: Figure, prefix: str, label: str, links: Sequence[tuple[str, str]] = ()
) -> str:
    """A figure as an `<svg>` element that follows the colours of the page around it.

    `prefix`, any text, begins every id, so that several figures can share a page; `label` is plain
    text for screen readers, `links` the address and plain-text name of what each point of
    `link_points` leads to.
    """
    from matplotlib.collections import PathCollection

    rings = [found for found in figure.findobj(PathCollection) if any(found.get_urls())]
    for ring in rings:
        ring.set_visible(True)
    text = figure_bytes(figure, "svg", fonttype="none").decode()
    for ring in rings:
        ring.set_visible(False)
    content = text[text.index(">", text.index("<svg")) + 1 :]
    content = re.sub(r"<(metadata|style)\b.*?</\1>", "", content, flags=re.DOTALL)
    ids = re.sub(r"[^a-zA-Z0-9_.-]", lambda found: f"_{ord(found[0]):x}_", prefix)
    content = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{ids}-", content)
    tags = [f'<a href="{escape(to)}"><title>{escape(name)}</title>' for to, name in links]
    link = rf'<a xlink:href="{_LINK}(\d+)"[^>]*>'
    content = re.sub(link, lambda found: tags[int(found[1])], content)
    content = re.sub(r"font-family: [^;\"]*;?", "", content)
    for color, variable in _PAGE_COLORS.items():
        content = content.replace(color, f"var({variable})")
    width, height = (96 * inches for inches in figure.get_size_inches())
    box = f"0 0 {0.75 * width:g} {0.75 * height:g}"
    size = f"max-width: {width:.0f}px; min-width: {_MIN_SCALE * width:.0f}px"
    role = "group" if "<a " in content else "img"  # an image has no links
    start = f'<svg role="{role}" aria-label="{escape(label)}" viewBox="{box}" style="{size}">'
    return f"{start}{content}"


def figure_bytes(figure: Figure, kind: str, dpi: int = 200, fonttype: str = "path") -> bytes:
    """A figure as the content of a file, with the same layout in every format.

    Unlike `Figure.savefig`, which computes the layout again, this draws the figure once. The kind
    is `svg`, `pdf` or `png`, with `dpi` pixels per inch; `fonttype` is text of an SVG as a `path`,
    or as text (`none`).
    """
    from matplotlib.backend_bases import get_registered_canvas_class
    from matplotlib.text import Text

    original_dpi, original_canvas = figure.get_dpi(), figure.canvas
    try:
        with styled(**{"svg.fonttype": fonttype}):
            if (engine := figure.get_layout_engine()) is not None:
                for text in figure.findobj(Text):
                    text.set_text(_NOT_XML.sub("\ufffd", text.get_text()))
                    # Ligatures such as "ffl" would embed a second font in a PDF; Matplotlib before
                    # 3.11 has no ligatures.
                    if hasattr(text, "set_fontfeatures"):
                        text.set_fontfeatures(("-liga",))
                if figure.axes:  # else there is no layout to compute, of which Matplotlib warns
                    engine.execute(figure)
                figure.set_layout_engine("none")
            if kind == "png":
                figure.set_dpi(dpi)
            file = io.BytesIO()
            canvas = get_registered_canvas_class(kind)(figure)
            getattr(canvas, f"print_{kind}")(file, metadata=_METADATA[kind])
            return file.getvalue()
    finally:
        figure.set_dpi(original_dpi)
        figure.set_canvas(original_canvas)
