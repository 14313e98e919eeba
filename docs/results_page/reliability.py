"""How far seeds agree with each other: the bound on what attention may be asked to agree with."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from attnlight.errors import InputError
from attnlight.records.parquet import read_table
from attnlight.report.agreement import Agreement
from attnlight.report.tables import markdown_table as table
from attnlight.statistics.agreement import mean_over_pairs
from results_page.kept import Experiment
from results_page.posthoc import MODELS
from results_page.tables import DASH, rounded, shown

FILE = "reliability.parquet"  # beside the kept runs of an experiment
ROWS = {  # columns of what `attnlight reliability` writes, and what the page calls them
    "tau_attention": "attention with itself, across seeds",
    "tau_input_gradient": "gradient with itself, across seeds",
    "tau_loo": "leave-one-out with itself, across seeds",
    "tau_shuffled_attention": "attention with another seed's, shuffled",
}
COLUMNS = ["index", "first", "second", *ROWS]


def read_agreement(experiment: Experiment) -> Agreement | None:
    """Tau between each two seeds of an experiment, None where it was not kept.

    Raises:
        InputError: The runs compared are not those that were kept.
    """
    path = experiment.folders[0].parent / FILE
    if not path.exists():
        return None
    held = read_table(path)
    runs = [f"{experiment.name}/{folder.name}" for folder in experiment.folders]
    pairs = list(combinations(runs, 2))
    size = len(held) // max(len(pairs), 1)
    compared = list(zip(held["first"].to_pylist(), held["second"].to_pylist(), strict=True))
    if compared != [pair for pair in pairs for _ in range(size)]:
        raise InputError(f"{path} compares other runs than those kept beside it; keep them again.")
    index = held["index"].to_numpy()[:size]
    tau = {name: held[name].to_numpy().astype(np.float64).reshape(-1, size) for name in ROWS}
    return Agreement(runs, np.stack([index, np.zeros_like(index)], axis=1), tau)


def cell(found: Agreement | None, name: str) -> str:
    """Mean over pairs of seeds with its interval, and the lowest and highest pair.

    The interval resamples seeds and texts; of two seeds texts alone.
    """
    if found is None:
        return DASH
    tau: NDArray[np.float64] = found.tau[name]
    pairs = np.nanmean(tau, axis=1)
    ends = f", pairs {rounded(pairs.min())} to {rounded(pairs.max())}" if len(pairs) > 1 else ""
    return shown(mean_over_pairs(tau, len(found.runs), found.rows[:, 0])) + ends


def reliability_table(experiments: Mapping[str, Experiment]) -> str:
    """How far seeds of each of Jain & Wallace's models agree; a dash where one seed was trained."""
    rows = []
    for model in MODELS:
        found = read_agreement(experiments[model.experiment])
        sizes = [str(len(found.runs)), f"{len(found.rows):,}"] if found else ["1", DASH]
        rows.append([*model.words, *sizes, *(cell(found, name) for name in ROWS)])
    return table(["corpus", "encoder", "attention", "seeds", "texts", *ROWS.values()], rows, 3)
