"""Jain & Wallace's tests on questions (bAbI), inference (SNLI) and texts, beside their published cells.

On bAbI the supporting sentences are known, so that each test is compared with attention on them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import pandas as pd
from scipy.stats import kendalltau

from attnlight.statistics.bootstrap import defined_mean
from attnlight.statistics.seed_bootstrap import resampled_means, seed_interval
from attnlight.storage.files import read_json
from results_page import NAMES
from results_page.archive import Archive, Condition, conditions
from results_page.cells import measured, searched
from results_page.measures import resampled_quantile, resampled_rank_correlations
from results_page.tables import BINS, DASH, Row, number, over_seeds

STUDY, TEXTS = "jain_wallace_pairs", "jain_wallace_texts"
_NAME = (
    r"\w+-(?P<corpus>babi_\d|snli|20_newsgroups_sports|ag_news_pair)_(?P<encoder>bilstm|cnn|average)_"
    r"(?P<attention>additive|scaled_dot)_?(?P<decoder>affine|released|\d*)"
)
_NAMES = NAMES["pairs"]
AS_RELEASED = ", prepared as released"
SIZES: dict[str, int] = _NAMES["sizes"]
PROVEN = "proven"
READINGS: dict[str, list[str]] = _NAMES["readings"]
_FEWEST = 5  # models over which a correlation is given: with 4 no p-value is below 0.08
MODELS, TEXT_MODELS = (conditions(study, _NAME, _NAMES["words"]) for study in (STUDY, TEXTS))
for _model in MODELS.values():  # with a query, all but the affine ones are decoded by a tanh layer
    _kind = _model.words["decoder"]
    _model.words["corpus"] += AS_RELEASED if _kind == "released" else ""
    _model.words["decoder"] = "affine" if _kind == "affine" else "tanh"
for _model in TEXT_MODELS.values():  # all affine
    del _model.words["decoder"]
# Conditions that differ from another in the number of its training texts alone, and the others.
RESIZED = {name: model for name, model in MODELS.items() if model.size != "all"}
READ = {name: model for name, model in MODELS.items() if name not in RESIZED}
BABI = {name: x for name, x in READ.items() if "babi" in name and not name.endswith("_released")}


def spent(archive: Archive, models: Mapping[str, Condition], **words: str) -> Iterator[Row]:
    """Every planned condition with its archived seeds, each with epochs, time and accuracy.

    Args:
        archive: The archived runs.
        models: The conditions.
        words: What all of them have in common, by heading.
    """
    for name, model in models.items():
        runs = archive[name].folders if name in archive else []
        ends = [read_json(run / "status.json") for run in runs]
        chosen = archive[name].chosen if runs else ()
        of_runs = {
            "epochs": (str(end["epochs"]) for end in ends),
            "epoch chosen": (str(epoch + 1) for epoch in chosen),
            "minutes of training": (f"{end['seconds'] / 60:.1f}" for end in ends),
            "test accuracy": map(number, measured(archive[name], "accuracy")[0] if runs else ()),
        }
        corpus = model.words["corpus"].partition(",")[0]
        whole = SIZES[corpus] if name in READ or name in TEXT_MODELS else "all"
        row = {**model.words, **words, "trained on": whole if model.size == "all" else model.size}
        row["seeds"] = f"{len(runs)} of {model.seeds}"
        yield row | {heading: " / ".join(each) or None for heading, each in of_runs.items()}


def shuffled(archive: Archive) -> Iterator[Row]:
    """Published medians under shuffled attention by class and largest weight, beside ours.

    Ours are over all test texts, since the records hold no largest weight.
    """
    for condition, published in archive.published["pairs_median_tvd"].items():
        if (name := f"{STUDY}-{condition}") not in archive:
            continue
        row = archive.words(name, MODELS[name])
        tvd = archive[name].test("attention_permutation")["median_tvd"]
        ours: Row = {
            "here, all texts": over_seeds(resampled_quantile(tvd)),
            "accuracy": over_seeds(measured(archive[name], "accuracy")),
            "published accuracy": archive.published["pairs"][condition]["accuracy"],
        }
        for place, medians in enumerate(published):
            by_bin = dict(zip(BINS, (median or DASH for median in medians), strict=True))
            words = {"corpus": row["corpus"], "seeds": row["seeds"]}
            words["predicted"] = f"class {place}" if len(published) > 1 else "all"
            yield words | by_bin | (dict.fromkeys(ours, "") if place else ours)


def evidence(archive: Archive) -> Iterator[Row]:
    """Attention on the supporting sentences beside chance, of all and of the proven questions."""
    for name in (name for name in BABI if name in archive):
        columns = archive[name].test("evidence_mass")
        proven = columns[PROVEN]
        for questions, members in {"all": np.full(proven.shape, True), PROVEN: proven == 1}.items():
            found: Row = {"questions": questions, "n": f"{members.sum(axis=1).mean():,.0f}"}
            share = over_seeds(resampled_means(proven)) if questions == "all" else ""
            found["share proven"] = share
            for heading, column in _NAMES["evidence"].items():
                values = np.where(members, columns.get(column, np.nan), np.nan)
                found[heading] = (
                    number(defined_mean(defined_mean(values)[None])[0])
                    if heading.startswith("chance")
                    else over_seeds(resampled_means(values))
                )
            yield archive.words(name, BABI[name]) | found


def reasons(archive: Archive) -> Iterator[Row]:
    """Rank correlation of attention's mass on the facts with each reading, on proven questions.

    A second row of a model holds the chance level of the mass fixed. After a corpus's models
    Kendall's tau between their means, with its exact p-value.
    """
    models = []
    for name in (name for name in BABI if name in archive):
        columns, row = archive[name].test("evidence_mass"), archive.words(name, BABI[name])
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
        over: Row = {"corpus": corpus, "encoder": f"over {len(group)} models"}
        for heading in READINGS:
            both = group[["mass", heading]].dropna()
            tau, p = kendalltau(both["mass"], both[heading]) if len(both) >= _FEWEST else (None, 1)
            over[heading] = None if tau is None else f"{number(tau, 2)} (p = {p:.2f})"
        if len(group) >= _FEWEST:
            yield over


def sizes(archive: Archive) -> Iterator[Row]:
    """Accuracy on SNLI by the number of training pairs, BiLSTM with additive attention."""
    name = f"{STUDY}-snli_bilstm_additive"
    names = [x for x in sorted(RESIZED, key=lambda x: int(RESIZED[x].size)) if x in archive]
    for x in [*names, *([name] if name in archive else [])]:
        of = {"accuracy": "accuracy", "macro F1": "f1"}
        row: Row = {"training pairs": RESIZED[x].size if x in RESIZED else SIZES["SNLI"]}
        row["seeds"] = archive.words(x, MODELS[x])["seeds"]
        yield row | {word: over_seeds(measured(archive[x], key)) for word, key in of.items()}
    whole = archive.published["pairs"]["snli_bilstm_additive"]["accuracy"]
    yield {"training pairs": "549,367, published", "seeds": 1, "accuracy": whole, "macro F1": None}
