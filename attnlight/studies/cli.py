"""`attnlight study`: run a plan of runs and write a paper's tables."""

from __future__ import annotations

import re
from collections.abc import Sequence
from concurrent.futures import Executor
from pathlib import Path

from attnlight.arguments import VerbParser
from attnlight.errors import InputError
from attnlight.studies.estimate import estimate
from attnlight.studies.job import study_folders
from attnlight.studies.plan import ROLES, PlannedRun
from attnlight.studies.process_executor import ProcessExecutor
from attnlight.studies.run_study import run_study, selected_runs
from attnlight.studies.slurm_executor import SlurmExecutor, slurm_parameters
from attnlight.studies.state import StudyFolder

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
    arguments.add_argument(
        "file", metavar="FILE", type=Path, help="a study file, or a shipped one: planted"
    )
    arguments.add_argument(
        "--root", metavar="DIR", type=Path, default=Path("checkpoints"), help="folder of all runs"
    )
    arguments.add_argument("--name", help="folder of the study in it (default: the file's stem)")
    arguments.add_argument(
        "--dry-run", action="store_true", help="list the plan and estimate its time"
    )
    arguments.add_argument(
        "--shard", metavar="I/N", default="1/1", help="do the I-th of N parts of the plan only"
    )
    arguments.add_argument(
        "--jobs", metavar="N", type=int, help="runs at a time (default: one a GPU, or else a core)"
    )
    arguments.add_argument(
        "--slurm",
        metavar="KEY=VALUE",
        nargs="+",
        help="do runs as jobs of SLURM: partition=gpu gpus_per_node=1 timeout_min=240",
    )
    arguments.add_argument(
        "--only", metavar="ROLE,...", default="", help=f"do these only: {', '.join(ROLES)}"
    )
    return arguments


def main(argv: list[str]) -> int:
    """Run a study, or list its plan; the exit status is as `EPILOG` says, 130 if interrupted.

    Raises:
        InputError: The study file or an option is wrong, a base is damaged, the folder holds
            another study, or a file cannot be written.
    """
    options = parser().parse_args(argv)
    name, part = options.name or options.file.stem, re.fullmatch(r"(\d+)/(\d+)", options.shard)
    roles = [role for role in options.only.split(",") if role] or ROLES
    unknown = [role for role in roles if role not in ROLES]
    if options.jobs is not None and options.jobs < 1:
        raise InputError(f"--jobs is {options.jobs}; it must be at least 1.")
    if part is None or not 1 <= int(part[1]) <= int(part[2]):
        raise InputError(f"--shard is {options.shard!r}; expected I/N with I from 1 to N.")
    if unknown:
        raise InputError(f"--only has {unknown[0]!r}; expected roles of {', '.join(ROLES)}.")
    # W&B's group and a folder; jsonargparse would read a name of digits as a number.
    if not re.fullmatch(r"[A-Za-z_][\w.+-]*", name):
        expected = "a letter and then letters, digits, and any of _.+-"
        raise InputError(f"{name!r} is no name of a study: give one in --name, {expected}.")
    shard = int(part[1]), int(part[2])
    if options.slurm and not options.dry_run:
        place = options.root / name / "slurm"
        executor: Executor = SlurmExecutor(place, **slurm_parameters(options.slurm))
    else:
        executor = ProcessExecutor(options.jobs)
    try:
        if options.dry_run:
            folders = study_folders(options.file, options.root, name)
            tables = [
                _table(folder, selected_runs(folder, roles, shard), executor) for folder in folders
            ]
            print("\n\n".join(tables))
            return 0
        outcomes = run_study(
            options.file, options.root, name, roles=roles, shard=shard, executor=executor
        ).values()
    except KeyboardInterrupt:
        print(f"interrupted{'' if options.dry_run else ': the same command goes on where it was'}.")
        return 130
    finally:
        executor.shutdown(cancel_futures=True)
    failed, waiting = (any(getattr(o, name) for o in outcomes) for name in ("failed", "waiting"))
    return 1 if failed else 3 if waiting else 0


def _table(folder: StudyFolder, asked: Sequence[PlannedRun], executor: Executor) -> str:
    """The plan as a table, with what is there of it and how long the rest takes."""
    from tabulate import tabulate

    left = [run for run in asked if folder.state(run) != "finished"]
    expected, lines = estimate(folder, left, executor), []
    for run in asked:
        needs, takes = ", ".join(run.needs[:2]), "-"
        needs += f" and {len(run.needs) - 2} more" if len(run.needs) > 2 else ""
        if run in left:
            takes = expected.words([run])
        lines.append((run.name, run.role, folder.state(run), needs, takes))
    heading = ("run", "role", "state", "needs", "estimate")
    table = tabulate(lines, heading, "plain", disable_numparse=True)
    total = f"{len(asked)} runs of {len(folder.runs)}; one after the other: {expected.words(left)}"
    jobs: int = getattr(executor, "jobs", 1)
    if jobs > 1:
        total += f"; {jobs} at a time: {expected.words(left, jobs)}"
    notes = [str(folder.path)] if folder.study.condition else []
    notes += [table, total]
    if expected.timed:
        notes.append(
            f"{', '.join(expected.timed)}: estimated from a few batches of one run on this machine, "
            "for all epochs; early stopping may end runs sooner"
        )
    for reason in dict.fromkeys(expected.reasons.values()):
        roles = [role for role, why in expected.reasons.items() if why == reason]
        notes.append(f"{', '.join(roles)}: unknown, since a short run failed: {reason}")
    return "\n".join(notes)
