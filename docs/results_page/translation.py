"""Translation: attention that a penalty keeps off the aligned words, and what tests find of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain, groupby
from operator import itemgetter
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from attnlight.records import record_columns
from attnlight.report.measure_bounds import UNIT, measure_bounds
from attnlight.statistics import seeds_then_instances
from attnlight.statistics.bootstrap import defined_mean
from attnlight.statistics.seed_bootstrap import resampled_means, seed_interval
from results_page import NAMES, honest, read_data
from results_page.archive import Archive, Experiment, conditions
from results_page.cells import columns
from results_page.findings import Cell, Cells, Places, Sentences, Tables
from results_page.real_text import NOT_RUN, answer
from results_page.tables import DASH, Row, interval, number

_NAMES = NAMES["translation"]
_WORDS: dict[str, str] = _NAMES["words"]
GERMAN = "translation_en_de"
END, UNKNOWN = 0, 1  # classes
MODELS = {
    **conditions("pruthi_sequences", r"pruthi_sequences-(?P<task>\w+)-(?P<attention>\w+)", _WORDS),
    **conditions(GERMAN, rf"(?P<task>{GERMAN})-(?P<attention>\w+)", _WORDS),
}
LEARNED = [name for name, model in MODELS.items() if model.words["attention"] == _WORDS["additive"]]


def _mean(runs: Experiment, test: str, measure: NDArray[np.float64] | str, places: int = 3) -> str:
    """Mean of a column, or of values (S, n), of a test's rows over seeds, sentences and their words."""
    column = measure if isinstance(measure, str) else ""
    found = honest.values(runs, test, column) if column else np.asarray(measure)
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
            if german:
                files = (folder.glob("logs/*/metrics.csv") for folder in runs.folders)
                logged = (pd.concat(map(pd.read_csv, paths))["test/bleu"] for paths in files)
                row["BLEU"] = " / ".join(number(x.dropna().iloc[-1], 1) for x in logged)
        yield row


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


def explained(archive: Archive) -> Iterator[Row]:
    """How far the words that attention or a method ranks first explain, where the first is aligned."""
    for name in LEARNED:
        methods = (x for x in _NAMES["errors"].items() if x[1] != "diagonal")
        for words, column in methods if name in archive else ():
            runs = archive[name]
            found, aligned = columns(runs, "faithfulness"), columns(runs, "alignment_error")
            rows = _places(found, aligned)
            effect = found[f"excess_comprehensiveness_{column}"]
            linked = np.where(np.isnan(effect), np.nan, aligned[f"linked_{column}"][:, rows])
            parts = [np.where(linked == hit, effect, np.nan) for hit in (1, 0)]
            (one, first), (other, second) = (resampled_means(x, found["index"]) for x in parts)
            less = seed_interval((one - other, first - second), bounds=(-2, 2))
            row: Row = {"task": MODELS[name].words["task"], "words by": words}
            row["seeds"] = archive.words(name, MODELS[name])["seeds"]
            row["linked words"] = int(np.isfinite(linked).sum(-1).max())
            hits = seeds_then_instances(linked, found["index"], bounds=UNIT)
            row["first is aligned"] = interval(hits, 2)
            row["comprehensiveness"] = interval(seeds_then_instances(effect, found["index"]), 3)
            known = np.isfinite(less.mean)
            row["where aligned, less elsewhere"] = interval(less, 3) if known else DASH
            yield row | {"aligned explains better": answer(less) if known else DASH}


def by_class(archive: Archive) -> Iterator[Row]:
    """The same of content words, function words and punctuation of the German translations."""
    listed = {kind: [*words.values()] for kind, words in read_data("german_words").items()}
    none = [END, UNKNOWN, *chain.from_iterable(listed.values())]
    name = f"{GERMAN}-additive"
    methods = (x for x in _NAMES["errors"].items() if x[1] != "diagonal")
    for words, column in methods if name in archive else ():
        runs = archive[name]
        found, aligned = columns(runs, "faithfulness"), columns(runs, "alignment_error")
        label, rows = aligned["label"], _places(found, aligned)
        linked, effect = aligned[f"linked_{column}"], found[f"excess_comprehensiveness_{column}"]
        for kind in ("content words", *listed):
            of = np.isin(label, listed[kind]) if kind in listed else ~np.isin(label, none)
            row: Row = {"translated": kind, "words by": words}
            row["seeds"] = archive.words(name, MODELS[name])["seeds"]
            row["linked words"] = int((of & np.isfinite(linked)).sum(-1).max())
            hits, kept = np.where(of, linked, np.nan), np.where(of[..., rows], effect, np.nan)
            first = seeds_then_instances(hits, aligned["index"], bounds=UNIT)
            row["first is aligned"] = interval(first, 2)
            row["tested words"] = int(np.isfinite(kept).sum(-1).max())
            explains = interval(seeds_then_instances(kept, found["index"]), 3)
            yield row | {"comprehensiveness": explains}


def _places(found: Mapping[str, NDArray[Any]], others: Mapping[str, NDArray[Any]]) -> NDArray[Any]:
    """The place of each row of a test among those of another."""
    keys = (pd.MultiIndex.from_arrays([x["index"], x["position"][0]]) for x in (others, found))
    place, wanted = keys
    return np.asarray(place.get_indexer(wanted))


def exclusive(archive: Archive) -> Iterator[Row]:
    """What shuffling, replacing and erasing attention do to the next word, and to a text's class."""
    beside: dict[str, str] = _NAMES["beside"]
    for name, words in ({x: MODELS[x].words["task"] for x in LEARNED} | beside).items():
        row: Row = {"predicted": words, "seeds": len(archive[name].seeds) if name in archive else 0}
        for heading, (test, column) in _NAMES["exclusive"].items():
            wanted = "length" if test == "decision_flip" else column
            tested = name in archive and all(
                (path := run / f"records/test/{test}.parquet").is_file()
                and wanted in record_columns(path)
                for run in archive[name].folders
            )
            row[heading] = _mean(archive[name], test, column) if tested else NOT_RUN
        yield row


def adversaries(archive: Archive) -> Iterator[Row]:
    """How far adversaries of the networks that learn attention end, beside those of an LSTM on SST."""
    words = {name: MODELS[name].words["task"] for name in LEARNED} | _NAMES["attacked"]
    yield from honest.adversaries(archive, {name: {"predicted": x} for name, x in words.items()})


def sentences(t: Tables) -> Sentences:
    """What was run, what a penalty hides, and whether attention is more exclusive than on SST."""
    c, rows = Cells(t, "translation_findings"), t.rows("translation")
    done = [row for row in rows if not row["seeds"].startswith("0")]
    lacking = (f"{row['task']}, {row['attention']}" for row in rows if row not in done)
    yield c.say("run", run=len(done), count=len(rows), each="; ".join(lacking) or "none")
    for task, of in groupby(done, key=lambda row: row["task"]):
        by = {row["attention"]: row for row in of}
        if (free := by.get(_WORDS["additive_0"])) and (most := by.get(_WORDS["additive_1"])):
            yield c.say("task", task=task, free=_numbers(free), most=_numbers(most))
    *tasks, sst, _ = t.rows("translation_exclusive")
    tasks = [row for row in tasks if NOT_RUN not in (row["TVD of shuffling"], row["worst JS"])]
    # By how many of the two attention is more exclusive than on SST.
    moved, replaced = Cell(sst["TVD of shuffling"]).high, Cell(sst["worst JS"]).low
    counts = (
        (Cell(row["TVD of shuffling"]).low > moved) + (Cell(row["worst JS"]).high < replaced)
        for row in tasks
    )
    for count, alike in groupby(zip(counts, tasks, strict=True), key=itemgetter(0)):
        each = "; ".join(
            f"{x['predicted']} {x['TVD of shuffling']} and {x['worst JS']}"
            for x in (_numbers(row) for _, row in alike)
        )
        word = ("neither", "one of the two", "both")[count]
        yield c.say("exclusive", word=word, sst=_numbers(sst), each=each)
    kinds = [row for row in t.rows("translation_classes") if row["words by"] == "attention"]
    words = (f"{x['translated']} {x['first is aligned']}, {x['comprehensiveness']}" for x in kinds)
    if kinds:
        yield c.say("kinds", each="; ".join(words))
    for task, of in groupby(t.rows("translation_explained"), key=lambda row: row["task"]):
        rows = [*of]
        errors = _numbers(t.rows("translation_errors", task)[0])
        decided = [row for row in rows if row["aligned explains better"] != DASH]
        yes = sum(row["aligned explains better"] == "yes" for row in decided)
        words = (f"{x['words by']} {x['where aligned, less elsewhere']}" for x in decided)
        order = (
            f"{x['words by']} {errors[x['words by']]}, {_numbers(x)['comprehensiveness']}"
            for x in rows
        )
        both = {"differences": "; ".join(words), "order": "; ".join(order)}
        if len(decided) == len(rows):
            yield c.say("explained", task=task, yes=yes, count=len(decided), **both)


def _numbers(row: Mapping[str, str]) -> dict[str, str]:
    """The cells of a row without their intervals."""
    return {name: Cell(cell).number if "[" in cell else cell for name, cell in row.items()}


PLACES: Places = (sentences,)
