"""Tau by the initial scale of random vectors on SST."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from results_page.arms import PAIRS, cell
from results_page.kept import Experiment
from results_page.tables import DASH, table

ENCODERS = {
    "sst_bilstm": "BiLSTM",
    "sst_average": "average",
    "sst_average_scaled_dot": "average, scaled dot",
}
DEFAULT = "0.1"
OTHERS = {"sst_bilstm": ("0.3",), "sst_average": ("0.3",), "sst_average_scaled_dot": ("0.3",)}
# The configuration of each experiment here, which is run with another `embedding_scale`.
BASES = {f"{base}_scale_{scale}": base for base, scales in OTHERS.items() for scale in scales}
SCALES = {name: float(name.rpartition("_")[2]) for name in BASES}
NAMES = tuple(BASES)


def read_scales(root: Path) -> dict[str, Experiment]:
    """The experiments that were kept, those of the default scale among them."""
    names = [*ENCODERS, *NAMES]
    return {name: Experiment.read(root, name) for name in names if (root / name).is_dir()}


def scale_table(experiments: Mapping[str, Experiment]) -> str:
    """Tau of both encoders for each scale, with intervals over seeds and texts."""
    rows = []
    for base, encoder in ENCODERS.items():
        for scale in (DEFAULT, *OTHERS[base]):
            name = base if scale == DEFAULT else f"{base}_scale_{scale}"
            missing = ["not run", *[DASH] * (2 + len(PAIRS))]
            cells = _cells(experiments[name]) if name in experiments else missing
            rows.append([encoder, scale, *cells])
    head = ["encoder", "initial scale", "seeds", "epochs chosen", "validation accuracy"]
    return table([*head, *(f"tau, {pair}" for pair in PAIRS)], rows)


def _cells(experiment: Experiment) -> list[str]:
    epochs = " / ".join(str(epoch + 1) for epoch in experiment.chosen)
    best = [max(curves["accuracy"]) for curves in experiment.validation]
    spread = f" ± {np.std(best, ddof=1):.3f}" if len(best) > 1 else ""
    record = experiment.test("importance_correlation")
    taus = [record[column].astype(np.float64) for column, _ in PAIRS.values()]
    return [str(len(best)), epochs, f"{np.mean(best):.3f}{spread}", *map(cell, taus)]
