"""Erasure that the model has seen, and pairs that people edited: the study `real_text`."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import kendalltau

from attnlight.figures.methods import method_words
from attnlight.statistics import seeds_then_instances
from attnlight.statistics.bootstrap import percentile_interval, resampled_counts
from attnlight.statistics.seed_bootstrap import SeedInterval
from results_page import NAMES, pairs
from results_page.archive import Archive, Experiment
from results_page.tables import DASH, Row, column_mean, interval

Values = NDArray[np.float64]
STUDY = "real_text"
_NAME = r"(?P<corpus>.+)_(?P<encoder>none|cnn|bilstm)-(?P<training>whole|erased)"
_NAMES = NAMES[STUDY]
METHODS: list[str] = _NAMES["methods"]  # without random, of which the excess is 0
# Training of the models, and the measure of faithfulness.
ERASURES: dict[str, list[str]] = _NAMES["erasures"]
TRUTHS: dict[str, list[str]] = _NAMES["truths"]  # test with the AUPRC, and its corpora
ANSWERS = {1: "yes", -1: "no", 0: "open"}


MODELS = dict(pairs.named_conditions(STUDY, _NAME, _NAMES["corpora"], _NAMES["encoders"]))
spent = partial(pairs.spent, models=MODELS)


def trained(archive: Archive) -> Iterator[tuple[str, Row, dict[str, Experiment]]]:
    """Corpus and words of each model, and its archived experiments by training texts."""
    for whole in (name for name in MODELS if name.endswith("whole") and name in archive):
        names = {x: whole.replace("whole", x) for x in ("whole", "erased")}
        found = {x: archive[name] for x, name in names.items() if name in archive}
        words = {name: MODELS[whole].words[name] for name in ("corpus", "encoder")}
        corpus = whole.removeprefix(f"{STUDY}-").rpartition("_")[0]
        yield corpus, words | {"seeds": len(found["whole"].seeds)}, found


def answer(mean: SeedInterval) -> str:
    """`yes` if the interval is above 0, `no` if below, else `open`."""
    return ANSWERS[int(mean.low > 0) - int(mean.high < 0)]


def faithful(archive: Archive) -> Iterator[Row]:
    """Excess of integrated gradients less that of attention, by model and erasure."""
    for _, row, found in trained(archive):
        cells: Row = {}
        for erasure, (training, measure) in ERASURES.items():
            cells |= {erasure: DASH, f"more faithful?#{erasure}": DASH}
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
        if len(found) < 2:
            continue
        tests = {x: runs.test("erased_accuracy") for x, runs in found.items()}
        for words, name in {"whole": "correct", "half erased": "correct_50"}.items():
            # The runs of a seed are compared: both draw the same parameters and batches.
            less = seeds_then_instances(tests["erased"][name] - tests["whole"][name])
            means = {f"trained on {x}": column_mean(tests[x], name) for x in tests}
            yield row | {"tested on": words} | means | {"difference": interval(less, 3)}


def edited(archive: Archive) -> Iterator[Row]:
    """How well each method finds edited words, beside chance, by model."""
    for _, row, found in trained(archive):
        if (columns := _of_pairs(found["whole"])) is None:
            continue
        originals, chance = columns["original"], columns["chance_auprc"]
        attention, gradient = (columns[f"auprc_{x}"] for x in ("attention", "input_gradient"))
        for label in METHODS:
            auprc = columns[f"auprc_{label}"]
            less = seeds_then_instances(auprc - chance, originals)
            yield row | {
                "method": method_words(label),
                "AUPRC": interval(seeds_then_instances(auprc, originals)),
                "less chance": interval(less, 3),
                "better?": answer(less),
                "of used edits": interval(
                    seeds_then_instances(columns[f"auprc_used_{label}"], originals)
                ),
            }
        less = seeds_then_instances(attention - gradient, originals)
        cells = {"method": "attention less gradient × input", "AUPRC": interval(less, 3)}  # noqa: RUF001
        yield row | cells | {"less chance": DASH, "better?": answer(less), "of used edits": DASH}


def pairs_turned(archive: Archive) -> Iterator[Row]:
    """Accuracy on originals and edits, and how many pairs turn, by model and training texts."""
    for name, model in MODELS.items():
        columns = _of_pairs(archive[name]) if name in archive else None
        if columns is not None:
            names: dict[str, str] = _NAMES["pairs"]
            cells = {
                words: seeds_then_instances(columns[x], columns["original"], bounds=(0, 1))
                for x, words in names.items()
            }
            yield model.words | {"pairs": columns["turns"].shape[1]} | cells


def _of_pairs(runs: Experiment) -> dict[str, Any] | None:
    """Columns (S, n) of pairs in ascending order of their originals (n,); None without pairs."""
    if not (runs.folders[0] / "records/test/counterfactual_use.parquet").is_file():
        return None
    columns = runs.test("counterfactual_use")
    originals = columns["original"][0]
    order = originals.argsort(kind="stable")[: int((~np.isnan(originals)).sum())]
    chosen = {name: values[..., order] for name, values in columns.items()}
    return chosen | {"original": originals[order].astype(np.int64)}


def agreement(archive: Archive) -> Iterator[Row]:
    """Kendall's tau over methods of faithfulness with AUPRC, by truth and erasure.

    The interval over runs is one of Student's t over models and seeds; that over texts resamples
    the texts or originals of the AUPRC, the same share of every run.
    """
    for truth, (test, *corpora) in TRUTHS.items():
        taus: dict[str, list[float]] = {erasure: [] for erasure in ERASURES}
        replicates: dict[str, list[Values]] = {erasure: [] for erasure in ERASURES}
        for corpus, _, found in trained(archive):
            for erasure, (training, measure) in ERASURES.items():
                if corpus not in corpora or len(found) < 2:
                    continue
                of_auprc, clusters = _auprc(found[training], test)
                columns = found[training].test("faithfulness", partial=True)
                excess = np.stack([np.nanmean(columns[f"{measure}_{x}"], 1) for x in METHODS], 1)
                for faith, auprc in zip(excess, of_auprc, strict=True):
                    taus[erasure].append(kendalltau(faith, np.nanmean(auprc, 1)).statistic)
                    replicates[erasure].append(_resampled_taus(faith, auprc, clusters))
        for erasure, each in taus.items():
            if each:
                less = np.subtract(each, taus["deletion"])[:, None]
                own = DASH if erasure == "deletion" else interval(seeds_then_instances(less))
                low, high = percentile_interval(np.mean(replicates[erasure], 0))
                yield {
                    "truth": truth,
                    "erasure": erasure,
                    "runs": len(each),
                    "tau": interval(seeds_then_instances(np.array(each)[:, None])),
                    "over texts": f"[{low:.2f}, {high:.2f}]",
                    "less deletion's": own,
                }


def _auprc(runs: Experiment, test: str) -> tuple[Values, NDArray[np.int64]]:
    """AUPRC of each method (S, M, n) against a truth, and the cluster of each text (n,)."""
    columns = _of_pairs(runs) if test == "counterfactual_use" else runs.test(test, partial=True)
    assert columns is not None
    values = np.stack([columns[f"auprc_{x}"] for x in METHODS], axis=1)
    return values, columns["original" if test == "counterfactual_use" else "index"]


def _resampled_taus(faith: Values, auprc: Values, clusters: NDArray[np.int64]) -> Values:
    """Tau of faithfulness (M,) and AUPRC (M, n) in resamples of the clusters, (B,)."""
    _, cluster = np.unique(clusters, return_inverse=True)
    counts = resampled_counts(cluster.max() + 1)[:, cluster].astype(np.float64)
    known = ~np.isnan(auprc)
    means = (counts @ np.where(known, auprc, 0.0).T) / (counts @ known.T)  # (B, M)
    return np.array([kendalltau(faith, found).statistic for found in means])
