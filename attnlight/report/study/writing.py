"""From the two files of a study to its page, tables, figures and sentences."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from attnlight.files import write_text
from attnlight.report.page import Picture
from attnlight.report.study.estimates import Estimates
from attnlight.report.study.figures import figures
from attnlight.report.study.frame import ROLES, TARGETS, Study, read_study
from attnlight.report.study.marks import Drawing
from attnlight.report.study.page import Head, Shown, build_page
from attnlight.report.study.tables import Tables, estimates_csv
from attnlight.report.study.verdict import Row, Verdict, rows, to_csv, to_markdown, verdicts
from attnlight.report.style import inline_svg, save_figure
from attnlight.report.tables import Table

PAGE = "index.html"


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
    estimates = Estimates(read_study(folder))
    compared = rows(estimates)
    return write_files(
        folder / "report" if output is None else output,
        _head(estimates.study),
        (compared, verdicts(estimates, compared)),
        Tables(estimates).all(),
        figures(estimates),
        ("estimates.csv", estimates_csv(estimates)),
    )


def write_files(
    output: Path,
    head: Head,
    found: tuple[Sequence[Row], Sequence[Verdict]],
    grids: Mapping[str, Table],
    drawings: Iterable[Drawing],
    full: tuple[str, str],
) -> list[Path]:
    """Write a report.

    Args:
        output: The folder, made where it is missing.
        head: What stands at the top of the page.
        found: Comparisons, and the sentences that follow from them.
        grids: Tables by the stem of their files.
        drawings: Figures, each drawn when its turn comes.
        full: Name and content of the file that holds every mean in full.

    Returns:
        The files, the page first.

    Raises:
        InputError: A file cannot be written.
    """
    compared, answers = found
    texts = {"verdict.md": to_markdown(head.title, answers), "verdict.csv": to_csv(compared)}
    texts |= {full[0]: full[1]}
    for stem, grid in grids.items():
        texts |= {f"{stem}.{ending}": text for ending, text in grid.to_texts().items()}
    shown, files = [], []
    for title, stem, figure, caption in drawings:
        files += save_figure(figure, output / stem)
        shown.append(Shown(title, stem, Picture(inline_svg(figure, stem, caption), caption, stem)))
    page = {PAGE: build_page(head, answers, grids, shown, full[0])}
    for name, text in (texts | page).items():
        write_text(output / name, text)
    return [output / PAGE, *(output / name for name in texts), *files]


def _head(study: Study) -> Head:
    facts, words = study.facts, study.words
    return Head(
        study.name,
        "study",
        "Is attention explanation? Models trained from one base, after Wiegreffe & Pinter (2019).",
        {
            "Experiment": study.experiment,
            "Condition": facts["options"] or "",
            "Corpus": study.corpus,
            "Problem": words.problem,
            "Answers": TARGETS.get(facts["target"], ""),
            "Classes": ", ".join(study.classes),
            "Readout": facts["readout"] or "",
            "Part-of-speech tags": {True: "read", False: "not read"}.get(facts["pos"], ""),
            f"Test {words.cluster}s": f"{study.clusters:,}",
            "Finished runs": ", ".join(
                f"{len(study.finished(role))} of {len(study.planned(role))} {role}"
                for role in ROLES
            ),
        },
    )
