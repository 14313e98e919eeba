"""Studies: a plan of runs that gives a paper's tables, resumable.

`spec` is the study file (`values` parses its values), `plan` lists the runs, `argv` builds their
command lines, `state` is the state on disk, and `selection` selects an adversary on validation.
`run_study` (`scheduling`) runs what is missing, each run a `Job` on an executor: a
`ProcessExecutor`, a `SlurmExecutor`, or another. `collect` writes `study.json` and `study.parquet`,
the input of `attnlight.report`, from the records that `instances` reads.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from attnlight.studies.scheduling import run_study

__all__ = ["run_study"]


def __getattr__(name: str) -> object:
    """`run_study`, imported where it is used: a job, run as a module, needs this package alone."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from attnlight.studies.scheduling import run_study

    return run_study
