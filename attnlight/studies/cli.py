"""`attnlight study`: run a plan of runs and write a paper's tables."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from attnlight.arguments import VerbParser
from attnlight.errors import InputError
from attnlight.studies.collect import JSON, collect
from attnlight.studies.executor import Executor, minutes
from attnlight.studies.plan import ROLES, PlannedRun, deal, digests, plan
from attnlight.studies.spec import read_studies
from attnlight.studies.state import StudyFolder, locked, require_same_plan, working

DESCRIPTION = """\
Train and test every run of a study (Wiegreffe & Pinter 2019: base, uniform attention, other seeds,
guided models, adversaries), collect what they say into study.json and study.parquet, and write the
paper's tables and figures; a file with conditions is one study for each. What is done is not done
again: after an interruption the same command goes on. Each run is an ordinary folder with a fit.yaml
of its own."""
EPILOG = """\
On several machines, or as a SLURM array, with one ROOT that all see: first `attnlight study FILE
--only base`, then `attnlight study FILE --shard I/N` for each I from 1 to N, and last `attnlight
study FILE`, which does what had to wait for others and collects. Exit status: 0 all is done, 1 a
run failed, 2 a mistake in the input, 3 runs wait for those of another shard or role."""


def parser() -> VerbParser:
    """The arguments of the command."""
    arguments = VerbParser("study", description=DESCRIPTION, epilog=EPILOG)
    arguments.add_argument("file", metavar="FILE", type=Path, help="as in configs/studies")
    arguments.add_argument(
        "--root", metavar="DIR", type=Path, default=Path("checkpoints"), help="folder of all runs"
    )
    arguments.add_argument("--name", help="folder of the study in it (default: the file's stem)")
    arguments.add_argument("--dry-run", action="store_true", help="list the plan, run nothing")
    arguments.add_argument(
        "--shard", metavar="I/N", default="1/1", help="do the I-th of N parts of the plan only"
    )
    arguments.add_argument(
        "--jobs", metavar="N", type=int, default=1, help="runs that go on at a time (1)"
    )
    arguments.add_argument(
        "--only", metavar="ROLE,...", default="", help=f"do these only: {', '.join(ROLES)}"
    )
    return arguments


def main(argv: list[str]) -> int:
    """Run a study, or list its plan; the exit status is as `EPILOG` says, 130 if interrupted.

    Raises:
        InputError: The study file or an option is wrong, a base is damaged, the folder holds
            another study or another process is at work there, or a file cannot be written.
    """
    options = parser().parse_args(argv)
    name, part = options.name or options.file.stem, re.fullmatch(r"(\d+)/(\d+)", options.shard)
    roles = [role for role in options.only.split(",") if role] or ROLES
    unknown = [role for role in roles if role not in ROLES]
    if options.jobs < 1:
        raise InputError(f"--jobs is {options.jobs}; it must be at least 1.")
    if part is None or not 1 <= int(part[1]) <= int(part[2]):
        raise InputError(f"--shard is {options.shard!r}; expected I/N with I from 1 to N.")
    if unknown:
        raise InputError(f"--only has {unknown[0]!r}; expected roles of {', '.join(ROLES)}.")
    # W&B's group and a folder; jsonargparse would read a name of digits as a number.
    if not re.fullmatch(r"[A-Za-z_][\w.+-]*", name):
        expected = "a letter and then letters, digits, and any of _.+-"
        raise InputError(f"{name!r} is no name of a study: give one in --name, {expected}.")
    shard, parts = (int(part[1]), int(part[2])), []
    for study in read_studies(options.file):
        path = options.root / "-".join(filter(None, (name, study.condition)))
        runs = plan(study)
        require_same_plan(path, digests(study, runs))
        folder = StudyFolder(path, study, {run.name: run for run in runs})
        parts.append((folder, [run for run in deal(runs, *shard) if run.role in roles]))
    if options.dry_run:
        print("\n\n".join(_table(folder, asked) for folder, asked in parts))
        return 0
    try:
        statuses = [_work(folder, asked, shard, options.jobs) for folder, asked in parts]
    except KeyboardInterrupt:
        print("interrupted: the same command goes on where it was.")
        return 130
    _compare([folder for folder, _ in parts], options.root / name)
    return max(statuses, key=(0, 3, 1).index)


def _table(folder: StudyFolder, asked: Sequence[PlannedRun]) -> str:
    """The plan as a table, with what is there of it and how long the rest may take."""
    from tabulate import tabulate

    seconds: dict[str, list[float]] = {}
    for run in folder.runs.values():
        note = folder.note(run)
        if note.get("state") == "finished":
            seconds.setdefault(run.role, []).append(float(note["seconds"]))
    lines = [("run", "role", "state", "needs", "estimate")]
    left: list[list[float]] = []
    for run in asked:
        state, needs, estimate = folder.state(run), ", ".join(run.needs[:2]), "-"
        needs += f" and {len(run.needs) - 2} more" if len(run.needs) > 2 else ""
        if state != "finished":
            left.append(seconds.get(run.role, seconds.get("base", [])))
            estimate = minutes(median(left[-1])) if left[-1] else "unknown"
        lines.append((run.name, run.role, state, needs, estimate))
    total = minutes(sum(map(median, left))) if all(left) else "unknown"
    heading = f"{folder.path}\n" if folder.study.condition else ""
    table = tabulate(lines, "firstrow", "plain", disable_numparse=True)
    count = f"{len(asked)} runs of {len(folder.runs)}"
    return f"{heading}{table}\n{count}; one after the other: {total}"


def _work(
    folder: StudyFolder, asked: Sequence[PlannedRun], shard: tuple[int, int], jobs: int
) -> int:
    """Do what is asked for of a study, and collect it; the exit status."""
    runs = folder.runs.values()
    with working(folder.path, *shard, digests(folder.study, runs)) as lock:
        folder.require_sound_bases()
        print(f"{folder.path}: {len(asked)} of {len(runs)} runs are asked for", flush=True)
        outcome = Executor(folder, jobs, lock).work(asked)
        counts = {name: len(names) for name, names in vars(outcome).items()}
        print(", ".join(f"{n} {name}" for name, n in counts.items() if n), flush=True)
        for name, why in outcome.failed.items():
            print(f"failed: {name}: {why}")
        if outcome.waiting:
            names = ", ".join(outcome.waiting[:3]) + ", ..." * (len(outcome.waiting) > 3)
            print(f"{names} wait for runs of another shard or role: start this again after them.")
        with locked(folder.path / ".lock-collect", leftovers="study.*"):
            if collect(folder):
                from attnlight.report.study import write_study

                write_study(folder.path)
                print(folder.path / "report")
    return 1 if outcome.failed else 3 if outcome.waiting else 0


def _compare(folders: Sequence[StudyFolder], output: Path) -> None:
    """Compare conditions whose adversaries are all finished, by what a text's instances sum to."""
    there = {}
    for folder in folders:
        name, runs = folder.study.condition, folder.runs.values()
        states = [folder.state(run) for run in runs if run.role == "adversary"]
        finished = set(states) == {"finished"} and (folder.path / JSON).is_file()
        if finished and name and folder.study.setup.target:
            there[name] = folder.path
    if there:
        from attnlight.report.study.conditions import write_exclusivity

        with locked(output / ".lock-collect", leftovers="study.*"):
            print(write_exclusivity(there, output)[0])
