"""Versions 2 and 3 of the verdict card judged on known answers.

docs/results/known_answers_cards.parquet has a row for each version, checkpoint and line of the card that
answered yes or no, with both labels and which of them the line is judged against. Later versions have
other lines, so that these rows cannot be made again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pandas as pd

from results_page.known_answers import BOUNDS, KEYS
from results_page.tables import DASH, Row, table

VERSIONS = (2, 3)
LINES = {"ranks": "ranks by importance", "smallest_set": "smallest set"}
AIMS = {"decided": "at least 0.80", "right": "at least 0.90", "wrong yes": "at most 0.05"}
FLAGS = ["follows", "misleads", "decided", "wrong", "wrong_yes"]


def flags(
    label: pd.Series, answer: pd.Series, bounds: tuple[object, object] = BOUNDS["words"]
) -> pd.DataFrame:
    """Whether attention follows by a label, does not, and whether the answer is decided and wrong."""
    follows, misleads = label >= bounds[0], label <= bounds[1]
    yes, no = answer == "yes", answer == "no"
    decided, wrong_yes = (yes | no) & (follows | misleads), yes & misleads
    columns = (follows, misleads, decided, wrong_yes | (no & follows), wrong_yes)
    return pd.DataFrame(dict(zip(FLAGS, columns, strict=True)))


def graded(cards: pd.DataFrame) -> pd.DataFrame:
    """The rows with their flags, each by its own label."""
    low, high = (cards["judged_by"].map({x: y[i] for x, y in BOUNDS.items()}) for i in (1, 0))
    label = cards["words"].where(cards["judged_by"] == "words", cards["states"])
    return cards.join(flags(label, cards["answer"], (high, low)))


def counts(rows: pd.DataFrame) -> Mapping[str, tuple[int, int]]:
    """How often answers are given, right and wrong, each of how many."""
    follows, misleads, decided, wrong, wrong_yes = (rows[flag].astype(bool) for flag in FLAGS)
    right = decided & ~wrong
    pairs = {"decided": (decided, follows | misleads), "right": (right, decided)}
    pairs |= {"wrong yes": (wrong_yes, misleads), "yes of followers": (right & follows, follows)}
    return {name: (int(found.sum()), int(total.sum())) for name, (found, total) in pairs.items()}


def judged(rows: pd.DataFrame) -> Row:
    """The shares that had aims, with their counts."""
    found, sizes = counts(rows), (int(rows[flag].sum()) for flag in FLAGS[:2])
    of = {name: found[name] for name in AIMS if found[name][1]}
    shares = {name: f"{k / total:.2f} ({k} of {total})" for name, (k, total) in of.items()}
    return dict(zip(("follow", "do not"), sizes, strict=True)) | shares


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


def by_kind(rows: pd.DataFrame, lines: Mapping[str, str], key: str = "setting") -> Iterator[Row]:
    """The answers of each line to each kind of attention in each setting, by how many checkpoints."""
    for setting, part in rows.groupby(key):
        row: Row = {key: setting}
        for line, title in lines.items():
            for name, group in {"follows": "follows", "does not": "misleads"}.items():
                answers = part[(part["line"] == line) & part[group]]["answer"].value_counts()
                cell = ", ".join(f"{count} {answer}" for answer, count in answers.items())
                row[f"{title}: {name}"] = cell or DASH
        yield row


def card_blocks(path: Path) -> dict[str, str]:
    """The parts of the page, by the name of their place."""
    cards, blocks = pd.read_parquet(path), {}
    for version in VERSIONS:
        rows = cards[cards["version"] == version]
        blocks[f"cards_{version}"] = table(shares(rows), 2)
        blocks[f"cards_settings_{version}"] = table(by_kind(graded(rows), LINES))
    return blocks
