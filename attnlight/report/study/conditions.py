"""How exclusive attention is under each condition of a study, from its adversaries' curves."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from attnlight.errors import InputError
from attnlight.figures.style import INK, MUTED, PALETTE, PAPER
from attnlight.figures.tables import Table, to_csv
from attnlight.report.study.estimates import SHARE, TVD, Estimate, Estimates
from attnlight.report.study.frame import ACCURACY, read_study
from attnlight.report.study.groups import KL, Spec, missing, words
from attnlight.report.study.page import write_files
from attnlight.report.study.series import panels
from attnlight.report.study.tables import DASH, TEXT
from attnlight.report.study.texts import text, texts
from attnlight.report.study.verdict import Comparison, judge
from attnlight.statistics.exclusivity import (
    COST,
    Exclusivity,
    Runs,
    exclusivity,
    exclusivity_curve,
    exclusivity_difference,
)

TARGET_NAMES = {target: words["name"] for target, words in texts()["targets"].items()}
_UNDEFINED = Exclusivity(np.nan, np.nan, np.nan, 0, 0)
_POS = {True: "with POS", False: "without POS", None: "POS unknown"}
_STYLES = {"tokens": (PALETTE[0], "o"), "marked": (PALETTE[5], "s"), "sentence": (PALETTE[2], "^")}
_REACH = 5 * COST  # end of the x axis


@dataclass(frozen=True, eq=False)
class Condition:
    """One condition of a study."""

    name: str  # its name
    estimates: Estimates  # the estimates of its study
    target: str  # what the model predicts: a key of `TARGET_NAMES`
    setting: tuple[str, str]  # readout and features; conditions are compared within a setting
    runs: pd.DataFrame  # finished adversaries on a curve, by `curve`, with their `tvd` and `share`
    curves: Runs  # the same as arrays
    lacking: Sequence[tuple[str, int]]  # base and seed of each adversary that is on no curve
    exclusivity: Exclusivity  # its exclusivity, of 0 seeds if there is no curve


def write_exclusivity(folders: Mapping[str, Path], output: Path) -> list[Path]:
    """Compare how exclusive attention is under conditions of a study; the files, the page first.

    Folders are those of the conditions, by name, each with its `study.json` and `study.parquet`;
    the comparison has the name of `output`.

    Raises:
        InputError: A file is missing or damaged or cannot be written, or two conditions have one
            target, readout and choice of features.
    """
    conditions = read_conditions(folders)
    study = conditions[0].estimates.study
    facts = {"Experiment": study.experiment, "Corpus": study.corpus}
    facts["Conditions"] = ", ".join(condition.name for condition in conditions)
    head = {"title": output.resolve().name, "kind": "conditions of a study", "facts": facts}
    head["lead"] = text("leads", "conditions")
    points = pd.concat(c.runs.reset_index().assign(condition=c.name) for c in conditions)
    points = points.rename(columns={"lam": "lambda"})
    points = points[["condition", "run", "base", "seed", "lambda", "tvd", "share"]]
    return write_files(
        output,
        head,
        [row for *_, row in pairs(conditions)],
        exclusivity_verdicts(conditions),
        exclusivity_tables(conditions),
        [("exclusivity", draw_exclusivity(conditions), {"cost": COST})],
        {"runs.csv": to_csv(points.columns, points.to_numpy())},
    )


def read_conditions(folders: Mapping[str, Path]) -> list[Condition]:
    """Read the studies of some conditions, each in its folder, by name.

    Curves are those of KL if the study has adversaries trained with KL. A base and seed have a curve
    if a run of lambda 0 is measured and there are runs above lambda 0.
    """
    by_setting: dict[tuple[str, tuple[str, str]], Condition] = {}
    for name, path in folders.items():
        study = read_study(path)
        estimates, adversaries = Estimates(study), study.finished("adversary")
        term = KL if KL in set(adversaries["term"]) else adversaries["term"].min()
        runs = adversaries[adversaries["term"] == term].assign(other=lambda frame: frame["lam"] > 0)
        tvd, share = (estimates.per_seed(runs, measure) for measure in (TVD, SHARE))
        runs = runs.assign(tvd=tvd, share=share, zero=~runs["other"] & np.isfinite(tvd + share))
        by_seed = runs.groupby(["base", "seed"], sort=False)
        complete = by_seed[["zero", "other"]].transform("any").all(axis=1)
        runs, rest = runs.assign(curve=by_seed.ngroup())[complete], runs[~complete]
        runs = runs.sort_values("curve", kind="stable")
        curves = Runs(*(runs[column].to_numpy() for column in ("curve", "lam", "tvd", "share")))
        measured = exclusivity(curves) if len(runs) else _UNDEFINED
        lacking = list(dict.fromkeys(zip(rest["base"], rest["seed"], strict=True)))
        setting = f"{study.facts['readout'] or 'unknown'} readout", _POS[study.facts["pos"]]
        identity = name, estimates, str(study.facts["target"]), setting
        condition = Condition(*identity, runs, curves, lacking, measured)
        if condition.target not in TARGET_NAMES:
            raise InputError(f"condition {name} has no target of {', '.join(TARGET_NAMES)}.")
        other = by_setting.setdefault((condition.target, setting), condition)
        if other is not condition:
            raise InputError(
                f"conditions {other.name} and {name} have the same target, readout and features; "
                "curves are compared between those that differ in one of these."
            )
    return list(by_setting.values())


def pairs(
    conditions: Sequence[Condition],
) -> Iterator[tuple[Condition, Condition, Exclusivity, Comparison]]:
    """Pairs of conditions of one setting: every token's tag against one marked token's.

    Yields:
        Both conditions, the exclusivity of the first less that of the second (of 0 seeds if either
        has no curve), and the comparison with its outcome.
    """
    for a, b in product(conditions, repeat=2):
        if (a.target, b.target, a.setting) == ("tokens", "marked", b.setting):
            difference = _UNDEFINED
            if a.exclusivity.seeds and b.exclusivity.seeds:
                difference = exclusivity_difference(a.curves, b.curves)
            groups = TARGET_NAMES[a.target], a.runs, TARGET_NAMES[b.target], b.runs
            spec = Spec("exclusivity", *groups, SHARE, ", ".join(a.setting))
            sides = _estimate(a.exclusivity), _estimate(b.exclusivity)
            yield a, b, difference, judge(spec, _estimate(difference), sides)


def _estimate(measured: Exclusivity) -> Estimate:
    return Estimate(measured.value, np.nan, measured.low, measured.high, measured.seeds)


def exclusivity_tables(conditions: Sequence[Condition]) -> dict[str, Table]:
    """Every table by the stem of its files."""
    rows: dict[str, list[list[str]]] = {"exclusivity": [], "tokens_less_marked": []}
    for condition in conditions:
        control, measured = condition.runs[condition.runs["lam"] == 0], condition.exclusivity
        bases = condition.estimates.study.finished("base")
        means = [(control, SHARE), (control, TVD), (bases, ACCURACY)]
        cells = [str(condition.estimates.estimate(runs, measure)) for runs, measure in means]
        counts = [str(n) if measured.seeds else DASH for n in (measured.seeds, measured.censored)]
        labels = [condition.name, TARGET_NAMES[condition.target], *condition.setting, *counts]
        rows["exclusivity"].append([*labels, exclusivity_cell(measured), *cells])
    for a, b, difference, comparison in pairs(conditions):
        labels = [comparison.spec.subject, str(a.exclusivity.seeds), str(b.exclusivity.seeds)]
        values = [exclusivity_cell(a.exclusivity), exclusivity_cell(b.exclusivity)]
        values.append(exclusivity_cell(difference, difference=True))
        rows["tokens_less_marked"].append([*labels, *values])
    tables = {}
    for stem, spec in texts()["condition_tables"].items():
        note = [text("conditions", "exclusivity", cost=COST), spec["note"]]
        note += _text_notes(conditions)
        head = [name.format(cost=COST) for name in spec["head"]]
        tables[stem] = Table(spec["title"], head, rows[stem], " ".join(note))
    return tables


def exclusivity_verdicts(conditions: Sequence[Condition]) -> dict[str, list[str]]:
    """The answers to the comparison of conditions, by question."""
    answers, rules = [], [text("conditions", "rule")]
    if any(c.target == "sentence" for c in conditions):
        rules.append(text("conditions", "sentence"))
    rules += _text_notes(conditions)
    for a, b, difference, comparison in pairs(conditions):
        single_base = all(c.runs["base"].nunique() == 1 for c in (a, b))
        without = [TARGET_NAMES[c.target] for c in (a, b) if not c.exclusivity.seeds]
        cells = exclusivity_cell(a.exclusivity), exclusivity_cell(b.exclusivity)
        fields = dict(zip(("tokens", "marked"), cells, strict=True))
        fields["ends"] = exclusivity_cell(difference, difference=True)
        fields["bounds"] = fields["ends"].partition(" ")[2]
        keys = ("shares", "bounds" if difference.censored else "difference")
        answers.append(
            comparison.sentence(
                bases=", of one base each" if single_base else "",
                no_curve=" nor of ".join(without),
                numbers=" ".join(text("conditions", key, cost=COST, **fields) for key in keys),
            )
        )
        grids = [c.runs["lam"].value_counts().to_dict() for c in (a, b)]
        if difference.seeds and grids[0] != grids[1]:
            rules.append(text("conditions", "other_grid", setting=comparison.spec.subject))
    lacking = []
    for condition in conditions:
        sentences = missing(condition.estimates.study, ["adversary"])
        for base, seed in condition.lacking:
            sentences.append(f"No curve of {base}, seed {seed}, which lacks λ = 0 or any other λ.")
        lacking += [f"{condition.name}: {sentence}" for sentence in sentences]
    by_question = {"exclusivity": answers or [text("conditions", "neither")], "compared": rules}
    by_question |= {"missing": lacking} if lacking else {}
    return {text("questions", name): sentences for name, sentences in by_question.items()}


def _text_notes(conditions: Sequence[Condition]) -> list[str]:
    """The note on the readout `text`, once, where a condition has that readout."""
    studies = [condition.estimates.study for condition in conditions]
    fields = (words(study) for study in studies if study.facts["readout"] == TEXT)
    return [text("notes", "text_readout", **named) for named in fields][:1]


def exclusivity_cell(measured: Exclusivity, difference: bool = False) -> str:
    """Exclusivity with its interval: a lower bound or, of a difference, bounds where censored."""
    if not measured.seeds:
        return DASH
    bound = "≥ " if measured.censored and not difference else ""
    return bound + _estimate(measured).signed


def draw_exclusivity(conditions: Sequence[Condition]) -> Figure | None:
    """Each seed's curve, their mean and the exclusivity read from it, by target.

    Each setting has a panel. None if there is no curve.
    """
    with_curves = [c for c in conditions if c.exclusivity.seeds]
    if not with_curves:
        return None
    parts = zip(*(c.setting for c in with_curves), strict=True)
    readouts, features = (list(dict.fromkeys(part)) for part in parts)
    height, size = max(2.2 * len(readouts), 2.9) + 0.9, (len(readouts), len(features))
    ticks = np.arange(0, _REACH + COST / 2, COST)
    with panels(height, *size, sharex=True, sharey=True) as (figure, shown):
        for axes, setting in zip(shown, product(readouts, features), strict=True):
            in_panel = [c for c in with_curves if c.setting == setting]
            axes.set_visible(bool(in_panel))
            axes.set_title(", ".join(setting), loc="left")
            axes.axvline(COST, color=MUTED, lw=1.0, ls=":", zorder=2)
            axes.set(xlim=(-0.03 * _REACH, _REACH), ylim=(0, 1))
            axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
            for condition in in_panel:
                color, mark = _STYLES[condition.target]
                columns = (r[["lam", "tvd", "share"]] for _, r in condition.runs.groupby("curve"))
                curves = [exclusivity_curve(*seed.to_numpy().T) for seed in columns]
                line: dict[str, Any] = {"color": color, "lw": 0.7, "alpha": 0.5, "zorder": 4}
                for cost, share, end in curves:
                    axes.plot([*cost, end], [*share, share[-1]], "-", **line)
                    axes.plot(cost, share, mark, ms=2.5, color=color, alpha=0.5, mew=0)
                end = min(curve.end for curve in curves)  # all curves cover costs up to it
                corners = np.concatenate([[0.0, end], *(curve.cost for curve in curves)])
                x = np.unique(corners[corners <= end])
                heights = [np.interp(x, curve.cost, curve.share) for curve in curves]
                name, measured = TARGET_NAMES[condition.target], condition.exclusivity
                line = {"color": color, "lw": 1.8, "zorder": 5, "label": name}
                axes.plot(x, np.mean(heights, axis=0), "-", **line)
                ends = measured.low, measured.high
                axes.plot([COST, COST], ends, "-", color=color, lw=2.6, zorder=6)
                fill, edge = (PAPER, color) if measured.censored else (color, PAPER)
                axes.plot(COST, measured.value, mark, ms=6, mfc=fill, mec=edge, mew=1, zorder=7)
        figure.supxlabel("TVD of predictions above that of λ = 0", fontsize=10, color=INK)
        figure.supylabel("JS of attention, share of the largest", fontsize=10, color=INK)
    return figure
