"""Studies: a plan of runs that gives a paper's tables, resumable.

`file` reads the plan's file, `plan` lists the runs, `commands` says how each is started, `state`
what is on disk, `runner` does what is missing, `selection` chooses an adversary on validation, and
`collect` writes `study.json` and `study.parquet`, which `attnlight.report.study` reads.
"""
