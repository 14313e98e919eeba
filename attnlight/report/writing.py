"""From a run folder to its page, tables and figures."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from attnlight.files import write_text
from attnlight.report.curves import Curves, draw_curves, metric_curves, test_curves
from attnlight.report.figures import columns, describe, draw, tables
from attnlight.report.grids import Grid
from attnlight.report.output import inline_svg, save_figure
from attnlight.report.page import Picture, Section, build_page
from attnlight.report.rows import figure_rows, is_whole
from attnlight.report.runs import Run, StoredRecord, load_run
from attnlight.report.tables import RecordSummary, summarise, to_csv, to_markdown
from attnlight.report.together import require_one_run

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Places(NamedTuple):
    """Where a report goes: the folder of the page and tables, and that of the figures."""

    page: Path
    figures: Path


def write_report(folder: Path, places: Places) -> Path:
    """Write the report of one run.

    Args:
        folder: The run folder.
        places: Where to write.

    Returns:
        The page.

    Raises:
        InputError: The folder is missing, holds no records, a damaged file or records of several
            runs, or a file cannot be written.
    """
    run = load_run(folder)
    for corpus in ("", *run.others):
        stored = [*run.records, *run.epochs]
        require_one_run([record.path for record in stored if record.corpus == corpus])
    sections = [_section(record, places) for record in run.records]
    epochs = [summarise(record, by_class=False) for record in run.epochs]
    page = build_page(run, sections, _curves(run, epochs, places))
    summaries = [section.summary for section in sections]
    write_text(places.page / "summary.csv", to_csv(summaries))
    write_text(places.page / "summary.md", to_markdown(summaries))
    write_text(places.page / "index.html", page)
    return places.page / "index.html"


def _section(record: StoredRecord, places: Places) -> Section:
    summary = summarise(record)
    if not is_whole(record.path):
        return Section(summary, None)
    rows, note = figure_rows(record.path, columns(record.test))
    figure = draw(record.test, rows, summary.classes)
    grids = tables(record.test, rows, summary.classes)
    picture = None
    if figure is not None:
        caption = f"{describe(record.test).caption} {note}".rstrip()
        picture = _picture(figure, Path(record.place, record.test), places, caption)
    stem = Path("tables", f"{record.place}-{record.test}")
    for number, grid in enumerate(grids, start=1):
        _write_grid(grid, places.page / f"{stem}-{number}")
    return Section(summary, picture, grids, f"{stem.as_posix()}-*.{{md,csv,tex}}")


def _write_grid(grid: Grid, stem: Path) -> None:
    texts = {"md": grid.to_markdown(), "csv": grid.to_csv(), "tex": grid.to_latex()}
    for ending, text in texts.items():
        write_text(stem.with_name(f"{stem.name}.{ending}"), text)


def _curves(run: Run, epochs: Sequence[RecordSummary], places: Places) -> list[Picture]:
    """The task's metrics by epoch, then those of each test."""
    found: list[tuple[str, Curves, str]] = []
    if run.metrics.curves:
        caption = "What the task logged on the validation split after each epoch."
        found.append(("metrics", metric_curves(run.metrics.curves), caption))
    for test, parts in groupby(epochs, key=lambda part: part.record.test):
        caption = (
            f"{describe(test).title}: mean of each measure on the validation split after each "
            "epoch; the band is its 95 % bootstrap interval."
        )
        found.append((test, test_curves(list(parts)), caption))
    return [
        _picture(draw_curves(curves), Path("val", f"curves-{name}"), places, caption)
        for name, curves, caption in found
        if curves
    ]


def _picture(figure: Figure, stem: Path, places: Places, caption: str) -> Picture:
    save_figure(figure, places.figures / stem)
    svg = inline_svg(figure, "-".join(stem.parts), caption)
    return Picture(svg, caption, f"{(Path('figures') / stem).as_posix()}.{{svg,pdf,png}}")
