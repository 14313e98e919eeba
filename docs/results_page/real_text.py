"""Erasure that the model has seen, and pairs that people edited: the study `real_text`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import kendalltau

from attnlight.figures.methods import method_words
from attnlight.statistics import seeds_then_instances
from attnlight.statistics.bootstrap import percentile_interval, resampled_counts
from attnlight.statistics.seed_bootstrap import SeedInterval
from results_page import NAMES, roar
from results_page.archive import Archive, Experiment, conditions
from results_page.claims import OPEN
from results_page.tables import DASH, Row, column_mean, interval

Values = NDArray[np.float64]
Clusters = NDArray[np.int64]
Methods = dict[str, Values]  # a value of each run and text (S, n), by method
STUDY = "real_text"
_NAME = rf"{STUDY}-(?P<corpus>.+)_(?P<encoder>none|cnn|bilstm)-(?P<training>whole|erased)"
_NAMES = NAMES[STUDY]
METHODS: list[str] = _NAMES["methods"]  # without random, of which the excess is 0
# Training of the models, and the measure of faithfulness.
ERASURES: dict[str, list[str]] = _NAMES["erasures"]
TRUTHS: dict[str, list[str]] = _NAMES["truths"]  # test with the AUPRC, and its corpora
LESS_GRADIENT = "attention less gradient × input"  # noqa: RUF001
YES, NO, NOT_RUN = "yes", "no", f"{OPEN}: not run"
ROAR = "ROAR"
CHEAP = -0.02  # least difference of accuracy of models that erased training does not harm
MODELS = conditions(STUDY, _NAME, _NAMES["corpora"] | _NAMES["encoders"])


def trained(archive: Archive) -> Iterator[tuple[str, Row, dict[str, Experiment]]]:
    """Corpus and words of each planned model, and its archived experiments by training texts."""
    for whole in (name for name in MODELS if name.endswith("whole")):
        names = {x: whole.replace("whole", x) for x in ("whole", "erased")}
        found = {x: archive[name] for x, name in names.items() if name in archive}
        words = {name: MODELS[whole].words[name] for name in ("corpus", "encoder")}
        counts = sorted({len(runs.seeds) for runs in found.values()} or {0})
        corpus = whole.removeprefix(f"{STUDY}-").rpartition("_")[0]
        yield corpus, words | {"seeds": " to ".join(map(str, counts))}, found


def paired(found: dict[str, Experiment]) -> dict[str, Experiment]:
    """The runs of the seeds that two experiments share, such as on whole and erased texts; else none."""
    seeds = [{*runs.seeds} for runs in found.values()]
    both = set.intersection(*seeds) if len(seeds) == 2 else set()
    kept = {
        x: [(run, seed) for run, seed in zip(runs.folders, runs.seeds, strict=True) if seed in both]
        for x, runs in found.items()
    }
    return {
        x: replace(found[x], folders=[run for run, _ in of], seeds=[seed for _, seed in of])
        for x, of in kept.items()
        if both
    }


def answer(mean: SeedInterval, bound: float = 0.0) -> str:
    """`yes` if the interval, as printed to three places, is above a bound, `no` if below, else `open`."""
    low, high = round(mean.low, 3), round(mean.high, 3)
    return YES if low > bound else NO if high < bound else OPEN


def faithful(archive: Archive) -> Iterator[Row]:
    """Excess of integrated gradients less that of attention, by model and erasure."""
    for _, row, found in trained(archive):
        cells: Row = {}
        for erasure, (training, measure) in ERASURES.items():
            cells |= {erasure: NOT_RUN, f"more faithful?#{erasure}": DASH}
            if training in found:
                columns = found[training].test("faithfulness", partial=True)
                names = (f"{measure}_{x}" for x in ("integrated_gradients", "attention"))
                first, second = (columns[name] for name in names)
                less = seeds_then_instances(first - second, columns["index"])
                cells |= {erasure: interval(less, 3), f"more faithful?#{erasure}": answer(less)}
        yield row | cells


def erased_training(archive: Archive) -> Iterator[Row]:
    """Accuracy on whole texts and without half of the words, by training texts, and the difference."""
    for _, row, found in trained(archive):
        tests = {x: runs.test("erased_accuracy") for x, runs in paired(found).items()}
        for words, name, bound in (("whole", "correct", CHEAP), ("half erased", "correct_50", 0)):
            cells = row | {"tested on": words}
            if not tests:
                yield cells | {"difference": NOT_RUN}
                continue
            # The runs of a seed are compared: both draw the same parameters and batches.
            less = seeds_then_instances(tests["erased"][name] - tests["whole"][name])
            cells |= {f"trained on {x}": column_mean(tests[x], name) for x in tests}
            yield cells | {"difference": interval(less, 3), "answer": answer(less, bound)}


def edited(archive: Archive) -> Iterator[Row]:
    """How well each method finds edited words, beside chance, by model."""
    for corpus, row, found in trained(archive):
        if corpus not in TRUTHS["edited words"]:
            continue
        if "whole" not in found:
            yield row | {"method": "attention", "AUPRC": DASH, "less chance": NOT_RUN}
            yield row | {"method": LESS_GRADIENT, "AUPRC": NOT_RUN}
            continue
        columns = _of_pairs(found["whole"])
        originals, chance = columns["original"], columns["chance_auprc"]
        for label in METHODS:
            auprc = columns[f"auprc_{label}"]
            less = seeds_then_instances(auprc - chance, originals)
            used = seeds_then_instances(columns[f"auprc_used_{label}"], originals)
            yield row | {
                "method": method_words(label),
                "AUPRC": interval(seeds_then_instances(auprc, originals)),
                "less chance": interval(less, 3),
                "better?": answer(less),
                "of used edits": interval(used),
            }
        both = (columns[f"auprc_{x}"] for x in ("attention", "input_gradient"))
        less = seeds_then_instances(np.subtract(*both), originals)
        cells = {"method": LESS_GRADIENT, "AUPRC": interval(less, 3)}
        yield row | cells | {"less chance": DASH, "better?": answer(less), "of used edits": DASH}


def pairs_turned(archive: Archive) -> Iterator[Row]:
    """Accuracy on originals and edits, and how many pairs turn, by model and training texts."""
    names: dict[str, str] = _NAMES["pairs"]
    for name in (x for x in MODELS if "counterfactual" in x and x in archive):
        columns = _of_pairs(archive[name])
        cells = {
            words: seeds_then_instances(columns[x], columns["original"], bounds=(0, 1))
            for x, words in names.items()
        }
        yield MODELS[name].words | {"pairs": columns["turns"].shape[1]} | cells


def _of_pairs(runs: Experiment) -> dict[str, Any]:
    """Columns (S, n) of pairs in ascending order of their originals (n,)."""
    columns = runs.test("counterfactual_use")
    originals = columns["original"][0]
    order = originals.argsort(kind="stable")[: int((~np.isnan(originals)).sum())]
    chosen = {name: values[..., order] for name, values in columns.items()}
    return chosen | {"original": originals[order].astype(np.int64)}


def ordered(archive: Archive) -> Iterator[tuple[tuple[str, ...], Methods, Methods, Clusters]]:
    """How erasures and truths order the methods of each model, ROAR last.

    Yields:
        Truth, erasure and encoder; by method the excess, or the loss by ROAR, and the AUPRC; and the
        clusters of the texts of the AUPRC.
    """
    for corpus, words, found in trained(archive):
        for truth, (test, *corpora) in TRUTHS.items():
            both = paired(found) if corpus in corpora else {}
            for erasure, (training, measure) in ERASURES.items() if both else ():
                runs, of_pairs = both[training], test == "counterfactual_use"
                columns = _of_pairs(runs) if of_pairs else runs.test(test, partial=True)
                faith = runs.test("faithfulness", partial=True)
                excess = {x: faith[f"{measure}_{x}"] for x in METHODS}
                auprc = {x: columns[f"auprc_{x}"] for x in METHODS}
                clusters = columns["original" if of_pairs else "index"]
                yield (truth, erasure, words["encoder"]), excess, auprc, clusters
    _, loss, auprc = roar.measures("planted")
    key = ("planted evidence", ROAR, _NAMES["encoders"]["bilstm"])
    yield key, loss, auprc, np.arange(auprc["attention"].shape[1], dtype=np.int64)


def agreement(archive: Archive) -> Iterator[Row]:
    """Kendall's tau over methods of faithfulness with AUPRC, by truth and erasure.

    The interval is one of Student's t over models, each the mean of its seeds, which are no models of
    their own; of a single model over its seeds. That over texts resamples the texts or originals of
    the AUPRC, the same share of every run.
    """
    models: dict[
        tuple[str, ...], list[tuple[Values, Values]]
    ] = {}  # taus by seed, and of resamples
    for (*key, _), faith, auprc, clusters in ordered(archive):
        means = np.stack([np.nanmean(x, axis=1) for x in faith.values()], axis=1)
        areas = np.stack([*auprc.values()], axis=1)
        pairs_of_runs = [*zip(means, areas, strict=True)]
        found = [kendalltau(one, np.nanmean(other, 1)).statistic for one, other in pairs_of_runs]
        resampled = [_resampled_taus(*both, clusters) for both in pairs_of_runs]
        models.setdefault((*key,), []).append((np.array(found), np.mean(resampled, 0)))
    for truth, erasure in sorted(models, key=lambda key: [*TRUTHS].index(key[0])):
        taus, of_texts = zip(*models[truth, erasure], strict=True)
        low, high = percentile_interval(np.mean(of_texts, 0))
        row = {"truth": truth, "erasure": erasure, "models": len(taus)}
        row |= {"runs": sum(map(len, taus)), "tau": interval(_over_models(taus, bounds=(-1, 1)))}
        row |= {"over texts": f"[{low:.2f}, {high:.2f}]", "less deletion's": DASH, "better?": DASH}
        if erasure not in ("deletion", ROAR):  # ROAR is of other runs
            before = (tau for tau, _ in models[truth, "deletion"])
            less = _over_models([*map(np.subtract, taus, before)])
            row |= {"less deletion's": interval(less), "better?": answer(less)}
        yield row


def _over_models(values: Sequence[Values], **options: Any) -> SeedInterval:  # noqa: ANN401
    """Mean over models of the mean over seeds (S,), with an interval over models, if several."""
    of_models = np.array([x.mean() for x in values]) if len(values) > 1 else values[0]
    return seeds_then_instances(of_models[:, None], **options)


def disagreements(archive: Archive) -> Iterator[Row]:
    """Pairs of methods that two erasures order differently on planted texts, and which is right."""
    signs: dict[str, dict[tuple[str, ...], list[str]]] = {}
    for (truth, erasure, encoder), *both, _ in ordered(archive):
        for pair in combinations(both[0], 2) if truth == "planted evidence" else ():
            less = (seeds_then_instances(of[pair[0]] - of[pair[1]]) for of in both)
            signs.setdefault(erasure, {})[encoder, *pair] = [answer(mean) for mean in less]
    for first, second in combinations(signs, 2):
        shared = [(signs[first][x], signs[second][x]) for x in signs[first] if x in signs[second]]
        decided = [(x, y) for x, y in shared if OPEN not in (x[0], y[0])]
        differ = [(x, y) for x, y in decided if x[0] != y[0]]
        row = {"first": first, "second": second, "pairs of methods": len(shared)}
        row |= {"decided by both": len(decided), "ordered differently": len(differ)}
        row["first is right"] = sum(x[0] == x[1] for x, _ in differ)
        yield row | {"second is right": sum(y[0] == y[1] for _, y in differ)}


def answers(archive: Archive) -> Iterator[Row]:
    """The answers by the rules of the page, counted over the models that are archived."""
    answered: dict[str, tuple[list[str], str]] = {}  # what each model says, and the answer
    rows = [*faithful(archive)]
    before = [row["more faithful?#deletion"] for row in rows]
    for erasure in ("resampling", "erased training"):
        found = [row[f"more faithful?#{erasure}"] for row in rows]
        kept = [*zip(before, found, strict=True)].count((YES, YES))
        said = YES if NO not in found and kept >= 0.75 * before.count(YES) else NO
        answered[f"more faithful by {erasure}, too"] = found, said
    rows = [*edited(archive)]
    for words, method in {"chance": "attention", "gradient × input": LESS_GRADIENT}.items():  # noqa: RUF001
        found = [row.get("better?", DASH) for row in rows if row["method"] == method]
        said = YES if {*found} <= {YES, DASH} else OPEN if YES in found else NO
        answered[f"attention finds edited words better than {words}"] = found, said
    rows = [*erased_training(archive)]
    for texts, words in _NAMES["erased"].items():
        found = [row.get("answer", DASH) for row in rows if row["tested on"] == texts]
        answered[words] = found, YES if {*found} <= {YES, DASH} else OPEN
    for words, (found, said) in answered.items():
        counts = {x: found.count(x) for x in (YES, NO, OPEN)}
        row = {"statement": words} | counts | {"not run": found.count(DASH)}
        yield row | {"answer": f"{said}, of {sum(counts.values())} of {len(found)} models"}
    for row in (row for row in agreement(archive) if row["better?"] != DASH):
        words = f"{row['erasure']} agrees better with {row['truth']} than deletion"
        yield {"statement": words, "answer": f"{row['better?']}, of {row['runs']} runs"}
    differ = sum(row["ordered differently"] for row in disagreements(archive))
    words = "two erasures order methods of planted texts differently"
    yield {"statement": words, "answer": YES if differ else NO}


def _resampled_taus(faith: Values, auprc: Values, clusters: Clusters) -> Values:
    """Tau of faithfulness (M,) and AUPRC (M, n) in resamples of the clusters, (B,)."""
    _, cluster = np.unique(clusters, return_inverse=True)
    counts = resampled_counts(cluster.max() + 1)[:, cluster].astype(np.float64)
    known = ~np.isnan(auprc)
    means = (counts @ np.where(known, auprc, 0.0).T) / (counts @ known.T)  # (B, M)
    first, second = np.triu_indices(len(faith), 1)
    ours, theirs = (np.sign(x[..., first] - x[..., second]) for x in (faith, means))
    taus: Values = (ours * theirs).sum(-1) / np.sqrt((ours**2).sum() * (theirs**2).sum(-1))  # tau-b
    return taus
