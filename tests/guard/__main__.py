"""Write what the guard expects, with the code at hand: `python -m tests.guard [PART ...]`.

It is run only for a change of numbers that a commit names with its reason. Kept checkpoints are not
written again.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

import tests.conftest  # noqa: F401  no W&B, no hub
from tests.guard import running, values


def main(named: list[str]) -> None:
    """Write the values of the parts that are named, or of all."""
    torch.set_num_threads(1)
    for part in named or running.PARTS:
        with TemporaryDirectory() as folder:
            os.environ["ATTNLIGHT_CACHE"] = str(Path(folder, "cache"))
            running.prepare(Path(folder))
            found = running.PARTS[part](Path(folder))
            values.write(running.EXPECTED / f"{part}.parquet", found)


if __name__ == "__main__":
    main(sys.argv[1:])
