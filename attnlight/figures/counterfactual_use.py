"""How well each attribution method finds edited words, beside chance and position."""

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from attnlight.figures.methods import method_panels, recorded_methods
from attnlight.figures.plausibility import draw_methods
from attnlight.figures.tables import RecordTable, Rows, by_cluster, estimate, mean_cells, percent

_PANELS = {"auprc": "AUPRC", "auprc_used": "AUPRC, used edits", "rank": "Rank"}
_POSITIONS = {"auprc_first": "left to right", "auprc_last": "right to left"}


def draw(rows: Rows, classes: Sequence[str] | None = None) -> Figure | None:
    """Means with intervals over originals, and by predicted class; None where no prediction turns."""
    rows = by_cluster(rows, "original")
    if np.isnan(rows["chance_auprc"]).all():
        return None
    panels = method_panels(rows, _PANELS, "rank")
    half = np.where(np.isnan(rows["chance_auprc"]), np.nan, 0.5)
    return draw_methods(rows, panels, [rows["chance_auprc"], None, half], classes)


def tables(rows: Rows, classes: Sequence[str] | None = None) -> list[RecordTable]:
    """Measures of each method beside chance and position, and of the pairs."""
    rows = by_cluster(rows, "original")
    chance, attention = rows["chance_auprc"], rows.get("auprc_attention")
    nothing = np.full(len(chance), np.nan)
    attention = nothing if attention is None else attention
    lines = {
        words: [rows[f"{x}_{label}"] for x in ("auprc", "rank", "mass", "auprc_used")]
        for label, words in recorded_methods(rows, "rank").items()
    }
    half = np.where(np.isnan(chance), np.nan, 0.5)
    lines["chance"] = [chance, half, rows["edit_share"], nothing]
    lines |= {words: [rows[x], nothing, nothing, nothing] for x, words in _POSITIONS.items()}
    methods = [
        [name, *mean_cells([auprc, auprc - chance, auprc - attention, *more], rows, [estimate] * 6)]
        for name, (auprc, *more) in lines.items()
    ]
    names = ("turns", "correct_original", "correct", "edits", "largest_effect", "turning_edits")
    formats = [percent, percent, percent, estimate, estimate, percent, percent]
    pairs = mean_cells([rows[x] for x in (*names, "moved_attention_turns")], rows, formats)
    turned = {"turned": int(np.nansum(rows["turns"])), "pairs": len(chance)}
    return [("methods", methods, turned), ("pairs", [["all pairs", *pairs]], turned)]
