"""Studies: a plan of runs that gives a paper's tables, resumable.

`spec` is the study file (`values` reads its values), `plan` lists the runs, `argv` gives their command
lines, `state` is what is on disk, and `selection` chooses an adversary on validation. `run_study` does
what is missing, each run a `Job` on an executor: a `ProcessExecutor`, a `SlurmExecutor`, or another;
`estimate` says how long that takes.
`collect` writes `study.json` and `study.parquet`, which `attnlight.report` reads, from the records
that `instances` reads.
"""
