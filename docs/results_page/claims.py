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

from attnlight.report.erasure import ALL, ORDERS, SCORES, WORDS, flipped_by_all, steps
from attnlight.report.tables import markdown_table as table
from attnlight.report.tables import percent, probability
from attnlight.statistics.bootstrap import MeanInterval
from attnlight.statistics.paired import holm, mcnemar, paired_wilcoxon
from results_page.measures import median_interval
from results_page.serrano import NEVER, Key, Step, Tested, cases
from results_page.tables import DASH, shown

PUBLISHED = Path(__file__).parents[1] / "results/published.yaml"
SPECS = Path(__file__).parent / "serrano.yaml"
HOLDS, OPEN, FAILS = "holds", "open", "does not"
GRADIENTS = SCORES[1:]
_INFINITY = float("inf")
_RANKINGS = {"scores": SCORES, "gradients": GRADIENTS, "all": ALL}
_RANKINGS["beyond the minimum"] = ("minimal", *ORDERS)
_BOTH_WAYS = [(way,) for way in NEVER]

Case = Tested | Step


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


def _median(case: Tested, *key: str) -> str:
    """Mean, then median, each with its interval."""
    found = case.values[key][~np.isnan(case.values[key])]
    if not len(found):
        return DASH
    low, high = median_interval(found)
    return f"{shown(case.estimate(*key))}; {np.median(found):.2f} [{low:.2f}, {high:.2f}]"


def _box(case: Tested, *key: str, place: int = 1) -> str:
    """Median and quartiles of the fraction removed, of attention at place 0."""
    values = case.both("fraction", *key)[place]
    if not len(values):
        return DASH
    low, middle, high = np.quantile(values, [0.25, 0.5, 0.75])
    return f"{middle:.2f} ({low:.2f} to {high:.2f})"


def _wilcoxon(case: Tested, *names: str) -> float:
    """P-value of the difference of the items that two rankings need."""
    kept = flipped_by_all(case.removal)
    counts = (np.where(kept, steps(case.removal, name), np.nan) for name in names)
    return paired_wilcoxon(*counts).p_value


# What a cell says of a case and a key, and p-values, which are corrected over the models (Holm).
FORMS: dict[str, Callable[..., str]] = {
    "texts": lambda case, *key: f"{case.estimate(*key).defined:,}",
    "share": lambda case, *key: percent(case.estimate(*key)),
    "estimate": lambda case, *key: shown(case.estimate(*key)),
    "fine": lambda case, *key: shown(case.estimate(*key), 3),
    "claim": said,
    "median": _median,
    "box": _box,
    "box of attention": partial(_box, place=0),
    "alone": lambda case: f"{(case.removal['length'] == 1).sum():,}",
}
P_VALUES: dict[str, Callable[..., float]] = {
    "wilcoxon": _wilcoxon,
    "mcnemar": lambda case, *names: mcnemar(*(case.erasure[name] for name in names)).p_value,
}


def serrano_tables(found: Sequence[Tested], published: Mapping[str, Any]) -> dict[str, str]:
    """The tables of what was erased, by the name of their place."""
    of = cases(found)
    specs = yaml.safe_load(SPECS.read_text(encoding="utf-8"))
    tables = {place: case_table(of[spec["of"]], spec) for place, spec in specs.items()}
    lines = tables["serrano_contingency"].splitlines(keepends=True)
    for place, tested in reversed([*enumerate(found, start=3)]):
        theirs = published["serrano_contingency"].get(tested.model.experiment)
        if theirs:
            row = ["", "as recalled, not verified", DASH, DASH, *theirs, DASH, DASH]
            lines.insert(place, f"| {' | '.join(row)} |\n")
    return tables | {"serrano_contingency": "".join(lines), "serrano_claims": claims_table(of)}


def case_table(found: Sequence[Case], spec: Mapping[str, Any]) -> str:
    """A row for each case, or one for each of `NEVER`, the last part of the keys of its cells."""
    both_ways = spec.get("both_ways", False)
    columns = _columns(spec)
    corrected = {
        tuple(key): holm([P_VALUES[form](case, *key) for case in found])
        for _, form, *key in columns
        if form in P_VALUES
    }
    rows = []
    for (place, case), way in product(enumerate(found), _BOTH_WAYS if both_ways else [()]):
        cells = [
            probability(corrected[tuple(key)][place])
            if form in P_VALUES
            else FORMS[form](case, *key, *way)
            for _, form, *key in columns
        ]
        rows.append([*case.words, *(NEVER[x] for x in way), *cells])
    models = "models" if spec["of"] == "steps" else "model"
    words = ["corpus", models, *(["texts that never flip"] if both_ways else [])]
    return table([*words, *(column[0] for column in columns)], rows, len(words))


def _columns(spec: Mapping[str, Any]) -> list[list[str]]:
    """Heading, form and key of each column."""
    if not (ranked := spec.get("each") or spec.get("judged")):
        return list(spec["columns"])
    form, measure, names = ranked
    columns = [["texts", "texts", measure, _RANKINGS[names][0]]]
    for name in _RANKINGS[names]:
        columns.append([WORDS[name], form, measure, name])
        if "judged" in spec:
            columns.append(["claim", "claim", measure, name])
    return columns + spec.get("columns", [])


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
