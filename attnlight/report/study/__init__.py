"""The report of a study: tables, figures and verdicts, from `study.json` and `study.parquet`."""

from attnlight.report.study.frame import Study, read_study
from attnlight.report.study.page import write_study

__all__ = ["Study", "read_study", "write_study"]
