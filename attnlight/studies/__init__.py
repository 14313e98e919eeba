"""Studies: a plan of runs that gives a paper's tables, resumable.

`spec` is the plan's file (`values` reads its values), `plan` lists the runs, `argv` gives their
command lines, `state` is what is on disk, `executor` does what is missing, and `selection` chooses
an adversary on validation. `collect` writes `study.json` and `study.parquet`, which
`attnlight.report` reads, from the records that `instances` reads.
"""
