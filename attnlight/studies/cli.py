"""`attnlight study`: run a plan of runs and write a paper's tables."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from attnlight.arguments import VerbParser
from attnlight.errors import InputError
from attnlight.studies.collect import JSON, Validation, collect
from attnlight.studies.executor import Executor, Outcome, minutes
from attnlight.studies.plan import ROLES, PlannedRun, deal, digests, plan
from attnlight.studies.selection import Selection
from attnlight.studies.spec import Study, read_studies
from attnlight.studies.state import StudyFolder, collecting, require_same_plan, working

_INTERRUPTED = 130
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
    """Run a study, or list its plan.

    Args:
        argv: The arguments after `study`.

    Returns:
        0 where all that was asked for is done, 1 where a run failed, 3 where runs wait for others.

    Raises:
        InputError: The study file or an option is wrong, a base is damaged, the folder holds
            another study or another process is at work there, or a file cannot be written.
    """
    options = parser().parse_args(argv)
    name, part = options.name or options.file.stem, re.fullmatch(r"(\d+)/(\d+)", options.shard)
    if options.jobs < 1:
        raise InputError(f"--jobs is {options.jobs}; it must be at least 1.")
    if part is None or not 1 <= int(part[1]) <= int(part[2]):
        raise InputError(f"--shard is {options.shard!r}; expected I/N with I from 1 to N.")
    # W&B's group and a folder; jsonargparse would read a name of digits as a number.
    if not re.fullmatch(r"[A-Za-z_][\w.+-]*", name):
        raise InputError(
            f"{name!r} is no name of a study: give one in --name, a letter and then letters, "
            "digits, and any of _.+-."
        )
    shard = int(part[1]), int(part[2])
    whole = options.root / name
    parts = [_part(study, whole, shard, options.only) for study in read_studies(options.file)]
    if options.dry_run:
        print("\n\n".join(map(_table, parts)))
        return 0
    statuses = []
    for one in parts:
        statuses.append(_work(one, shard, options.jobs))
        if statuses[-1] == _INTERRUPTED:
            return _INTERRUPTED
    _compare(parts, whole)
    return max(statuses, key=(0, 3, 1).index)


@dataclass(frozen=True)
class _Part:
    """A study, or one condition of it: where it is, its runs, and those that are asked for."""

    folder: StudyFolder
    runs: Sequence[PlannedRun]
    asked: Sequence[PlannedRun]
    digests: Mapping[str, str]


def _part(study: Study, whole: Path, shard: tuple[int, int], only: str) -> _Part:
    roles = [role for role in only.split(",") if role] or list(ROLES)
    for role in roles:
        if role not in ROLES:
            raise InputError(f"--only has {role!r}, which is no role; they are {', '.join(ROLES)}.")
    name = "-".join(filter(None, (whole.name, study.condition)))
    folder, runs = StudyFolder(whole.with_name(name), study), plan(study)
    asked = [run for run in deal(runs, *shard) if run.role in roles]
    part = _Part(folder, runs, asked, digests(study, runs))
    require_same_plan(folder.path, part.digests)
    return part


def _table(part: _Part) -> str:
    """The plan as a table, with what is there of it and how long the rest may take."""
    seconds: dict[str, list[float]] = {}
    for run in part.runs:
        note = part.folder.note(run)
        if note.get("state") == "finished":
            seconds.setdefault(run.role, []).append(float(note["seconds"]))
    lines = [("run", "role", "state", "needs", "estimate")]
    left: list[list[float]] = []
    for run in part.asked:
        state, needs, estimate = part.folder.state(run), ", ".join(run.needs[:2]), "-"
        needs += f" and {len(run.needs) - 2} more" if len(run.needs) > 2 else ""
        if state != "finished":
            left.append(seconds.get(run.role, seconds.get("base", [])))
            estimate = minutes(median(left[-1])) if left[-1] else "unknown"
        lines.append((run.name, run.role, state, needs, estimate))
    widths = [max(len(line[column]) for line in lines) for column in range(5)]
    rows = [
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    ]
    total = minutes(sum(map(median, left))) if all(left) else "unknown"
    rows.append(f"{len(part.asked)} runs of {len(part.runs)}; one after the other: {total}")
    return "\n".join([str(part.folder.path)] * (part.folder.study.condition is not None) + rows)


def _work(part: _Part, shard: tuple[int, int], jobs: int) -> int:
    """Do what is asked for of a part, and collect it; the exit status."""
    folder, runs, validation = part.folder, part.runs, Validation(part.folder)
    choices = {name for run in runs if run.selects for name in run.needs}
    adversaries = [run for run in runs if run.name in choices and run.term]

    def selected() -> Selection | None:
        return validation.selection(adversaries, folder.study.adversaries.term)

    with working(folder.path, *shard, part.digests) as lock:
        try:
            folder.require_sound_bases(runs)
            executor = Executor(folder, runs, selected, jobs=jobs, lock=lock)
            print(f"{folder.path}: {len(part.asked)} of {len(runs)} runs are asked for", flush=True)
            outcome = executor.work({run.name for run in part.asked})
            _print_outcome(outcome)
            with collecting(folder.path):
                if collect(folder, runs, validation):
                    from attnlight.report.study import write_study

                    write_study(folder.path)
                    print(folder.path / "report")
            return outcome.status
        except KeyboardInterrupt:
            print("interrupted: the same command goes on where it was.")
            return _INTERRUPTED


def _print_outcome(outcome: Outcome) -> None:
    counts = {name: len(getattr(outcome, name)) for name in vars(outcome)}
    print(", ".join(f"{count} {name}" for name, count in counts.items() if count), flush=True)
    for name, why in outcome.failed.items():
        print(f"failed: {name}: {why}")
    if outcome.waiting:
        names = ", ".join(outcome.waiting[:3]) + (", ..." if len(outcome.waiting) > 3 else "")
        print(f"{names} wait for runs of another shard or role: start this again when they end.")


def _compare(parts: Sequence[_Part], output: Path) -> None:
    """Compare conditions whose adversaries are all finished, by what a text's instances sum to."""
    there = {}
    for part in parts:
        study, path = part.folder.study, part.folder.path
        adversaries = [run for run in part.runs if run.role == "adversary"]
        if not (study.condition and study.clustered and adversaries and (path / JSON).is_file()):
            continue
        if all(part.folder.done(run) for run in adversaries):
            there[study.condition] = path
    if there:
        from attnlight.report.study.conditions import write_exclusivity

        with collecting(output):
            print(write_exclusivity(there, output)[0])
