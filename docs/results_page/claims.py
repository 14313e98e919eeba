"""The tables of Serrano & Smith's models, and their numeric claims, judged by intervals."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import yaml

from attnlight.report.erasure import ALL, ORDERS, SCORES, WORDS
from attnlight.report.tables import percent, probability
from attnlight.statistics.bootstrap import MeanInterval
from attnlight.statistics.paired import TestResult, holm, mcnemar, paired_wilcoxon
from results_page.measures import median_interval
from results_page.serrano import NEVER, Case, Key, cases
from results_page.tables import DASH, Row, interval, table

PUBLISHED = Path(__file__).parents[1] / "results/published.yaml"
SPECS = Path(__file__).parent / "serrano.yaml"
HOLDS, OPEN, FAILS = "holds", "open", "does not"
_RANKINGS = {"scores": SCORES, "gradients": SCORES[1:], "all": ALL}
_RANKINGS["beyond the minimum"] = ("minimal", *ORDERS)
_BOTH_WAYS = [(way,) for way in NEVER]


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
        end = np.inf if word in ("above", "at_least") else -np.inf
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


def judgement(case: Case, *key: str) -> str:
    """Whether a claim holds of a case; a dash where it is not made of it."""
    made = CLAIMS[key].of != "encoder" or case.encoder
    return verdict(case.estimate(*key), CLAIMS[key].claimed) if made else DASH


def _median(case: Case, *key: str) -> str:
    """Mean, then median, each with its interval."""
    if not len(found := case.defined(*key)):
        return DASH
    low, high = median_interval(found)
    return f"{interval(case.estimate(*key))}; {np.median(found):.2f} [{low:.2f}, {high:.2f}]"


def _box(case: Case, *key: str) -> str:
    """Median and quartiles."""
    if not len(found := case.defined(*key)):
        return DASH
    low, middle, high = np.quantile(found, [0.25, 0.5, 0.75])
    return f"{middle:.2f} ({low:.2f} to {high:.2f})"


# What a cell says of a case and a key, and p-values, which are corrected over the models (Holm).
FORMS: dict[str, Callable[..., str]] = {
    "texts": lambda case, *key: f"{case.estimate(*key).defined:,}",
    "share": lambda case, *key: percent(case.estimate(*key)),
    "estimate": lambda case, *key: interval(case.estimate(*key)),
    "fine": lambda case, *key: interval(case.estimate(*key), 3),
    "claim": judgement,
    "median": _median,
    "box": _box,
    "alone": lambda case: f"{(case.rows['length'] == 1).sum():,}",
}
P_VALUES: dict[str, Callable[..., TestResult]] = {
    # Of the items that two rankings need, where all rankings flip.
    "wilcoxon": lambda case, *names: paired_wilcoxon(*(case.values["excess", x] for x in names)),
    "mcnemar": lambda case, *names: mcnemar(*(case.rows[name] for name in names)),
}


def serrano_tables(models: Mapping[str, Case], published: Mapping[str, Any]) -> dict[str, str]:
    """The tables of what was erased, and of what is claimed of it, by the name of their place.

    Args:
        models: The models that were kept, by experiment.
        published: docs/results/published.yaml.
    """
    of, tables = cases(models), {}
    for place, spec in yaml.safe_load(SPECS.read_text(encoding="utf-8")).items():
        rows = [*case_rows(of[spec["of"]], spec)]
        below = published.get(place, {})  # figures of the paper, each below our model's
        for at, name in reversed([*enumerate(models, start=1)]):
            if name in below:
                theirs = {"corpus": "", "model": "as recalled, not verified"} | below[name]
                rows.insert(at, dict.fromkeys(rows[0]) | theirs)
        tables[place] = table(rows, 3 if spec.get("both_ways") else 2)
    return tables | {"serrano_claims": table(summary(of), 2)}


def case_rows(found: Sequence[Case], spec: Mapping[str, Any]) -> Iterator[Row]:
    """A row for each case, or one for each of `NEVER`, the last part of the keys of its cells.

    Args:
        found: The cases.
        spec: A table of `serrano.yaml`.
    """
    form, measure, names = spec.get("each") or spec.get("judged") or (None, None, None)
    rankings = _RANKINGS.get(names, ())
    columns = [["texts", "texts", measure, rankings[0]]] if rankings else []
    for name in rankings:
        columns.append([WORDS[name], form, measure, name])
        if "judged" in spec:
            columns.append([f"claim#{name}", "claim", measure, name])
    columns += spec.get("columns", [])
    corrected = {
        head: holm([P_VALUES[form](case, *key).p_value for case in found])
        for head, form, *key in columns
        if form in P_VALUES
    }
    models = "models" if spec["of"] == "steps" else "model"
    for place, case in enumerate(found):
        for way in _BOTH_WAYS if spec.get("both_ways") else [()]:
            words = (*case.words, *(NEVER[never] for never in way))
            row = dict(zip(("corpus", models, "texts that never flip"), words, strict=False))
            for head, form, *key in columns:
                p = corrected.get(head)
                row[head] = FORMS[form](case, *key, *way) if p is None else probability(p[place])
            yield row


def summary(of: Mapping[str, Sequence[Case]]) -> Iterator[Row]:
    """How often each claim holds of its cases, here and in the paper."""
    for key, claim in CLAIMS.items():
        if found := [judgement(case, *key) for case in of[claim.of]]:
            counts = Counter(one.removesuffix(f" ({OPEN})") for one in found)
            yield {
                "claim": claim.words,
                "texts that never flip": claim.never,
                "in the paper": claim.published,
                "cases": len(found) - counts[DASH],
                HOLDS: counts[HOLDS],
                FAILS: counts[FAILS],
                "of these open": sum(OPEN in one for one in found),
            }
