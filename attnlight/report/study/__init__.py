"""What a study says: tables, figures and sentences, from its two files alone."""

from attnlight.report.study.frame import Study, read_study
from attnlight.report.study.page import write_study

__all__ = ["Study", "read_study", "write_study"]
