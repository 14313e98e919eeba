"""Figures as files and as part of a page, the same bytes for the same rows."""

from __future__ import annotations

import io
import re
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

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
    _settle(figure)
    paths = []
    for kind, metadata in _METADATA.items():
        path = stem.with_name(f"{stem.name}.{kind}")
        with replacing(path) as temporary, styled():
            figure.savefig(temporary, format=kind, metadata=metadata)
        paths.append(path)
    return paths


def inline_svg(figure: Figure, prefix: str, label: str) -> str:
    """A figure as an `<svg>` element that follows the colours of the page around it.

    Args:
        figure: The figure.
        prefix: Put before every id, so that several figures share a page.
        label: What a screen reader says of it, as plain text.
    """
    _settle(figure)
    file = io.StringIO()
    with styled(**{"svg.fonttype": "none"}):
        figure.savefig(file, format="svg", metadata=_METADATA["svg"])
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


def _settle(figure: Figure) -> None:
    """Lay the figure out once, the same for every format, rather than anew for each."""
    with styled():
        figure.draw_without_rendering()
    figure.set_layout_engine("none")
