"""The tables and sentences of docs/known_answers.md on trained models, and its figure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from attnlight.figures import describe
from attnlight.figures.style import styled
from results_page import NAMES
from results_page.known_answers import (
    ALARMS,
    KINDS,
    LABELS,
    LEAST,
    LEAST_SETTINGS,
    UNSCORED,
    Checkpoints,
)
from results_page.scoring import rank_correlation
from results_page.tables import DASH, Row, interval, number, table

HALF = 0.5  # share of a kind that a test which notices it must exceed
_WORDS = {"correct": "accuracy", "entropy": "entropy of attention"}  # of controls
_SHOWN: dict[str, str] = NAMES["known_answers_tables"]["shown"]  # beside both labels


def named(measure: str) -> dict[str, str]:
    """The words of a measure's test, and the measure as code; of a control its words."""
    test, _, name = measure.partition("/")
    if test in UNSCORED:
        return {"test": "control", "measure": _WORDS.get(name, name.replace("_", " "))}
    return {"test": describe(test).title, "measure": f"`{name}`"}


def on_one_screen(points: Checkpoints) -> Iterator[Row]:
    """Each test's best measure: its held-out areas, the best control, whether it decides."""
    name, control = points.best_control()
    beside = (
        DASH if np.isnan(control.mean) else f"{number(control.mean, 2)} {named(name)['measure']}"
    )
    for measure in points.best().values():
        rates = points.noticed(measure)
        known = {kind: rates[kind] for kind in KINDS if rates[kind].defined}
        fools = min(known, key=lambda kind: known[kind].mean, default=None)
        yield named(measure) | {
            **{f"AUC, {x}": interval(points.held_out[x][measure]) for x in LABELS},
            "best control, words": beside,
            "may decide": points.decided(measure) or "**no**",
            "what fools it (noticed)": f"{fools} ({known[fools].mean:.0%})" if fools else DASH,
        }


def every_measure(points: Checkpoints) -> Iterator[Row]:
    """Every measure and control: rank correlation with both labels, and areas."""
    for measure in [*points.measures, *points.controls]:
        row: Row = {**named(measure)}
        for label, column in LABELS.items():
            first, second = (points.fitted[x].to_numpy(np.float64) for x in (measure, column))
            correlation = rank_correlation(first, second, points.settings)
            row[f"Spearman, {label}"] = interval(correlation)
            row[f"AUC, {label}"] = interval(points.scored(measure, label).area())
            row[f"held out, {label}"] = interval(points.held_out[label][measure])
        matched = points.scored(measure, "words", matched=True).area()
        yield row | {"AUC, words, as peaked": interval(matched)}


def noticed(points: Checkpoints) -> Iterator[Row]:
    """Share of each kind noticed at the false alarm rate, fitted on the other settings."""
    heads = {kind: f"{kind} (n = {rows.sum()})" for kind, rows in points.kinds().items()}
    for measure in [*points.best().values(), points.best_control()[0]]:
        rates = points.noticed(measure)
        heads |= {ALARMS: ALARMS}
        yield named(measure) | {head: interval(rates[kind]) for kind, head in heads.items()}


def by_kind(points: Checkpoints) -> str:
    """A sentence on each kind of attention: which tests notice it, and which do not.

    A test notices a kind if the lower end of the interval of the share that it notices is above one
    half, and does not if the upper end is below; other tests are undecided, and so are all for
    a kind of one setting.
    """
    text = ""
    for kind, rows in points.kinds().items():
        yes, no, undecided = "is noticed by", "is not noticed by", "is undecided for"
        by_verdict: dict[str, list[str]] = {yes: [], no: [], undecided: []}
        for measure in points.best().values():
            rate = points.noticed(measure)[kind]
            verdict = yes if rate.low > HALF else no if rate.high < HALF else undecided
            if rate.defined:
                by_verdict[verdict].append(f"{named(measure)['test']} {interval(rate)}")
        clauses = [f"{verb} {', '.join(tests)}" for verb, tests in by_verdict.items() if tests]
        settings = len(np.unique(points.settings[rows]))
        text += (
            f"* **{kind.capitalize()}** (checkpoints: {rows.sum()}, settings: {settings}) "
            f"{'; '.join(clauses) or 'is not scored yet'}.\n"
        )
    return text


def labels(points: Checkpoints) -> Iterator[Row]:
    """Both labels by setting and treatment, with what else is known of these checkpoints."""
    for (setting, treatment), rows in points.all.groupby(["setting", "treatment"], sort=True):
        yield {"setting": setting, "attention": treatment, "checkpoints": len(rows)} | {
            heading: number(rows[name].mean(), 2) for heading, name in _SHOWN.items()
        }


def redundant(points: Checkpoints) -> Iterator[Row]:
    """Each test's reading where evidence is redundant, beside its readings of the two groups."""
    groups = dict(zip(("follows words", "does not"), points.groups("words"), strict=True))
    for measure in points.best().values():
        row: Row = {**named(measure)}
        row |= {x: number(points.fitted[measure][rows].mean()) for x, rows in groups.items()}
        for treatment, rows in points.redundant.groupby("treatment"):
            row[f"redundant, {treatment}"] = number(rows[measure].mean())
        yield row


def sentences(points: Checkpoints) -> str:
    """A sentence on each test's best measure."""
    text, (name, control) = "", points.best_control()
    for measure in points.best().values():
        area, labels = points.held_out["words"][measure], points.decided(measure)
        if np.isnan(area.mean):
            text += f"* **{named(measure)['test']}** is not scored yet.\n"
            continue
        verb = f"may decide (use of {labels})" if labels else "may only rank"
        rates = points.noticed(measure)
        notices = [f"{kind} {interval(rates[kind])}" for kind in KINDS if rates[kind].defined]
        text += (
            f"* **{named(measure)['test']}** ({named(measure)['measure']}) {verb}: in a setting it was not fitted on it "
            f"tells attention that follows words from attention that does not with an area of "
            f"{interval(area)}, the best control ({named(name)['measure']}) with {number(control.mean, 2)}; "
            f"with a threshold set for 10 % false alarms (there "
            f"{interval(rates[ALARMS])}) it notices "
            f"{', '.join(notices) or 'nothing yet'}.\n"
        )
    return text


def state(points: Checkpoints, total: int) -> str:
    """How many checkpoints there are, and in which group."""
    counts = {label: [int(x.sum()) for x in points.groups(label)] for label in LABELS}
    aside = [int(x.sum()) for x in points.groups("words", points.aside)]
    few = [label for label in LABELS if min(counts[label]) < LEAST]
    lacking = f", so that no measure may for use of {' or '.join(few)}" if few else ""
    return (
        f"{len(points.all)} of {total} planned checkpoints are archived. Of the "
        f"{len(points.fitted)} that are scored (settings: {points.settings.max(initial=-1) + 1}), "
        f"attention follows states in {counts['states'][0]} and does not in {counts['states'][1]}; it "
        f"follows words in {counts['words'][0]} and does not in {counts['words'][1]}. Set aside are "
        f"{len(points.aside)}, of which {aside[0]} follow words and {aside[1]} do not. To decide takes "
        f"{LEAST} of either group and {LEAST_SETTINGS} settings{lacking}.\n"
    )


def trained_blocks(points: Checkpoints, total: int) -> Mapping[str, str]:
    """The parts of the page, by the name of their place."""
    tables = {"": on_one_screen, "_noticed": noticed, "_redundant": redundant, "_labels": labels}
    tables["_measures"] = every_measure
    return {
        "trained_state": state(points, total),
        "trained_sentences": sentences(points),
        "trained_kinds": by_kind(points),
        **{f"trained{name}": table(rows(points), 2) for name, rows in tables.items()},
    }


def draw_scores(points: Checkpoints, path: Path) -> None:
    """Write the held-out area of each test's best measure, for both labels, with the best control."""
    from matplotlib.figure import Figure

    with styled():
        figure = Figure(figsize=(7.0, 2.8), layout="constrained")
        axes = figure.subplots(1, len(LABELS), sharey=True)
        for axis, label in zip(axes, LABELS, strict=True):
            areas = [points.held_out[label][x] for x in points.best(label).values()]
            places = np.arange(len(areas))[::-1]
            middle, low, high = (np.array([area[i] for area in areas]) for i in range(3))
            errors = np.nan_to_num([middle - low, high - middle]).clip(min=0)
            axis.errorbar(middle, places, xerr=errors, fmt="o", capsize=2)
            control = points.best_control(label)[1].mean
            axis.axvline(control, linestyle="--", color="0.5", label="best control")
            axis.axvline(0.5, color="0.8", zorder=0)
            axis.set(xlim=(0, 1.02), xlabel="held-out area under ROC", title=f"use of {label}")
        axes[0].set_yticks(
            np.arange(len(points.best()))[::-1], [named(x)["test"] for x in points.best().values()]
        )
        axes[0].legend()
        figure.savefig(path, dpi=150, metadata={"Software": None})
