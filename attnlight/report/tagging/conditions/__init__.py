"""How exclusive attention is under the conditions of a tagger's study: curves, table, sentences."""

from attnlight.report.tagging.conditions.figure import draw_exclusivity
from attnlight.report.tagging.conditions.reading import Condition, read_conditions
from attnlight.report.tagging.conditions.tables import exclusivity_tables
from attnlight.report.tagging.conditions.verdict import exclusivity_verdicts
from attnlight.report.tagging.conditions.writing import write_exclusivity

__all__ = [
    "Condition",
    "draw_exclusivity",
    "exclusivity_tables",
    "exclusivity_verdicts",
    "read_conditions",
    "write_exclusivity",
]
