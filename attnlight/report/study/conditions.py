"""The conditions of a study together: what adversaries reach at a given cost in each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from attnlight.errors import InputError
from attnlight.report.study.condition_figure import ASKED, draw_exclusivity
from attnlight.report.study.estimates import SHARE, TVD, Estimate, Estimates
from attnlight.report.study.frame import ACCURACY, FILE, read_study
from attnlight.report.study.groups import KL, Spec, words
from attnlight.report.study.page import write_files
from attnlight.report.study.series import drawing
from attnlight.report.study.tables import TEXT
from attnlight.report.study.texts import text, texts
from attnlight.report.study.verdict import Row, Verdict, judge
from attnlight.report.tables import Table, number
from attnlight.statistics.bootstrap import RESAMPLES
from attnlight.statistics.exclusivity import (
    COST,
    Exclusivity,
    Runs,
    exclusivity,
    exclusivity_difference,
)

if TYPE_CHECKING:
    import pandas as pd

_DASH = number(float("nan"))
_NOTHING = Exclusivity(np.nan, np.nan, np.nan, 0, 0)
_CURVE = ("curve", "lam", "tvd", "share")  # columns that `Runs` are made of
_POS = {True: "with POS", False: "without POS", None: "POS unknown"}


@dataclass(frozen=True, eq=False)
class Condition:
    """One condition of a study.

    Attributes:
        name: Its name.
        estimates: The estimates of its study.
        target: What is asked for.
        setting: Readout and features, which conditions that are compared have in common.
        curves: Its finished adversaries that are on a curve, those of one curve together.
        lacking: Base and seed of the others.
        found: Its exclusivity; of no seeds where there is no curve.
    """

    name: str
    estimates: Estimates
    target: str
    setting: tuple[str, str]
    curves: pd.DataFrame
    lacking: Sequence[tuple[str, int]]
    found: Exclusivity


class Pair(NamedTuple):
    """Every token's tag and one marked token's under one readout and choice of features.

    Attributes:
        tokens: The condition of every token.
        marked: That of one marked token.
        less: Exclusivity of tokens less that of marked; of no seeds where either has no curve.
        row: The comparison with its outcome.
    """

    tokens: Condition
    marked: Condition
    less: Exclusivity
    row: Row


def write_exclusivity(folders: Mapping[str, Path], output: Path) -> list[Path]:
    """Compare how exclusive attention is under the conditions of a study.

    Args:
        folders: The folder of each condition, with its `study.json` and `study.parquet`, by name.
            Conditions that are not collected yet are told as missing.
        output: Where to write; the comparison's title is its name.

    Returns:
        The files, the page first.

    Raises:
        InputError: No condition is collected, a file is damaged or cannot be written, or two
            conditions have one target, readout and choice of features.
    """
    import pandas as pd

    conditions, absent = read_conditions(folders)
    study, figure = conditions[0].estimates.study, draw_exclusivity(conditions)
    facts = {"Experiment": study.experiment, "Corpus": study.corpus}
    facts["Conditions"] = ", ".join(one.name for one in conditions)
    head = {"title": output.resolve().name, "kind": "conditions of a study", "facts": facts}
    head["lead"] = text("leads", "conditions")
    points = pd.concat(one.curves.reset_index().assign(condition=one.name) for one in conditions)
    points = points.rename(columns={"lam": "lambda"})
    points = points[["condition", "run", "base", "seed", "lambda", "tvd", "share"]]
    return write_files(
        output,
        head,
        ([pair.row for pair in find_pairs(conditions)], exclusivity_verdicts(conditions, absent)),
        exclusivity_tables(conditions),
        [] if figure is None else [drawing("exclusivity", figure, cost=COST)],
        {"runs.csv": points.to_csv(index=False, lineterminator="\n")},
    )


def read_conditions(folders: Mapping[str, Path]) -> tuple[list[Condition], list[str]]:
    """Read the studies of some conditions.

    Args:
        folders: The folder of each condition by name.

    Returns:
        The conditions that are collected, and the names of those that are not yet.

    Raises:
        InputError: No condition is collected, a file is damaged, or two have one target, readout
            and choice of features.
    """
    there = {name: path for name, path in folders.items() if (path / FILE).is_file()}
    if not there:
        raise InputError(
            f"no condition of {', '.join(folders)} is collected: run `attnlight study`."
        )
    found = [_read_condition(name, path) for name, path in there.items()]
    seen: dict[tuple[str, tuple[str, str]], str] = {}
    for one in found:
        if one.target not in ASKED:
            raise InputError(f"condition {one.name} has no target of {', '.join(ASKED)}.")
        other = seen.setdefault((one.target, one.setting), one.name)
        if other != one.name:
            raise InputError(
                f"conditions {other} and {one.name} have the same target, readout and features; "
                "curves are compared between those that differ in one of these."
            )
    return found, [name for name in folders if name not in there]


def _read_condition(name: str, path: Path) -> Condition:
    """A condition with its curves, of KL where there are adversaries of it.

    A base and seed have a curve where one run of lambda 0 is measured and there are others.
    """
    study = read_study(path)
    estimates, every = Estimates(study), study.finished("adversary")
    terms = every["term"].fillna("")
    runs = every[terms == (KL if KL in set(terms) else terms.min())]
    points = {key: estimates.per_seed(runs, of) for key, of in (("tvd", TVD), ("share", SHARE))}
    runs = runs.assign(lam=runs["lam"].fillna(0.0), **points)
    zero = (runs["lam"] == 0) & np.isfinite(runs[["tvd", "share"]]).all(axis=1)
    seeds = [runs["base"].fillna(""), runs["seed"]]
    whole = zero.groupby(seeds).transform("any")
    whole &= (runs["lam"] > 0).groupby(seeds).transform("any")
    curves, rest = runs[whole], runs[~whole]
    curves = curves.assign(curve=curves.groupby(["base", "seed"], sort=False).ngroup())
    curves = curves.sort_values("curve", kind="stable")
    measured = Runs(*(curves[name].to_numpy() for name in _CURVE))
    found = exclusivity(measured, resamples=RESAMPLES) if len(curves) else _NOTHING
    lacking = list(dict.fromkeys(zip(rest["base"], rest["seed"], strict=True)))
    setting = f"{study.facts['readout'] or 'unknown'} readout", _POS[study.facts["pos"]]
    target = str(study.facts["target"])
    return Condition(name, estimates, target, setting, curves, lacking, found)


def find_pairs(conditions: Sequence[Condition]) -> list[Pair]:
    """The pairs of which both conditions are there."""
    by = {(one.setting, one.target): one for one in conditions}
    found = []
    for setting in dict.fromkeys(one.setting for one in conditions):
        sides = [by[setting, name] for name in ("tokens", "marked") if (setting, name) in by]
        if len(sides) < 2:
            continue
        (a, b), less = sides, _NOTHING
        if a.found.seeds and b.found.seeds:
            one, two = (Runs(*(x.curves[name].to_numpy() for name in _CURVE)) for x in sides)
            less = exclusivity_difference(one, two, resamples=RESAMPLES)
        groups = ASKED[a.target], a.curves, ASKED[b.target], b.curves
        spec = Spec("exclusivity", *groups, SHARE, ", ".join(setting))
        units = a.found.seeds, b.found.seeds
        estimate = Estimate(less.value, np.nan, less.low, less.high, min(units))
        row = judge(spec, estimate, (a.found.value, b.found.value), units, "")
        found.append(Pair(a, b, less, row))
    return found


def exclusivity_tables(conditions: Sequence[Condition]) -> dict[str, Table]:
    """Every table by the stem of its files."""
    pairs = find_pairs(conditions)
    rows: dict[str, list[list[str]]] = {"exclusivity": [], "tokens_less_marked": []}
    for one in conditions:
        control, found = one.curves[one.curves["lam"] == 0], one.found
        bases = one.estimates.study.finished("base")
        means = [(control, SHARE), (control, TVD), (bases, ACCURACY)]
        cells = [str(one.estimates.of(runs, measure)) for runs, measure in means]
        counts = [str(n) if found.seeds else _DASH for n in (found.seeds, found.censored)]
        known = [one.name, ASKED[one.target], *one.setting, *counts]
        rows["exclusivity"].append([*known, exclusivity_cell(found), *cells])
    for a, b, less, row in pairs:
        told = [exclusivity_cell(a.found), exclusivity_cell(b.found)]
        told.append(exclusivity_cell(less, difference=True))
        rows["tokens_less_marked"].append([row.spec.about, *map(str, row.units), *told])
    compared = {"exclusivity": conditions, "tokens_less_marked": [pair.tokens for pair in pairs]}
    tables = {}
    for stem, spec in texts()["condition_tables"].items():
        notes = (text("conditions", "exclusivity", cost=COST, resamples=RESAMPLES), spec["note"])
        note = " ".join(filter(None, (*notes, text_note(compared[stem]))))
        head = [name.format(cost=COST) for name in spec["head"]]
        tables[stem] = Table(spec["title"], head, rows[stem], note)
    return tables


def exclusivity_verdicts(
    conditions: Sequence[Condition], absent: Sequence[str] = ()
) -> list[Verdict]:
    """The answers to the comparison of conditions.

    Args:
        conditions: Those that are collected.
        absent: Names of those that are not yet.
    """
    pairs = find_pairs(conditions)
    rules = [text("conditions", "rule")]
    if any(one.target == "sentence" for one in conditions):
        rules.append(text("conditions", "sentence"))
    rules += filter(None, [text_note(conditions)])
    for a, b, less, row in pairs:
        grids = [one.curves["lam"].value_counts().to_dict() for one in (a, b)]
        if less.seeds and grids[0] != grids[1]:
            rules.append(text("conditions", "other_grid", setting=row.spec.about))
    answers = [_sentence(pair) for pair in pairs] or [text("conditions", "neither")]
    lacking = []
    for one in conditions:
        study = one.estimates.study
        planned, finished = (len(find("adversary")) for find in (study.planned, study.finished))
        if finished < planned:
            lacking.append(
                f"{one.name}: not finished, {planned - finished} of {planned} adversaries."
            )
        elif not planned:
            lacking.append(f"{one.name}: the study has no adversaries.")
        for base, seed in one.lacking:
            said = f"no curve of {base}, seed {seed}, which lacks λ = 0 or any other λ."
            lacking.append(f"{one.name}: {said}")
    lacking += (f"Not collected yet: {name}." for name in absent)
    found = {"exclusivity": answers, "compared": rules} | ({"missing": lacking} if lacking else {})
    return [Verdict(text("questions", name), said) for name, said in found.items()]


def _sentence(pair: Pair) -> str:
    sides, ends = pair[:2], exclusivity_cell(pair.less, difference=True)
    one_base = all(one.curves["base"].nunique() == 1 for one in sides)
    tokens, marked = (exclusivity_cell(one.found) for one in sides)
    kind = "bounds" if pair.less.censored else "difference"
    shares = text("conditions", "shares", cost=COST, tokens=tokens, marked=marked)
    difference = text("conditions", kind, ends=ends, bounds=ends.partition(" ")[2])
    return pair.row.sentence(
        bases=", of one base each" if one_base else "",
        no_curve=" nor of ".join(ASKED[one.target] for one in sides if not one.found.seeds),
        numbers=f"{shares} {difference}",
    )


def text_note(conditions: Sequence[Condition]) -> str:
    """What to bear in mind where a condition has the readout `text`; empty where none has."""
    studies = (one.estimates.study for one in conditions)
    said = (
        text("notes", "text_readout", **words(s)) for s in studies if s.facts["readout"] == TEXT
    )
    return next(said, "")


def exclusivity_cell(found: Exclusivity, difference: bool = False) -> str:
    """Exclusivity with its interval: a lower bound or, of a difference, bounds where censored."""
    if not found.seeds:
        return _DASH
    bound = "≥ " if found.censored and not difference else ""
    return bound + Estimate(found.value, np.nan, found.low, found.high, found.seeds).signed
