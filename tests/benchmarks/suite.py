"""The benchmarks of `benchmarks.yaml`, their results on disk, and the tables made of them."""

from __future__ import annotations

import json
import os
import platform
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib import import_module
from importlib.metadata import version
from pathlib import Path

import yaml

from tests.benchmarks.measuring import Measurement
from tests.commands import ROOT

RESULTS = Path(__file__).with_name("results.json")
PAGE = ROOT / "docs" / "performance.md"
BEGIN, END = "<!-- benchmarks: begin -->", "<!-- benchmarks: end -->"
LIBRARIES = ("torch", "lightning", "torchmetrics", "numpy", "pyarrow")


@dataclass(frozen=True)
class Benchmark:
    """One number and the bound that it must stay within.

    Args:
        name: What results know it by.
        asks: What is measured, for the page.
        at_most: The largest value that passes.
        at_least: The smallest value that passes.
        unit: Unit of value and bound; empty for a ratio.
    """

    name: str
    asks: str
    at_most: float = float("inf")
    at_least: float = float("-inf")
    unit: str = ""

    def row(self, result: Result | None) -> str:
        """The row in the table of bounds."""
        side, bound = "most", self.at_most
        if bound == float("inf"):
            side, bound = "least", self.at_least
        cells = [self.asks, f"at {side} {bound:g}{f' {self.unit}' if self.unit else ''}"]
        if result is None:
            return f"| {' | '.join([*cells, 'not measured'])} | |"
        measurement = result.measurement
        median, *values = (
            self.at_least <= value <= self.at_most
            for value in (measurement.median, *measurement.values)
        )
        verdict = "met" if median else "**missed**"
        if len(set(values)) > 1:
            verdict += " by the median; the repetitions disagree"
        return f"| {' | '.join([*cells, measurement.text(self.unit), verdict])} |"


@dataclass(frozen=True)
class Group:
    """Benchmarks that are measured together.

    Args:
        benchmarks: What is measured.
        threads: Threads of torch.
        run: Where the function stands that measures them: `module.function`.
    """

    benchmarks: tuple[Benchmark, ...]
    threads: int
    run: str

    @property
    def function(self) -> Callable[..., Mapping[str, Measurement]]:
        """What measures: a `Measurement` by the name of each benchmark."""
        module, _, name = self.run.partition(".")
        found: Callable[..., Mapping[str, Measurement]]
        found = getattr(import_module(f"tests.benchmarks.{module}"), name)
        return found


def _groups() -> dict[str, Group]:
    file = Path(__file__).with_name("benchmarks.yaml")
    return {
        name: Group(
            tuple(Benchmark(known, **fields) for known, fields in group.pop("benchmarks").items()),
            **group,
        )
        for name, group in yaml.safe_load(file.read_text(encoding="utf-8")).items()
    }


GROUPS = _groups()


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
    cpuinfo = Path("/proc/cpuinfo")
    text = cpuinfo.read_text(encoding="utf-8") if cpuinfo.exists() else ""
    model = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    processor = model[1] if model else platform.machine()
    libraries = [f"{name} {version(name)}" for name in LIBRARIES]
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "machine": f"{processor}, {os.cpu_count()} cores, {platform.system()}",
        "load": ", ".join(f"{load:.1f}" for load in os.getloadavg()),
        "versions": ", ".join([f"Python {platform.python_version()}", *libraries]),
    }


def read_results(path: Path = RESULTS) -> dict[str, Result]:
    """Results by benchmark; none where the file is missing."""
    stored = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    return {name: Result(**fields) for name, fields in stored.items()}


def write_results(results: Mapping[str, Result], path: Path = RESULTS) -> None:
    """Keep results for a page that is made of several calls."""
    stored = {name: asdict(results[name]) for name in sorted(results)}
    path.write_text(json.dumps(stored, indent=2) + "\n", encoding="utf-8")


def with_tables(page: str, results: Mapping[str, Result]) -> str:
    """The page with its part between the markers made anew: bounds, then a section per group."""
    before, rest = page.split(BEGIN)
    _, after = rest.split(END)
    rows = ["| what | bound | measured | |", "|---|---|---|---|"]
    rows += [b.row(results.get(b.name)) for group in GROUPS.values() for b in group.benchmarks]
    parts = ["\n".join(rows)]
    for name, group in GROUPS.items():
        found = [results[b.name] for b in group.benchmarks if b.name in results]
        if found:
            first = found[0]
            threads = f"{first.threads} thread{'s' if first.threads > 1 else ''}"
            lines = [f"### {name}", "", f"`python -m tests.benchmarks {name}`", ""]
            lines += [f"* {title}: {text}" for title, text in details(found).items()]
            where = f"{first.date}, {first.machine}, {threads}"
            lines += [f"* {where}, load averages before: {first.load}", f"* {first.versions}"]
            parts.append("\n".join(lines))
    return "\n\n".join([before + BEGIN, *parts, END + after])


def details(found: Iterable[Result]) -> dict[str, str]:
    """What else was measured with some results, each thing once."""
    every: dict[str, str] = {}
    for result in found:
        every |= {name: text for name, text in result.details.items() if name not in every}
    return every
