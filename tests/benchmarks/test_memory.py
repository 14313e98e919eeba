import os
import subprocess
import sys

import pytest

from tests.benchmarks.memory import MIB, anonymous, peak

GROW = "data = bytearray(b'x') * (200 * 2**20); del data"


def test_a_peak_that_is_gone_at_the_end_is_seen() -> None:
    wait = "import time; "
    low = peak(["-c", f"{wait} time.sleep(0.5)"], {})
    high = peak(["-c", f"{wait} {GROW.replace('; del', '; time.sleep(0.5); del')}"], {})
    assert high - low == pytest.approx(200 * MIB, abs=8 * MIB)


def test_a_mapped_file_is_no_anonymous_memory() -> None:
    program = (
        "import mmap, sys, tempfile, time\n"
        "with tempfile.TemporaryFile() as file:\n"
        "    file.truncate(100 * 2**20)\n"
        "    view = mmap.mmap(file.fileno(), 0)\n"
        "    read = sum(view[place] for place in range(0, len(view), 4096))\n"
        "    time.sleep(0.5)\n"
    )
    assert peak(["-c", program], {}) < 50 * MIB


def test_this_process_holds_something() -> None:
    assert anonymous(os.getpid()) > MIB


def test_a_process_that_is_gone_holds_nothing() -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    assert anonymous(process.pid) == 0


def test_a_failure_is_no_measurement() -> None:
    with pytest.raises(RuntimeError, match="no memory left"):
        peak(["-c", "raise MemoryError('no memory left')"], {})
