"""The verdict card judged on known answers that were trained after its rules were fixed.

The study `verdict_card` trains them; docs/results/known_answers_cards.parquet has a row for each of them
and each line of the card that answers yes or no, with both labels and which of them the line is judged
against.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd

from attnlight.records import read_record
from attnlight.report.verdict.card import verdict_of
from attnlight.statistics.bootstrap import defined_mean
from results_page.known_answers import BOUNDS, KEYS, LABELS
from results_page.tables import DASH, Row, table

STUDY = "verdict_card"
LINES = {"ranks": "ranks by importance", "smallest_set": "smallest set"}
AIMS = {"decided": "at least 0.80", "right": "at least 0.90", "wrong yes": "at most 0.05"}
COLUMNS = ("answer", "value", "low", "high", "texts")
FLAGS = ["follows", "misleads", "decided", "wrong", "wrong_yes"]


def archive_cards(runs: Path, target: Path) -> list[str]:
    """Write the answers of the card on the runs of its study; a line for each left out."""
    rows, left_out = [], []
    for run in sorted(runs.glob(f"{STUDY}-*/base-s*")):
        card, use = verdict_of(run), run / "records/test/measured_use.parquet"
        unmeasured = any(card[line].answer == "not measured" for line in (*LINES, "words"))
        if unmeasured or not use.is_file():
            left_out.append(f"{run} has not all tests of the card: not archived.")
            continue
        point = [*run.parent.name.split("-")[1:], int(run.name.removeprefix("base-s"))]
        columns = read_record(use).columns
        row = dict(zip(KEYS, point, strict=True)) | {
            label: float(defined_mean(columns[name.partition("/")[2]].astype(np.float64)))
            for label, name in LABELS.items()
        }
        row["speaks_of"] = "words" if card["words"].answer == "yes" else "states"
        for line in LINES:
            # Rankings are compared by deleting words, also where they are of states.
            judged_by = "words" if line == "ranks" else row["speaks_of"]
            answer = {name: getattr(card[line], name) for name in COLUMNS}
            rows.append(row | {"line": line, "judged_by": judged_by} | answer)
    frame = pd.DataFrame(rows).sort_values([*KEYS, "line"])
    frame = frame[[*KEYS, "line", "speaks_of", "judged_by", *LABELS, *COLUMNS]]
    frame = frame.map(lambda x: float(f"{x:.6g}") if isinstance(x, float) else x)
    frame.to_parquet(target, index=False, compression="zstd")
    return left_out


def graded(cards: pd.DataFrame) -> pd.DataFrame:
    """The rows with what their label says of each: whether it follows, not; is decided, right."""
    least, most = (
        cards["judged_by"].map({x: bounds[i] for x, bounds in BOUNDS.items()}) for i in (0, 1)
    )
    label = cards["words"].where(cards["judged_by"] == "words", cards["states"])
    follows, misleads = label >= least, label <= most
    yes, no = cards["answer"] == "yes", cards["answer"] == "no"
    flags = (
        *(follows, misleads, (yes | no) & (follows | misleads)),
        *((yes & misleads) | (no & follows), yes & misleads),
    )
    return cards.assign(**dict(zip(FLAGS, flags, strict=True)))


def judged(rows: pd.DataFrame) -> Row:
    """How often answers are given, how often they are right then, and how often a yes is wrong."""
    follows, misleads, decided, wrong, wrong_yes = (rows[flag] for flag in FLAGS)
    counts = {"decided": (decided, follows | misleads), "right": (decided & ~wrong, decided)}
    counts["wrong yes"] = (wrong_yes, misleads)
    shares = {
        name: f"{found.sum() / total.sum():.2f} ({found.sum()} of {total.sum()})"
        for name, (found, total) in counts.items()
        if total.any()
    }
    return {"follow": int(follows.sum()), "do not": int(misleads.sum())} | shares


def shares(cards: pd.DataFrame) -> Iterator[Row]:
    """What each line answers, by the label it is judged against, and both lines together.

    Together they decide on a checkpoint if one of them does; they are right if none is wrong.
    """
    rows = graded(cards)
    for (line, label), part in rows.groupby(["line", "judged_by"]):
        yield {"line": LINES[str(line)], "label of": label, **judged(part)}
    together = {
        "by checkpoint": rows.groupby([*KEYS])[FLAGS].any(),
        "by answer": rows,
        "by answer, where applicable": rows[rows["answer"] != "not applicable"],
    }
    for words, part in together.items():
        yield {"line": f"both, {words}", "label of": "", **judged(part)}
    strictly = judged(graded(cards.assign(judged_by=cards["speaks_of"])))
    yield {"line": "both, by answer", "label of": "what the card speaks of", **strictly}
    yield {"line": "aim", "label of": "", **AIMS}


def by_kind(cards: pd.DataFrame) -> Iterator[Row]:
    """The answers of each line to each kind of attention in each setting, by how many checkpoints."""
    for setting, rows in graded(cards).groupby("setting"):
        row: Row = {"setting": setting}
        for line, title in LINES.items():
            for name, group in {"follows": "follows", "does not": "misleads"}.items():
                counts = rows[(rows["line"] == line) & rows[group]]["answer"].value_counts()
                cell = ", ".join(f"{count} {answer}" for answer, count in counts.items())
                row[f"{title}: {name}"] = cell or DASH
        yield row


def card_blocks(path: Path) -> dict[str, str]:
    """The parts of the page, by the name of their place."""
    cards = pd.read_parquet(path)
    return {"cards": table(shares(cards), 2), "cards_settings": table(by_kind(cards))}
