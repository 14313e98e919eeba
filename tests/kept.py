"""Kept run folders whose records are simulated, and the modules of docs/ that read them."""

from __future__ import annotations

import importlib
import json
import os
import re
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType

import numpy as np
from filelock import FileLock

from tests.report.fake import Rows, rows_of, write_metrics, write_record

DOCS = Path(__file__).parents[1] / "docs"
sys.path.insert(0, str(DOCS))  # the scripts of docs/ are no part of the package
FRONT = DOCS / "results.md"
PAGES = [FRONT, *sorted((DOCS / "results").glob("*.md"))]
PAGE = "\n".join(path.read_text(encoding="utf-8") for path in PAGES)
PLACE = re.compile(r"<!-- (\w+): begin -->\n(.*?)<!-- \1: end -->", re.DOTALL)
BLOCKS = {name: text.strip("\n") + "\n" for name, text in PLACE.findall(PAGE)}


def page(name: str) -> ModuleType:
    """A module of docs/results_page."""
    return importlib.import_module(f"results_page.{name}")


@cache
def _unpacked() -> TemporaryDirectory[str]:
    folder = TemporaryDirectory()  # removed when Python ends
    page("packed").unpack(DOCS / "results", Path(folder.name))
    return folder


@cache
def archived() -> Path:
    """The root of the archived run and study folders, unpacked once for all workers of a session."""
    if "PYTEST_XDIST_WORKER" not in os.environ:
        return Path(_unpacked().name)
    folder = Path(os.environ["ATTNLIGHT_CACHE"]).with_name("archived")
    part = folder.with_name("unpacked in part")
    with FileLock(f"{folder}.lock"):
        if not folder.exists():
            page("packed").unpack(DOCS / "results", part)
            part.rename(folder)
    return folder


def write_kept(root: Path, experiment: str, records: Mapping[str, Rows], *, seed: int = 0) -> Path:
    """Write a run folder that was fitted for two epochs and tested."""
    run = root / experiment / f"seed{seed}"
    for test, rows in records.items():
        path = run / f"records/test/{test}.parquet"
        write_record(path, rows, test=test, stage="test", partial=False, measures=[])
    (run / "fit.yaml").write_text(f"seed_everything: {seed}\nroot: elsewhere\n")
    curves = "epoch,val/accuracy,val/auroc,val/loss\n0,0.5,0.7,0.9\n1,0.6,0.8,0.8\n"
    write_metrics(run / "logs" / "version_0", curves)
    (run / "status.json").write_text(json.dumps({"state": "finished"}))
    return run


def serrano_records(n: int = 80, classes: int = 4, seed: int = 0) -> dict[str, Rows]:
    """Records of three tests on Serrano & Smith's models; texts of one item are undefined."""
    records = {
        test: rows_of(test, n, classes, seed)
        for test in ("predictions", "single_erasure", "decision_flip")
    }
    alone = records["decision_flip"]["length"] == 1
    for name, values in records["single_erasure"].items():
        if name.startswith(("flip", "delta", "outdone")):
            values[alone] = np.nan
    return records
