"""What a study says: the paper's tables, figures and sentences, from its two files alone."""

from attnlight.report.study.reading import Study, StudyRun, read_study
from attnlight.report.study.writing import write_study

__all__ = ["Study", "StudyRun", "read_study", "write_study"]
