"""`attnlight study`: train and test the runs of a study and write its tables and figures."""

import re
from collections.abc import Sequence
from concurrent.futures import Executor
from pathlib import Path

from attnlight.cli.arguments import VerbParser
from attnlight.errors import InputError
from attnlight.studies.estimate import estimate
from attnlight.studies.job import study_folders
from attnlight.studies.plan import ROLES, PlannedRun, selected_runs
from attnlight.studies.process_executor import ProcessExecutor
from attnlight.studies.scheduling import run_study
from attnlight.studies.slurm_executor import SlurmExecutor, slurm_parameters
from attnlight.studies.state import StudyFolder

DESCRIPTION = """\
Train and test every run of a study (Wiegreffe & Pinter 2019: base, uniform attention, other seeds,
guided models, adversaries; Hooker et al. 2019: models without some words), collect their results in
study.json and study.parquet, and write the paper's tables and figures. A file with conditions describes
one study per condition. Finished runs are not repeated: after an interruption, the same command
continues the study. Each run has an ordinary run folder with its own fit.yaml."""
EPILOG = """\
On several machines, or in a SLURM array, with a ROOT that all of them share: start with `attnlight
study FILE --only base`, continue with `attnlight study FILE --shard I/N` for each I from 1 to N,
and finish with `attnlight study FILE`, which does the runs that waited for others and collects the
results. Exit status: 0 all selected runs are finished, 1 a run failed, or a short one of --dry-run, 2
the input is invalid, 3 runs wait for those of another shard or role, 130 and 143 ended by Ctrl-C and
SIGTERM."""


def main(argv: list[str]) -> int:
    """Run a study, or list its plan; return the exit status, see `EPILOG`."""
    parser = VerbParser("study", description=DESCRIPTION, epilog=EPILOG)
    add, checkpoints = parser.add_argument, Path("checkpoints")
    what = "a study file, or the name of a shipped one, such as planted"
    add("file", metavar="FILE", type=Path, help=what)
    add("--root", metavar="DIR", type=Path, default=checkpoints, help="folder of all runs")
    add("--name", help="folder of the study in DIR (default: the file's stem)")
    what = "list the planned runs and estimate their time"
    add("--dry-run", action="store_true", help=what)
    add("--shard", metavar="I/N", default="1/1", help="run only the I-th of N parts of the plan")
    what = "runs at a time (default: one per GPU, or per core)"
    add("--jobs", metavar="N", type=int, help=what)
    what = "submit runs as SLURM jobs: partition=gpu gpus_per_node=1 timeout_min=240"
    add("--slurm", metavar="KEY=VALUE", nargs="+", help=what)
    what = f"run only these roles: {', '.join(ROLES)}"
    add("--only", metavar="ROLE,...", default="", help=what)
    options = parser.parse_args(argv)
    name, part = options.name or options.file.stem, re.fullmatch(r"(\d+)/(\d+)", options.shard)
    roles = [role for role in options.only.split(",") if role] or ROLES
    unknown = [role for role in roles if role not in ROLES]
    if options.jobs is not None and options.jobs < 1:
        raise InputError(f"--jobs is {options.jobs}; it must be at least 1.")
    if part is None or not 1 <= int(part[1]) <= int(part[2]):
        raise InputError(f"--shard is {options.shard!r}; expected I/N with I from 1 to N.")
    if unknown:
        raise InputError(f"--only has {unknown[0]!r}; expected one of: {', '.join(ROLES)}.")
    # W&B's group and a folder; jsonargparse would read a name of digits as a number.
    if not re.fullmatch(r"[A-Za-z_][\w.+-]*", name):
        expected = "a letter followed by letters, digits and any of _.+-"
        raise InputError(f"{name!r} is not a valid study name: give one with --name, {expected}.")
    shard = int(part[1]), int(part[2])
    if options.slurm and not options.dry_run:
        place = options.root / name / "slurm"
        executor: Executor = SlurmExecutor(place, **slurm_parameters(options.slurm))
    else:
        executor = ProcessExecutor(options.jobs)
    try:
        if options.dry_run:
            status = 0
            for number, folder in enumerate(study_folders(options.file, options.root, name)):
                asked = selected_runs([*folder.runs.values()], roles, shard)
                table, failed = _table(folder, asked, executor)
                print("\n" * bool(number) + table, flush=True)  # the next one may take minutes
                status = max(status, int(failed))
            return status
        outcomes = run_study(
            options.file, options.root, name, roles=roles, shard=shard, executor=executor
        ).values()
    except (KeyboardInterrupt, SystemExit):  # by a signal
        print(f"interrupted{'' if options.dry_run else ': the same command continues the study'}.")
        raise
    finally:
        executor.shutdown(cancel_futures=True)
    failed, waiting = (any(getattr(o, name) for o in outcomes) for name in ("failed", "waiting"))
    return 1 if failed else 3 if waiting else 0


def _table(
    folder: StudyFolder, asked: Sequence[PlannedRun], executor: Executor
) -> tuple[str, bool]:
    """The plan as a table with states and an estimate of the remaining time, and whether a short run failed."""
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
    total = f"{len(asked)} runs of {len(folder.runs)}; one at a time: {expected.words(left)}"
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
    return "\n".join(notes), bool(expected.reasons)
