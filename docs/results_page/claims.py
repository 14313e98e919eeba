"""The tables of Serrano & Smith's models, and their numeric claims, judged by intervals."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml

from attnlight.report.erasure import ALL, ORDERS, SCORES, WORDS
from attnlight.report.tables import percent, probability
from attnlight.statistics.bootstrap import MeanInterval
from attnlight.statistics.paired import holm, mcnemar, paired_wilcoxon
from results_page.measures import median_interval
from results_page.serrano import NEVER, Case, cases
from results_page.tables import DASH, Row, interval, table

PUBLISHED = Path(__file__).parents[1] / "results/published.yaml"
SPECS = Path(__file__).parent / "serrano.yaml"
HOLDS, OPEN, FAILS = "holds", "open", "does not"
# Which ends of a claim's range belong to it, by the end that is given.
_CLOSED = {"above": "right", "at_least": "both", "below": "left", "at_most": "both"}
_RANKINGS = {"scores": SCORES, "gradients": SCORES[1:], "all": ALL}
_RANKINGS["beyond the minimum"] = ("minimal", *ORDERS)
_P_VALUES = {"mcnemar": mcnemar, "wilcoxon": paired_wilcoxon}


def read_claims(path: Path = PUBLISHED) -> dict[str, dict[str, Any]]:
    """What the paper says of its models, in the order of the summary.

    Returns:
        Each claim by the column of a case that it is made of: its `words`, what it is said `of` (a
        key of `cases`), the range that is `claimed` and of how many models it is `published`.
    """
    found: dict[str, dict[str, Any]] = {}
    for one in yaml.safe_load(path.read_text(encoding="utf-8"))["serrano_claims"]:
        (word,) = one.keys() & _CLOSED.keys()
        ends = (one[word], np.inf) if word in ("above", "at_least") else (-np.inf, one[word])
        one["claimed"] = pd.Interval(*map(float, ends), closed=_CLOSED[word])
        for name, way in product(one.get("rankings", [""]), NEVER if "never" in one else [""]):
            key = " ".join(filter(None, (one["measure"], name, way)))
            found[key] = {"published": DASH, "words": one["claim"].format(WORDS.get(name))} | one
    return found


CLAIMS = read_claims()


def verdict(found: MeanInterval, claimed: pd.Interval) -> str:
    """`holds` or `does not`, by the estimate; `open` in parentheses where its interval says both."""
    if np.isnan(found.mean):
        return DASH
    word = HOLDS if found.mean in claimed else FAILS
    inside = found.low in claimed and found.high in claimed
    outside = not claimed.overlaps(pd.Interval(found.low, found.high, closed="both"))
    return word if inside or outside else f"{word} ({OPEN})"


def cell(case: Case, form: str, key: str) -> str:
    """What a table says of a case; a dash where nothing is defined, or a claim is not made of it.

    Args:
        case: The case.
        form: How many texts are defined; their mean as a `share` in per cent, as an `estimate` or
            with a third decimal (`fine`); whether a `claim` on it holds; mean and `median`, each
            with its interval; median and quartiles (`box`).
        key: One of the case's estimates.
    """
    found, claim = case.estimates[key], CLAIMS.get(key, {})
    if form == "texts":
        return f"{found.defined:,}"
    if np.isnan(found.mean):
        return DASH
    if form == "share":
        return percent(found)
    if form == "claim":
        made = case.encoder or claim["of"] != "encoder"
        return verdict(found, claim["claimed"]) if made else DASH
    if form in ("estimate", "fine"):
        return interval(found, 3 if form == "fine" else 2)
    values = case.values[key].dropna().to_numpy()
    low, middle, high = np.quantile(values, [0.25, 0.5, 0.75])
    if form == "box":
        return f"{middle:.2f} ({low:.2f} to {high:.2f})"
    low, high = median_interval(values)
    return f"{interval(found)}; {middle:.2f} [{low:.2f}, {high:.2f}]"


def serrano_tables(models: Mapping[str, Case], published: Mapping[str, Any]) -> dict[str, str]:
    """The tables of what was erased, and of what is claimed of it, by the name of their place."""
    of, tables, rows = cases(models), {}, []
    for place, spec in yaml.safe_load(SPECS.read_text(encoding="utf-8")).items():
        shown = case_rows(of[spec["of"]], spec, published.get(place, {}))
        tables[place] = table(shown, 3 if spec.get("both_ways") else 2)
    for key, claim in CLAIMS.items():  # how often each holds, here and in the paper
        said = [cell(case, "claim", key) for case in of[claim["of"]].values()]
        row = {"claim": claim["words"], "texts that never flip": NEVER.get(key.split()[-1], DASH)}
        row |= {"in the paper": claim["published"], "cases": len(said) - said.count(DASH)}
        row |= {word: sum(one.startswith(word) for one in said) for word in (HOLDS, FAILS)}
        rows += [row | {"of these open": sum(OPEN in one for one in said)}] if said else []
    return tables | {"serrano_claims": table(rows, 2)}


def case_rows(
    found: Mapping[str, Case], spec: Mapping[str, Any], published: Mapping[str, Row]
) -> Iterator[Row]:
    """The rows of a table of `serrano.yaml`, the paper's figures below those of our model.

    A case has one row, or one for each of `NEVER`, which is the last word of the keys of its cells.
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
            tested = (test(*(case.values[name] for name in names)) for case in found.values())
            corrected[head] = dict(zip(found, holm([one.p_value for one in tested]), strict=True))
    models = "models" if spec["of"] == "steps" else "model"
    for name, case in found.items():
        for way in NEVER if spec.get("both_ways") else [""]:
            row = dict(zip(("corpus", models), case.words, strict=True))
            row |= {"texts that never flip": NEVER[way]} if way else {}
            for head, form, key, *_ in columns:
                if head in corrected:
                    row[head] = probability(corrected[head][name])
                else:
                    row[head] = cell(case, form, f"{key} {way}".strip())
            yield row
        if name in published:
            theirs = {"corpus": "", "model": "as recalled, not verified"} | published[name]
            yield dict.fromkeys(row) | theirs
