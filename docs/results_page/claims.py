"""The tables of Serrano & Smith's models, and their numeric claims, judged by intervals."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from attnlight.figures.erasure import ALL, ORDERS, SCORES, WORDS
from attnlight.figures.tables import percent, probability
from attnlight.statistics.bootstrap import MeanInterval
from attnlight.statistics.paired import holm, mcnemar, paired_wilcoxon
from attnlight.storage.files import read_yaml
from results_page import read_data
from results_page.measures import median_interval
from results_page.serrano import NEVER, Case, cases
from results_page.tables import DASH, Row, interval, table

PUBLISHED = Path(__file__).parents[1] / "results/published.yaml"
HOLDS, OPEN, FAILS = "holds", "open", "does not"
# Which ends of a claim's range are closed, by the key that gives the bound.
_CLOSED = {"above": "right", "at_least": "both", "below": "left", "at_most": "both"}
_RANKINGS = {"scores": SCORES, "gradients": SCORES[1:], "all": ALL}
_RANKINGS["beyond the minimum"] = ("minimal", *ORDERS)
_P_VALUES = {"mcnemar": mcnemar, "wilcoxon": paired_wilcoxon}


def claimed_range(claim: Mapping[str, Any]) -> pd.Interval:
    """The range that a claim names by one of `above`, `at_least`, `below` and `at_most`."""
    (word,) = claim.keys() & _CLOSED.keys()
    ends = (claim[word], np.inf) if word in ("above", "at_least") else (-np.inf, claim[word])
    return pd.Interval(*map(float, ends), closed=_CLOSED[word])


def read_claims(path: Path = PUBLISHED) -> dict[str, dict[str, Any]]:
    """The paper's claims about its models, in the order of the summary.

    Returns:
        Each claim by the column of a case that it is about: its `words`, the set `of` cases (a key
        of `cases`), the `claimed` range and the `published` number of models.
    """
    claims: dict[str, dict[str, Any]] = {}
    for claim in read_yaml(path)["serrano_claims"]:
        claim["claimed"] = claimed_range(claim)
        policies = NEVER if "never" in claim else [""]
        for name, never in product(claim.get("rankings", [""]), policies):
            key = " ".join(filter(None, (claim["measure"], name, never)))
            words = claim["claim"].format(WORDS.get(name))
            claims[key] = {"published": DASH, "words": words} | claim
    return claims


CLAIMS = read_claims()


def verdict(mean: MeanInterval, claimed: pd.Interval) -> str:
    """`holds` or `does not`, by the mean, with `(open)` if the interval is on both sides."""
    if np.isnan(mean.mean):
        return DASH
    word = HOLDS if mean.mean in claimed else FAILS
    inside = mean.low in claimed and mean.high in claimed
    outside = not claimed.overlaps(pd.Interval(mean.low, mean.high, closed="both"))
    return word if inside or outside else f"{word} ({OPEN})"


def cell(case: Case, form: str, key: str) -> str:
    """A cell of a table for a case; a dash if undefined or if the claim does not apply to the case.

    Args:
        case: The case.
        form: `texts`, the number of defined texts; their mean as a `share` in per cent, as an
            `estimate` or with a third decimal (`fine`); the verdict on a `claim`; mean and
            `median`, each with its interval; median and quartiles (`box`).
        key: One of the case's estimates.
    """
    mean, claim = case.estimates[key], CLAIMS.get(key, {})
    if form == "texts":
        return f"{mean.defined:,}"
    if np.isnan(mean.mean):
        return DASH
    if form == "share":
        return percent(mean)
    if form == "claim":
        applies = case.encoder or claim["of"] != "encoder"
        return verdict(mean, claim["claimed"]) if applies else DASH
    if form in ("estimate", "fine"):
        return interval(mean, 3 if form == "fine" else 2)
    values = case.values[key].dropna().to_numpy()
    low, middle, high = np.quantile(values, [0.25, 0.5, 0.75])
    if form == "box":
        return f"{middle:.2f} ({low:.2f} to {high:.2f})"
    low, high = median_interval(values)
    return f"{interval(mean)}; {middle:.2f} [{low:.2f}, {high:.2f}]"


def serrano_tables(models: Mapping[str, Case], published: Mapping[str, Any]) -> dict[str, str]:
    """The tables of erasures and of the claims about them, by the name of their place."""
    by_kind, tables, rows = cases(models), {}, []
    for place, spec in read_data("serrano").items():
        shown = case_rows(by_kind[spec["of"]], spec, published.get(place, {}))
        tables[place] = table(shown, 3 if spec.get("both_ways") else 2)
    for key, claim in CLAIMS.items():  # how often each holds, here and in the paper
        verdicts = [cell(case, "claim", key) for case in by_kind[claim["of"]].values()]
        never = next((words for never, words in NEVER.items() if key.endswith(f" {never}")), DASH)
        row = {"claim": claim["words"], "texts that never flip": never}
        row |= {"in the paper": claim["published"], "cases": len(verdicts) - verdicts.count(DASH)}
        row |= {word: sum(v.startswith(word) for v in verdicts) for word in (HOLDS, FAILS)}
        rows += [row | {"of these open": sum(OPEN in v for v in verdicts)}] if verdicts else []
    return tables | {"serrano_claims": table(rows, 2)}


def case_rows(
    models: Mapping[str, Case], spec: Mapping[str, Any], published: Mapping[str, Row]
) -> Iterator[Row]:
    """The rows of a table of `serrano.yaml`, with the paper's figures below those of our model.

    A case has one row, or one for each of `NEVER`; its key is the last word of the cells' keys.
    """
    columns = list(spec.get("columns", ()))
    if "each" in spec:
        form, measure, names = spec["each"]
        each = [["texts", "texts", f"{measure} {_RANKINGS[names][0]}"]]
        for name in _RANKINGS[names]:
            each.append([WORDS[name], form, f"{measure} {name}"])
            if "judged" in spec:
                each.append([f"claim#{name}", "claim", f"{measure} {name}"])
        columns = each + columns
    corrected: dict[str, Any] = {}  # p-values, over the cases (Holm)
    for head, form, *names in columns:
        if test := _P_VALUES.get(form):
            columns_by_case = ([case.values[name] for name in names] for case in models.values())
            p_values = holm([test(*values).p_value for values in columns_by_case])
            corrected[head] = dict(zip(models, p_values, strict=True))
    heading = "models" if spec["of"] == "steps" else "model"
    for name, case in models.items():
        for never, words in NEVER.items() if spec.get("both_ways") else [("", "")]:
            row: Row = dict(zip(("corpus", heading), case.words, strict=True))
            row |= {"texts that never flip": words} if never else {}
            for head, form, key, *_ in columns:
                if head in corrected:
                    row[head] = probability(corrected[head][name])
                else:
                    row[head] = cell(case, form, f"{key} {never}".strip())
            yield row
        if name in published:
            labels = {"corpus": "", "model": "as recalled, not verified"}
            yield dict.fromkeys(row) | labels | published[name]
