"""Translation: attention that a penalty keeps off the aligned words, and what tests find of it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from attnlight.report.measure_bounds import UNIT, measure_bounds
from attnlight.statistics import seeds_then_instances
from attnlight.statistics.bootstrap import defined_mean
from results_page import NAMES
from results_page.archive import Archive, Experiment, conditions
from results_page.cells import columns
from results_page.findings import Cell, Cells, Places, Sentences, Tables
from results_page.honest import values
from results_page.real_text import NOT_RUN
from results_page.tables import DASH, Row, interval, number

_NAMES = NAMES["translation"]
_WORDS: dict[str, str] = _NAMES["words"]
GERMAN = "translation_en_de"
MODELS = {
    **conditions("pruthi_sequences", r"pruthi_sequences-(?P<task>\w+)-(?P<attention>\w+)", _WORDS),
    **conditions(GERMAN, rf"(?P<task>{GERMAN})-(?P<attention>\w+)", _WORDS),
}
LEARNED = [name for name, model in MODELS.items() if model.words["attention"] == _WORDS["additive"]]


def _mean(runs: Experiment, test: str, measure: NDArray[np.float64] | str, places: int = 3) -> str:
    """Mean of a column, or of values (S, n), of a test's rows over seeds, sentences and their words."""
    column = measure if isinstance(measure, str) else ""
    found = values(runs, test, column) if column else np.asarray(measure)
    bounds = measure_bounds(column) if column else UNIT
    clusters = np.asarray(columns(runs, test)["index"])
    return interval(seeds_then_instances(found, clusters, bounds=bounds), places)


def deception(archive: Archive) -> Iterator[Row]:
    """Quality and attention on the aligned words of each planned condition, beside published cells."""
    for name, model in MODELS.items():
        task, condition = name.split("-")[-2:]
        german = name.startswith(GERMAN)
        place = archive.published["pruthi_en_de" if german else "pruthi_sequences"]
        published = place[condition] if german else place[task][condition]
        row = model.words | {"seeds": f"0 of {model.seeds}", "accuracy": NOT_RUN}
        row |= {"published#accuracy": published.get("accuracy"), "mass": DASH, "largest seed": DASH}
        row |= {"published#mass": published.get("mass"), "chance": DASH, "BLEU": ""}
        row["published#BLEU"] = published.get("bleu", "")
        if name in archive:
            runs, test = archive[name], "alignment_error"
            found = columns(runs, test)
            row |= archive.words(name, model)
            right = np.asarray(found["prediction"] == found["label"], np.float64)
            row["accuracy"] = _mean(runs, test, right)
            row |= {x: _mean(runs, test, x) for x in ("mass", "chance")}
            row["largest seed"] = f"{defined_mean(found['mass']).max():.2g}"
            row["BLEU"] = " / ".join(number(x, 1) for x in _bleu(runs)) if german else ""
        yield row


def _bleu(runs: Experiment) -> Iterator[float]:
    """BLEU of the test split of each run."""
    for folder in runs.folders:
        logged = pd.concat(map(pd.read_csv, folder.glob("logs/*/metrics.csv")))
        yield float(logged["test/bleu"].dropna().iloc[-1])


def errors(archive: Archive) -> Iterator[Row]:
    """Alignment error rate of learned attention and of attribution methods, beside the diagonal."""
    for name in LEARNED:
        row: Row = {"task": MODELS[name].words["task"], "seeds": f"0 of {MODELS[name].seeds}"}
        row |= dict.fromkeys(_NAMES["errors"], NOT_RUN)
        if name in archive:
            row["seeds"] = archive.words(name, MODELS[name])["seeds"]
            for words, column in _NAMES["errors"].items():
                row[words] = _mean(archive[name], "alignment_error", f"error_{column}")
        yield row


def exclusive(archive: Archive) -> Iterator[Row]:
    """What shuffling, replacing and erasing attention do to the next word, and to a text's class."""
    beside: dict[str, str] = _NAMES["beside"]
    for name, words in ({x: MODELS[x].words["task"] for x in LEARNED} | beside).items():
        row: Row = {"predicted": words, "seeds": len(archive[name].seeds) if name in archive else 0}
        for heading, (test, column) in _NAMES["exclusive"].items():
            tested = name in archive and all(
                (run / f"records/test/{test}.parquet").is_file() for run in archive[name].folders
            )
            row[heading] = _mean(archive[name], test, column) if tested else NOT_RUN
        yield row


def sentences(t: Tables) -> Sentences:
    """What was run, what a penalty hides, and whether attention is more exclusive than on SST."""
    c, rows = Cells(t, "translation_findings"), t.rows("translation")
    done = [row for row in rows if not row["seeds"].startswith("0")]
    lacking = (f"{row['task']}, {row['attention']}" for row in rows if row not in done)
    yield c.say("run", run=len(done), count=len(rows), each="; ".join(lacking) or "none")
    for task, of in groupby(done, key=lambda row: row["task"]):
        each = (f"{x['attention']} {x['mass']} at an accuracy of {x['accuracy']}" for x in of)
        yield c.say("task", task=task, each="; ".join(each))
    tasks, (sst, *_) = (
        t.rows("translation_exclusive"),
        t.rows("translation_exclusive", "SST, BiLSTM"),
    )
    for row in tasks[: len(LEARNED)]:
        moved, replaced = (
            [Cell(x[y]) for x in (row, sst)] for y in ("TVD of shuffling", "worst JS")
        )
        if NOT_RUN not in row.values():
            both = moved[0].low > moved[1].high, replaced[0].high < replaced[1].low
            word = ("By neither", "By one of the two", "By both")[sum(both)]
            yield c.say("exclusive", word=word, sst=sst, row=row, predicted=row["predicted"])


PLACES: Places = (sentences,)
