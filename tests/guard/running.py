"""Everything that the guard looks at, made by the code at hand."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import IO

import pytest
from matplotlib.backends import backend_agg, backend_pdf, backend_svg
from matplotlib.layout_engine import ConstrainedLayoutEngine

from tests.commands import attnlight_here
from tests.guard import runs, values
from tests.guard.values import Values

HERE = Path(__file__).parent
EXPECTED, CHUNKS = HERE / "expected", HERE / "chunks"
DOCS = HERE.parents[1] / "docs"
# Pages by the name of their tables: those of results were one page.
PAGES = {
    "results.md": [DOCS / "results.md", *sorted((DOCS / "results").glob("*.md"))],
    "known_answers.md": [DOCS / "known_answers.md"],
}
# Tables that the landed code did not have.
LATER = (
    *("results.md/pairs", "results.md/snli_size", "results.md/saliency_", "results.md/pruthi"),
    *("results.md/claims_", "results.md/cards", "results.md/minilm_"),
    *("known_answers.md/methods", "known_answers.md/trained", "known_answers.md/cards"),
)
KEPT = ("best.ckpt", "fit.yaml")  # of a base


@contextmanager
def undrawn() -> Iterator[None]:
    """Figures are made and not drawn: files are outside, and drawing is most of the time."""

    def printed(_: object, file: IO[bytes], **__: object) -> None:
        file.write(b"<svg></svg>")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(backend_svg.FigureCanvasSVG, "print_svg", printed)
        patch.setattr(backend_pdf.FigureCanvasPdf, "print_pdf", printed)
        patch.setattr(backend_agg.FigureCanvasAgg, "print_png", printed)
        patch.setattr(ConstrainedLayoutEngine, "execute", lambda *_: None)
        yield


def call(here: Path, *commands: Sequence[str]) -> None:
    """Do commands in a folder, one after the other, without drawing."""
    with undrawn():
        for command in commands:
            attnlight_here(*command, cwd=here)


def prepare(here: Path) -> None:
    """Make the folder of all commands, with the corpus of chunks in it."""
    here.mkdir(parents=True, exist_ok=True)
    shutil.copytree(CHUNKS, here / "chunks")


def kept_base(here: Path, corpus: str) -> Path:
    """A copy of the kept base of a corpus as a run's folder, relative to that of all commands."""
    folder = Path("runs", corpus, "kept")
    if not (here / folder).exists():
        (here / folder).mkdir(parents=True)
        for name in KEPT:
            shutil.copy(EXPECTED / corpus / name, here / folder / name)
    return folder


def keep_base(here: Path, corpus: str) -> None:
    """Keep the base of a corpus, unless there is one."""
    (EXPECTED / corpus).mkdir(parents=True, exist_ok=True)
    for name in KEPT:
        if not (EXPECTED / corpus / name).exists():
            shutil.copy(here / "runs" / corpus / "base" / name, EXPECTED / corpus / name)


def fitted(here: Path, corpus: str) -> Values:
    """Fit the base of a corpus and its variants, by turns from the kept base and from that."""
    folder = Path("runs", corpus, "base")
    call(here, runs.fit_base(corpus))
    keep_base(here, corpus)
    found = _run(here, folder) | _report(here, folder)
    for number, name in enumerate(runs.VARIANTS[corpus]):
        base = kept_base(here, corpus) if number % 2 else folder
        call(here, runs.fit_variant(corpus, name, base / "best.ckpt"))
        if name in runs.TESTED:
            call(here, runs.test(folder.with_name(name), runs.DIVERGENCE))
        found |= _run(here, folder.with_name(name))
    return found


def tested(here: Path, corpus: str) -> Values:
    """Test the kept base of a corpus."""
    folder = kept_base(here, corpus)
    call(here, runs.test(folder, runs.ALL))
    return _run(here, folder) | _report(here, folder)


def study(here: Path, name: str) -> Values:
    """The page of a kept study."""
    return _report(here, runs.STUDIES / name)


def conditions(here: Path) -> Values:
    """The comparison of the kept studies that are conditions of one."""
    with undrawn():
        runs.report_conditions(here / "conditions")
    return values.under("report/conditions", values.of_report(here / "conditions"))


def docs(_: Path) -> Values:
    """The tables of the pages of results."""
    found: Values = {}
    for name, paths in PAGES.items():
        text = "\n".join(path.read_text(encoding="utf-8") for path in paths)
        found |= values.under(name, values.markdown_tables(text))
    return {key: value for key, value in found.items() if not key.startswith(LATER)}


def _run(here: Path, folder: Path) -> Values:
    return values.under("/".join(folder.parts[-2:]), values.of_run(here / folder))


def _report(here: Path, folder: Path) -> Values:
    output = here / "reports" / folder.parent.name / folder.name
    call(here, runs.report(folder, output))
    name = "/".join(folder.parts[-2:])
    return values.under(f"report/{name}", values.of_report(output))


# What makes the values of each part, in a folder that `prepare` made.
PARTS: dict[str, Callable[[Path], Values]] = {
    **{corpus: partial(fitted, corpus=corpus) for corpus in runs.BASES},
    **{f"{corpus}_kept": partial(tested, corpus=corpus) for corpus in runs.BASES},
    **{
        path.name: partial(study, name=path.name)
        for path in sorted(runs.STUDIES.iterdir())
        if (EXPECTED / f"{path.name}.parquet").exists()
    },
    "conditions": conditions,
    "docs": docs,
}
