"""Jain & Wallace's questions to their models: tau with gradients and leave-one-out, adversaries."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from attnlight.functional import benjamini_hochberg
from attnlight.functional.statistics import MeanInterval, bootstrap_means
from results_page.kept import Experiment
from results_page.tables import CLASSES, DASH, table

ENCODERS = {"bilstm": "BiLSTM", "cnn": "CNN", "average": "average"}
ATTENTIONS = {"additive": "additive", "scaled_dot": "scaled dot"}
CORPORA = {"sst": "SST", "imdb": "IMDb"}
_SIGNIFICANT = 0.05


class Model(NamedTuple):
    """One cell of Jain & Wallace's tables."""

    corpus: str
    encoder: str
    attention: str

    @property
    def experiment(self) -> str:
        """Stem of its file in configs/experiments."""
        suffix = "" if self.attention == "additive" else f"_{self.attention}"
        return f"{self.corpus}_{self.encoder}{suffix}"

    @property
    def published(self) -> str:
        """Its name in published.yaml."""
        return f"{self.encoder}_{self.attention}"

    @property
    def words(self) -> list[str]:
        """Corpus, encoder and attention as the page calls them."""
        return [CORPORA[self.corpus], ENCODERS[self.encoder], ATTENTIONS[self.attention]]


MODELS = [Model(c, e, a) for c in CORPORA for a in ATTENTIONS for e in ENCODERS]


def correlation_table(experiments: Mapping[str, Experiment], published: Mapping[str, Any]) -> str:
    """Tau of attention with either importance by predicted class, ours beside the published."""
    rows = []
    for model in MODELS:
        columns = experiments[model.experiment].first("importance_correlation", partial=True)
        theirs = published["tau"][model.published][model.corpus]
        for place, (name, members) in enumerate(_groups(model, columns)):
            cells = [f"{members.sum():,}"]
            for pair, key in (("input_gradient", "gradient"), ("loo", "loo")):
                tau = columns[f"tau_attention_{pair}"][members]
                cells += [_mean(tau), theirs[key][place] or DASH]
                cells.append(_significant(columns[f"p_attention_{pair}"][members]))
            cells.append(_mean(columns["tau_input_gradient_loo"][members]))
            rows.append([*(model.words if place == 0 else [""] * 3), name, *cells])
    head = ["corpus", "encoder", "attention", "predicted", "texts"]
    for pair in ("gradient", "leave-one-out"):
        head += [f"tau with {pair}", "published", "significant"]
    return table([*head, "tau of the two importances"], rows, words=4)


def adversary_table(experiments: Mapping[str, Experiment], published: Mapping[str, Any]) -> str:
    """The largest JS by predicted class: exact, as a share of its ceiling, and as searched."""
    rows = []
    for model in MODELS:
        columns = experiments[model.experiment].first("adversarial_attention", partial=True)
        theirs = published["search_js"].get(model.published, {}).get(model.corpus)
        for place, name in enumerate(CLASSES):
            members = columns["prediction"] == place
            worst = columns["worst_js"][members]
            searched = columns.get("search_js", np.full(len(members), np.nan))[members]
            cells = [
                f"{members.sum():,}",
                _mean(worst),
                _mean(columns["worst_share"][members]),
                f"{np.nanmean(worst > 0.6):.2f}",
                f"{(~np.isnan(searched)).sum():,}",
                _mean(searched),
                _mean(worst - searched),
                theirs[place] if theirs else DASH,
            ]
            rows.append([*(model.words if place == 0 else [""] * 3), name, *cells])
    head = ["corpus", "encoder", "attention", "predicted", "texts", "worst JS", "share of ceiling"]
    head += ["share above 0.6", "texts searched", "JS of the search", "exact less search"]
    return table([*head, "search, published"], rows, words=4)


def _groups(
    model: Model, columns: Mapping[str, NDArray[Any]]
) -> Iterator[tuple[str, NDArray[np.bool_]]]:
    """The rows of each predicted class, or all where theirs are not split."""
    if model.attention == "additive":
        for place, name in enumerate(CLASSES):
            yield name, columns["prediction"] == place
    else:
        yield "all", columns["prediction"] >= 0


def _mean(values: NDArray[np.float64]) -> str:
    if np.isnan(values).all():
        return DASH
    (found,) = bootstrap_means(values[:, None], np.arange(len(values)))
    return shown(found)


def shown(found: MeanInterval, places: int = 2) -> str:
    """A mean with its interval."""
    mean, low, high = (rounded(value, places) for value in found[:3])
    return f"{mean} [{low}, {high}]"


def rounded(value: float, places: int = 2) -> str:
    """So many decimals, nought without a sign."""
    return f"{round(value, places) + 0.0:.{places}f}"


def _significant(p: NDArray[np.float64]) -> str:
    """Share with p at most 0.05, as it is and corrected (Benjamini & Hochberg)."""
    defined = p[~np.isnan(p)]
    if not len(defined):
        return DASH
    corrected = benjamini_hochberg(defined)
    return f"{(defined <= _SIGNIFICANT).mean():.2f} / {(corrected <= _SIGNIFICANT).mean():.2f}"
