"""SST by a pretrained MiniLM beside a BiLSTM: accuracy, every test, and all layers at once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnlight.figures import erasure
from attnlight.figures.erasure import SCORES, WORDS
from attnlight.statistics import seeds_then_instances
from results_page.archive import Archive
from results_page.predictions import measured
from results_page.tables import DASH, Row, column_mean, interval, over_seeds

MODELS = {
    "minilm-bilstm": "BiLSTM",
    "minilm_pooled": "attention above MiniLM, frozen",
    "minilm-tuned": "attention above MiniLM, fine-tuned",
    "minilm_last": "last layer of MiniLM, fine-tuned",
}
STUDIES = ("minilm_pooled", "minilm_last")  # archived whole, too
# Places of tables that the study of the last layer, which has adversaries alone, leaves empty.
LEFT_OUT = tuple(
    f"minilm_last_{name}" for name in ("table2", "table3", "table4", "seeds", "verdict")
)
_ABLATIONS = {"uniform": "uniform", "shuffled": "shuffled", "off": "off"}
_PARTS = {"last": "last layer", "all": "all layers", "head": "one head, mean"}
_RANKINGS = (*SCORES, "random_first", "minimal")
_TAUS = {
    "tau with gradient": "tau_attention_input_gradient",
    "tau with leave-one-out": "tau_attention_loo",
    "tau of the two importances": "tau_input_gradient_loo",
}
# Columns by test that the page needs, besides the keys.
COLUMNS: dict[str, tuple[str, ...]] = {
    "predictions": ("label",),
    "importance_correlation": tuple(_TAUS.values()),
    "attention_permutation": ("median_tvd", "flip_rate"),
    "adversarial_attention": ("worst_js", "worst_share"),
    "single_erasure": tuple(f"flip_top_{score}" for score in SCORES),
    "decision_flip": (
        "length",
        *(f"{part}_{name}" for name in _RANKINGS for part in ("removed_fraction", "never_flips")),
    ),
}
CONTROL = {
    "head_ablation": tuple(
        f"{measure}_{part}_{ablation}"
        for ablation in _ABLATIONS
        for part in _PARTS
        for measure in ("tvd", "flip_rate")
    )
}
TESTS = {name: COLUMNS | (CONTROL if name == "minilm_last" else {}) for name in MODELS}


def archived(archive: Archive) -> Iterator[tuple[str, dict[str, object]]]:
    """The models that have archived runs, with their words and the number of their seeds."""
    for name in (name for name in MODELS if name in archive):
        yield name, {"model": MODELS[name], "seeds": len(archive[name].seeds)}


def mean(columns: Mapping[str, NDArray[Any]], name: str) -> str:
    """Mean of a column over seeds and texts, with its interval; a dash where it is undefined."""
    values = columns.get(name, np.array([[np.nan]])).astype(np.float64)
    return DASH if np.isnan(values).all() else interval(column_mean({name: values}, name), 3)


def accuracy(archive: Archive) -> Iterator[Row]:
    """Accuracy, F1 of the positive class and epochs."""
    for name, row in archived(archive):
        chosen, epochs = archive[name].chosen, archive[name].curves.groupby("seed").size()
        ends = zip(chosen, epochs, strict=True)
        yield row | {
            "test texts": len(archive[name].test("predictions")["label"]),
            "epoch chosen": " / ".join(f"{epoch + 1} of {count}" for epoch, count in ends),
            "accuracy": over_seeds(measured(archive[name], "accuracy")),
            "F1 of positive": over_seeds(measured(archive[name], "f1")),
        }


def jain_wallace(archive: Archive) -> Iterator[Row]:
    """Tau of attention with each importance, shuffled attention, and worst-case attention."""
    for name, row in archived(archive):
        tests = ("importance_correlation", "attention_permutation", "adversarial_attention")
        tau, shuffled, worst = (archive[name].test(test, partial=True) for test in tests)
        row |= {"texts": len(tau["index"])}
        row |= {heading: mean(tau, column) for heading, column in _TAUS.items()}
        yield row | {
            "median TVD, shuffled": mean(shuffled, "median_tvd"),
            "decisions flipped, shuffled": mean(shuffled, "flip_rate"),
            "worst JS": mean(worst, "worst_js"),
            "of what is possible": mean(worst, "worst_share"),
        }


def serrano_smith(archive: Archive) -> Iterator[Row]:
    """Decisions that the first item of each ranking flips, and the fraction until one flips.

    The fraction of a text whose decision a ranking never flips is 1.
    """
    for name, row in archived(archive):
        first, flips = (archive[name].test(test) for test in ("single_erasure", "decision_flip"))
        row |= {f"first item, {WORDS[x]}": mean(first, f"flip_top_{x}") for x in SCORES}
        runs = [
            {column: values[seed] for column, values in flips.items() if column != "index"}
            for seed in range(len(flips["length"]))
        ]
        removed = {}
        for ranking in _RANKINGS:
            left = [erasure.removed(rows, "removed_fraction", ranking, "one") for rows in runs]
            removed[ranking] = np.array(left)
            row[f"removed, {WORDS[ranking]}"] = mean({"fraction": removed[ranking]}, "fraction")
            if ranking in SCORES:
                never = [erasure.removed(rows, "never_flips", ranking, "column") for rows in runs]
                row[f"never, {WORDS[ranking]}"] = mean({"flips": np.array(never)}, "flips")
        less = seeds_then_instances(removed["attention"] - removed["gradient"], bounds=(-1, 1))
        yield row | {"removed, attention less gradient": interval(less, 3)}


def control(archive: Archive) -> Iterator[Row]:
    """TVD and flipped decisions when heads of the last layer, or of all, lose their attention."""
    if "minilm_last" not in archive:
        return
    columns = archive["minilm_last"].test("head_ablation", partial=True)
    for ablation, word in _ABLATIONS.items():
        row: dict[str, object] = {"attention becomes": word, "texts": len(columns["index"])}
        for measure, heading in {"tvd": "TVD", "flip_rate": "decisions flipped"}.items():
            for part, where in _PARTS.items():
                row[f"{heading}, {where}"] = mean(columns, f"{measure}_{part}_{ablation}")
        less = columns[f"tvd_all_{ablation}"] - columns[f"tvd_last_{ablation}"]
        yield row | {"TVD, all less last": mean({"less": less}, "less")}
