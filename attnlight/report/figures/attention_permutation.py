"""The violins of Jain & Wallace for shuffled attention."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from attnlight.report.violins import violins_by_max_attention

if TYPE_CHECKING:
    from matplotlib.figure import Figure

QUESTION = "Does shuffling attention change what the model says?"
SOURCE = "Jain & Wallace (2019), section 4.2.1"
MEASURES = {
    "median_tvd": "change of the prediction: median total variation distance (0 to 1)",
    "median_js": "change of the prediction: median Jensen-Shannon divergence (nats, 0 to 0.693)",
    "flip_rate": "share of shuffles that change the predicted class",
}
CAPTION = (
    "How far the prediction moves when attention is shuffled over the words of a text: the median "
    "over the shuffles of the total variation distance between the predictions with shuffled and "
    "with own attention, by the largest attention weight of the text and by predicted class. "
    "Values near 0 where attention is peaked (upper rows) mean that the prediction does not depend "
    "on which words attention points at. Solid lines are medians, dotted lines quartiles; fewer "
    "than five texts are drawn as points. After the permutation figure of Jain & Wallace (2019)."
)


def draw(rows: Mapping[str, NDArray[Any]], classes: Sequence[str] | None = None) -> Figure:
    """Violins of the median total variation distance by bin of maximum attention."""
    label = "Median total variation distance after shuffling"
    return violins_by_max_attention(rows, "median_tvd", label, (-0.05, 1.05), classes)
