"""The verdict card judged on the known answers that were set aside.

docs/results/known_answers_cards.csv has a row for each of them and each line of the card that answers
yes or no, with both labels and which of them the line is judged against.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pandas as pd

from attnlight.files import write_text
from attnlight.report.verdict import verdict_of
from results_page.known_answers import BOUNDS, KEYS, LABELS, STUDY, Checkpoints
from results_page.tables import DASH, Row, table

LINES = {"ranks": "ranks by importance", "smallest_set": "smallest set"}
AIMS = {"decided": "at least 0.80", "right": "at least 0.90", "wrong yes": "at most 0.05"}
COLUMNS = ("answer", "value", "low", "high", "texts")
_LEAST, _MOST = ({label: bounds[i] for label, bounds in BOUNDS.items()} for i in range(2))


def archive_cards(runs: Path, points: Checkpoints, target: Path) -> list[str]:
    """Write the answers of the card on the checkpoints set aside; a line for each left out."""
    rows, left_out = [], []
    for _, point in points.aside.sort_values(list(KEYS)).iterrows():
        run = runs / f"{STUDY}-{point.setting}-{point.treatment}/base-s{point.seed}"
        card = verdict_of(run)
        if any(card[line].answer == "not measured" for line in (*LINES, "words")):
            left_out.append(f"{run} has not all tests of the card: not archived.")
            continue
        for line in LINES:
            items = "words" if card["words"].answer == "yes" else "states"
            # Rankings are compared by deleting words, also where they are of states.
            judged_by = "words" if line == "ranks" else items
            rows.append(
                dict(point[list(KEYS)])
                | {"line": line, "speaks_of": items, "judged_by": judged_by}
                | {label: point[name] for label, name in LABELS.items()}
                | {name: getattr(card[line], name) for name in COLUMNS}
            )
    write_text(target, pd.DataFrame(rows).to_csv(index=False, float_format="%.6g"))
    return left_out


def groups(cards: pd.DataFrame) -> dict[str, pd.Series[bool]]:
    """Which rows are of attention that follows use, by their label, and which are not."""
    least, most = (cards["judged_by"].map(bounds) for bounds in (_LEAST, _MOST))
    label = cards["words"].where(cards["judged_by"] == "words", cards["states"])
    return {"follows": label >= least, "does not": label <= most}


def judged(cards: pd.DataFrame) -> Row:
    """How often lines decide, how often they are right then, and how often they say a wrong yes."""
    follows, misleads = groups(cards).values()
    yes, no = cards["answer"] == "yes", cards["answer"] == "no"
    decided, right = (yes | no) & (follows | misleads), (yes & follows) | (no & misleads)
    counts = {
        "decided": (decided, follows | misleads),
        "right": (right, decided),
        "wrong yes": (yes & misleads, misleads),
    }
    shares = {
        name: f"{found.sum() / total.sum():.2f} ({found.sum()} of {total.sum()})"
        for name, (found, total) in counts.items()
        if total.any()
    }
    return {"follow": int(follows.sum()), "do not": int(misleads.sum())} | shares


def shares(cards: pd.DataFrame) -> Iterator[Row]:
    """What each line answers, by the label it is judged against, and both lines together."""
    for (line, label), rows in cards.groupby(["line", "judged_by"]):
        yield {"line": LINES[str(line)], "label of": label, **judged(rows)}
    yield {"line": "both", "label of": "", **judged(cards)}
    strictly = cards.assign(judged_by=cards["speaks_of"])
    yield {"line": "both", "label of": "what the card speaks of", **judged(strictly)}
    yield {"line": "aim", "label of": "", **AIMS}


def by_kind(cards: pd.DataFrame) -> Iterator[Row]:
    """The answers of each line to each kind of attention in each setting, by how many checkpoints."""
    for setting, rows in cards.groupby("setting"):
        row: dict[str, object] = {"setting": setting}
        for line, title in LINES.items():
            answers = rows[rows["line"] == line]
            for group, chosen in groups(answers).items():
                counts = answers[chosen]["answer"].value_counts()
                cell = ", ".join(f"{count} {answer}" for answer, count in counts.items())
                row[f"{title}: {group}"] = cell or DASH
        yield row


def card_blocks(path: Path) -> dict[str, str]:
    """The parts of the page, by the name of their place."""
    cards = pd.read_csv(path)
    return {"cards": table(shares(cards), 2), "cards_settings": table(by_kind(cards))}
