"""Jain & Wallace's tests on questions (bAbI), inference (SNLI) and texts, beside their published cells.

On bAbI the supporting sentences are known, so that each test is compared with attention on them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import yaml
from numpy.typing import NDArray
from scipy.stats import kendalltau

from attnlight.report.measure_bounds import measure_bounds
from attnlight.statistics import seeds_then_instances
from attnlight.statistics.bootstrap import defined_mean
from attnlight.statistics.seed_bootstrap import resampled_means, seed_interval
from results_page import NAMES
from results_page.archive import Archive, Experiment, planned
from results_page.cells import measured
from results_page.importance import PAIRS, significant
from results_page.measures import resampled_quantile, resampled_rank_correlations
from results_page.tables import BINS, DASH, Row, column_mean, interval, number, over_seeds

STUDY, TEXTS = "jain_wallace_pairs", "jain_wallace_texts"
_NAME = re.compile(
    r"(babi_\d|snli|20_newsgroups_sports|ag_news_pair)_(bilstm|cnn|average)_(additive|scaled_dot)"
    r"_?(affine|released)?(\d+)?"
)
_NAMES = NAMES["pairs"]
_WORDS: dict[str, str] = _NAMES["words"]
AS_RELEASED = ", prepared as released"
_SIZES: dict[str, int] = _NAMES["sizes"]
P_VALUES = tuple(column.replace("tau", "p", 1) for column, _ in PAIRS.values())
_TAUS = ("tau attention-gradient", "tau attention-LOO", "tau gradient-LOO")
_LIMITS = measure_bounds("js")
JS: dict[str, str] = _NAMES["js"]
PROVEN = "proven"
READINGS: dict[str, list[str]] = _NAMES["readings"]
_FEWEST = 5  # models over which a correlation is given: with 4 no p-value is below 0.08


class Condition(NamedTuple):
    """A condition of a study.

    Attributes:
        words: Its words on the page.
        seeds: How many seeds are planned.
        size: The number of its training texts.
    """

    words: Row
    seeds: int
    size: int | str


def conditions(study: str) -> Iterator[tuple[str, Condition]]:
    """The conditions of a study with the name of the folder of their runs."""
    for name, given in planned(study):
        parts = _NAME.fullmatch(name)
        assert parts is not None, name
        corpus, encoder, attention, kind, size = parts.groups()
        queried = corpus.startswith(("babi", "snli"))  # with a query, decoded by a tanh layer
        words = {
            "corpus": _WORDS[corpus] + (AS_RELEASED if kind == "released" else ""),
            "encoder": _WORDS.get(encoder, encoder),
            "attention": _WORDS.get(attention, attention),
            "decoder": "tanh" if queried and kind != "affine" else "affine",
        }
        seeds = len(given["base"]["seeds"])
        yield f"{study}-{name}", Condition(words, seeds, int(size or _SIZES[corpus]))


def named_conditions(
    study: str, pattern: str, *names: Mapping[str, str]
) -> Iterator[tuple[str, Condition]]:
    """The conditions of a study, by the name of the folder of their runs.

    Args:
        study: The study.
        pattern: What their names match; its groups are columns of their words.
        names: Words of the first groups on the page; of others themselves.
    """
    for name, given in planned(study):
        parts = re.fullmatch(pattern, name)
        assert parts is not None, name
        words: Row = dict(parts.groupdict())
        for column, of_page in zip(parts.groupdict(), names, strict=False):
            words[column] = of_page[parts[column]]
        data = given.get("options", {}).get("data", {})
        size = data.get("train_size", data.get("subset", {}).get("train", "all"))
        yield f"{study}-{name}", Condition(words, len(given["base"]["seeds"]), size)


MODELS, TEXT_MODELS = (dict(conditions(study)) for study in (STUDY, TEXTS))
# Conditions that differ from another in the number of its training texts alone.
RESIZED = [name for name, model in MODELS.items() if model.size not in _SIZES.values()]
BABI = [name for name in MODELS if "babi" in name and not name.endswith("_released")]
_ALIKE = ("decoder", "upper bound", "search, published")  # of two classes and an affine decoder


def spent(archive: Archive, models: Mapping[str, Condition] = MODELS) -> Iterator[Row]:
    """Every planned condition with its archived seeds, each with epochs, time and accuracy."""
    for name, model in models.items():
        runs = archive[name].folders if name in archive else []
        ends = [yaml.safe_load((run / "status.json").read_text("utf-8")) for run in runs]
        chosen = archive[name].chosen if runs else ()
        accuracy = measured(archive[name], "accuracy")[0] if runs else ()
        of_runs = {
            "epochs": (str(end["epochs"]) for end in ends),
            "epoch chosen": (str(epoch + 1) for epoch in chosen),
            "minutes of training": (f"{end['seconds'] / 60:.1f}" for end in ends),
            "test accuracy": map(number, accuracy),
        }
        row = {**model.words, "trained on": model.size, "seeds": f"{len(runs)} of {model.seeds}"}
        yield row | {heading: " / ".join(each) or None for heading, each in of_runs.items()}


spent_on_texts = partial(spent, models=TEXT_MODELS)


def archived(archive: Archive, names: Iterable[str]) -> Iterator[tuple[str, Row]]:
    """The conditions that have an archived run, with their words and the number of their seeds."""
    for name in (name for name in names if name in archive):
        model = (MODELS | TEXT_MODELS)[name]
        seeds = f"{len(archive[name].seeds)} of {model.seeds}"
        yield name, {**model.words, "seeds": seeds}


def readings(
    archive: Archive, models: Mapping[str, Condition] = MODELS, table: str = "pairs"
) -> Iterator[dict[str, object]]:
    """Accuracy and every test's reading over all seeds, beside the cells of a published table."""
    for name, row in archived(archive, models):
        if name in RESIZED:
            continue
        condition = name.partition("-")[2].removesuffix("_released")
        runs, published = archive[name], archive.published[table].get(condition, {})
        tau = runs.test("importance_correlation")
        row |= {
            "test texts": len(tau["index"]),
            "accuracy": over_seeds(measured(runs, "accuracy")),
            "published#accuracy": published.get("accuracy"),
        }
        for heading, (column, key), p in zip(_TAUS, PAIRS.values(), P_VALUES, strict=True):
            share = (significant(tau[p]) or DASH).partition(" / ")[0]
            row[heading] = f"{interval(column_mean(tau, column))} ({share})"
            row[f"published#{key}"] = published.get(key)
        row["median TVD"] = column_mean(runs.test("attention_permutation"), "median_tvd")
        bounds = {x: searched(runs, "adversarial_attention", column) for x, column in JS.items()}
        bounds["worst less search"] = bounds["worst JS"] - bounds["JS of the search"]
        row |= {x: seeds_then_instances(bound, bounds=_LIMITS) for x, bound in bounds.items()}
        yield row | {"search, published": published.get("search")}


def text_readings(archive: Archive) -> Iterator[Row]:
    """`readings` on texts with F1, and the search by predicted class, as published."""
    names = (name for name, _ in archived(archive, TEXT_MODELS))
    for name, row in zip(names, readings(archive, TEXT_MODELS, "texts"), strict=True):
        published = archive.published["texts"][name.partition("-")[2]]
        js = archive[name].test("adversarial_attention")
        by_class = (np.where(js["prediction"] == x, js["search_js"], np.nan) for x in (0, 1))
        ours = (interval(seeds_then_instances(x, bounds=_LIMITS)) for x in by_class)
        yield {key: value for key, value in row.items() if key not in _ALIKE} | {
            "search by predicted class": " / ".join(ours),
            "search, published": " / ".join(figure or DASH for figure in published["search"]),
            "F1 of the second class": over_seeds(measured(archive[name], "f1")),
            "published#f1": published["f1"],
        }


def shuffled(archive: Archive) -> Iterator[Row]:
    """Published medians under shuffled attention by class and largest weight, beside ours.

    Ours are over all test texts, since the records hold no largest weight.
    """
    for condition, published in archive.published["pairs_median_tvd"].items():
        for name, row in archived(archive, [f"{STUDY}-{condition}"]):
            tvd = archive[name].test("attention_permutation")["median_tvd"]
            ours = {
                "here, all texts": over_seeds(resampled_quantile(tvd)),
                "accuracy": over_seeds(measured(archive[name], "accuracy")),
                "published accuracy": archive.published["pairs"][condition]["accuracy"],
            }
            for place, medians in enumerate(published):
                by_bin = dict(zip(BINS, (median or DASH for median in medians), strict=True))
                words = {"corpus": row["corpus"], "seeds": row["seeds"]}
                predicted = f"class {place}" if len(published) > 1 else "all"
                yield words | {"predicted": predicted} | by_bin | ours
                ours = dict.fromkeys(ours, "")


def searched(model: Experiment, test: str, column: str) -> NDArray[Any]:
    """A column (S, n) of a test; NaN on texts that it left out, or without the published search."""
    found = model.test(test, partial=True)
    texts = model.test("predictions")["index"]
    whole = np.full((len(found[column]), len(texts)), np.nan)
    without = np.isnan(found.get("search_js", 0.0))
    whole[:, np.searchsorted(texts, found["index"])] = np.where(without, np.nan, found[column])
    return whole


def evidence(archive: Archive) -> Iterator[Row]:
    """Attention on the supporting sentences beside chance, of all and of the proven questions.

    The columns of sentences are there once a record has them; earlier records have dashes.
    """
    models = [(row, archive[x].test("evidence_mass")) for x, row in archived(archive, BABI)]
    recorded = {column for _, columns in models for column in columns}
    headings: dict[str, str] = _NAMES["evidence"] | {
        name: x for name, x in _NAMES["sentences"].items() if x in recorded
    }
    for row, columns in models:
        proven = columns[PROVEN]
        for questions, members in {"all": np.full(proven.shape, True), PROVEN: proven == 1}.items():
            found = {"questions": questions, "n": f"{members.sum(axis=1).mean():,.0f}"}
            share = over_seeds(resampled_means(proven)) if questions == "all" else ""
            found["share proven"] = share
            for heading, column in headings.items():
                values = np.where(members, columns.get(column, np.nan), np.nan)
                found[heading] = (
                    number(defined_mean(defined_mean(values)[None])[0])
                    if heading.startswith("chance")
                    else over_seeds(resampled_means(values))
                )
            yield row | found


def reasons(archive: Archive) -> Iterator[Row]:
    """Rank correlation of attention's mass on the facts with each reading, on proven questions.

    A second row of a model holds the chance level of the mass fixed. After a corpus's models
    Kendall's tau between their means, with its exact p-value.
    """
    models = []
    for name, row in archived(archive, BABI):
        columns = archive[name].test("evidence_mass")
        proven = columns[PROVEN] == 1
        mass, chance = (np.where(proven, columns[x], np.nan) for x in ("mass", "chance"))
        values = {
            heading: np.where(proven, searched(archive[name], test, column), np.nan)
            for heading, (test, column) in READINGS.items()
        }
        row |= {"proven questions": f"{proven.sum(axis=1).mean():,.0f}"}
        correlations = resampled_rank_correlations(mass, [*values.values()], chance)
        for words, kind in zip(("nothing", "chance"), zip(*correlations, strict=True), strict=True):
            found = (seed_interval(x, bounds=(-1, 1)) for x in kind)
            yield row | {"held fixed": words} | dict(zip(values, found, strict=True))
        means = {heading: defined_mean(x).mean() for heading, x in values.items()}
        models.append(means | {"mass": defined_mean(mass).mean(), "corpus": row["corpus"]})
    for corpus, group in pd.DataFrame(models).groupby("corpus"):
        over: dict[str, object] = {"corpus": corpus, "encoder": f"over {len(group)} models"}
        for heading in READINGS:
            both = group[["mass", heading]].dropna()
            tau, p = kendalltau(both["mass"], both[heading]) if len(both) >= _FEWEST else (None, 1)
            over[heading] = None if tau is None else f"{number(tau, 2)} (p = {p:.2f})"
        if len(group) >= _FEWEST:
            yield over


def sizes(archive: Archive) -> Iterator[Row]:
    """Accuracy on SNLI by the number of training pairs, BiLSTM with additive attention."""
    names = [name for name in MODELS if name.startswith(f"{STUDY}-snli_bilstm_additive")]
    for name in sorted(names, key=lambda name: MODELS[name].size):
        for _, row in archived(archive, [name]):
            yield {
                "training pairs": MODELS[name].size,
                "seeds": row["seeds"],
                "accuracy": over_seeds(measured(archive[name], "accuracy")),
                "macro F1": over_seeds(measured(archive[name], "f1")),
            }
    whole = archive.published["pairs"]["snli_bilstm_additive"]["accuracy"]
    yield {"training pairs": "549,367, published", "seeds": 1, "accuracy": whole, "macro F1": None}
