"""From the two files of a study to its page, tables, figures and sentences."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from attnlight.report.study import figure5, violins
from attnlight.report.study.estimates import Estimates
from attnlight.report.study.files import Drawing, finished_runs, write_files
from attnlight.report.study.groups import chosen
from attnlight.report.study.page import Head
from attnlight.report.study.reading import Study, StudyRun, is_tagging, read_study
from attnlight.report.study.tables import estimates_csv, tables
from attnlight.report.study.verdict import verdicts


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
    if is_tagging(folder):
        from attnlight.report.tagging import write_tagging_study

        return write_tagging_study(folder, output)
    study = read_study(folder)
    estimates = Estimates(study)
    return write_files(
        folder / "report" if output is None else output,
        _head(study),
        verdicts(study, estimates),
        tables(study, estimates),
        _figures(study, estimates),
        ("estimates.csv", estimates_csv(study, estimates)),
    )


def _head(study: Study) -> Head:
    lead = (
        "Is attention not explanation? Models trained from one base, after Wiegreffe & Pinter "
        "(2019)."
    )
    facts = {
        "Experiment": study.experiment,
        "Corpus": study.corpus,
        "Classes": ", ".join(study.classes),
        "Test texts": f"{len(study.label):,}",
        "Finished runs": finished_runs(study),
    }
    return Head(study.name, "study", lead, facts)


def _figures(study: Study, estimates: Estimates) -> Iterator[Drawing]:
    """The figures, those of each base together."""
    for base in study.bases:
        made = figure5.draw_figure5(study, estimates, base)
        if made is not None:
            title = f"Divergence against change of the prediction, {base.name}"
            caption = figure5.CAPTION.format(base=base.name)
            yield Drawing(title, f"figure5-{base.name}", made, caption)
        for name, runs in _violins(study, base):
            made = violins.draw_violins(study, base, runs)
            if made is not None:
                words = f"{len(runs)} {name}" if len(runs) > 1 else f"one of the {name}"
                caption = violins.CAPTION.format(base=base.name, runs=words)
                stem = f"{'seeds' if name == 'other seeds' else 'adversary'}-{base.name}"
                yield Drawing(f"Divergence of {name} from {base.name}", stem, made, caption)


def _violins(study: Study, base: StudyRun) -> Iterator[tuple[str, list[StudyRun]]]:
    yield "other seeds", study.finished("seed", base=base.name)
    if study.selected is not None:
        term, lam = study.selected
        yield f"adversaries ({term.upper()}, λ = {lam:g})", chosen(study, base)
