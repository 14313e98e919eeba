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
from tests.guard import runs, values

torch.set_num_threads(1)
for part in sys.argv[1:] or runs.PARTS:
    with TemporaryDirectory() as folder:
        os.environ["ATTNLIGHT_CACHE"] = str(Path(folder, "cache"))
        values.write(runs.EXPECTED / f"{part}.csv", runs.PARTS[part](Path(folder)))
