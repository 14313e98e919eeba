import pytest

from tests.benchmarks.processes import HELP, MIB, modules_after, peak, python

HEAVY = {"torch", "lightning", "torchmetrics", "datasets", "wandb", "matplotlib", "scipy"}
HEAVY |= {"gensim"}


def test_a_peak_that_is_gone_at_the_end_is_seen() -> None:
    low, high = (
        peak(["-c", f"import time; data = {data}; time.sleep(0.5); del data"])
        for data in ("b''", "bytearray(b'x') * (200 * 2**20)")
    )
    assert high - low == pytest.approx(200 * MIB, abs=8 * MIB)
    assert low > MIB


def test_a_mapped_file_is_no_anonymous_memory() -> None:
    program = (
        "import mmap, sys, tempfile, time\n"
        "with tempfile.TemporaryFile() as file:\n"
        "    file.truncate(100 * 2**20)\n"
        "    view = mmap.mmap(file.fileno(), 0)\n"
        "    read = sum(view[place] for place in range(0, len(view), 4096))\n"
        "    time.sleep(0.5)\n"
    )
    assert peak(["-c", program]) < 50 * MIB


def test_a_failure_is_no_measurement() -> None:
    with pytest.raises(AssertionError, match="no memory left"):
        peak(["-c", "raise MemoryError('no memory left')"])


def test_the_measured_command_prints_the_help() -> None:
    assert python(*HELP).startswith("usage: attnlight VERB")


@pytest.mark.parametrize("words", ["--help", "--version", "report --help", "vectors --help"])
def test_help_imports_nothing_heavy(words: str) -> None:
    loaded = modules_after(*words.split())
    assert "attnlight" in loaded
    assert not loaded & HEAVY


@pytest.mark.slow
def test_what_a_verb_imports_is_seen() -> None:
    # An option that is not there: the verb's modules are imported, then its parser stops.
    assert {"torch", "lightning"} <= modules_after("fit", "--no-such-option", status=2)
