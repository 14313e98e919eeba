"""SST's tau by encoder: with random and with trained vectors, by epoch, by their initial scale."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnlight.report.tables import markdown_table as table
from attnlight.statistics import difference_of_groups, seeds_then_instances
from results_page.kept import Experiment
from results_page.reliability import ROWS, read_agreement
from results_page.reliability import cell as agreement_cell
from results_page.tables import DASH, shown

ARMS = {
    "random vectors, N(0, 0.1²)": ("sst_bilstm", "sst_average"),
    "vectors trained on IMDb and SST": ("sst_bilstm_vectors", "sst_average_vectors"),
}
NAMES = tuple(name for pair in ARMS.values() for name in pair)
ENCODERS = {
    "sst_bilstm": "BiLSTM",
    "sst_average": "average",
    "sst_average_scaled_dot": "average, scaled dot",
}
# The configuration of each experiment that is run with another `embedding_scale` than 0.1.
BASES = {f"{name}_scale_0.3": name for name in ENCODERS}
SCALES = {name: float(name.rpartition("_")[2]) for name in BASES}
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
        both = [experiments[name] for name in names]
        for place, (pair, (column, key)) in enumerate(PAIRS.items()):
            bilstm, average = (tau_of(experiment, column) for experiment in both)
            cells = [cell(bilstm), cell(average), shown(difference_of_groups(average, bilstm))]
            theirs = [published["tau_overall"][name][key] for name in ("bilstm", "average")]
            rows.append(["" if place else arm, pair, str(len(bilstm)), *cells, *theirs])
        # How far each score agrees with itself across seeds: without it a tau means little.
        found = [read_agreement(experiment) for experiment in both]
        seeds = " / ".join(dict.fromkeys(str(len(one.runs)) if one else DASH for one in found))
        for name, words in ROWS.items():
            cells = [agreement_cell(one, name) for one in found]
            rows.append(["", words, seeds, *cells, *[DASH] * 3])
    head = ["arm", "tau between", "seeds", "BiLSTM", "average encoder", "difference"]
    return table([*head, "BiLSTM, published", "average, published"], rows, 2)


def epochs_table(experiments: Mapping[str, Experiment]) -> str:
    """Tau on validation by epoch of training, mean over the seeds that trained as long."""
    rows = []
    for name, words in EPOCHS.items():
        for place, column in enumerate(("input_gradient", "loo")):
            curve = f"importance_correlation/tau_attention_{column}"
            epochs = zip_longest(*(run[curve] for run in experiments[name].validation))
            found = [[tau for tau in epoch if tau is not None] for epoch in epochs]
            cells = [f"{np.mean(taus):.2f} ({len(taus)})" for taus in found]
            rows.append([*(["", ""] if place else words), column.replace("_", " "), *cells])
    longest = max(map(len, rows))
    head = ["arm", "encoder", "attention with", *(f"{e + 1}" for e in range(longest - 3))]
    return table(head, [[*row, *[""] * (longest - len(row))] for row in rows], 3)


def scale_table(experiments: Mapping[str, Experiment]) -> str:
    """Tau of each encoder for each scale, with intervals over seeds and texts.

    Args:
        experiments: Those that were kept, as `read_scales` has them.
    """
    rows = []
    for base, encoder in ENCODERS.items():
        for scale, name in (("0.1", base), ("0.3", f"{base}_scale_0.3")):
            if name not in experiments:
                rows.append([encoder, scale, "not run", *[DASH] * (2 + len(PAIRS))])
                continue
            runs = experiments[name]
            best = [max(curves["accuracy"]) for curves in runs.validation]
            spread = f" ± {np.std(best, ddof=1):.3f}" if len(best) > 1 else ""
            epochs = " / ".join(str(epoch + 1) for epoch in runs.chosen)
            taus = [cell(tau_of(runs, column)) for column, _ in PAIRS.values()]
            cells = [str(len(best)), epochs, f"{np.mean(best):.3f}{spread}", *taus]
            rows.append([encoder, scale, *cells])
    head = ["encoder", "initial scale", "seeds", "epochs chosen", "validation accuracy"]
    return table([*head, *(f"tau, {pair}" for pair in PAIRS)], rows)


def read_scales(root: Path) -> dict[str, Experiment]:
    """The experiments of `scale_table` that were kept."""
    names = [*ENCODERS, *BASES]
    return {name: Experiment.read(root, name) for name in names if (root / name).is_dir()}


def tau_of(experiment: Experiment, column: str) -> NDArray[np.float64]:
    """A tau of every run and text, (S, n)."""
    tau: NDArray[np.float64] = experiment.test("importance_correlation")[column].astype(np.float64)
    return tau


def cell(tau: NDArray[np.float64]) -> str:
    """Mean of tau (S, n) with its interval over seeds and texts, ± the deviation over seeds."""
    found = shown(seeds_then_instances(tau))
    return found if len(tau) == 1 else f"{found} ± {np.nanmean(tau, axis=1).std(ddof=1):.2f}"
