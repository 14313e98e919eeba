"""Comprehensiveness and sufficiency of attribution methods beside a random ranking."""

from collections.abc import Sequence

from matplotlib.figure import Figure

from attnlight.figures.methods import method_panels, recorded_methods
from attnlight.figures.plausibility import draw_methods
from attnlight.figures.tables import RecordTable, Rows, estimate, mean_cells

_PANELS = {
    "comprehensiveness": "Comprehensiveness\n(higher is better)",
    "sufficiency": "Sufficiency\n(lower is better)",
}
_NORMALIZED = "normalized_"


def draw(rows: Rows, classes: Sequence[str] | None = None) -> Figure:
    """Means of each method by predicted class, and of all with their intervals."""
    measures = [measure for measure in _PANELS if f"{measure}_random" in rows]
    labels = {measure: _PANELS[measure] for measure in measures}
    panels = method_panels(rows, labels, measures[0])
    random = [rows[f"{measure}_random"] for measure in measures]
    return draw_methods(rows, panels, random, classes, chance="random ranking", shares=False)


def tables(rows: Rows, classes: Sequence[str] | None = None) -> list[RecordTable]:
    """Each measure of each method and its excess over random, also normalised if recorded."""
    found: list[RecordTable] = []
    for prefix in ("", _NORMALIZED):
        measures = [measure for measure in _PANELS if f"{prefix}{measure}_random" in rows]
        if not measures:
            continue
        lines = []
        for method, words in recorded_methods(rows, f"{prefix}{measures[0]}").items():
            kinds = ("",) if method == "random" else ("", "excess_")
            names = [f"{kind}{prefix}{measure}_{method}" for measure in measures for kind in kinds]
            columns = [rows[name] for name in names]
            *cells, count = mean_cells(columns, rows, [estimate] * len(names))
            cell_of = dict(zip(names, cells, strict=True))
            every = [f"{kind}{prefix}{m}_{method}" for m in _PANELS for kind in ("", "excess_")]
            lines.append([words, *(cell_of.get(name, "") for name in every), count])
        found.append((f"{prefix}methods", lines, {}))
    return found
