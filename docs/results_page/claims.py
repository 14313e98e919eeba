"""The tables of Serrano & Smith's models, and their numeric claims, judged by intervals."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import yaml

from attnlight.report.rankings import SCORES, WORDS, percent, probability
from attnlight.report.removals import ALL, ORDERS, flipped_by_all, steps
from attnlight.statistics.bootstrap import MeanInterval
from attnlight.statistics.paired import holm, mcnemar, paired_wilcoxon
from results_page.measures import median_interval
from results_page.serrano import ERASURE, NEVER, Key, Step, Tested, cases
from results_page.tables import DASH, shown, table

PUBLISHED = Path(__file__).parents[1] / "results/published.yaml"
HOLDS, OPEN, FAILS = "holds", "open", "does not"
GRADIENTS = SCORES[1:]
_INFINITY = float("inf")
_BOTH_WAYS = [(way,) for way in NEVER]

Case = Tested | Step
Column = tuple[Any, ...]  # heading, what a cell says of a case and a key, and the key
Test = Callable[[Tested], float]  # the p-value of a comparison on one model


class Claim(NamedTuple):
    """What the paper says of some models.

    Attributes:
        words: The claim, a row of the summary.
        of: What it is said of, a key of `cases`.
        claimed: Ends of the range that is claimed, both included.
        never: What texts that never flip count as; a dash where that makes no difference.
        published: Of how many models the paper states it.
    """

    words: str
    of: str
    claimed: tuple[float, float]
    never: str
    published: str


def read_claims(path: Path = PUBLISHED) -> dict[Key, Claim]:
    """The claims by what is estimated, in the order of the summary."""
    found: dict[Key, Claim] = {}
    for one in yaml.safe_load(path.read_text(encoding="utf-8"))["serrano_claims"]:
        (word,) = one.keys() & {"above", "at_least", "below", "at_most"}
        end = _INFINITY if word in ("above", "at_least") else -_INFINITY
        bound = float(one[word]) if "at" in word else float(np.nextafter(one[word], end))
        rankings = [(name,) for name in one.get("rankings", ())] or [()]
        for ranking, way in product(rankings, _BOTH_WAYS if one.get("never") else [()]):
            words = one["claim"].format(*(WORDS[name] for name in ranking))
            never = "".join(NEVER[x] for x in way) or DASH
            claimed = (min(bound, end), max(bound, end))
            claim = Claim(words, one["of"], claimed, never, one.get("published", DASH))
            found[one["measure"], *ranking, *way] = claim
    return found


CLAIMS = read_claims()


def verdict(found: MeanInterval, claimed: tuple[float, float]) -> str:
    """`holds` or `does not`, by the estimate; `open` in parentheses where the interval says both.

    Args:
        found: The estimate and its interval.
        claimed: Ends of the range that is claimed, both included.
    """
    if np.isnan(found.mean):
        return DASH
    low, high = claimed
    word = HOLDS if low <= found.mean <= high else FAILS
    inside = low <= found.low and found.high <= high
    outside = found.high < low or high < found.low
    return word if inside or outside else f"{word} ({OPEN})"


def said(case: Case, *key: str) -> str:
    """Whether a claim holds of a case; a dash where it is not made of it."""
    made = CLAIMS[key].of != "encoder" or case.model.encoder != "none"  # type: ignore[union-attr]
    return verdict(case.estimate(*key), CLAIMS[key].claimed) if made else DASH


def _cell(form: Callable[[MeanInterval], str]) -> Callable[..., str]:
    """A cell that says an estimate of a case in some form."""
    return lambda case, *key: form(case.estimate(*key))


_texts, _share, _two = _cell(lambda found: f"{found.defined:,}"), _cell(percent), _cell(shown)
_three = _cell(partial(shown, places=3))


def _median(case: Tested, *key: str) -> str:
    """Mean, then median, each with its interval."""
    found = case.values[key][~np.isnan(case.values[key])]
    if not len(found):
        return DASH
    low, high = median_interval(found)
    return f"{_two(case, *key)}; {np.median(found):.2f} [{low:.2f}, {high:.2f}]"


def _box(case: Tested, place: str, *key: str) -> str:
    """Median and quartiles of attention or, at place 1, of another ranking."""
    values = case.both("fraction", *key)[int(place)]
    if not len(values):
        return DASH
    low, middle, high = np.quantile(values, [0.25, 0.5, 0.75])
    return f"{middle:.2f} ({low:.2f} to {high:.2f})"


def _p(found: Sequence[Tested], test: Test) -> Column:
    """The column of a test's p-values, corrected over the models (Holm)."""
    corrected = dict(zip(found, holm([test(tested) for tested in found]), strict=True))
    return "p", lambda case: probability(corrected[case])


def _wilcoxon(tested: Tested) -> float:
    """Of the items that the gradient and attention need."""
    kept = flipped_by_all(tested.removal)
    counts = [np.where(kept, steps(tested.removal, x), np.nan) for x in ("gradient", "attention")]
    return paired_wilcoxon(*counts).p_value


def _mcnemar(*columns: str) -> Test:
    return lambda tested: mcnemar(*(tested.erasure[name] for name in columns)).p_value


def _with_claims(cell: Callable[..., str], measure: str, names: Sequence[str]) -> list[Column]:
    """An estimate of each of some rankings with its verdict."""
    both = [((WORDS[n], cell, measure, n), ("claim", said, measure, n)) for n in names]
    return [("texts", _texts, measure, names[0]), *(column for pair in both for column in pair)]


def _ranked(cell: Callable[..., str], measure: str, names: Sequence[str]) -> list[Column]:
    """A measure of each of some rankings."""
    columns = [(WORDS[name], cell, measure, name) for name in names]
    return [("texts", _texts, measure, names[0]), *columns]


def case_table(found: Sequence[Case], columns: Sequence[Column], both_ways: bool = False) -> str:
    """A row for each case; where `both_ways`, one for each of `NEVER`, a last part of every key."""
    rows = []
    for case, way in product(found, _BOTH_WAYS if both_ways else [()]):
        cells = [cell(case, *key, *way) for _, cell, *key in columns]
        rows.append([*case.words, *(NEVER[x] for x in way), *cells])
    models = "models" if any(isinstance(case, Step) for case in found) else "model"
    words = ["corpus", models, *(["texts that never flip"] if both_ways else [])]
    return table([*words, *(column[0] for column in columns)], rows, len(words))


def serrano_tables(found: Sequence[Tested]) -> dict[str, str]:
    """The tables of what was erased, by the name of their place."""
    of = cases(found)
    fewer, more = [("more flips", name) for name in GRADIENTS]
    return {
        "serrano_claims": claims_table(of),
        "serrano_first": case_table(
            found,
            [
                *_ranked(_share, "flips", SCORES),
                ("gradient less attention", _share, *fewer),
                ("claim: fewer", said, *fewer),
                ("product less attention", _share, *more),
                ("claim: more", said, *more),
                _p(found, _mcnemar(ERASURE[2], ERASURE[0])),
            ],
        ),
        "serrano_fraction": case_table(found, _ranked(_median, "fraction", ALL), both_ways=True),
        "serrano_par": case_table(
            of["none"],
            [
                ("texts", _texts, "box", "gradient"),
                ("attention", _box, "0", "gradient"),
                ("gradient", _box, "1", "gradient"),
                ("above the gradient's box", _two, "box", "gradient"),
                ("claim", said, "box", "gradient"),
            ],
            both_ways=True,
        ),
        "serrano_falling": case_table(of["steps"], _with_claims(_three, "fall", SCORES), True),
        "serrano_sooner": case_table(
            found,
            [
                ("texts", _texts, "sooner"),
                ("gradient sooner", _share, "sooner"),
                ("claim: over half", said, "sooner"),
                ("as soon", _share, "as soon"),
                ("attention sooner", _share, "later"),
                ("ratio", _two, "ratio", "gradient"),
                ("claim: at least 1.6", said, "ratio", "gradient"),
                _p(found, _wilcoxon),
                (f"ratio of {WORDS[GRADIENTS[1]]} to attention", _two, "ratio", GRADIENTS[1]),
            ],
        ),
        "serrano_mass": case_table(found, _ranked(_median, "mass", ALL), both_ways=True),
        "serrano_lighter": case_table(found, _with_claims(_three, "shift", GRADIENTS), True),
        "serrano_excess": case_table(found, _ranked(_two, "excess", ("minimal", *ORDERS))),
        "serrano_last": case_table(found, _ranked(_share, "needs all", ALL)),
        "serrano_never": case_table(found, _ranked(_share, "never", ALL)),
    }


def claims_table(of: Mapping[str, Sequence[Case]]) -> str:
    """How often each claim holds of its cases, here and in the paper."""
    rows = []
    for key, claim in CLAIMS.items():
        found = [said(case, *key) for case in of[claim.of]]
        if found:
            counts = Counter(one.removesuffix(f" ({OPEN})") for one in found)
            numbers = [len(found) - counts[DASH], counts[HOLDS], counts[FAILS]]
            numbers.append(sum(OPEN in one for one in found))
            rows.append([claim.words, claim.never, claim.published, *map(str, numbers)])
    head = ["claim", "texts that never flip", "in the paper", "cases", HOLDS, FAILS]
    return table([*head, "of these open"], rows, 2)


def contingency_table(found: Sequence[Tested], published: Mapping[str, Any]) -> str:
    """Decisions that change without attention's top item, or without another one drawn."""
    columns = [
        ("texts", _texts, "flips", "attention"),
        ("of one item", lambda case: f"{(case.removal['length'] == 1).sum():,}"),
        *((name, _share, name) for name in ("both", "top alone", "other alone", "neither")),
        ("Δ JS < 0", _share, "closer"),
        _p(found, _mcnemar(ERASURE[0], ERASURE[3])),
    ]
    head, ruler, *lines = case_table(found, columns).splitlines(keepends=True)
    for place, tested in reversed(list(enumerate(found))):
        theirs = published["serrano_contingency"].get(tested.model.experiment)
        if theirs:
            row = ["", "as recalled, not verified", DASH, DASH, *theirs, DASH, DASH]
            lines.insert(place + 1, f"| {' | '.join(row)} |\n")
    return "".join([head, ruler, *lines])
