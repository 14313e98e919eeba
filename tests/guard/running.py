"""Everything that the guard looks at, made by the code at hand."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import pytest
from matplotlib.backends import backend_agg, backend_pdf, backend_svg
from matplotlib.layout_engine import ConstrainedLayoutEngine

from tests.commands import attnlight_here
from tests.guard import runs, values
from tests.guard.values import Values

HERE = Path(__file__).parent
EXPECTED, CHUNKS = HERE / "expected", HERE / "chunks"
DOCS = HERE.parents[1] / "docs"
PAGES = ("results.md", "known_answers.md")
KEPT = ("best.ckpt", "fit.yaml")  # of a base in the first format


def kept(part: str) -> Path:
    """Where the values of a part are kept: of a corpus, a study, the conditions or the docs."""
    return EXPECTED / f"{part}.parquet"


@contextmanager
def undrawn() -> Iterator[None]:
    """Figures are made and not drawn: files are outside, and drawing is most of the time."""

    def printed(_: object, file: Path | IO[Any], **__: object) -> None:
        if hasattr(file, "write"):
            file.write("<svg></svg>" if hasattr(file, "encoding") else b"")
        else:
            Path(file).write_text("<svg></svg>")

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
    """Keep the base of a corpus, unless there is one: it is of the first format, for good."""
    (EXPECTED / corpus).mkdir(parents=True, exist_ok=True)
    for name in KEPT:
        if not (EXPECTED / corpus / name).exists():
            shutil.copy(here / "runs" / corpus / "base" / name, EXPECTED / corpus / name)


def base(here: Path, corpus: str) -> Values:
    """Fit and test the base of a corpus."""
    call(here, runs.fit_base(corpus), runs.test(Path("runs", corpus, "base"), runs.ALL))
    return run_of(here, corpus, "base") | report(here, Path("runs", corpus, "base"))


def variants(here: Path, corpus: str) -> Values:
    """Fit and test the variants of a corpus, by turns of the kept base and of that of `base`."""
    found: Values = {}
    for number, name in enumerate(runs.VARIANTS[corpus]):
        folder = kept_base(here, corpus) if number % 2 else Path("runs", corpus, "base")
        fit = runs.fit_variant(corpus, name, folder / "best.ckpt")
        call(here, fit, runs.test(Path("runs", corpus, name), runs.DIVERGENCE))
        found |= run_of(here, corpus, name)
    return found


def run_of(here: Path, corpus: str, name: str) -> Values:
    """What a run of a corpus left, by corpus and run."""
    return values.under(f"{corpus}/{name}", values.of_run(here / "runs" / corpus / name))


def report(here: Path, folder: Path) -> Values:
    """The page of a run or of a study, by its last two folders."""
    name = "/".join(folder.parts[-2:])
    output = here / "reports" / name
    call(here, runs.report(folder, output))
    return values.under(f"report/{name}", values.of_report(output))


def docs() -> Values:
    """The tables of the pages of results."""
    found: Values = {}
    for page in PAGES:
        text = (DOCS / page).read_text(encoding="utf-8")
        found |= values.under(page, values.markdown_tables(text))
    return found


def conditions(here: Path) -> Values:
    """The comparison of the kept studies that are conditions of one."""
    with undrawn():
        runs.report_conditions(here / "conditions")
    return values.under("report/conditions", values.of_report(here / "conditions"))
