"""Studies: a plan of runs that gives a paper's tables, resumable.

`spec` is the study file (`values` parses its values), `plan` lists the runs, `argv` builds their
command lines, `state` is the state on disk, and `selection` selects an adversary on validation.
`run_study` runs what is missing, each run a `Job` on an executor: a `ProcessExecutor`, a
`SlurmExecutor`, or another. `collect` writes `study.json` and `study.parquet`, the input of
`attnlight.report`, from the records that `instances` reads.
"""
