"""Peak anonymous memory of a whole run, on a small and on a large corpus."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.benchmarks.measuring import Measurement
from tests.commands import CONFIGS, CPU, QUIET, ROOT, experiment

SMALL, LARGE = 100_000, 1_000_000
SHARES = {"train": 0.4, "validation": 0.3, "test": 0.3}
VERBS = ("fit", "validate", "test")
MIB = 1024**2
INTERVAL = 0.02  # seconds between two looks at a process
PREDICTIONS = ["-c", f"{CONFIGS}/tests/predictions.yaml"]


def growth() -> dict[str, Measurement]:
    """MiB by which the peak over the large corpus exceeds that over the small one."""
    with tempfile.TemporaryDirectory(prefix="attnlight-memory-") as folder:
        peaks = {size: run_peaks(size, Path(folder)) for size in (SMALL, LARGE)}
    rise = (max(peaks[LARGE].values()) - max(peaks[SMALL].values())) / MIB
    details = {
        f"{size:,} texts": ", ".join(f"{verb} {peaks[size][verb] / MIB:.0f} MiB" for verb in VERBS)
        for size in peaks
    }
    return {"memory_growth": Measurement([rise], details)}


def run_peaks(size: int, folder: Path) -> dict[str, int]:
    """Peak of each verb in bytes, over a corpus of `size` texts."""
    run, data = folder / "checkpoints" / "memory" / str(size), sizes(size)
    environment = {
        "ATTNLIGHT_CACHE": str(folder / "cache"),
        "OMP_NUM_THREADS": "1",
        "WANDB_MODE": "disabled",
    }
    fit = [*experiment("planted_none"), *PREDICTIONS, *QUIET, *CPU, *data, "--run", str(size)]
    fit += ["--root", str(folder / "checkpoints"), "--experiment", "memory"]
    again = ["-c", str(run / "fit.yaml"), *PREDICTIONS, "--ckpt_path", str(run / "best.ckpt")]
    commands = {
        "fit": [*fit, "--trainer.max_epochs=1"],
        "validate": again,
        "test": again,
    }
    return {verb: peak(["-m", "attnlight", verb, *commands[verb]], environment) for verb in VERBS}


def sizes(size: int) -> list[str]:
    """Options of a corpus of `size` texts of 30 to 60 tokens, all splits together.

    Large batches and small embeddings make it quick; neither depends on the size.
    """
    splits = [f"--data.{split}_size={round(share * size)}" for split, share in SHARES.items()]
    lengths = ["--data.min_tokens=30", "--data.max_tokens=60"]
    batches = ["--data.batch_size=500", "--data.eval_batch_size=500", "--model.embedding_size=64"]
    return [*splits, *lengths, *batches]


def peak(arguments: list[str], environment: dict[str, str]) -> int:
    """Largest RssAnon, in bytes, of a Python process that runs to its end.

    Raises:
        RuntimeError: It failed.
    """
    with tempfile.TemporaryFile(mode="w+") as output:
        process = subprocess.Popen(
            [sys.executable, *arguments],
            cwd=ROOT,
            env=os.environ | environment,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        largest = 0
        while process.poll() is None:
            largest = max(largest, anonymous(process.pid))
            time.sleep(INTERVAL)
        if process.returncode:
            output.seek(0)
            raise RuntimeError(f"{' '.join(arguments)} failed:\n{output.read()[-3000:]}")
    return largest


def anonymous(process: int) -> int:
    """RssAnon of a process in bytes: what it holds that is no map of a file; 0 once it is gone."""
    try:
        status = Path(f"/proc/{process}/status").read_text(encoding="ascii")
    except OSError:
        return 0
    found = re.search(r"^RssAnon:\s+(\d+) kB$", status, re.MULTILINE)
    return 1024 * int(found[1]) if found else 0
