"""What was asked of the experiments, and whether it was met."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnlight.statistics import difference_of_groups
from results_page import arms, chunking, study_targets
from results_page.kept import Experiment
from results_page.measures import accuracy, positive_f1
from results_page.planted import NAMES, is_negated
from results_page.tables import TEXT, outcome, table


def target_table(
    text: Mapping[str, Experiment],
    synthetic: Mapping[str, Experiment],
    both_arms: Mapping[str, Experiment],
    taggers: Mapping[str, Experiment],
    published: Mapping[str, Any],
    kept: Path,
) -> str:
    """Each target with the mean over seeds, or the end of its interval, that it is held against.

    Args:
        text: The text classifiers, by experiment.
        synthetic: Those of planted evidence.
        both_arms: Those with random and with trained vectors.
        taggers: The taggers.
        published: docs/results/published.yaml.
        kept: docs/results/studies.
    """
    rows = [
        outcome(TEXT["sst_bilstm"], "test accuracy", 0.76, _accuracy(text["sst_bilstm"])),
        outcome(
            TEXT["sst_phrases_bilstm"], "test accuracy", 0.83, _accuracy(text["sst_phrases_bilstm"])
        ),
        outcome(
            TEXT["imdb_bilstm"], "test F1 of the positive class", 0.87, _f1(text["imdb_bilstm"])
        ),
    ]
    for name, bound in (("planted_none", 0.98), ("planted_negation_bilstm", 0.95)):
        rows.append(outcome(NAMES[name], "test accuracy", bound, _accuracy(synthetic[name])))
    name = "planted_negation_none"
    found = _accuracy(synthetic[name], negated=True)
    rows.append(outcome(NAMES[name], "test accuracy on negated texts", 0.6, found, most=True))
    rows += _arm_rows(both_arms, published)
    for name, (model, _, least) in chunking.NAMES.items():
        if least is not None:
            found = chunking.test_f1(taggers[name])
            rows.append(outcome(f"CoNLL-2000, {model}", "test chunk F1", least, found))
    rows += study_targets.target_rows(kept)
    return table(["experiment", "measure", "target", "found", "met"], rows, words=2)


def _arm_rows(
    experiments: Mapping[str, Experiment], published: Mapping[str, Any]
) -> list[list[str]]:
    """How far the average encoder's tau is above the BiLSTM's, and from the published."""
    rows = []
    for arm, names in arms.ARMS.items():
        for pair in ("attention, gradient", "attention, leave-one-out"):
            column, key = arms.PAIRS[pair]
            bilstm, average = (arms.tau_of(experiments[name], column) for name in names)
            low = difference_of_groups(average, bilstm).low
            theirs = float(published["tau_overall"]["average"][key])
            words = f"SST, {arm}"
            measure = f"tau of {pair}: average encoder less BiLSTM, lower end of the interval"
            rows.append(outcome(words, measure, 0.2, [low]))
            measure = f"tau of {pair}: distance of the average encoder's from the published"
            rows.append(
                outcome(words, measure, 0.1, [abs(float(np.nanmean(average)) - theirs)], most=True)
            )
    return rows


def _accuracy(experiment: Experiment, negated: bool = False) -> list[float]:
    columns = experiment.test("predictions")
    rows: slice | NDArray[np.bool_] = slice(None)
    if negated:
        rows = np.array([is_negated(text["tokens"]) for text in experiment.predicted()[0]])
    return [accuracy(columns["label"][rows], found[rows]) for found in columns["prediction"]]


def _f1(experiment: Experiment) -> list[float]:
    columns = experiment.test("predictions")
    return [positive_f1(columns["label"], found) for found in columns["prediction"]]
