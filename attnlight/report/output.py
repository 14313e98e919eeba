"""Figures as files and as part of a page, the same bytes for the same rows."""

from __future__ import annotations

import io
import re
from html import escape
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from attnlight.files import replacing
from attnlight.report.style import GRID, INK, MUTED, PAPER, styled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# No dates and no program names: the same figure is the same file.
_METADATA = {
    "svg": {"Date": None, "Creator": None},
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
    "png": {"Software": None},
}
_DPI = 200
_SMALLEST = 0.68  # of its width: a figure of one column is whole on a phone, its text still legible
_PAGE_COLORS = {INK: "--ink", MUTED: "--muted", GRID: "--line", PAPER: "--paper"}


def save_figure(figure: Figure, stem: Path) -> list[Path]:
    """Write a figure as SVG, PDF and PNG, each whole or not at all.

    Args:
        figure: The figure.
        stem: Path without an ending, which may itself hold dots.

    Returns:
        The three files.

    Raises:
        InputError: A file cannot be written.
    """
    paths = []
    for kind in _METADATA:
        path = stem.with_name(f"{stem.name}.{kind}")
        with replacing(path) as temporary:
            _print(figure, kind, temporary)
        paths.append(path)
    return paths


def figure_png(figure: Figure, dpi: int) -> bytes:
    """A figure as the content of a PNG file, with so many pixels to the inch."""
    file = io.BytesIO()
    _print(figure, "png", file, dpi=dpi)
    return file.getvalue()


def inline_svg(figure: Figure, prefix: str, label: str) -> str:
    """A figure as an `<svg>` element that follows the colours of the page around it.

    Args:
        figure: The figure.
        prefix: Put before every id, so that several figures share a page.
        label: What a screen reader says of it, as plain text.
    """
    file = io.StringIO()
    _print(figure, "svg", file, fonttype="none")
    text = file.getvalue()
    content = text[text.index(">", text.index("<svg")) + 1 :]
    content = re.sub(r"<(metadata|style)\b.*?</\1>", "", content, flags=re.DOTALL)
    content = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{prefix}-", content)
    content = re.sub(r"font-family: [^;\"]*;?", "", content)
    for color, variable in _PAGE_COLORS.items():
        content = content.replace(color, f"var({variable})")
    width, height = (96 * inches for inches in figure.get_size_inches())
    box = f"0 0 {0.75 * width:g} {0.75 * height:g}"
    size = f"max-width: {width:.0f}px; min-width: {_SMALLEST * width:.0f}px"
    return f'<svg role="img" aria-label="{escape(label)}" viewBox="{box}" style="{size}">{content}'


def _print(
    figure: Figure,
    kind: str,
    file: Path | IO[Any],
    dpi: int = _DPI,
    fonttype: str = "path",
) -> None:
    """Draw a figure once into a file.

    `Figure.savefig` would draw it twice, since a figure whose layout was ever computed might need
    it again.
    """
    from matplotlib.backends import backend_agg, backend_pdf, backend_svg

    canvases: dict[str, Any] = {
        "svg": backend_svg.FigureCanvasSVG,
        "pdf": backend_pdf.FigureCanvasPdf,
        "png": backend_agg.FigureCanvasAgg,
    }
    own_dpi, own_canvas = figure.get_dpi(), figure.canvas
    try:
        with styled(**{"svg.fonttype": fonttype}):
            _settle(figure)
            if kind == "png":
                figure.set_dpi(dpi)
            getattr(canvases[kind](figure), f"print_{kind}")(file, metadata=_METADATA[kind])
    finally:
        figure.set_dpi(own_dpi)
        figure.set_canvas(own_canvas)


def _settle(figure: Figure) -> None:
    """Lay the figure out once, the same for every format, rather than anew for each."""
    engine = figure.get_layout_engine()
    if engine is not None:
        _without_ligatures(figure)
        engine.execute(figure)
        figure.set_layout_engine("none")


def _without_ligatures(figure: Figure) -> None:
    """Set every letter by itself: a PDF would embed a second font for the likes of "ffl".

    Matplotlib before 3.11 knows no ligatures.
    """
    from matplotlib.text import Text

    for text in figure.findobj(Text):
        if hasattr(text, "set_fontfeatures"):
            text.set_fontfeatures(("-liga",))
