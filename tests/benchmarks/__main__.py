"""Run benchmarks, print them and write docs/performance.md: `python -m tests.benchmarks [GROUP ...]`."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pkgutil import resolve_name

import torch

from tests.benchmarks import suite
from tests.benchmarks.suite import GROUPS, PAGE
from tests.conftest import CORPORA


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the groups that are named, or all; each in a process of its own with its threads."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description=__doc__)
    parser.add_argument("groups", nargs="*", metavar="GROUP", help=f"of {', '.join(GROUPS)}")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu", help="default: cpu")
    parser.add_argument("--page-only", action="store_true", help="write the page from old results")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    groups = suite.groups_of(options.device)
    if unknown := sorted(set(options.groups) - set(groups)):
        parser.error(f"there is no group {unknown[0]!r} on {options.device}")
    if not options.page_only:
        for name in options.groups or groups:
            (measure if options.here else start)(name, options.device)
    if not options.here:
        page = suite.with_tables(PAGE.read_text(encoding="utf-8"), suite.read_results())
        PAGE.write_text(page, encoding="utf-8")


def start(name: str, device: str) -> None:
    """Measure a group in a new process, whose libraries start with the group's threads."""
    threads = str(GROUPS[name]["threads"])
    settings = {"OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads, "WANDB_MODE": "disabled"}
    # Threads that wait in a loop would fight what else runs on the machine for its cores.
    settings["OMP_WAIT_POLICY"] = "ACTIVE"
    data = {"ATTNLIGHT_DATA": os.environ.get("ATTNLIGHT_DATA", str(CORPORA))}
    command = [sys.executable, "-m", "tests.benchmarks", "--here", "--device", device, name]
    subprocess.run(command, env=os.environ | settings | data, check=True)


def measure(name: str, device: str) -> None:
    """Measure a group here, print it and keep the results."""
    group = GROUPS[name]
    now = suite.circumstances(group["threads"], device)
    torch.set_default_device(device)
    torch.set_num_threads(group["threads"])
    found = asdict(resolve_name(f"tests.benchmarks.{group['run']}")()) | {"circumstances": now}
    results = suite.read_results()
    results[device] = results.get(device, {}) | {name: found}
    suite.RESULTS.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    print(suite.tables({name: found}, device), flush=True)


if __name__ == "__main__":
    main()
