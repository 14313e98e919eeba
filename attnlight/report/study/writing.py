"""From the two files of a study to its page, tables, figures and sentences."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from attnlight.files import write_text
from attnlight.report.output import inline_svg, save_figure
from attnlight.report.page import Picture
from attnlight.report.study import figure5, violins
from attnlight.report.study.estimates import Estimates
from attnlight.report.study.groups import chosen
from attnlight.report.study.page import Shown, build_page
from attnlight.report.study.reading import Study, StudyRun, read_study
from attnlight.report.study.tables import estimates_csv, tables
from attnlight.report.study.verdict import to_markdown, verdicts

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def write_study(folder: Path, output: Path | None = None) -> list[Path]:
    """Write the report of a study from its `study.json` and `study.parquet`.

    Args:
        folder: The study's folder.
        output: Where to write; None: the folder's own `report`.

    Returns:
        The files, the page first.

    Raises:
        InputError: The study's files are missing or damaged, no run of it is finished, or a file
            cannot be written.
    """
    output = folder / "report" if output is None else output
    study = read_study(folder)
    estimates = Estimates(study)
    grids, found = tables(study, estimates), verdicts(study, estimates)
    texts = {
        "verdict.md": to_markdown(study, found),
        "estimates.csv": estimates_csv(study, estimates),
    }
    for stem, grid in grids.items():
        texts[f"{stem}.csv"] = grid.to_csv()
        texts[f"{stem}.md"] = grid.to_markdown()
        texts[f"{stem}.tex"] = grid.to_latex()
    shown, files = [], []
    for title, stem, figure, caption in _figures(study, estimates):
        files += save_figure(figure, output / stem)
        picture = Picture(inline_svg(figure, stem, caption), caption, stem)
        shown.append(Shown(title, stem, picture))
    page = {"index.html": build_page(study, found, grids, shown)}
    for name, text in (texts | page).items():
        write_text(output / name, text)
    return [output / "index.html", *(output / name for name in texts), *files]


def _figures(study: Study, estimates: Estimates) -> Iterator[tuple[str, str, Figure, str]]:
    """Title, stem of the files, figure and caption, those of each base together."""
    for base in study.bases:
        made = figure5.draw_figure5(study, estimates, base)
        if made is not None:
            title = f"Divergence against change of the prediction, {base.name}"
            yield title, f"figure5-{base.name}", made, figure5.CAPTION.format(base=base.name)
        for name, runs in _violins(study, base):
            made = violins.draw_violins(study, base, runs)
            if made is not None:
                words = f"{len(runs)} {name}" if len(runs) > 1 else f"one of the {name}"
                caption = violins.CAPTION.format(base=base.name, runs=words)
                stem = f"{'seeds' if name == 'other seeds' else 'adversary'}-{base.name}"
                yield f"Divergence of {name} from {base.name}", stem, made, caption


def _violins(study: Study, base: StudyRun) -> Iterator[tuple[str, list[StudyRun]]]:
    yield "other seeds", study.finished("seed", base=base.name)
    if study.selected is not None:
        term, lam = study.selected
        yield f"adversaries ({term.upper()}, λ = {lam:g})", chosen(study, base)
