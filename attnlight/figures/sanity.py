"""Correlation of explanations as more and more of the model's parameters are random."""

from collections.abc import Mapping, Sequence
from itertools import count, takewhile
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from attnlight.figures.methods import recorded_methods
from attnlight.figures.style import INK, MUTED, PALETTE, Group, canvas
from attnlight.figures.tables import RecordTable, Rows, estimate, mean_cells
from attnlight.records import Record
from attnlight.statistics.bootstrap import bootstrap_means
from attnlight.statistics.sanity import sanity_verdicts

_KINDS = {"signed": "with signs", "sizes": "of sizes"}
_COLUMNS = 3  # panels side by side
_INDEPENDENT = ("random", "external")  # methods that do not read the model
_REMEDY = (
    "`attnlight sanity RUN RUN2 --overwrite` decides, RUN2 being a run of the same configuration with "
    "another --seed_everything"
)
_CONSTANT = " Scores that no parameter changes correlate perfectly and fail by construction"
_ELSEWHERE = "this model was trained elsewhere, and only runs of `attnlight fit` can be compared"


def draw(
    rows: Rows,
    classes: Sequence[str] | None = None,
    parts: Sequence[str] | None = None,
    **unused: object,
) -> Figure:
    """Mean correlation at each step, a panel for each method; it has no classes."""
    words, steps = recorded_methods(rows, "signed_1"), step_names(rows, parts)
    every = np.ones(len(rows["index"]), dtype=bool)
    colors = zip(_KINDS.values(), PALETTE, strict=False)
    groups = [Group(name, color, every) for name, color in colors]
    lines = -(-len(words) // _COLUMNS)
    with canvas(1.3 + 1.5 * lines, groups) as figure:
        panels = figure.subplots(lines, _COLUMNS, squeeze=False, sharey=True).flat
        for place, ((label, name), axes) in enumerate(zip(words.items(), panels, strict=False)):
            for kind, (_, color, _) in [*zip(_KINDS, groups, strict=True)][::-1]:
                names = [f"{kind}_{step}_{label}" for step in range(1, len(steps) + 1)]
                columns = np.stack([rows[name] for name in names], axis=1).astype(np.float64)
                means = np.array(bootstrap_means(columns, rows["index"]))
                places = np.arange(len(steps))
                axes.plot(places, means[:, 0], "o-", color=color, markersize=3.5)
                axes.vlines(places, means[:, 1], means[:, 2], color=color, linewidth=1)
            seeds = rows.get(f"signed_seeds_{label}", np.full(1, np.nan))
            if not np.isnan(seeds).all():
                axes.axhline(np.nanmean(seeds), color=INK, linestyle="dashed", linewidth=1)
                axes.axhline(np.nanmean(seeds) / 2, color=MUTED, linestyle="dotted", linewidth=1)
            axes.set_title(name, loc="left")
            shown = steps if place + _COLUMNS >= len(words) else [""] * len(steps)
            axes.set_xticks(range(len(steps)), shown, rotation=40, ha="right")
            axes.grid(axis="y")
        for axes in panels:  # those that no method is left for
            axes.set_axis_off()
        figure.supylabel("Spearman's correlation")
    return figure


def tables(
    rows: Rows,
    classes: Sequence[str] | None = None,
    parts: Sequence[str] | None = None,
    methods: Mapping[str, Any] | None = None,
    against: str | None = None,
    weights: str | None = None,
) -> list[RecordTable]:
    """The verdict on each method, and the correlations at each step with signs and of sizes.

    A record has a digest of `weights` if the model was trained elsewhere, where no second seed is.
    """
    words, steps = recorded_methods(rows, "signed_1"), step_names(rows, parts)
    verdicts = sanity_verdicts(Record(dict(rows), {"parts": steps, "methods": list(words)}))
    lines = [
        [words[label], *map(estimate, (found.randomised, found.seeds)), found.verdict]
        for label, found in verdicts.items()
    ]
    named = {label: (methods or {}).get(label, {}).get("name", label) for label in words}
    independent = [words[label] for label, name in named.items() if name in _INDEPENDENT]
    fields = {"against": against or "a second seed", "advice": "", "constant": ""}
    if not any(f"signed_seeds_{label}" in rows for label in words):
        reason = _ELSEWHERE if weights else _REMEDY
        fields["advice"] = f" Without a second seed nothing is decided: {reason}."
    if independent:
        fields["constant"] = f"{_CONSTANT}: {', '.join(independent)}."
    found: list[RecordTable] = [("verdicts", lines, fields)]
    beside = {"random": "two random", "seeds": "two seeds"}
    columns = dict(enumerate(steps, start=1)) | {
        step: name for step, name in beside.items() if f"signed_{step}_{next(iter(words))}" in rows
    }
    for kind, scores in _KINDS.items():
        lines = []
        for label in words:
            values = [rows[f"{kind}_{step}_{label}"] for step in columns]
            lines.append([words[label], *mean_cells(values, rows, [estimate] * len(values))])
        head = ["method", *columns.values(), "n"]
        found.append(("steps", lines, {"scores": scores, "head": head}))
    return found


def step_names(rows: Rows, parts: Sequence[str] | None) -> list[str]:
    """Parts of the network, one for each step of the record; their numbers if they are unknown."""
    steps = [*takewhile(lambda step: recorded_methods(rows, f"signed_{step}"), count(1))]
    return [name.replace("_", " ") for name in parts or map(str, steps)]
