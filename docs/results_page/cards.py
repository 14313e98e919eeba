"""The verdict cards of several models side by side, of all their seeds."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pandas as pd

from attnlight.report.verdict.card import verdict_of
from attnlight.report.verdict.card_records import CardRecords
from attnlight.report.verdict.estimate import rules
from results_page import NAMES
from results_page.known_answers_kinds import unsigned
from results_page.tables import DASH, Row, number, table

MODELS: dict[str, str] = NAMES["cards"]["models"]
LINES: dict[str, str] = NAMES["cards"]["lines"]
KEYS = ("model", "seed")


def card_of(run: Path) -> Row:
    """The version of the rules, the kind of a model, the cases and sentences of its card, and its numbers.

    Empty of a run that was not tested.
    """
    card = verdict_of(run)
    if card.case == "unmeasured":
        return {}
    row: Row = {"version": rules()["version"]}
    row |= {name: getattr(card, name) for name in ("kind", "case", "case_if_licensed")}
    row |= {"sentence": card.sentence, "alternative": card["alternative"].says}
    lines = {line.name: (line.value, line.low, line.high) for line in card.lines}
    for line, numbers in (lines | {"by_size": unsigned(CardRecords(run))}).items():
        ends = (f"{line}_{end}" for end in ("value", "low", "high"))
        row |= dict(zip(ends, numbers, strict=True))
    return row


def card_table(path: Path, models: Mapping[str, str] = MODELS) -> str:
    """For each model what its card would say with a licence, and its numbers: range over seeds.

    The sentence is that of the first seed; the cases of all seeds stand before it.
    """
    cards, rows = pd.read_parquet(path), []
    names = [*models, *(name for name in cards["model"].unique() if name not in models)]
    for name in (name for name in names if name in {*cards["model"]}):
        own = cards[cards["model"] == name]
        counts = own["case_if_licensed"].value_counts(sort=True)
        answers = ", ".join(f"{case.replace('_', ' ')} ({n})" for case, n in counts.items())
        row: Row = {"model": models.get(name, name.replace("_", " ")), "seeds": len(own)}
        row["rules"] = ", ".join(map(str, sorted(own["version"].unique())))
        row |= {"answer by seed": answers, "sentence, first seed": own["sentence"].iloc[0]}
        for line, heading in LINES.items():
            numbers = own.reindex(columns=[f"{line}_value", f"{line}_low", f"{line}_high"])
            value = numbers.iloc[:, 0].dropna()
            ends = numbers.iloc[0, 1:] if len(own) == 1 else (value.min(), value.max())
            shown = "{} [{}, {}]".format(*(number(x, 2) for x in (value.mean(), *ends)))
            row[heading] = shown if len(value) else DASH
        rows.append(row)
    return table(rows, 4)
