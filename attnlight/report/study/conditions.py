"""The conditions of a study together: what adversaries reach at a given cost in each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from attnlight.errors import InputError
from attnlight.report.study.estimates import SHARE, TVD, Estimate, Estimates
from attnlight.report.study.frame import ACCURACY, read_study
from attnlight.report.study.groups import KL, Spec, missing, words
from attnlight.report.study.page import write_files
from attnlight.report.study.series import panels
from attnlight.report.study.tables import DASH, TEXT
from attnlight.report.study.texts import text, texts
from attnlight.report.study.verdict import Row, judge
from attnlight.report.style import INK, MUTED, PALETTE, PAPER
from attnlight.report.tables import Table
from attnlight.statistics.bootstrap import RESAMPLES
from attnlight.statistics.exclusivity import (
    COST,
    Curve,
    Exclusivity,
    Runs,
    exclusivity,
    exclusivity_curve,
    exclusivity_difference,
)

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

ASKED = {target: words["name"] for target, words in texts()["targets"].items()}
_NOTHING = Exclusivity(np.nan, np.nan, np.nan, 0, 0)
_POS = {True: "with POS", False: "without POS", None: "POS unknown"}
_LOOKS = {"tokens": (PALETTE[0], "o"), "marked": (PALETTE[5], "s"), "sentence": (PALETTE[2], "^")}
_REACH = 5 * COST  # of the axis, beyond which nothing is read


@dataclass(frozen=True, eq=False)
class Condition:
    """One condition of a study.

    Attributes:
        name: Its name.
        estimates: The estimates of its study.
        target: What is asked for.
        setting: Readout and features, which conditions that are compared have in common.
        runs: Its finished adversaries that are on a curve, by `curve`, with their `tvd` and `share`.
        curves: The same as arrays.
        lacking: Base and seed of the others.
        found: Its exclusivity; of no seeds where there is no curve.
    """

    name: str
    estimates: Estimates
    target: str
    setting: tuple[str, str]
    runs: pd.DataFrame
    curves: Runs
    lacking: Sequence[tuple[str, int]]
    found: Exclusivity


def write_exclusivity(folders: Mapping[str, Path], output: Path) -> list[Path]:
    """Compare how exclusive attention is under the conditions of a study.

    Args:
        folders: The folder of each condition, with its `study.json` and `study.parquet`, by name.
        output: Where to write; the comparison's title is its name.

    Returns:
        The files, the page first.

    Raises:
        InputError: A file is missing or damaged or cannot be written, or two conditions have one
            target, readout and choice of features.
    """
    import pandas as pd

    conditions = read_conditions(folders)
    study = conditions[0].estimates.study
    facts = {"Experiment": study.experiment, "Corpus": study.corpus}
    facts["Conditions"] = ", ".join(one.name for one in conditions)
    head = {"title": output.resolve().name, "kind": "conditions of a study", "facts": facts}
    head["lead"] = text("leads", "conditions")
    points = pd.concat(one.runs.reset_index().assign(condition=one.name) for one in conditions)
    points = points.rename(columns={"lam": "lambda"})
    points = points[["condition", "run", "base", "seed", "lambda", "tvd", "share"]]
    return write_files(
        output,
        head,
        [row for *_, row in pairs(conditions)],
        exclusivity_verdicts(conditions),
        exclusivity_tables(conditions),
        [("exclusivity", draw_exclusivity(conditions), {"cost": COST})],
        {"runs.csv": points.to_csv(index=False, lineterminator="\n")},
    )


def read_conditions(folders: Mapping[str, Path]) -> list[Condition]:
    """Read the studies of some conditions, each in its folder, by name.

    Raises:
        InputError: A file is missing or damaged, or two conditions have one target, readout and
            choice of features.
    """
    found: dict[tuple[str, tuple[str, str]], Condition] = {}
    for name, path in folders.items():
        one = _read_condition(name, path)
        if one.target not in ASKED:
            raise InputError(f"condition {name} has no target of {', '.join(ASKED)}.")
        other = found.setdefault((one.target, one.setting), one)
        if other is not one:
            raise InputError(
                f"conditions {other.name} and {name} have the same target, readout and features; "
                "curves are compared between those that differ in one of these."
            )
    return list(found.values())


def _read_condition(name: str, path: Path) -> Condition:
    """A condition with its curves, of KL where there are adversaries of it.

    A base and seed have a curve where one run of lambda 0 is measured and there are others.
    """
    study = read_study(path)
    estimates, every = Estimates(study), study.finished("adversary")
    term = KL if KL in set(every["term"]) else every["term"].min()
    runs = every[every["term"] == term].assign(other=lambda own: own["lam"] > 0)
    tvd, share = (estimates.per_seed(runs, measure) for measure in (TVD, SHARE))
    runs = runs.assign(tvd=tvd, share=share, zero=~runs["other"] & np.isfinite(tvd + share))
    by_seed = runs.groupby(["base", "seed"], sort=False)
    whole = by_seed[["zero", "other"]].transform("any").all(axis=1)
    runs, rest = runs.assign(curve=by_seed.ngroup())[whole], runs[~whole]
    runs = runs.sort_values("curve", kind="stable")
    curves = Runs(*(runs[column].to_numpy() for column in ("curve", "lam", "tvd", "share")))
    found = exclusivity(curves, resamples=RESAMPLES) if len(runs) else _NOTHING
    lacking = list(dict.fromkeys(zip(rest["base"], rest["seed"], strict=True)))
    setting = f"{study.facts['readout'] or 'unknown'} readout", _POS[study.facts["pos"]]
    about = name, estimates, str(study.facts["target"]), setting
    return Condition(*about, runs, curves, lacking, found)


def pairs(every: Sequence[Condition]) -> Iterator[tuple[Condition, Condition, Exclusivity, Row]]:
    """Every token's tag and one marked token's under one readout and choice of features.

    Yields:
        Both conditions, the exclusivity of the first less that of the second (of no seeds where
        either has no curve), and the comparison with its outcome.
    """
    for a, b in product(every, repeat=2):
        if (a.target, b.target, a.setting) == ("tokens", "marked", b.setting):
            less = _NOTHING
            if a.found.seeds and b.found.seeds:
                less = exclusivity_difference(a.curves, b.curves, resamples=RESAMPLES)
            groups = ASKED[a.target], a.runs, ASKED[b.target], b.runs
            spec = Spec("exclusivity", *groups, SHARE, ", ".join(a.setting))
            yield a, b, less, judge(spec, _estimate(less), (_estimate(a.found), _estimate(b.found)))


def _estimate(found: Exclusivity) -> Estimate:
    return Estimate(found.value, np.nan, found.low, found.high, found.seeds)


def exclusivity_tables(conditions: Sequence[Condition]) -> dict[str, Table]:
    """Every table by the stem of its files."""
    rows: dict[str, list[list[str]]] = {"exclusivity": [], "tokens_less_marked": []}
    for one in conditions:
        control, found = one.runs[one.runs["lam"] == 0], one.found
        bases = one.estimates.study.finished("base")
        means = [(control, SHARE), (control, TVD), (bases, ACCURACY)]
        cells = [str(one.estimates.of(runs, measure)) for runs, measure in means]
        counts = [str(n) if found.seeds else DASH for n in (found.seeds, found.censored)]
        known = [one.name, ASKED[one.target], *one.setting, *counts]
        rows["exclusivity"].append([*known, exclusivity_cell(found), *cells])
    for a, b, less, row in pairs(conditions):
        known = [row.spec.about, str(a.found.seeds), str(b.found.seeds)]
        told = [exclusivity_cell(a.found), exclusivity_cell(b.found)]
        rows["tokens_less_marked"].append([*known, *told, exclusivity_cell(less, difference=True)])
    tables = {}
    for stem, spec in texts()["condition_tables"].items():
        note = [text("conditions", "exclusivity", cost=COST, resamples=RESAMPLES), spec["note"]]
        note += _text_notes(conditions)
        head = [name.format(cost=COST) for name in spec["head"]]
        tables[stem] = Table(spec["title"], head, rows[stem], " ".join(note))
    return tables


def exclusivity_verdicts(conditions: Sequence[Condition]) -> dict[str, list[str]]:
    """The answers to the comparison of conditions, by question."""
    answers, rules = [], [text("conditions", "rule")]
    if any(one.target == "sentence" for one in conditions):
        rules.append(text("conditions", "sentence"))
    rules += _text_notes(conditions)
    for a, b, less, row in pairs(conditions):
        one_base = all(one.runs["base"].nunique() == 1 for one in (a, b))
        without = [ASKED[one.target] for one in (a, b) if not one.found.seeds]
        known = {"tokens": exclusivity_cell(a.found), "marked": exclusivity_cell(b.found)}
        known["ends"] = exclusivity_cell(less, difference=True)
        known["bounds"] = known["ends"].partition(" ")[2]
        told = ("shares", "bounds" if less.censored else "difference")
        answers.append(
            row.sentence(
                bases=", of one base each" if one_base else "",
                no_curve=" nor of ".join(without),
                numbers=" ".join(text("conditions", of, cost=COST, **known) for of in told),
            )
        )
        grids = [one.runs["lam"].value_counts().to_dict() for one in (a, b)]
        if less.seeds and grids[0] != grids[1]:
            rules.append(text("conditions", "other_grid", setting=row.spec.about))
    lacking = []
    for one in conditions:
        left = missing(one.estimates.study, ["adversary"])
        for base, seed in one.lacking:
            left.append(f"No curve of {base}, seed {seed}, which lacks λ = 0 or any other λ.")
        lacking += [f"{one.name}: {said}" for said in left]
    found = {"exclusivity": answers or [text("conditions", "neither")], "compared": rules}
    found |= {"missing": lacking} if lacking else {}
    return {text("questions", name): said for name, said in found.items()}


def _text_notes(conditions: Sequence[Condition]) -> list[str]:
    """What to bear in mind, once, where a condition has the readout `text`."""
    known = (words(s) for one in conditions if (s := one.estimates.study).facts["readout"] == TEXT)
    return [text("notes", "text_readout", **fields) for fields in known][:1]


def exclusivity_cell(found: Exclusivity, difference: bool = False) -> str:
    """Exclusivity with its interval: a lower bound or, of a difference, bounds where censored."""
    if not found.seeds:
        return DASH
    bound = "≥ " if found.censored and not difference else ""
    return bound + _estimate(found).signed


def draw_exclusivity(conditions: Sequence[Condition]) -> Figure | None:
    """Curves of seeds by target, their mean, and what is read from them; None without a curve.

    Each readout and choice of features has a panel.
    """
    found = [one for one in conditions if one.found.seeds]
    if not found:
        return None
    parts = zip(*(one.setting for one in found), strict=True)
    readouts, features = (list(dict.fromkeys(part)) for part in parts)
    height, size = max(2.2 * len(readouts), 2.9) + 0.9, (len(readouts), len(features))
    ticks = np.arange(0, _REACH + COST / 2, COST)
    with panels(height, *size, sharex=True, sharey=True) as (figure, shown):
        for axes, setting in zip(shown, product(readouts, features), strict=True):
            own = [one for one in found if one.setting == setting]
            axes.set_visible(bool(own))
            axes.set_title(", ".join(setting), loc="left")
            axes.axvline(COST, color=MUTED, lw=1.0, ls=":", zorder=2)
            axes.set(xlim=(-0.03 * _REACH, _REACH), ylim=(0, 1))
            axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
            for one in own:
                color, mark = _LOOKS[one.target]
                columns = (r[["lam", "tvd", "share"]] for _, r in one.runs.groupby("curve"))
                curves = [exclusivity_curve(*seed.to_numpy().T) for seed in columns]
                for cost, share, end in curves:
                    x, y = [*cost, end], [*share, share[-1]]
                    axes.plot(x, y, "-", color=color, lw=0.7, alpha=0.5, zorder=4)
                    axes.plot(cost, share, mark, ms=2.5, color=color, alpha=0.5, mew=0)
                mean = _mean_curve(curves)
                axes.plot(*mean, "-", color=color, lw=1.8, zorder=5, label=ASKED[one.target])
                ends = one.found.low, one.found.high
                axes.plot([COST, COST], ends, "-", color=color, lw=2.6, zorder=6)
                fill, edge = (PAPER, color) if one.found.censored else (color, PAPER)
                axes.plot(COST, one.found.value, mark, ms=6, mfc=fill, mec=edge, mew=1, zorder=7)
        figure.supxlabel("TVD of predictions above that of λ = 0", fontsize=10, color=INK)
        figure.supylabel("JS of attention, share of the largest", fontsize=10, color=INK)
    return figure


def _mean_curve(curves: Sequence[Curve]) -> NDArray[np.float64]:
    """Mean height of some curves as far as all of them reach, (2, m)."""
    end = min(curve.end for curve in curves)
    corners = np.concatenate([[0.0, end], *(curve.cost for curve in curves)])
    x = np.unique(corners[corners <= end])
    heights = [np.interp(x, curve.cost, curve.share) for curve in curves]
    return np.stack([x, np.mean(heights, axis=0)])
