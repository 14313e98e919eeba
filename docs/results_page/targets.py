"""What was asked of the experiments, and whether it was met."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from attnlight.report.tables import markdown_table as table
from attnlight.statistics import difference_of_groups
from results_page import arms, chunking, study_targets
from results_page.classification import TEXT, measured
from results_page.kept import Experiment
from results_page.planted import NAMES, groups
from results_page.tables import outcome

_PAIRS = ("attention, gradient", "attention, leave-one-out")


def target_table(
    experiments: Mapping[str, Experiment], published: Mapping[str, Any], studies: Path
) -> str:
    """Each target with the mean over seeds, or the end of its interval, that it is held against.

    Args:
        experiments: The kept experiments.
        published: docs/results/published.yaml.
        studies: docs/results/studies.
    """
    words, rows = TEXT | NAMES, []
    for name, measure, bound in (
        ("sst_bilstm", "accuracy", 0.76),
        ("sst_phrases_bilstm", "accuracy", 0.83),
        ("imdb_bilstm", "positive_f1", 0.87),
        ("planted_none", "accuracy", 0.98),
        ("planted_negation_bilstm", "accuracy", 0.95),
    ):
        shown = "test accuracy" if measure == "accuracy" else "test F1 of the positive class"
        rows.append(outcome(words[name], shown, bound, measured(experiments[name])[measure][0]))
    name = "planted_negation_none"
    columns = experiments[name].test("predictions")
    negated = groups(experiments[name].predicted()[0])["negated"]
    right = (columns["prediction"] == columns["label"])[:, negated].mean(axis=1)
    rows.append(outcome(words[name], "test accuracy on negated texts", 0.6, right, most=True))
    for arm, names in arms.ARMS.items():
        for pair in _PAIRS:
            column, key = arms.PAIRS[pair]
            bilstm, average = (arms.tau_of(experiments[name], column) for name in names)
            low = difference_of_groups(average, bilstm).low
            away = abs(np.nanmean(average) - float(published["tau_overall"]["average"][key]))
            words_of, measure = f"SST, {arm}", f"tau of {pair}:"
            above = f"{measure} average encoder less BiLSTM, lower end of the interval"
            rows.append(outcome(words_of, above, 0.2, [low]))
            from_theirs = f"{measure} distance of the average encoder's from the published"
            rows.append(outcome(words_of, from_theirs, 0.1, [away], most=True))
    for name, (model, _, least) in chunking.NAMES.items():
        if least is not None:
            found = chunking.test_f1(experiments[name])[0]
            rows.append(outcome(f"CoNLL-2000, {model}", "test chunk F1", least, found))
    rows += study_targets.target_rows(studies)
    return table(["experiment", "measure", "target", "found", "met"], rows, 2)
