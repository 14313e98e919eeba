"""The report of a study as files: its page, tables, figures and sentences."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from attnlight.files import write_text
from attnlight.report.grids import Grid
from attnlight.report.page import Picture
from attnlight.report.study.page import Head, Shown, build_page
from attnlight.report.study.plan import ROLES, Plan
from attnlight.report.study.sentences import Verdict, to_markdown
from attnlight.report.style import inline_svg, save_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

VERDICTS, PAGE = "verdict.md", "index.html"


class Drawing(NamedTuple):
    """A figure of a study.

    Attributes:
        title: Its heading on the page.
        stem: The stem of its files.
        figure: The figure.
        caption: What it shows.
    """

    title: str
    stem: str
    figure: Figure
    caption: str


def write_files(
    output: Path,
    head: Head,
    found: Sequence[Verdict],
    grids: Mapping[str, Grid],
    drawings: Iterable[Drawing],
    full: tuple[str, str],
) -> list[Path]:
    """Write the report of a study.

    Args:
        output: The folder, made where it is missing.
        head: What stands at the top of the page.
        found: What the study shows.
        grids: Its tables by the stem of their files.
        drawings: Its figures, each drawn when its turn comes.
        full: Name and content of the file that holds every mean in full.

    Returns:
        The files, the page first.

    Raises:
        InputError: A file cannot be written.
    """
    texts = {VERDICTS: to_markdown(head.title, found), full[0]: full[1]}
    for stem, grid in grids.items():
        texts[f"{stem}.csv"] = grid.to_csv()
        texts[f"{stem}.md"] = grid.to_markdown()
        texts[f"{stem}.tex"] = grid.to_latex()
    shown, files = [], []
    for title, stem, figure, caption in drawings:
        files += save_figure(figure, output / stem)
        shown.append(Shown(title, stem, Picture(inline_svg(figure, stem, caption), caption, stem)))
    page = {PAGE: build_page(head, found, grids, shown, full[0])}
    for name, text in (texts | page).items():
        write_text(output / name, text)
    return [output / PAGE, *(output / name for name in texts), *files]


def finished_runs(study: Plan) -> str:
    """How many runs of each role are finished."""
    return ", ".join(f"{len(study.finished(r))} of {len(study.planned(r))} {r}" for r in ROLES)
