"""The archive of the verdict card on kinds of evidence, some of which are set aside.

The study `known_kinds` trains the checkpoints; docs/results/known_answers_kinds.parquet has a row for
each, with both truths, the card as if every kind of model had a licence, and the controls. The card is that
of the version that was judged after it was trained; the file with `_4` has what version 4 answered where
version 5 is archived.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from attnlight.records import read_record
from attnlight.report.verdict.card import verdict_of
from attnlight.report.verdict.card_records import CardRecords
from attnlight.report.verdict.estimate import digest, rules
from attnlight.report.verdict.lines import alternative_of, ranks
from attnlight.report.verdict.ranks import agreements
from attnlight.statistics.bootstrap import defined_mean
from results_page.known_answers import USE, planned
from results_page.tables import Row

STUDY = "known_kinds"
VERSION = int(rules()["version"])
# Studies of the kinds that judge a version.
ASIDE = {4: f"{STUDY}_aside", 5: f"{STUDY}_new", VERSION: f"{STUDY}_unseen"}
KEYS = ("kind", "encoder", "treatment", "seed")
TRUTHS = {"evidence": "by construction", "resampled": "by resampling"}
NUMBERS = ("ranks", "finds", "finds_unsigned", "needed", "words", "smallest_set", "uniqueness")
CONTROLS = ("entropy", "largest_weight", "length", "correct")
SENTENCE, NO, WITHOUT = "decision", "no", "without_encoder"  # columns of yes and no
ANSWERS = {
    SENTENCE: "the sentence",
    **{f"{line}_answer": f"the line `{line}`" for line in ("ranks", "needed", "words")},
}
CONSTANT = {NO: "always no", WITHOUT: "has no encoder"}
FITTED = ("finds", "finds_unsigned", "smallest_set", "uniqueness", *CONTROLS)
LEAST_TEXTS = 30  # of a predicted class


def aside(version: int = VERSION) -> set[str]:
    """The kinds of evidence that are set aside to judge a version of the card."""
    return {condition.split("-")[0] for condition in planned(ASIDE[version])}


def worst_class(columns: Mapping[str, NDArray[Any]], name: str) -> float:
    """The smallest mean of a column over a predicted class of enough texts; NaN if there is none."""
    values = columns[name].astype(np.float64)
    classes = [values[columns["prediction"] == x] for x in np.unique(columns["prediction"])]
    means = [float(defined_mean(x)) for x in classes if (~np.isnan(x)).sum() >= LEAST_TEXTS]
    return min(means, default=np.nan)


def unsigned(records: CardRecords) -> tuple[float, ...]:
    """What attention finds of what the best method by size does, with its interval."""
    best = alternative_of(records, signed=False)
    return (best.ratio.value, *best.ratio.interval()) if best else (np.nan,) * 3


def card_of(run: Path) -> Row:
    """The truths of a run, its card, and its controls; empty if the card was not measured."""
    card = verdict_of(run)
    if card.case_if_licensed == "unmeasured" or not (run / USE).is_file():
        return {}
    use, records = read_record(run / USE).columns, CardRecords(run)
    lines: dict[str, tuple[float | None, ...]] = {"finds_unsigned": unsigned(records)}
    lines |= {line.name: (line.value, line.low, line.high) for line in card.lines}
    labels = read_record(run / USE.replace("measured_use", "predictions")).columns["label"]
    licensed = replace(card, case=card.case_if_licensed)
    row: Row = {"model": card.kind, "rules": digest()}
    row |= {truth: worst_class(use, f"agreement_{truth}") for truth in TRUTHS}
    row |= {"case": licensed.case, "decision": licensed.decision}
    row |= {f"{line.name}_answer": line.answer for line in card.lines}
    row["ranks_answer"] = ranks(records, agreements(records)).answer  # that of a licensed kind
    for name in NUMBERS:
        numbers = [np.nan if x is None else x for x in lines.get(name, (None,) * 3)]
        row |= dict(zip((name, f"{name}_low", f"{name}_high"), numbers, strict=True))
    row |= {name: float(defined_mean(use[name].astype(np.float64))) for name in CONTROLS}
    return row | {"majority": float(np.bincount(labels).max() / len(labels))}


def read_cards(path: Path, version: int = VERSION) -> pd.DataFrame:
    """The archived cards up to a version with the constant rules; no row if there is no file."""
    names = [*KEYS, "model", "rules", *TRUTHS, "case", *ANSWERS, *FITTED]
    cards = pd.read_parquet(path) if path.exists() else pd.DataFrame(columns=names)
    for later in (number for number in ASIDE if number > version):
        cards = cards[~cards["kind"].isin(aside(later))]
    if version == min(ASIDE):
        former = pd.read_parquet(path.with_stem(f"{path.stem}_{version}"))
        same = cards.drop(columns=[name for name in former if name not in KEYS])
        cards = former.merge(same, on=[*KEYS])
    without = np.where(cards["encoder"] == "none", "yes", "no")
    constant = {NO: "no", WITHOUT: without}
    return cards.assign(**constant, aside=cards["kind"].isin(aside(version)))
