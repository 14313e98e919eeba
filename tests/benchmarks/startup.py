"""What the command line costs before it does anything."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence

from tests.benchmarks.measuring import Measurement, interleave, spread
from tests.commands import ROOT

REPETITIONS = 7
HELP = ["-m", "attnlight", "--help"]
LIGHTNING = ["-c", "import lightning.pytorch"]


def help_cost(repetitions: int = REPETITIONS) -> dict[str, Measurement]:
    """Time of `attnlight --help` over that of importing Lightning, each in a new process."""
    seconds = interleave(
        {"help": lambda: python(HELP), "lightning": lambda: python(LIGHTNING)}, repetitions
    )
    times = {
        "attnlight --help": spread(seconds["help"]),
        "import lightning.pytorch": spread(seconds["lightning"]),
    }
    return {"help_cost": Measurement.of_ratios(seconds["help"], seconds["lightning"], times)}


def python(arguments: Sequence[str]) -> str:
    """What a new Python process prints; it must end well."""
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env=os.environ | {"WANDB_MODE": "disabled"},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


def modules_after(*arguments: str) -> set[str]:
    """Top-level modules that are loaded when a command of attnlight has run."""
    program = (
        "import sys\n"
        "from attnlight.__main__ import main\n"
        "try:\n"
        f"    main({list(arguments)!r})\n"
        "except SystemExit:\n"
        "    pass\n"
        "print('\\nLOADED', *{name.partition('.')[0] for name in sys.modules})\n"
    )
    line = python(["-c", program]).splitlines()[-1]
    return set(line.split()[1:])
