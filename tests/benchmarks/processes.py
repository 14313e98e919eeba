"""What commands cost in processes of their own: the memory of a run, and the time of `--help`."""

from __future__ import annotations

import re
import resource
import tempfile
import time
from collections.abc import Sequence
from functools import partial
from itertools import product
from pathlib import Path

import numpy as np

from tests.benchmarks.measuring import Measured, clock, interleave, over
from tests.commands import CONFIGS, CPU, QUIET, ROOT, experiment, finish, start

SMALL, LARGE = 100_000, 1_000_000
SHARES = {"train": 0.4, "validation": 0.3, "test": 0.3}
MIB = 1024**2
INTERVAL = 0.02  # seconds between two looks at a process
PREDICTIONS = ["-c", f"{CONFIGS}/tests/predictions.yaml"]
EXPLAIN = ["-m", "attnlight", "explain", "sst", "a gripping, funny film"]
HELP = ["-m", "attnlight", "--help"]
ROWS = 2_000_000, 5_000_000, 20_000_000
# Two ranks' rows, half each, and their merging; arguments are a folder, a number of rows and an order.
WRITE_SHARDS = """
import sys
from pathlib import Path
import numpy as np
from attnlight.records import ShardWriter
folder, count, order = sys.argv[1:]
index = np.arange(int(count))
if order == "shuffled":
    index = np.random.default_rng(0).permutation(index)
for rank in (0, 1):
    writer = ShardWriter(Path(folder, f"{rank}.arrow"))
    for mine in np.array_split(index[rank::2], max(1, len(index) // 2048)):
        values = {"prediction": mine % 3, "tvd": (mine / len(index)).astype("f4"), "js": mine % 7 / 7}
        writer.add(np.stack([mine, np.zeros_like(mine)], 1), values)
    writer.close()
"""
MERGE_SHARDS = """
import sys
from pathlib import Path
import numpy as np
from attnlight.records import merge_shards
folder, count = Path(sys.argv[1]), int(sys.argv[2])
shards, expected = [folder / "0.arrow", folder / "1.arrow"], np.arange(count)
assert merge_shards(shards, folder / "merged.parquet", metadata={}, expected=expected) == count
"""
LIGHTNING = ["-c", "import lightning.pytorch"]


def growth() -> Measured:
    """MiB by which the peak over the large corpus exceeds that over the small one."""
    with tempfile.TemporaryDirectory(prefix="attnlight-memory-") as folder:
        peaks = {size: run_peaks(size, Path(folder)) for size in (SMALL, LARGE)}
    rise = (max(peaks[LARGE].values()) - max(peaks[SMALL].values())) / MIB
    details = {
        f"{size:,} texts": ", ".join(f"{verb} {peak / MIB:.0f} MiB" for verb, peak in each.items())
        for size, each in peaks.items()
    }
    return Measured({"memory_growth": [rise]}, details)


def from_csv(sizes: Sequence[int] = (250_000, LARGE)) -> Measured:
    """MiB by which the peak over the most texts of raw CSV files exceeds that over the fewest."""
    peaks, details = {}, {}
    for size in sizes:
        with tempfile.TemporaryDirectory(prefix="attnlight-csv-") as folder:
            began = processor_time()
            peaks[size] = csv_peaks(size, Path(folder))
            seconds = processor_time() - began
        each = ", ".join(f"{verb} {peak / MIB:.0f} MiB" for verb, peak in peaks[size].items())
        details[f"{size:,} texts of CSV"] = f"{each}; {seconds:.0f} s of processor time"
    rise = (max(peaks[max(sizes)].values()) - max(peaks[min(sizes)].values())) / MIB
    return Measured({"csv_memory": [rise]}, details)


def csv_peaks(size: int, folder: Path) -> dict[str, int]:
    """Peak in bytes of fitting an average of words on `size` short texts, and of testing it."""
    random, words = np.random.default_rng(0), np.array([f"word{n}" for n in range(5_000)])
    (folder / "data").mkdir()
    for split, share in SHARES.items():
        with (folder / "data" / f"{split}.csv").open("w", encoding="utf-8") as file:
            file.write("text,label\n")
            for start_of in range(0, round(share * size), 10_000):
                count = min(10_000, round(share * size) - start_of)
                drawn = words[random.integers(0, len(words), (count, 12))]
                labels = random.integers(0, 2, count)
                rows = zip(drawn.tolist(), labels.tolist(), strict=True)
                file.writelines(f"{' '.join(text)},{label}\n" for text, label in rows)
    options = ["--data.eval_batch_size=500", "--data.batch_size=500", *PREDICTIONS, *QUIET, *CPU]
    fit = ["fit", "--model", "average_additive", "--data", str(folder / "data"), *options]
    fit += ["--root", str(folder), "--experiment", "csv", "--run", "one", "--trainer.max_epochs=1"]
    fit += ["--model.net.embedding_size=32"]
    commands = {"fit": fit, "test": ["test", str(folder / "csv" / "one"), *PREDICTIONS]}
    cache = str(folder / "cache")
    return {
        verb: peak(["-m", "attnlight", *each], ATTNLIGHT_CACHE=cache)
        for verb, each in commands.items()
    }


def run_peaks(size: int, folder: Path) -> dict[str, int]:
    """Peak of each verb in bytes, over a corpus of `size` texts."""
    run = folder / "checkpoints" / "memory" / str(size)
    fit = [*experiment("planted_none"), *PREDICTIONS, *QUIET, *CPU, *sizes(size)]
    fit += ["--root", str(folder / "checkpoints"), "--experiment", "memory", "--run", str(size)]
    again = ["-c", str(run / "fit.yaml"), *PREDICTIONS, "--ckpt_path", str(run / "best.ckpt")]
    verbs = {"fit": [*fit, "--trainer.max_epochs=1"], "validate": again, "test": again}
    cache = str(folder / "cache")
    return {
        verb: peak(["-m", "attnlight", verb, *arguments], ATTNLIGHT_CACHE=cache)
        for verb, arguments in verbs.items()
    }


def sizes(size: int) -> list[str]:
    """Options of a corpus of `size` texts of 30 to 60 tokens, in large batches to be quick."""
    splits = [f"--data.{split}_size={round(share * size)}" for split, share in SHARES.items()]
    lengths = ["--data.min_tokens=30", "--data.max_tokens=60"]
    batches = [f"--data.{name}batch_size=500" for name in ("", "eval_")]
    return [*splits, *lengths, *batches, "--model.net.embedding_size=64"]


def peak(arguments: list[str], **environment: str) -> int:
    """Largest RssAnon, in bytes, of a Python process that runs to its end, without an error."""
    process, largest = start(arguments, cwd=ROOT, **environment), 0
    while process.poll() is None:
        largest = max(largest, anonymous(process.pid))
        time.sleep(INTERVAL)
    finish(process)
    return largest


def anonymous(process: int) -> int:
    """RssAnon of a process in bytes: what it holds that is no map of a file; 0 once it has ended."""
    _, resident, shared, *_ = Path(f"/proc/{process}/statm").read_text(encoding="ascii").split()
    return (int(resident) - int(shared)) * resource.getpagesize()


def merging(rows: Sequence[int] = ROWS) -> Measured:
    """MiB by which the peaks of merging two ranks' rows differ, between numbers and orders of rows."""
    peaks: dict[str, int] = {}
    for count, order in product(rows, ("sorted", "shuffled")):
        with tempfile.TemporaryDirectory(prefix="attnlight-merge-") as folder:
            python("-c", WRITE_SHARDS, folder, str(count), order)
            peaks[f"{count:,} rows, {order}"] = peak(["-c", MERGE_SHARDS, folder, str(count)])
    rise = (max(peaks.values()) - min(peaks.values())) / MIB
    details = {name: f"{bytes_ / MIB:.0f} MiB" for name, bytes_ in peaks.items()}
    return Measured({"merging": [rise]}, details)


def startup(repetitions: int = 7) -> Measured:
    """Time of `--help` over importing Lightning, and processor time of `explain` over importing torch."""
    commands = {"attnlight --help": HELP, "import lightning.pytorch": LIGHTNING}
    ways = {name: partial(clock, partial(python, *each)) for name, each in commands.items()}
    commands = {"attnlight explain": EXPLAIN, "import torch": ["-c", "import torch"]}
    ways |= {
        name: partial(clock, partial(python, *each), timer=processor_time)
        for name, each in commands.items()
    }
    helped, lightning, explained, torch = ways
    benchmarks = {"help_cost": (helped, lightning), "explain_start": (explained, torch)}
    return over(interleave(ways, repetitions), **benchmarks)


def processor_time() -> float:
    """Seconds of processor time of all processes that were started here and have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def python(*arguments: str, status: int = 0) -> str:
    """What a new Python process prints; it must end with `status`."""
    return finish(start(arguments, cwd=ROOT), status)


def modules_after(*arguments: str, status: int = 0) -> set[str]:
    """Top-level modules that a command of attnlight imports."""
    printed = python("-X", "importtime", "-m", "attnlight", *arguments, status=status)
    return set(re.findall(r"^import time:.*\| +(\w+)", printed, re.MULTILINE))
