"""Write what the guard expects, with the code at hand: `python -m tests.guard`.

It is run only for a change of numbers that a commit names with its reason. Kept checkpoints are not
written again: they are of the first format.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

import tests.conftest  # noqa: F401
from tests.guard import running, runs, values


def main() -> None:
    """Write the values of each part, all parts or those that are named."""
    torch.set_num_threads(1)
    named = sys.argv[1:]
    with TemporaryDirectory() as folder:
        here = Path(folder)
        os.environ["ATTNLIGHT_CACHE"] = str(here / "cache")
        running.prepare(here)
        for corpus in runs.BASES:
            if not named or corpus in named:
                found = running.base(here, corpus)
                running.keep_base(here, corpus)
                values.write(running.kept(corpus), found | running.variants(here, corpus))
        for study in runs.STUDIES.iterdir():
            if not named or study.name in named:
                values.write(running.kept(study.name), running.report(here, study))
        for name, part in (
            ("conditions", lambda: running.conditions(here)),
            ("docs", running.docs),
        ):
            if not named or name in named:
                values.write(running.kept(name), part())


if __name__ == "__main__":
    main()
