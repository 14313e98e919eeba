"""Tables, figures and pages from the records of a run."""

from attnlight.figures import draw
from attnlight.figures.style import save_figure

__all__ = ["draw", "save_figure"]
