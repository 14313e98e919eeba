"""Tables of exclusivity: of each condition, and of every token's tag against one marked token's."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence
from typing import NamedTuple

from attnlight.report.grids import Grid
from attnlight.report.study.estimates import ACCURACY, TVD
from attnlight.report.tables import interval, number
from attnlight.report.tagging.conditions.reading import Condition, settings
from attnlight.report.tagging.estimates import SHARE
from attnlight.report.tagging.reading import OF_TEXT, TEXT
from attnlight.statistics.bootstrap import RESAMPLES, MeanInterval
from attnlight.statistics.exclusivity import COST, Exclusivity, exclusivity_difference

TARGETS = {"tokens": "every token's tag", "marked": "one marked token's tag"}
TARGETS |= {"sentence": "a class of the sentence"}
_DASH = number(float("nan"))
_SAID = (
    "Exclusivity: mean JS of an adversary's attention from its base's, as a share of the largest "
    "that any attention on a row could have, at a mean total variation distance of the predictions "
    f"of {COST:g} above that of λ = 0 of the same seed; the larger it is, the less exclusive "
    "attention is. Read from each seed's upper envelope, mean over seeds [95 % interval: "
    f"{RESAMPLES:,} resamples of seeds, each with its whole curve; of few seeds it is too narrow]. "
    "Censored: seeds whose curve ends before that cost, which make the mean a lower bound (≥) and "
    "count as 1 in the upper end."
)


class Pair(NamedTuple):
    """Every token's tag and one marked token's under one readout and choice of features.

    Attributes:
        setting: The readout and features.
        tokens: The condition of every token.
        marked: That of one marked token.
        less: Exclusivity of tokens less that of marked; None where either has no curve.
    """

    setting: tuple[str, str]
    tokens: Condition
    marked: Condition
    less: Exclusivity | None


def find_pairs(conditions: Sequence[Condition]) -> list[Pair]:
    """The pairs of which both conditions are there."""
    found = []
    for setting, by_target in settings(conditions).items():
        if {"tokens", "marked"} <= by_target.keys():
            a, b = by_target["tokens"], by_target["marked"]
            less = None
            if a.runs is not None and b.runs is not None:
                less = exclusivity_difference(a.runs, b.runs, resamples=RESAMPLES)
            found.append(Pair(setting, a, b, less))
    return found


def exclusivity_tables(conditions: Sequence[Condition]) -> dict[str, Grid]:
    """Every table by the stem of its files."""
    return {
        "exclusivity": _conditions_table(conditions),
        "tokens_less_marked": _pairs_table(find_pairs(conditions)),
    }


def _conditions_table(conditions: Sequence[Condition]) -> Grid:
    rows = []
    for one in conditions:
        found = one.found
        known = [one.name, TARGETS[one.target], *one.setting]
        counts = [_DASH, _DASH] if found is None else [str(found.seeds), str(found.censored)]
        control = [run for run in one.adversaries if not run.lam]
        bases = [run for run in one.study.bases if run.finished]
        means = [(control, SHARE), (control, TVD), (bases, ACCURACY)]
        cells = [str(one.estimates.of(runs, measure)) for runs, measure in means]
        rows.append([*known, *counts, told(found), *cells])
    head = ["condition", "answer", "readout", "features", "seeds", "censored"]
    more = ["share at λ = 0", "TVD at λ = 0", "accuracy of the base"]
    return Grid(
        "Exclusivity of attention",
        [*head, f"exclusivity at {COST:g}", *more],
        rows,
        f"{_SAID} At λ = 0: mean ± standard deviation over seeds [95 % interval over seeds and "
        f"sentences]. {text_note(conditions)}".rstrip(),
    )


def _pairs_table(pairs: Sequence[Pair]) -> Grid:
    rows = [
        [
            ", ".join(pair.setting),
            *(str(seeds_of(one)) for one in (pair.tokens, pair.marked)),
            *(told(one.found) for one in (pair.tokens, pair.marked)),
            told(pair.less, difference=True),
        ]
        for pair in pairs
    ]
    head = ["setting", "seeds, tokens", "seeds, marked", "every token", "one marked token"]
    said = (
        "The same encoder, sentences and classes: only this comparison says whether tagging every "
        "token is more exclusive than one decision a sentence. A difference with censored seeds has "
        "bounds alone."
    )
    return Grid(
        "Exclusivity of every token's tag less that of one marked token's",
        [*head, "difference"],
        rows,
        f"{_SAID} {said} {text_note([pair.tokens for pair in pairs])}".rstrip(),
    )


def text_note(conditions: Sequence[Condition]) -> str:
    """What to bear in mind where a condition has the readout `text`; empty where none has."""
    return OF_TEXT if any(one.study.readout == TEXT for one in conditions) else ""


def told(found: Exclusivity | None, difference: bool = False) -> str:
    """Exclusivity with its interval: a lower bound or, of a difference, bounds where censored."""
    if found is None:
        return _DASH
    ends = interval(MeanInterval(found.value, found.low, found.high, 0))
    bound = "≥ " if found.censored and not difference else ""
    return f"{bound}{number(found.value)} {ends}"


def seeds_of(condition: Condition) -> int:
    """How many curves a condition has."""
    return 0 if condition.found is None else condition.found.seeds


def runs_csv(conditions: Sequence[Condition]) -> str:
    """Every point of every curve as CSV, numbers in full."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["condition", "run", "base", "seed", "lambda", "tvd", "share"])
    for one in conditions:
        if one.runs is not None:
            values = zip(one.runs.tvd.tolist(), one.runs.share.tolist(), strict=True)
            for run, pair in zip(one.adversaries, values, strict=True):
                shown = ["" if math.isnan(value) else repr(value) for value in pair]
                writer.writerow([one.name, run.name, run.base, run.seed, run.lam, *shown])
    return text.getvalue()
