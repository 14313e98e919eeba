"""The groups of `benchmarks.yaml`, their results on disk, and the tables made of them."""

from __future__ import annotations

import json
import os
import platform
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

import torch
import yaml

from tests.commands import ROOT

RESULTS = Path(__file__).with_name("results.json")
PAGE = ROOT / "docs" / "performance.md"
LIBRARIES = ("torch", "lightning", "torchmetrics", "numpy", "pyarrow")
GROUPS: dict[str, dict[str, Any]] = yaml.safe_load(
    Path(__file__).with_name("benchmarks.yaml").read_text(encoding="utf-8")
)


def groups_of(device: str) -> dict[str, dict[str, Any]]:
    """The groups that are measured on "cpu" or "cuda"."""
    return {name: each for name, each in GROUPS.items() if device in each.get("devices", ["cpu"])}


def circumstances(threads: int, device: str = "cpu") -> list[str]:
    """Date, machine, threads of torch, load and versions of now, in two lines of the page."""
    model = re.search(r"model name\s*:\s*(.+)", Path("/proc/cpuinfo").read_text(encoding="utf-8"))
    machine = f"{model[1] if model else platform.machine()}, {os.cpu_count()} cores"
    if device == "cuda":
        machine = f"{torch.cuda.get_device_name()}, {machine}"
    number = f"{threads} thread{'s' * (threads > 1)}"
    load = "load averages before: " + ", ".join(f"{load:.1f}" for load in os.getloadavg())
    today = f"{datetime.now(UTC):%Y-%m-%d}"
    libraries = (f"{name} {version(name)}" for name in LIBRARIES)
    return [
        f"{today}, {machine}, {platform.system()}, {number}, {load}",
        ", ".join([f"Python {platform.python_version()}", *libraries]),
    ]


def row(benchmark: Mapping[str, Any], values: Sequence[float]) -> str:
    """The row of a benchmark in the table of bounds."""
    side = "least" if "at_least" in benchmark else "most"
    bound, unit = benchmark[f"at_{side}"], benchmark.get("unit", "")
    digits, middle = {"": 3, "times": 2}.get(unit, 1), median(values)
    measured = f"{middle:.{digits}f} {unit}".rstrip()
    if len(values) > 1:
        measured += f" ({min(values):.{digits}f} to {max(values):.{digits}f} over {len(values)})"
    met, *each = (
        value >= bound if side == "least" else value <= bound for value in (middle, *values)
    )
    verdict = "met" if met else "**missed**"
    if len(set(each)) > 1:
        verdict += " by the median; the repetitions disagree"
    stated = f"at {side} {bound:g} {unit}".rstrip()
    return f"| {benchmark['asks']} | {stated} | {measured} | {verdict} |"


def read_results() -> dict[str, dict[str, dict[str, Any]]]:
    """Values, details and circumstances of each group that was measured, by device."""
    results: dict[str, dict[str, dict[str, Any]]] = json.loads(RESULTS.read_text(encoding="utf-8"))
    return results


def tables(results: Mapping[str, Mapping[str, Any]], device: str = "cpu") -> str:
    """The bounds of the groups that were measured on a device, then a section per group."""
    rows, sections = ["| what | bound | measured | |", "|---|---|---|---|"], []
    for name in (name for name in GROUPS if name in results):
        result, benchmarks = results[name], GROUPS[name]["benchmarks"]
        rows += [row(benchmark, result["values"][key]) for key, benchmark in benchmarks.items()]
        details = [f"{title}: {text}" for title, text in result["details"].items()]
        lines = [f"* {line}" for line in (*details, *result["circumstances"])]
        on = " --device cuda" if device == "cuda" else ""
        heading = [f"### {name}", "", f"`python -m tests.benchmarks{on} {name}`", ""]
        sections.append("\n".join([*heading, *lines]))
    return "\n\n".join(["\n".join(rows), *sections])


def with_tables(page: str, results: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> str:
    """The page with its parts between the markers of each device made anew."""
    for device, found in results.items():
        begin, end = (f"<!-- benchmarks {device}: {where} -->" for where in ("begin", "end"))
        before, rest = page.split(begin)
        _, after = rest.split(end)
        page = f"{before}{begin}\n\n{tables(found, device)}\n\n{end}{after}"
    return page
