"""Commands of the guard, all in one folder with `runs/` and `chunks/`, and their values."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import yaml
from matplotlib.backends import backend_agg, backend_pdf, backend_svg
from matplotlib.layout_engine import ConstrainedLayoutEngine

from tests.commands import CONFIGS, CPU, QUIET, attnlight_here
from tests.guard import values
from tests.guard.values import Values

HERE = Path(__file__).parent
EXPECTED, CHUNKS = HERE / "expected", HERE / "chunks"
RUNS = yaml.safe_load((HERE / "runs.yaml").read_text("utf-8").replace("CONFIGS", str(CONFIGS)))
KEPT = ("best.ckpt", "fit.yaml")  # of a base
TESTED = ("uniform", "seed", "guided", "adversarial")  # variants; the others are fitted alone
ALL = ["-c", f"{CONFIGS}/tests/all.yaml"]
DIVERGENCE = ["-c", f"{CONFIGS}/tests/base_divergence.yaml"]
FIT = [
    "fit",
    "-c",
    f"{CONFIGS}/trainer.yaml",
    "--root=runs",
    "--trainer.max_epochs=2",
    *CPU,
    *QUIET,
]


def call(here: Path, *command: str) -> None:
    """Do a command in a folder without drawing: figures are outside, and most of the time."""
    if not (here / "chunks").exists():
        shutil.copytree(CHUNKS, here / "chunks")
    with pytest.MonkeyPatch.context() as patch:
        for canvas, method in (
            (backend_svg.FigureCanvasSVG, "print_svg"),
            (backend_pdf.FigureCanvasPdf, "print_pdf"),
            (backend_agg.FigureCanvasAgg, "print_png"),
        ):
            patch.setattr(canvas, method, lambda _, file, **__: file.write(b"<svg></svg>"))
        patch.setattr(ConstrainedLayoutEngine, "execute", lambda *_: None)
        attnlight_here(*command, cwd=here)


def call_test(here: Path, folder: Path, tests: list[str]) -> None:
    """Test the best checkpoint of a run's folder."""
    files = ["-c", f"{folder}/fit.yaml", *tests, f"--ckpt_path={folder}/best.ckpt"]
    call(here, "test", *files, *CPU, *QUIET)


def kept_base(here: Path, corpus: str) -> Path:
    """A copy of the kept base of a corpus as a run's folder, relative to that of all commands."""
    folder = Path("runs", corpus, "kept")
    (here / folder).mkdir(parents=True, exist_ok=True)
    for name in KEPT:
        shutil.copy(EXPECTED / corpus / name, here / folder / name)
    return folder


def fitted(here: Path, corpus: str) -> Values:
    """Fit the base of a corpus and its variants, by turns from the kept base and from that."""
    folder, options = Path("runs", corpus, "base"), RUNS[corpus]
    data = [*options["data"].split(), f"--experiment={corpus}"]
    call(here, *FIT, *ALL, "--run=base", *options["base"].split(), *data)
    found = _run(here, folder) | _report(here, folder)
    for number, (name, given) in enumerate(options["variants"].items()):
        base = kept_base(here, corpus) if number % 2 else folder
        named = [f"--run={name}", f"--model.base={base}/best.ckpt"]
        call(here, *FIT, *DIVERGENCE, *given.split(), *data, *named)
        if name in TESTED:
            call_test(here, folder.with_name(name), DIVERGENCE)
        found |= _run(here, folder.with_name(name))
    return found


def tested(here: Path, corpus: str) -> Values:
    """Test the kept base of a corpus."""
    folder = kept_base(here, corpus)
    call_test(here, folder, ALL)
    return _run(here, folder) | _report(here, folder)


def _run(here: Path, folder: Path) -> Values:
    return values.under("/".join(folder.parts[-2:]), values.of_run(here / folder))


def _report(here: Path, folder: Path) -> Values:
    name = "/".join(folder.parts[-2:])
    call(here, "report", str(folder), f"--output={here}/reports/{name}")
    return values.under(f"report/{name}", values.of_report(here / "reports" / name))


# What makes the values of each part, in a folder.
PARTS: dict[str, Callable[[Path], Values]] = {
    **{corpus: partial(fitted, corpus=corpus) for corpus in RUNS},
    **{f"{corpus}_kept": partial(tested, corpus=corpus) for corpus in RUNS},
}
