"""Jain & Wallace's questions to their models: tau with gradients and leave-one-out, adversaries."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import false_discovery_control

from attnlight.report.tables import markdown_table as table
from attnlight.statistics import seeds_then_instances
from results_page.kept import Experiment
from results_page.tables import CLASSES, DASH, rounded, shown

ENCODERS = {"bilstm": "BiLSTM", "cnn": "CNN", "average": "average"}
ATTENTIONS = {"additive": "additive", "scaled_dot": "scaled dot"}
CORPORA = {"sst": "SST", "imdb": "IMDb"}
_SIGNIFICANT = 0.05


class Model(NamedTuple):
    """One cell of Jain & Wallace's tables: stem of its file, name in published.yaml, its words."""

    experiment: str
    corpus: str
    published: str
    words: list[str]


MODELS = [
    Model(
        f"{c}_{e}" if a == "additive" else f"{c}_{e}_{a}",
        c,
        f"{e}_{a}",
        [CORPORA[c], ENCODERS[e], ATTENTIONS[a]],
    )
    for c in CORPORA
    for a in ATTENTIONS
    for e in ENCODERS
]


def correlation_table(experiments: Mapping[str, Experiment], published: Mapping[str, Any]) -> str:
    """Tau of attention with either importance over all seeds, ours beside the published."""
    rows = []
    for model in MODELS:
        columns = experiments[model.experiment].test("importance_correlation", partial=True)
        theirs = published["tau"][model.published][model.corpus]
        seeds, texts = columns["prediction"].shape
        cells = [str(seeds), f"{texts:,}"]
        for pair, key in (("input_gradient", "gradient"), ("loo", "loo")):
            tau = columns[f"tau_attention_{pair}"].astype(np.float64)
            by_seed = [rounded(float(mean)) for mean in np.nanmean(tau, axis=1)]
            cells += [mean(tau), " / ".join(by_seed)]
            cells.append(" / ".join(figure or DASH for figure in theirs[key]))
            cells.append(significant(columns[f"p_attention_{pair}"].astype(np.float64)))
        rows.append([*model.words, *cells, mean(columns["tau_input_gradient_loo"])])
    head = ["corpus", "encoder", "attention", "seeds", "texts"]
    for pair in ("gradient", "leave-one-out"):
        head += [f"tau with {pair}", "each seed", "published", "significant"]
    return table([*head, "tau of the two importances"], rows, 3)


def adversary_table(experiments: Mapping[str, Experiment], published: Mapping[str, Any]) -> str:
    """The largest JS by predicted class: exact, as a share of its ceiling, and as searched."""
    rows = []
    for model in MODELS:
        columns = experiments[model.experiment].test("adversarial_attention", partial=True)
        theirs = published["search_js"].get(model.published, {}).get(model.corpus)
        for place, name in enumerate(CLASSES):
            members = columns["prediction"] == place
            worst, share, searched = (
                np.where(members, columns.get(measure, np.nan), np.nan).astype(np.float64)
                for measure in ("worst_js", "worst_share", "search_js")
            )
            above = np.where(np.isnan(worst), np.nan, worst > 0.6)
            cells = [
                str(len(members)),
                f"{members.sum(axis=1).mean():,.0f}",
                mean(worst),
                mean(share),
                f"{np.nanmean(np.nanmean(above, axis=1)):.2f}",
                f"{(~np.isnan(searched)).sum(axis=1).mean():,.0f}",
                mean(searched),
                mean(worst - searched),
                theirs[place] if theirs else DASH,
            ]
            rows.append([*(model.words if place == 0 else [""] * 3), name, *cells])
    head = ["corpus", "encoder", "attention", "predicted", "seeds", "texts", "worst JS"]
    head += ["share of ceiling", "share above 0.6", "texts searched", "JS of the search"]
    return table([*head, "exact less search", "search, published"], rows, 4)


def mean(values: NDArray[np.floating]) -> str:
    """Mean over the seeds of values (S, n), with its interval over seeds and texts."""
    return shown(seeds_then_instances(values))


def significant(p: NDArray[np.float64]) -> str:
    """Share with p at most 0.05, (S, n), as it is and corrected (Benjamini & Hochberg) by seed."""
    known = [run[~np.isnan(run)] for run in p]
    shares = [
        np.mean([(change(run) <= _SIGNIFICANT).mean() for run in known if len(run)] or [np.nan])
        for change in (np.asarray, false_discovery_control)
    ]
    return DASH if np.isnan(shares).any() else " / ".join(f"{share:.2f}" for share in shares)
