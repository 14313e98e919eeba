"""The conditions of a study together: what adversaries reach at a cost in each, and who pays more."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from attnlight.errors import InputError
from attnlight.report.study.condition_figure import ASKED, draw_exclusivity
from attnlight.report.study.estimates import SHARE, TVD, Estimate, Estimates
from attnlight.report.study.frame import ACCURACY, FILE, read_study
from attnlight.report.study.groups import Spec, kl_first, role_words
from attnlight.report.study.marks import Drawing
from attnlight.report.study.page import Head
from attnlight.report.study.tables import TEXT
from attnlight.report.study.texts import text
from attnlight.report.study.verdict import Row, Verdict, capital, outcome_of
from attnlight.report.study.writing import write_files
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

QUESTION = "Is tagging every token more exclusive than one decision a sentence?"
_DASH = number(float("nan"))
_POS = {True: "with POS", False: "without POS", None: "POS unknown"}


@dataclass(frozen=True, eq=False)
class Condition:
    """One condition of a study.

    Attributes:
        name: Its name.
        estimates: The estimates of its study.
    """

    name: str
    estimates: Estimates

    @property
    def target(self) -> str:
        """What is asked for."""
        return str(self.estimates.study.facts["target"])

    @property
    def setting(self) -> tuple[str, str]:
        """Readout and features, which conditions that are compared have in common."""
        facts = self.estimates.study.facts
        return f"{facts['readout'] or 'unknown'} readout", _POS[facts["pos"]]

    @cached_property
    def adversaries(self) -> pd.DataFrame:
        """Finished adversaries, of KL where there are any, with `curve`, `tvd` and `share`.

        Those of a base and seed are a `curve`, numbered from 0, where one of lambda 0 is measured
        and there are others; elsewhere it is -1.
        """
        every = self.estimates.study.finished("adversary")
        terms = every["term"].fillna("")
        runs = every[terms == min(terms, key=kl_first, default="")]
        values = {
            m: self.estimates.per_seed(runs, of) for m, of in (("tvd", TVD), ("share", SHARE))
        }
        runs = runs.assign(lam=runs["lam"].fillna(0.0), **values)
        zero = (runs["lam"] == 0) & np.isfinite(runs[["tvd", "share"]]).all(axis=1)
        seeds = [runs["base"].fillna(""), runs["seed"]]
        whole = zero.groupby(seeds).transform("any")
        whole &= (runs["lam"] > 0).groupby(seeds).transform("any")
        curved = runs[whole].groupby(["base", "seed"], sort=False).ngroup()
        return runs.assign(curve=curved.reindex(runs.index, fill_value=-1))

    @property
    def curves(self) -> pd.DataFrame:
        """The adversaries that are on a curve, those of one curve together."""
        every = self.adversaries
        return every[every["curve"] >= 0].sort_values("curve", kind="stable")

    @cached_property
    def runs(self) -> Runs | None:
        """What its adversaries came to; None where there is no curve."""
        points = self.curves
        if not len(points):
            return None
        return Runs(*(points[name].to_numpy() for name in ("curve", "lam", "tvd", "share")))

    @cached_property
    def found(self) -> Exclusivity | None:
        """Its exclusivity; None where there is no curve."""
        return None if self.runs is None else exclusivity(self.runs, resamples=RESAMPLES)

    @property
    def seeds(self) -> int:
        """How many curves it has."""
        return 0 if self.found is None else self.found.seeds


class Pair(NamedTuple):
    """Every token's tag and one marked token's under one readout and choice of features.

    Attributes:
        setting: The readout and features.
        tokens: The condition of every token.
        marked: That of one marked token.
        less: Exclusivity of tokens less that of marked; None where either has no curve.
    """

    setting: str
    tokens: Condition
    marked: Condition
    less: Exclusivity | None

    @property
    def row(self) -> Row:
        """The comparison with its outcome."""
        sides, values = (self.tokens, self.marked), (np.nan,) * 3
        if self.less is not None:
            values = self.less.value, self.less.low, self.less.high
        mean, low, high = values
        units = self.tokens.seeds, self.marked.seeds
        found = Estimate(mean, np.nan, low, high, min(units))
        means = [one.found.value if one.found else np.nan for one in sides]
        named = [(ASKED[one.target], one.curves) for one in sides]
        spec = Spec("exclusivity", *named[0], *named[1], SHARE, self.setting)
        return Row(spec, found, (means[0], means[1]), outcome_of(found, units), units, "")


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
    conditions, absent = read_conditions(folders)
    first = conditions[0].estimates.study
    lead = text("conditions", "lead")
    facts = {"Experiment": first.experiment, "Corpus": first.corpus}
    facts["Conditions"] = ", ".join(one.name for one in conditions)
    figure = draw_exclusivity(conditions)
    title, caption = (
        "Attention's divergence at a given cost",
        text("captions", "exclusivity", cost=COST),
    )
    drawings = [] if figure is None else [Drawing(title, "curves", figure, caption)]
    compared = [pair.row for pair in find_pairs(conditions)]
    return write_files(
        output,
        Head(output.resolve().name, "conditions of a study", lead, facts),
        (compared, exclusivity_verdicts(conditions, absent)),
        exclusivity_tables(conditions),
        drawings,
        ("runs.csv", runs_csv(conditions)),
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
    found = [Condition(name, Estimates(read_study(path))) for name, path in there.items()]
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


def find_pairs(conditions: Sequence[Condition]) -> list[Pair]:
    """The pairs of which both conditions are there."""
    by = {(one.setting, one.target): one for one in conditions}
    found = []
    for setting in dict.fromkeys(one.setting for one in conditions):
        a, b = by.get((setting, "tokens")), by.get((setting, "marked"))
        if a and b:
            less = None
            if a.runs is not None and b.runs is not None:
                less = exclusivity_difference(a.runs, b.runs, resamples=RESAMPLES)
            found.append(Pair(", ".join(setting), a, b, less))
    return found


def exclusivity_tables(conditions: Sequence[Condition]) -> dict[str, Table]:
    """Every table by the stem of its files."""
    pairs = find_pairs(conditions)
    paired = [
        [
            pair.setting,
            *(str(one.seeds) for one in (pair.tokens, pair.marked)),
            *(told(one.found) for one in (pair.tokens, pair.marked)),
            told(pair.less, difference=True),
        ]
        for pair in pairs
    ]
    head = ["setting", "seeds, tokens", "seeds, marked", "every token", "one marked token"]
    return {
        "exclusivity": _conditions_table(conditions),
        "tokens_less_marked": Table.of(
            "Exclusivity of every token's tag less that of one marked token's",
            [*head, "difference"],
            paired,
            _note(text("conditions", "paired"), text_note([pair.tokens for pair in pairs])),
        ),
    }


def _conditions_table(conditions: Sequence[Condition]) -> Table:
    rows = []
    for one in conditions:
        found, estimates = one.found, one.estimates
        known = [one.name, ASKED[one.target], *one.setting]
        counts = [_DASH, _DASH] if found is None else [str(found.seeds), str(found.censored)]
        control = one.curves[one.curves["lam"] == 0]
        means = [(control, SHARE), (control, TVD), (estimates.study.finished("base"), ACCURACY)]
        cells = [str(estimates.of(runs, measure)) for runs, measure in means]
        rows.append([*known, *counts, told(found), *cells])
    head = ["condition", "answer", "readout", "features", "seeds", "censored"]
    head += [f"exclusivity at {COST:g}", "share at λ = 0", "TVD at λ = 0", "accuracy of the base"]
    said = _note(text("conditions", "control"), text_note(conditions))
    return Table.of("Exclusivity of attention", head, rows, said)


def _note(*said: str) -> str:
    how = text("conditions", "exclusivity", cost=COST, resamples=RESAMPLES)
    return " ".join(filter(None, (how, *said)))


def exclusivity_verdicts(
    conditions: Sequence[Condition], absent: Sequence[str] = ()
) -> list[Verdict]:
    """The answers to the comparison of conditions.

    Args:
        conditions: Those that are collected.
        absent: Names of those that are not yet.
    """
    pairs = find_pairs(conditions)
    neither = text("conditions", "neither")
    lacking = [*_missing(conditions), *(f"Not collected yet: {name}." for name in absent)]
    found = [
        Verdict(QUESTION, [_sentence(pair) for pair in pairs] or [neither]),
        Verdict("What may be compared?", list(_rules(conditions, pairs))),
    ]
    return [*found, Verdict("What is missing?", lacking)] if lacking else found


def _sentence(pair: Pair) -> str:
    sides = pair.tokens, pair.marked
    one_base = all(one.curves["base"].nunique() == 1 for one in sides)
    ends = told(pair.less, difference=True)
    difference = f"the difference is {ends}."
    if pair.less is not None and pair.less.censored:
        bounds = ends.partition(" ")[2]
        difference = f"the difference is within {bounds}, for some curves end before that cost."
    return pair.row.sentence(
        setting=capital(pair.setting),
        bases=", of one base each" if one_base else "",
        no_curve=" nor of ".join(ASKED[one.target] for one in sides if one.found is None),
        numbers=f"at a cost of {COST:g} the share of the largest JS is {told(sides[0].found)} for "
        f"every token's tag and {told(sides[1].found)} for one marked token's; {difference}",
    )


def _rules(conditions: Sequence[Condition], pairs: Sequence[Pair]) -> Iterator[str]:
    yield text("conditions", "rule")
    if any(one.target == "sentence" for one in conditions):
        yield text("conditions", "sentence")
    if text_note(conditions):
        yield text_note(conditions)
    for pair in pairs:
        grids = [one.curves["lam"].value_counts().to_dict() for one in (pair.tokens, pair.marked)]
        if pair.less is not None and grids[0] != grids[1]:
            yield text("conditions", "other_grid", setting=capital(pair.setting))


def _missing(conditions: Sequence[Condition]) -> Iterator[str]:
    for one in conditions:
        study = one.estimates.study
        words, planned = role_words(study)["adversary"], len(study.planned("adversary"))
        waiting = planned - len(study.finished("adversary"))
        if not planned:
            yield f"{one.name}: the study has no {words}."
        elif waiting:
            yield f"{one.name}: not finished, {waiting} of {planned} {words}."
        without = one.adversaries[one.adversaries["curve"] < 0]
        for base, seed in dict.fromkeys(zip(without["base"], without["seed"], strict=True)):
            yield f"{one.name}: no curve of {base}, seed {seed}, which lacks λ = 0 or any other λ."


def text_note(conditions: Sequence[Condition]) -> str:
    """What to bear in mind where a condition has the readout `text`; empty where none has."""
    texts = [one for one in conditions if one.estimates.study.facts["readout"] == TEXT]
    return text("notes", "text_readout") if texts else ""


def told(found: Exclusivity | None, difference: bool = False) -> str:
    """Exclusivity with its interval: a lower bound or, of a difference, bounds where censored."""
    if found is None:
        return _DASH
    bound = "≥ " if found.censored and not difference else ""
    return bound + Estimate(found.value, np.nan, found.low, found.high, found.seeds).signed


def runs_csv(conditions: Sequence[Condition]) -> str:
    """Every point of every curve as CSV, numbers in full."""
    import pandas as pd

    head = {"condition": "condition", "run": "run", "base": "base", "seed": "seed"}
    head |= {"lam": "lambda", "tvd": "tvd", "share": "share"}
    every = pd.concat(
        one.curves.rename_axis("run").reset_index().assign(condition=one.name) for one in conditions
    )
    every = every[list(head)].rename(columns=head)
    return str(every.to_csv(index=False, lineterminator="\n"))
