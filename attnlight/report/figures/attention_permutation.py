"""The violins of Jain & Wallace for shuffled attention."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from attnlight.report.violins import violins_by_max_attention

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw(rows: Mapping[str, NDArray[Any]], classes: Sequence[str] | None = None) -> Figure:
    """Violins of the median total variation distance by bin of maximum attention."""
    label = "Median total variation distance after shuffling"
    return violins_by_max_attention(rows, "median_tvd", label, (-0.05, 1.05), classes)
