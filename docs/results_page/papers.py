"""The papers' claims, held against the tables of results by one rule: the tables of the front page."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from attnlight.report.study.verdict import MIN_MODELS
from attnlight.statistics.bootstrap import MeanInterval
from attnlight.storage.files import read_yaml
from results_page.claims import FAILS, HOLDS, OPEN, claimed_range, verdict
from results_page.findings import Cell, Tables
from results_page.sentences import reasons
from results_page.tables import DASH, Row, table

CLAIMS = Path(__file__).parent / "papers.yaml"
AGREES, DIFFERS, NOT_SHOWN = "agrees", "**does not**", "not shown"
SHARE = 0.75  # of the cases that a claim on several models must hold in
_LISTED = 3  # cases that are listed one by one


class Case(NamedTuple):
    """A cell that a claim is held against.

    Attributes:
        label: What it is of; may be empty.
        cell: The cell, which may be a verdict.
        verdict: `holds` or `does not`, with `(open)` if the interval is on both sides.
        models: Trained models that it rests on, on the smaller side of a comparison. Models guided
            by one base count as one.
    """

    label: str
    cell: Cell
    verdict: str
    models: int


def claim_tables(tables: Tables, path: Path = CLAIMS) -> dict[str, str]:
    """A table for each paper: its claims, the published and our figures, and the outcomes.

    Raises:
        InputError: A claim names rows that a table does not have.
    """
    papers = read_yaml(path)
    known = any("reason" in claim for claims in papers.values() for claim in claims)
    said = {x.key: x.text for x in reasons(tables)} if known else {}
    found = {}
    for place, claims in papers.items():
        rows: list[Row] = []
        for claim in claims:
            cases = [case for of in claim["cases"] for case in cases_of(claim, of, tables)]
            models = [case.models for case in cases]
            listed = " + ".join(map(str, models)) if len(cases) <= _LISTED else str(sum(models))
            row = {"claim": claim["claim"], "published": claim["published"], "here": ours(cases)}
            row |= {"models": listed, "outcome": outcome(cases, str(claim["published"]))}
            reason = said[claim["reason"]] if "reason" in claim else DASH
            rows.append(row | {"tested reason for a difference": reason})
        found[place] = table(rows, 6)
    return found


def cases_of(claim: Mapping[str, Any], of: Mapping[str, Any], tables: Tables) -> Iterator[Case]:
    """The cells of a claim in a table, without those that are undefined.

    Args:
        claim: The claim, with the range that is claimed.
        of: Where the cells are: an entry of its `cases`.
        tables: The tables of results.
    """
    for row in tables.rows(of["table"], *of.get("rows", ())):
        title = next((x for x in row if x == of["column"]), None)
        title = title or next(x for x in row if x.startswith(of["column"]))
        word = row[title]
        if word in (DASH, "") or any(row[x] != y for x, y in of.get("where", {}).items()):
            continue
        cell = Cell(word)
        word = row[of["judged"]] if "judged" in of else word
        if not word.startswith((HOLDS, FAILS, OPEN)):
            claimed = claimed_range(claim) if "than" not in of else pd.Interval(0, np.inf, "right")
            value, (low, high) = cell.value, cell.range
            if "than" in of:  # by how much the intervals are apart
                other = Cell(row[of["than"]])
                least, most = other.range
                value, low, high = value - other.value, low - most, high - least
            word = verdict(MeanInterval(value, low, high, 1), claimed)
        name = of.get("seeds", "seeds")
        seeds = [row.get(name, "1")]
        if "sides" in of:
            seeds = [tables.rows(of["table"], side)[0]["seeds"] for side in of["sides"]]
        elif name not in row and "seeds" in of:
            seeds = [tables.rows(name, next(iter(row.values())))[0]["seeds"]]
        counts = [re.search(r"guided by (\d+)", text) or re.match(r"(\d+)", text) for text in seeds]
        models = min(int(count[1]) if count else 0 for count in counts)
        yield Case(row.get(of.get("label", ""), of.get("label", "")), cell, word, models)


def outcome(cases: list[Case], published: str) -> str:
    """Whether we agree with a claim.

    It must hold, by its interval, in at least `SHARE` of the cases, or in the published share if
    that is lower. It does not if too few would hold even with all open ones. With fewer than
    `MIN_MODELS` trained models nothing is shown.
    """
    stated = re.fullmatch(r"(\d+) of (\d+)", published)
    share = min(SHARE, int(stated[1]) / int(stated[2])) if stated else SHARE
    still_open = sum(OPEN in case.verdict for case in cases)
    holds = sum(case.verdict == HOLDS for case in cases)
    if sum(case.models for case in cases) < MIN_MODELS:
        return NOT_SHOWN
    if holds >= share * len(cases):
        return AGREES
    return DIFFERS if holds + still_open < share * len(cases) else NOT_SHOWN


def ours(cases: list[Case]) -> str:
    """The figures of a few cases with their intervals; of many how often the claim holds."""
    figures = sorted((x.cell for x in cases if not np.isnan(x.cell.value)), key=lambda x: x.value)
    if len(cases) <= _LISTED:
        said = [case.verdict if np.isnan(case.cell.value) else case.cell for case in cases]
        listed = (f"{case.label} {x}".strip() for case, x in zip(cases, said, strict=True))
        return ", ".join(listed) or DASH
    still_open = sum(OPEN in case.verdict for case in cases)
    words = f"{sum(case.verdict == HOLDS for case in cases)} of {len(cases)}"
    words += f", {still_open} open" if still_open else ""
    return words + (f" ({figures[0].number} to {figures[-1].number})" if figures else "")
