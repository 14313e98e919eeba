"""Studies: a plan of runs that gives a paper's tables, resumable.

`file` reads the plan's file (`sections` and `groups` its parts), `plan` lists the runs, `commands` says
how each is started, `state` what is on disk, `runner` does what is missing (`launched` is what it
starts), and `selection` chooses an adversary on validation. `collect` writes `study.json` and
`study.parquet`, which `attnlight.report` reads: `classification` and `validation` say what of
classifiers, `tagging` and `tokens` what of taggers. `comparison` puts conditions beside each other.
"""
