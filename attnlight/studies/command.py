"""`attnlight study`: run a plan of runs and write a paper's tables."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from attnlight.arguments import VerbParser
from attnlight.errors import InputError
from attnlight.studies.collect import Validation, collect, report
from attnlight.studies.comparison import compare
from attnlight.studies.file import Study, read_studies
from attnlight.studies.listing import table
from attnlight.studies.locks import alone, keep_plan, require_same_plan, working
from attnlight.studies.plan import ROLES, PlannedRun, deal, digests, plan
from attnlight.studies.runner import Outcome, Runner
from attnlight.studies.selection import Selection
from attnlight.studies.state import StudyFolder

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
    if options.jobs < 1:
        raise InputError(f"--jobs is {options.jobs}; it must be at least 1.")
    shard = _shard(options.shard)
    whole = options.root / _name(options.name or options.file.stem)
    parts = [_part(study, whole, shard, options.only) for study in read_studies(options.file)]
    if options.dry_run:
        print("\n\n".join(_listed(part) for part in parts))
        return 0
    statuses = []
    for part in parts:
        statuses.append(_worked(part, shard, options.jobs))
        if statuses[-1] == _INTERRUPTED:
            return _INTERRUPTED
    compare([part.folder for part in parts], whole)
    return max(statuses, key=(0, 3, 1).index)


@dataclass(frozen=True)
class _Part:
    """A study, or one condition of it: where it is, its runs, and those that are asked for."""

    folder: StudyFolder
    runs: Sequence[PlannedRun]
    asked: Sequence[PlannedRun]
    decided: Mapping[str, str]


def _part(study: Study, whole: Path, shard: tuple[int, int], only: str) -> _Part:
    name = whole.name if study.condition is None else f"{whole.name}-{study.condition}"
    folder, runs = StudyFolder(whole.with_name(name), study), plan(study)
    asked, decided = _asked(deal(runs, *shard), only), digests(study, runs)
    require_same_plan(folder.path, decided)
    return _Part(folder, runs, asked, decided)


def _listed(part: _Part) -> str:
    listed = table(part.folder, part.runs, part.asked)
    return listed if part.folder.study.condition is None else f"{part.folder.path}\n{listed}"


def _worked(part: _Part, shard: tuple[int, int], jobs: int) -> int:
    """Do what is asked for of a part, and collect it; the exit status."""
    path = part.folder.path
    with working(path, *shard) as lock:
        require_same_plan(path, part.decided)
        keep_plan(path, part.decided)
        try:
            return _work(part.folder, part.runs, part.asked, jobs, lock)
        except KeyboardInterrupt:
            print("interrupted: the same command goes on where it was.")
            return _INTERRUPTED


def _name(name: str) -> str:
    # W&B's group and a folder; jsonargparse would read a name of digits as a number.
    if not re.fullmatch(r"[A-Za-z_][\w.+-]*", name):
        raise InputError(
            f"{name!r} is no name of a study: give one in --name, a letter and then letters, "
            "digits, and any of _.+-."
        )
    return name


def _shard(given: str) -> tuple[int, int]:
    found = re.fullmatch(r"(\d+)/(\d+)", given)
    if found is None or not 1 <= int(found[1]) <= int(found[2]):
        raise InputError(f"--shard is {given!r}; expected I/N with I from 1 to N.")
    return int(found[1]), int(found[2])


def _asked(runs: Sequence[PlannedRun], only: str) -> list[PlannedRun]:
    roles = [role for role in only.split(",") if role] or list(ROLES)
    for role in roles:
        if role not in ROLES:
            raise InputError(f"--only has {role!r}, which is no role; they are {', '.join(ROLES)}.")
    return [run for run in runs if run.role in roles]


def _work(
    folder: StudyFolder,
    runs: Sequence[PlannedRun],
    asked: Sequence[PlannedRun],
    jobs: int,
    lock: int,
) -> int:
    folder.require_sound_bases(runs)
    validation = Validation(folder)
    selecting = [run for run in runs if run.selects]
    choices = {name for run in selecting for name in run.needs}
    adversaries = [run for run in runs if run.name in choices and run.term]

    def selected() -> Selection | None:
        held = folder.study.adversaries
        return None if held is None else validation.selection(adversaries, held.term)

    runner = Runner(folder, runs, selected, jobs=jobs, lock=lock)
    print(f"{folder.path}: {len(asked)} of {len(runs)} runs are asked for", flush=True)
    outcome = runner.work({run.name for run in asked})
    _tell(outcome)
    with alone(folder.path):
        if collect(folder, runs, validation):
            report(folder.path)
            print(folder.path / "report")
    return outcome.status


def _tell(outcome: Outcome) -> None:
    counts = {name: len(getattr(outcome, name)) for name in vars(outcome)}
    print(", ".join(f"{count} {name}" for name, count in counts.items() if count), flush=True)
    for name, why in outcome.failed.items():
        print(f"failed: {name}: {why}")
    if outcome.waiting:
        names = ", ".join(outcome.waiting[:3]) + (", ..." if len(outcome.waiting) > 3 else "")
        print(f"{names} wait for runs of another shard or role: start this again when they end.")
