"""Answers from a context: how well readings of a decoder's attention say what each answer needs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnlight.figures.methods import METHODS, method_words, recorded_methods
from attnlight.report.verdict.estimate import rules
from attnlight.statistics.seed_bootstrap import SeedInterval
from results_page import NAMES
from results_page.archive import Archive
from results_page.claims import OPEN
from results_page.findings import Cell, Cells, Places, Sentences, Tables
from results_page.real_text import NO, YES, answer
from results_page.tables import DASH, Row, column_mean

TEST = "context_ablation"
# By experiment: its words; how many rows in turn are of one story or passage (`rows`); and, where heads were
# fitted on some, that of so many rows in turn the last alone is of no such text (`held_out`).
MODELS: dict[str, Row] = NAMES["answers"]["models"]
MEASURES: dict[str, str] = NAMES["answers"]["measures"]  # by their headings
ORDER, CHANCE = "Somers' D", "one sentence at random finds"
VERBS = {YES: "may be trusted", NO: "may not", OPEN: "are not decided"}
SUPERVISED = "attention supervised"  # in words of models whose attention was trained to cite
MEAN, ITSELF, LEARNED = "answer_attention", "leave_one_out", "learned_heads"
Columns = dict[str, NDArray[Any]]


def models(archive: Archive) -> Iterator[Row]:
    """The models: what they were asked, how often they are right, and what a guess would be."""
    for words, columns, stories in _read(archive):
        labels = columns["label"]
        right = column_mean(columns, "correct", stories)
        majority = float(np.bincount(labels).max() / len(labels))
        yield words | {
            "contexts": len(labels),
            "stories or passages": len(np.unique(stories)),
            "sentences, mean": f"{columns['length'].mean():.1f}",
            "accuracy": right,
            "largest class": majority,
            "better?": answer(right, majority),
            CHANCE: column_mean(columns, "chance_finds", stories).mean,
            "AUPRC by chance": column_mean(columns, "chance_auprc", stories).mean,
            "effect of the largest": column_mean(columns, "largest_effect", stories).mean,
            "prompts": column_mean(columns, "prompts", stories).mean,
        }


def readings(archive: Archive, right: bool = False) -> Iterator[Row]:
    """Each reading by each measure, and whether it may be trusted; of `right` answers alone."""
    for words, columns, stories in _read(archive):
        accuracy = column_mean(columns, "correct", stories)
        guesses = answer(accuracy, np.bincount(columns["label"]).max() / stories.size) != YES
        kept = np.where(columns["correct"] > 0, 1.0, np.nan) if right else 1.0
        found = {name: values * kept for name, values in columns.items() if values.ndim > 1}
        labels = recorded_methods({name: values[0] for name, values in found.items()}, "somers_d")
        for label in sorted(labels, key=[*METHODS].index):
            cells = {
                heading: column_mean(found, f"{measure}_{label}", stories)
                for heading, measure in MEASURES.items()
            }
            said = DASH if guesses or label == ITSELF else _trust(cells[ORDER], cells["LDS"])
            yield words | {"reading": method_words(label)} | cells | {"to be trusted?": said}


def _trust(order: SeedInterval, lds: SeedInterval) -> str:
    """Whether a reading may be trusted, by its Somers' D with leaving each sentence out and its LDS.

    What a reading cites first may be what speaks most against the answer, though the sizes of its scores
    are in order: then its LDS is negative.
    """
    rule = rules()["cites"]
    if np.isnan(order.mean):
        return DASH
    if order.high < rule["no_below"] or lds.high < 0:
        return NO
    return YES if order.low >= rule["yes_from"] and lds.low > 0 else OPEN


def _read(archive: Archive) -> Iterator[tuple[Row, Columns, NDArray[np.int64]]]:
    """Words of each archived model, the columns of its test, and the story of each row."""
    for name in (name for name in MODELS if name in archive):
        given = dict(MODELS[name])
        rows, turn = given.pop("rows"), given.pop("held_out", 1)
        columns = archive[name].test(TEST, partial=True)
        index = columns["index"]
        labels = archive[name].test("predictions", partial=True)
        place = np.searchsorted(labels["index"], index)
        columns["label"] = labels["label"][place]
        for column in (x for x in columns if x.endswith(f"_{LEARNED}")):
            columns[column] = np.where(index % turn == turn - 1, columns[column], np.nan)
        yield given, columns, index // rows


def findings(t: Tables) -> Sentences:
    """What mean attention may do, which readings may be trusted, and of which models nothing is said."""
    c = Cells(t, "context_findings")
    guesses = [row for row in t.rows("context_models") if row["better?"] != YES]
    of_models = {row["model"]: row for row in t.rows("context_models") if row["better?"] == YES}
    by_model: dict[str, dict[str, Row]] = {name: {} for name in of_models}
    for row in t.rows("context_readings"):
        if row["model"] in by_model:
            by_model[row["model"]][row["reading"]] = row
    said = {name: rows[method_words(MEAN)] for name, rows in by_model.items()}
    answers = {row["to be trusted?"] for x, row in said.items() if SUPERVISED not in x}
    words = {YES: "Its order is that of a yes", NO: "No", OPEN: "That is not decided"}
    word = "That depends on the model" if answers else "Shown only where attention was trained to"
    word = words[next(iter(answers))] if len(answers) == 1 else word
    each = [f"{Cell(x[ORDER])} ({x['to be trusted?']}), {name}" for name, x in said.items()]
    yield c.say("mean", bool(said), answer=word, each="; ".join(each))
    each = []
    for name, rows in by_model.items():
        groups = {
            verb: [f"*{x}*" for x, row in rows.items() if row["to be trusted?"] == word]
            for word, verb in VERBS.items()
        }
        listed = (f"{', '.join(found)} {verb}" for verb, found in groups.items() if found)
        each.append(f"{name}: {'; '.join(listed)}.")
    yield c.say("trusted", bool(each), each=" ".join(each))
    chance = {name: f" (at random {row[CHANCE]})" for name, row in of_models.items()}
    for key, column in {"finds": "finds", "lds": "LDS"}.items():
        more = chance if key == "finds" else dict.fromkeys(chance, "")
        each = [f"{name}{more[name]}: {_ordered(rows, column)}" for name, rows in by_model.items()]
        yield c.say(key, bool(each), each="; ".join(each))
    each = [f"{x['model']} {Cell(x['accuracy'])} against {x['largest class']}" for x in guesses]
    if each:
        yield c.say("guesses", each="; ".join(each))


def _ordered(rows: dict[str, Row], column: str) -> str:
    """The best reading by a measure beside leave-one-out and mean attention, with their figures."""
    figures = {reading: Cell(row[column]) for reading, row in rows.items()}
    shown = {method_words(ITSELF), method_words(MEAN)}
    others = {x: cell.value for x, cell in figures.items() if x not in shown}
    shown.add(max(others, key=lambda x: np.nan_to_num(others[x], nan=-np.inf)))
    best = sorted(shown, key=lambda x: -np.nan_to_num(figures[x].value, nan=-np.inf))
    return ", ".join(f"*{reading}* {figures[reading]}" for reading in best)


PLACES: Places = (findings,)
