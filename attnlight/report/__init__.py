"""What records say: tables, figures and one page, from the files of a run alone."""

from attnlight.report.figures import draw
from attnlight.report.style import save_figure

__all__ = ["draw", "save_figure"]
