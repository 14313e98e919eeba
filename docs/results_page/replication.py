"""How many published figures are met: each held against the interval of one more run of ours.

The rule, `agreement` of published.yaml, was committed before a figure was held against it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm, t

from attnlight.errors import InputError
from attnlight.statistics.bootstrap import CONFIDENCE
from results_page import NAMES
from results_page.archive import Archive, Experiment
from results_page.cells import columns, measured
from results_page.findings import Cell, Cells, Places, Sentences, Tables
from results_page.measures import resampled_quantile
from results_page.tables import DASH, Row, number, table

OUTCOMES = ("agrees", "differs, cause shown", "differs", "not decided", "not run")
AGREES, CAUSED, DIFFERS, UNDECIDED, NOT_RUN = OUTCOMES
ALL, MET = "all", "agree or have a cause"
TEXTS = "the texts alone"  # make an interval too wide, whatever the number of seeds
_NAMES: dict[str, str] = NAMES["replication"]
_SEEDS = 3  # fewer have no interval
_BINS = np.array([0.25, 0.5, 0.75])  # between Jain & Wallace's bins of maximum attention
_ABOVE = 0.6  # JS that a share of their texts exceeds
_TAIL = (1 + CONFIDENCE) / 2


class Figure(NamedTuple):
    """A published figure.

    Attributes:
        name: Its keys in published.yaml.
        place: Its place in lists: by predicted class, by bin of maximum attention.
        text: As published.
        known: What its table in `cells` says of it: `paper`, `source`, `corpus`, `measure`, `run`...
    """

    name: str
    place: tuple[int, ...]
    text: str
    known: Mapping[str, Any]


class Runs(NamedTuple):
    """Our side of a figure: mean and deviation over seeds, and the variance by the sampling of texts."""

    mean: float
    deviation: float
    seeds: int
    sampling: float


def leaves(
    content: Any,  # noqa: ANN401
    skip: Sequence[str] = (),
    keys: tuple[str, ...] = (),
    place: tuple[int, ...] = (),
) -> Iterator[tuple[tuple[str, ...], tuple[int, ...], Any]]:
    """Keys, places in lists and figure of each leaf of nested tables and lists that is not null."""
    if isinstance(content, Mapping):
        for key, part in content.items():
            if key not in skip:
                yield from leaves(part, skip, (*keys, key), place)
    elif isinstance(content, list):
        for index, part in enumerate(content):  # a list of one is not parted
            yield from leaves(part, skip, keys, (*place, index if len(content) > 1 else -1))
    elif content is not None:
        yield keys, place, content


def figures(published: Mapping[str, Any]) -> Iterator[Figure]:
    """The published figures, in the order of `cells`."""
    for name, spec in published["cells"].items():
        content = reduce(lambda part, key: part[key], name.split("."), published)
        for keys, place, text in leaves(content, spec.get("skip", ())):
            known = spec | dict(zip(spec["levels"], keys, strict=True))
            if "condition" in known:
                starts = (x for x in published["corpora"] if known["condition"].startswith(f"{x}_"))
                known["corpus"] = max(starts, key=len)
            known["value"] = str(known.get("model")).rpartition("_")[2]
            for part, key in (("run", "corpus"), ("reading", "measure"), ("row", "model")):
                of = known.get(part) or ""
                if isinstance(of, Mapping):
                    of = of[known[key if known.get(key) in of else "measure"]] or ""
                known[part] = of.format(**known)
            yield Figure(".".join((name, *map(str, keys))), place, str(text), known)


def runs_of(figure: Figure, run: str, archive: Archive, tables: Tables) -> Runs | None:
    """Our side of a figure by another run or its own; None if not run, or not archived."""
    reading = figure.known["reading"].replace(figure.known["run"] or " ", run)
    name, _, column = reading.partition(": ")
    if name in tables:
        return _of_table(tables, name, column, figure.known["row"])
    if not (reading and run) or run not in archive:
        return None
    test, _, column = ("predictions/prediction" if column else reading).partition("/")
    try:
        values, variances = _by_seed(archive[run], figure, test, column)
    except (InputError, KeyError):  # other records or columns are archived
        return None
    deviation = values.std(ddof=1) if len(values) > 1 else np.nan
    return Runs(float(values.mean()), float(deviation), len(values), float(variances.mean()))


def _of_table(tables: Tables, name: str, column: str, words: str) -> Runs | None:
    """Runs by the cell of the first row of runs of which cells begin with some words."""
    starts = [re.compile(re.escape(start) + r"(?![\d.])") for start in words.split("; ")]
    for row in tables.rows(name):
        found = all(any(map(start.match, row.values())) for start in starts)
        if not found or (seeds := row.get("seeds", "1")) == DASH:
            continue
        cell = Cell(row[next(x for x in row if x.startswith(column))])
        if "cases" in row:  # a count of models
            cell = Cell(str(cell.value / float(row["cases"])))
        count = Cell(seeds).counts[0]
        half, freedom = (cell.high - cell.low) / 2, max(count - 1, 1)
        by_seed = t.ppf(_TAIL, freedom) * cell.deviation / np.sqrt(count)
        variance = max(np.nan_to_num(half) ** 2 - by_seed**2, 0.0) / norm.ppf(_TAIL) ** 2
        return Runs(cell.value, cell.deviation, count, variance)
    return None


def _by_seed(runs: Experiment, figure: Figure, test: str, column: str) -> NDArray[np.float64]:
    """Each run's value of a figure, and its variance by the sampling of texts, (2, S)."""
    measure = figure.known["measure"]
    if test == "predictions":
        value, replicates = measured(runs, measure)
        return np.array([value, replicates.var(axis=0)])
    found = columns(runs, test)
    if column == "prediction":  # of target words
        found = found | {column: found[column] == found["label"]}
    values = np.asarray(found[column], np.float64)
    values = np.where(np.isnan(values), np.nan, values > _ABOVE) if "above" in measure else values
    if figure.place:
        values = np.where(_group(runs, figure, found), values, np.nan)
    defined = [run[~np.isnan(run)] for run in values]
    if not all(map(len, defined)):  # a run has no text of this class and bin
        return np.full((2, 1), np.nan)
    if "median" not in measure:
        return np.array([[run.mean(), run.var() / len(run)] for run in defined]).T
    medians = (resampled_quantile(run[None]) for run in defined)
    return np.array([[value.item(), replicates.var()] for value, replicates in medians]).T


def _group(
    runs: Experiment, figure: Figure, found: Mapping[str, NDArray[Any]]
) -> NDArray[np.bool_]:
    """Which texts of a test are of a figure's predicted class and bin, by run, (S, n)."""
    wanted, *bins = figure.place
    group = (found["prediction"] == wanted) | (wanted < 0)
    if bins:
        weights = columns(runs, "attention_permutation")
        largest = weights["max_attention"][:, np.searchsorted(weights["index"], found["index"])]
        group &= np.digitize(largest, _BINS) == bins[0]
    return np.asarray(group)


def half_width(runs: Runs, same_texts: bool) -> float:
    """Half of the 95 % interval of one more run, on the same or as many other texts."""
    by_seed = t.ppf(_TAIL, runs.seeds - 1) * runs.deviation * np.sqrt(1 + 1 / runs.seeds)
    return float(np.hypot(by_seed, norm.ppf(_TAIL) * np.sqrt(2 * runs.sampling * (not same_texts))))


def distance(figure: Figure, value: float) -> float:
    """How far a value is from the nearest one that rounds to, or is bounded by, a published figure."""
    if " of " in figure.text:
        part, whole = map(int, figure.text.split(" of "))
        return abs(value - part / whole)
    first = figure.text.split()[0]
    if first.startswith("<"):
        return max(0.0, value - float(first[1:]))
    rounding = 0.5 * 10.0 ** -len(first.partition(".")[2])
    return max(0.0, abs(value - float(first)) - rounding)


def outcome(figure: Figure, runs: Runs | None, rule: Mapping[str, Any]) -> str:
    """One of `OUTCOMES` but for a cause."""
    if runs is None:
        return NOT_RUN
    if np.isnan(runs.mean) or runs.seeds < rule["seeds"]:
        return UNDECIDED
    half = half_width(runs, figure.known.get("corpus") in rule["same_texts"])
    if distance(figure, runs.mean) > half:
        return DIFFERS
    return AGREES if half <= width(figure, rule) else UNDECIDED


def width(figure: Figure, rule: Mapping[str, Any]) -> float:
    """Half of the widest interval in which a figure agrees."""
    widths = rule["widths"]
    return float(widths.get(figure.known["measure"], widths["default"]))


def cause(
    figure: Figure, runs: Runs, rule: Mapping[str, Any], archive: Archive, tables: Tables
) -> str:
    """The words of the first other run that halves the distance of a figure; empty without one."""
    own = distance(figure, runs.mean)
    run, causes = figure.known["run"], rule["causes"]
    others = causes.get(run, {}) | causes.get(f"{run}.{figure.known.get('model')}", {})
    for other, words in others.items():
        found = runs_of(figure, other.format(**figure.known), archive, tables)
        if found is not None and distance(figure, found.mean) <= own / 2:
            return f"{words}: {number(found.mean)}"
    return ""


def replication_tables(archive: Archive, tables: Tables) -> dict[str, str]:
    """The table of all published figures, and the count of their outcomes by paper."""
    rule, rows = archive.published["agreement"], []
    for figure in figures(archive.published):
        runs = runs_of(figure, figure.known["run"], archive, tables)
        word, same = outcome(figure, runs, rule), figure.known.get("corpus") in rule["same_texts"]
        shown = cause(figure, runs, rule, archive, tables) if word == DIFFERS and runs else ""
        texts = half_width(runs._replace(deviation=0.0), same) if runs and runs.seeds > 1 else 0.0
        few = f"{TEXTS}: ± {number(texts)}" if texts > width(figure, rule) else DASH
        places = ", ".join(str(x + 1) for x in figure.place if x >= 0)
        name = f"`{figure.name}`" + f" ({places})" * bool(places)
        row: Row = {"figure": name, "paper": figure.known["paper"]}
        row |= {"source": figure.known.get("source", "repository"), "published": figure.text}
        row |= {
            "here": DASH,
            "seeds": 0,
            "outcome": CAUSED if shown else word,
            "cause": few if word == UNDECIDED else shown or DASH,
        }
        if runs is not None:
            half = half_width(runs, same)
            ends = "" if np.isnan(half) else f" ± {number(half)}"
            row |= {"here": f"{number(runs.mean)}{ends}", "seeds": runs.seeds}
        rows.append(row)
    without = [{key: x for key, x in row.items() if key != "paper"} for row in rows]
    return {"replication": table(without, 3), "replication_counts": table(_counts(rows))}


def _counts(rows: Sequence[Row]) -> Iterator[Row]:
    """A row of counts for each paper, and one for all."""
    papers = dict.fromkeys(row["paper"] for row in rows)
    for paper in (*papers, ALL):
        found = Counter(row["outcome"] for row in rows if paper in (row["paper"], ALL))
        met = found[AGREES] + found[CAUSED]
        yield {
            "paper": _NAMES.get(paper, paper),
            "figures": found.total(),
            **{word: found[word] for word in OUTCOMES},
            MET: f"{100 * met / found.total():.0f} %",
        }


def sentences(t: Tables) -> Sentences:
    """How many figures are met, by paper, and why others are not decided."""
    *papers, whole = t.rows("replication_counts")
    met = [int(x[AGREES]) + int(x[CAUSED]) for x in papers]
    each = (
        f"{x['paper']} {count} and {x[DIFFERS]} of {x['figures']}"
        for x, count in zip(papers, met, strict=True)
    )
    undecided = [x for x in t.rows("replication") if x["outcome"] == UNDECIDED]
    few = sum(Cell(x["seeds"]).value < _SEEDS for x in undecided)
    keys = ("agrees", "caused", "differs", "undecided", "missing")
    counts = {key: whole[word] for key, word in zip(keys, OUTCOMES, strict=True)}
    yield Cells(t, "replication_finding").say(
        "count",
        figures=whole["figures"],
        **counts,
        share=whole[MET],
        few=few,
        vary=int(whole[UNDECIDED]) - few,
        texts=sum(x["cause"].startswith(TEXTS) for x in undecided),
        each=", ".join(each),
    )


PLACES: Places = (sentences,)
