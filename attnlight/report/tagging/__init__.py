"""What the study of a tagger says: tables, figures and sentences, from its two files alone."""

from attnlight.report.tagging.conditions import write_exclusivity
from attnlight.report.tagging.estimates import TaggingEstimates
from attnlight.report.tagging.reading import TaggingStudy, read_tagging_study
from attnlight.report.tagging.tables import tables
from attnlight.report.tagging.verdict import verdicts
from attnlight.report.tagging.writing import figures, write_tagging_study

__all__ = [
    "TaggingEstimates",
    "TaggingStudy",
    "figures",
    "read_tagging_study",
    "tables",
    "verdicts",
    "write_exclusivity",
    "write_tagging_study",
]
