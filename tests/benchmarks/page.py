"""Results of the benchmarks on disk, and the page that is made of them."""

from __future__ import annotations

import json
import os
import platform
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from tests.benchmarks.measuring import Measurement, measured
from tests.benchmarks.suite import GROUPS, Benchmark
from tests.commands import ROOT

RESULTS = Path(__file__).with_name("results.json")
PAGE = ROOT / "docs" / "performance.md"
BEGIN, END = "<!-- benchmarks: begin -->", "<!-- benchmarks: end -->"
LIBRARIES = ("torch", "lightning", "torchmetrics", "numpy", "pyarrow")


@dataclass(frozen=True)
class Result:
    """A measurement and the circumstances it was made in.

    Args:
        values: The value of each repetition.
        details: What else was measured.
        threads: Threads of torch.
        date: Day of the measurement, UTC.
        machine: Processor, number of cores, system.
        load: Load averages of the machine when it began, over 1, 5 and 15 minutes.
        versions: Python and the libraries that matter.
    """

    values: list[float]
    details: dict[str, str]
    threads: int
    date: str
    machine: str
    load: str
    versions: str

    @property
    def measurement(self) -> Measurement:
        """What is held against the bound."""
        return Measurement(self.values, self.details)


def circumstances() -> dict[str, str]:
    """Date, machine, load and versions of now."""
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "machine": f"{_processor()}, {os.cpu_count()} cores, {platform.system()}",
        "load": ", ".join(f"{load:.1f}" for load in os.getloadavg()),
        "versions": ", ".join(
            [f"Python {platform.python_version()}", *(f"{n} {version(n)}" for n in LIBRARIES)]
        ),
    }


def _processor() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return platform.machine()
    found = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    return found[1] if found else platform.machine()


def read_results(path: Path = RESULTS) -> dict[str, Result]:
    """Results by benchmark; none where the file is missing."""
    if not path.is_file():
        return {}
    held = json.loads(path.read_text(encoding="utf-8"))
    return {name: Result(**fields) for name, fields in held.items()}


def write_results(results: Mapping[str, Result], path: Path = RESULTS) -> None:
    """Keep results for a page that is made of several calls."""
    held = {name: asdict(results[name]) for name in sorted(results)}
    path.write_text(json.dumps(held, indent=2) + "\n", encoding="utf-8")


def with_tables(page: str, results: Mapping[str, Result]) -> str:
    """The page with its generated part made anew."""
    before, rest = page.split(BEGIN)
    _, after = rest.split(END)
    return f"{before}{BEGIN}\n\n{tables(results)}\n\n{END}{after}"


def tables(results: Mapping[str, Result]) -> str:
    """One table of all bounds, then a section for what each group measured."""
    rows = ["| what | bound | measured | |", "|---|---|---|---|"]
    rows += [row(b, results.get(b.name)) for g in GROUPS.values() for b in g.benchmarks]
    sections = [section(name, results) for name in GROUPS]
    return "\n\n".join(["\n".join(rows), *(text for text in sections if text)])


def row(benchmark: Benchmark, result: Result | None) -> str:
    """The benchmark's row in the table of bounds."""
    side = "at least" if benchmark.at_least else "at most"
    bound = f"{side} {quantity(benchmark.bound, benchmark.unit)}"
    if result is None:
        return f"| {benchmark.asks} | {bound} | not measured | |"
    measurement = result.measurement
    verdict = "met" if benchmark.met(measurement) else "**missed**"
    if benchmark.undecided(measurement):
        verdict += " by the median; the repetitions disagree"
    return f"| {benchmark.asks} | {bound} | {measured(measurement, benchmark.unit)} | {verdict} |"


def quantity(value: float, unit: str) -> str:
    """A value with its unit: "0.4", "15 %", "100 MiB"."""
    return f"{value:g} {unit}" if unit else f"{value:g}"


def section(group: str, results: Mapping[str, Result]) -> str:
    """What a group measured and where; empty without results."""
    found = [results[b.name] for b in GROUPS[group].benchmarks if b.name in results]
    if not found:
        return ""
    result = found[0]
    threads = f"{result.threads} thread" + ("s" if result.threads > 1 else "")
    lines = [f"### {group}", "", f"`python -m tests.benchmarks {group}`", ""]
    lines += [f"* {name}: {text}" for name, text in details(found).items()]
    lines += [
        f"* {result.date}, {result.machine}, {threads}, load averages before: {result.load}",
        f"* {result.versions}",
    ]
    return "\n".join(lines)


def details(found: Iterable[Result]) -> dict[str, str]:
    """What else was measured with some results, each thing once."""
    said: dict[str, str] = {}
    for result in found:
        said |= {name: text for name, text in result.details.items() if name not in said}
    return said
