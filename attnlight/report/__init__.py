"""Tables, figures and pages from the records of a run."""

from attnlight.report.figures import draw
from attnlight.report.style import save_figure

__all__ = ["draw", "save_figure"]
