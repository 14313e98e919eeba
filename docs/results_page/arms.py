"""SST in two arms, random and trained vectors: does the BiLSTM part attention from importance?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnlight.statistics import difference_of_groups, seeds_then_instances
from results_page.kept import Experiment
from results_page.posthoc import shown
from results_page.reliability import ROWS, read_agreement
from results_page.reliability import cell as agreement_cell
from results_page.tables import DASH, table

ARMS = {
    "random vectors, N(0, 0.1²)": ("sst_bilstm", "sst_average"),
    "vectors trained on IMDb and SST": ("sst_bilstm_vectors", "sst_average_vectors"),
}
NAMES = tuple(name for pair in ARMS.values() for name in pair)
# Arm and encoder of each experiment whose tau is shown by epoch.
EPOCHS = {
    name: (arm, encoder)
    for arm, names in ARMS.items()
    for name, encoder in zip(names, ("BiLSTM", "average"), strict=True)
} | {
    "sst_average_scaled_dot": ("random vectors, N(0, 0.1²)", "average, scaled dot"),
    "sst_average_scaled_dot_scale_0.3": ("random vectors, N(0, 0.3²)", "average, scaled dot"),
}
PAIRS = {
    "attention, gradient": ("tau_attention_input_gradient", "gradient"),
    "attention, leave-one-out": ("tau_attention_loo", "loo"),
    "gradient, leave-one-out": ("tau_input_gradient_loo", "gradient_loo"),
}


def arms_table(experiments: Mapping[str, Experiment], published: Mapping[str, Any]) -> str:
    """Tau of both encoders over seeds, their difference, and the published means."""
    rows = []
    for arm, names in ARMS.items():
        for place, (pair, (column, key)) in enumerate(PAIRS.items()):
            bilstm, average = (tau_of(experiments[name], column) for name in names)
            rows.append(
                [
                    arm if place == 0 else "",
                    pair,
                    f"{len(bilstm)}",
                    *(cell(tau) for tau in (bilstm, average)),
                    shown(difference_of_groups(average, bilstm)),
                    *(published["tau_overall"][name][key] for name in ("bilstm", "average")),
                ]
            )
        rows += _with_themselves([experiments[name] for name in names])
    head = ["arm", "tau between", "seeds", "BiLSTM", "average encoder", "difference"]
    return table([*head, "BiLSTM, published", "average, published"], rows, words=2)


def _with_themselves(experiments: Sequence[Experiment]) -> list[list[str]]:
    """How far each score agrees with itself across seeds: without it a tau means little."""
    agreements = [read_agreement(experiment) for experiment in experiments]
    seeds = " / ".join(str(len(found.runs)) if found else DASH for found in agreements)
    if len(set(seeds.split(" / "))) == 1:
        seeds = seeds.partition(" / ")[0]
    return [
        ["", words, seeds, *(agreement_cell(found, name) for found in agreements), *[DASH] * 3]
        for name, words in ROWS.items()
    ]


def epochs_table(experiments: Mapping[str, Experiment]) -> str:
    """Tau on validation by epoch of training, mean over the seeds that trained as long."""
    rows = []
    for name, words in EPOCHS.items():
        for place, column in enumerate(("input_gradient", "loo")):
            cells = _by_epoch(experiments[name], f"importance_correlation/tau_attention_{column}")
            rows.append([*(["", ""] if place else words), column.replace("_", " "), *cells])
    longest = max(len(row) for row in rows)
    padded = [[*row, *[""] * (longest - len(row))] for row in rows]
    head = ["arm", "encoder", "attention with", *(f"{e + 1}" for e in range(longest - 3))]
    return table(head, padded, words=3)


def _by_epoch(experiment: Experiment, curve: str) -> list[str]:
    curves = [run[curve] for run in experiment.validation]
    most = max(map(len, curves))
    values = [[run[epoch] for run in curves if len(run) > epoch] for epoch in range(most)]
    return [f"{np.mean(found):.2f} ({len(found)})" for found in values]


def tau_of(experiment: Experiment, column: str) -> NDArray[np.float64]:
    """A tau of every run and text, (S, n)."""
    tau: NDArray[np.float64] = experiment.test("importance_correlation")[column].astype(np.float64)
    return tau


def cell(tau: NDArray[np.float64]) -> str:
    """Mean of tau (S, n) with its interval over seeds and texts, ± the deviation over seeds."""
    found = shown(seeds_then_instances(tau))
    return found if len(tau) == 1 else f"{found} ± {np.nanmean(tau, axis=1).std(ddof=1):.2f}"
