"""The verdict cards of several models side by side, of all their seeds."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from attnlight.report.verdict.card import verdict_of
from results_page import NAMES
from results_page.known_answers_kinds import unsigned
from results_page.tables import DASH, Row, number, table

MODELS: dict[str, str] = NAMES["cards"]["models"]
LINES: dict[str, str] = NAMES["cards"]["lines"]
KEYS = ("model", "seed")


def archive_cards(runs: Path, target: Path) -> None:
    """Write the cards of all runs `<model>/base-s<seed>` below a folder, a row for each.

    Args:
        runs: The folder; each run was tested with `--tests card`.
        target: The parquet file.
    """
    rows = []
    for run in sorted(runs.glob("*/base-s*")):
        card = verdict_of(run)
        row: dict[str, object] = {
            "model": run.parent.name,
            "seed": int(run.name.partition("-s")[2]),
        }
        row |= {name: getattr(card, name) for name in ("kind", "case", "case_if_licensed")}
        row |= {"sentence": card.sentence, "alternative": card["alternative"].says}
        for line in card.lines:
            row |= {f"{line.name}_{end}": getattr(line, end) for end in ("value", "low", "high")}
        names = ("by_size_value", "by_size_low", "by_size_high")
        row |= dict(zip(names, unsigned(run), strict=True))
        rows.append(row)
    frame = pd.DataFrame(rows).sort_values([*KEYS])
    frame = frame.map(lambda x: float(f"{x:.6g}") if isinstance(x, float) else x)
    frame.to_parquet(target, index=False, compression="brotli", compression_level=11)


def card_table(path: Path) -> str:
    """For each model what its card would say with a licence, and its numbers: range over seeds.

    The sentence is that of the first seed; the cases of all seeds stand before it.
    """
    if not path.is_file():
        return "No card is archived.\n"
    cards, rows = pd.read_parquet(path), []
    names = [*MODELS, *(name for name in cards["model"].unique() if name not in MODELS)]
    for name in names:
        own = cards[cards["model"] == name]
        if not len(own):
            continue
        counts = own["case_if_licensed"].value_counts(sort=True)
        answers = ", ".join(f"{case.replace('_', ' ')} ({n})" for case, n in counts.items())
        row: Row = {"model": MODELS.get(name, name.replace("_", " ")), "seeds": len(own)}
        row |= {"answer by seed": answers, "sentence, first seed": own["sentence"].iloc[0]}
        for line, heading in LINES.items():
            values = own.get(f"{line}_value", pd.Series(dtype=float)).dropna()
            numbers = [values.mean(), values.min(), values.max()]
            if len(own) == 1 and len(values):
                numbers[1:] = own[f"{line}_low"].iloc[0], own[f"{line}_high"].iloc[0]
            cell = "{} [{}, {}]".format(*(number(x, 2) for x in numbers))
            row[heading] = cell if len(values) else DASH
        rows.append(row)
    return table(rows, 4)
