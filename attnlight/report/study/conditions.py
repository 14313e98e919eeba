"""The conditions of a study together: what adversaries reach at a cost in each, and who pays more."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from attnlight.errors import InputError
from attnlight.report.study.condition_figure import ASKED, draw_exclusivity
from attnlight.report.study.estimates import SHARE, TVD, Estimate, Estimates
from attnlight.report.study.frame import ACCURACY, FILE, read_study
from attnlight.report.study.groups import KL, Spec, label_name
from attnlight.report.study.page import write_files
from attnlight.report.study.series import drawing
from attnlight.report.study.tables import TEXT
from attnlight.report.study.texts import text
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
        runs: What the adversaries came to; None where there is no curve.
        found: Its exclusivity; None where there is no curve.
    """

    name: str
    estimates: Estimates
    target: str
    setting: tuple[str, str]
    curves: pd.DataFrame
    lacking: Sequence[tuple[str, int]]
    runs: Runs | None
    found: Exclusivity | None


class Pair(NamedTuple):
    """Every token's tag and one marked token's under one readout and choice of features.

    Attributes:
        tokens: The condition of every token.
        marked: That of one marked token.
        less: Exclusivity of tokens less that of marked; None where either has no curve.
        row: The comparison with its outcome.
    """

    tokens: Condition
    marked: Condition
    less: Exclusivity | None
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
    columns = (curves[key].to_numpy() for key in ("curve", "lam", "tvd", "share"))
    measured = Runs(*columns) if len(curves) else None
    found = None if measured is None else exclusivity(measured, resamples=RESAMPLES)
    lacking = list(dict.fromkeys(zip(rest["base"], rest["seed"], strict=True)))
    setting = f"{study.facts['readout'] or 'unknown'} readout", _POS[study.facts["pos"]]
    target = str(study.facts["target"])
    return Condition(name, estimates, target, setting, curves, lacking, measured, found)


def find_pairs(conditions: Sequence[Condition]) -> list[Pair]:
    """The pairs of which both conditions are there."""
    by = {(one.setting, one.target): one for one in conditions}
    found = []
    for setting in dict.fromkeys(one.setting for one in conditions):
        sides = [by[setting, name] for name in ("tokens", "marked") if (setting, name) in by]
        if len(sides) < 2:
            continue
        a, b = sides
        less, values = None, (np.nan,) * 3
        if a.runs is not None and b.runs is not None:
            less = exclusivity_difference(a.runs, b.runs, resamples=RESAMPLES)
            values = less.value, less.low, less.high
        units = [one.found.seeds if one.found else 0 for one in sides]
        means = [one.found.value if one.found else np.nan for one in sides]
        groups = [(ASKED[one.target], one.curves) for one in sides]
        spec = Spec("exclusivity", *groups[0], *groups[1], SHARE, ", ".join(setting))
        estimate = Estimate(values[0], np.nan, *values[1:], min(units))
        row = judge(spec, estimate, (means[0], means[1]), (units[0], units[1]), "")
        found.append(Pair(a, b, less, row))
    return found


def exclusivity_tables(conditions: Sequence[Condition]) -> dict[str, Table]:
    """Every table by the stem of its files."""
    how = text("conditions", "exclusivity", cost=COST, resamples=RESAMPLES)
    rows, paired, pairs = [], [], find_pairs(conditions)
    for one in conditions:
        control = one.curves[one.curves["lam"] == 0]
        bases = one.estimates.study.finished("base")
        means = [(control, SHARE), (control, TVD), (bases, ACCURACY)]
        cells = [str(one.estimates.of(runs, measure)) for runs, measure in means]
        counts = [str(one.found.seeds), str(one.found.censored)] if one.found else [_DASH, _DASH]
        known = [one.name, ASKED[one.target], *one.setting, *counts]
        rows.append([*known, exclusivity_cell(one.found), *cells])
    for a, b, less, row in pairs:
        told = [exclusivity_cell(one.found) for one in (a, b)]
        told.append(exclusivity_cell(less, difference=True))
        paired.append([row.spec.about, *map(str, row.units), *told])
    head = ["condition", "answer", "readout", "features", "seeds", "censored"]
    head += [f"exclusivity at {COST:g}", "share at λ = 0", "TVD at λ = 0", "accuracy of the base"]
    own = [how, text("conditions", "control"), text_note(conditions)]
    both = [how, text("conditions", "paired"), text_note([pair.tokens for pair in pairs])]
    heading = ["setting", "seeds, tokens", "seeds, marked", "every token", "one marked token"]
    title = "Exclusivity of every token's tag less that of one marked token's"
    return {
        "exclusivity": Table.of(
            "Exclusivity of attention", head, rows, " ".join(filter(None, own))
        ),
        "tokens_less_marked": Table.of(
            title, [*heading, "difference"], paired, " ".join(filter(None, both))
        ),
    }


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
        if less is not None and grids[0] != grids[1]:
            rules.append(text("conditions", "other_grid", setting=row.spec.about))
    answers = [_sentence(pair) for pair in pairs] or [text("conditions", "neither")]
    lacking = [*_missing(conditions), *(f"Not collected yet: {name}." for name in absent)]
    found = {"exclusivity": answers, "compared": rules} | ({"missing": lacking} if lacking else {})
    return [Verdict(text("questions", name), said) for name, said in found.items()]


def _sentence(pair: Pair) -> str:
    sides = pair.tokens, pair.marked
    one_base = all(one.curves["base"].nunique() == 1 for one in sides)
    ends = exclusivity_cell(pair.less, difference=True)
    difference = f"the difference is {ends}."
    if pair.less is not None and pair.less.censored:
        bounds = ends.partition(" ")[2]
        difference = f"the difference is within {bounds}, for some curves end before that cost."
    return pair.row.sentence(
        bases=", of one base each" if one_base else "",
        no_curve=" nor of ".join(ASKED[one.target] for one in sides if one.found is None),
        numbers=f"at a cost of {COST:g} the share of the largest JS is "
        f"{exclusivity_cell(sides[0].found)} for every token's tag and "
        f"{exclusivity_cell(sides[1].found)} for one marked token's; {difference}",
    )


def _missing(conditions: Sequence[Condition]) -> Iterator[str]:
    words = text("roles", "adversary")
    for one in conditions:
        study = one.estimates.study
        planned, finished = (len(find("adversary")) for find in (study.planned, study.finished))
        if not planned:
            yield f"{one.name}: the study has no {words}."
        elif finished < planned:
            yield f"{one.name}: not finished, {planned - finished} of {planned} {words}."
        for base, seed in one.lacking:
            yield f"{one.name}: no curve of {base}, seed {seed}, which lacks λ = 0 or any other λ."


def text_note(conditions: Sequence[Condition]) -> str:
    """What to bear in mind where a condition has the readout `text`; empty where none has."""
    for study in (one.estimates.study for one in conditions):
        if study.facts["readout"] == TEXT:
            instance = study.words.instance
            return text("notes", "text_readout", instance=instance, label=label_name(study))
    return ""


def exclusivity_cell(found: Exclusivity | None, difference: bool = False) -> str:
    """Exclusivity with its interval: a lower bound or, of a difference, bounds where censored."""
    if found is None:
        return _DASH
    bound = "≥ " if found.censored and not difference else ""
    return bound + Estimate(found.value, np.nan, found.low, found.high, found.seeds).signed
