"""Jain & Wallace's questions: does attention agree with other importance, and with itself?

Tau with gradients and leave-one-out and between seeds, of SST by vectors, epoch and initial scale,
and adversarial attention.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import combinations

import numpy as np
from numpy.typing import NDArray
from scipy.stats import false_discovery_control

from attnlight.errors import InputError
from attnlight.records.parquet import read_table
from attnlight.statistics import difference_of_groups, seeds_then_instances
from attnlight.statistics.agreement import mean_over_pairs
from results_page.kept import Kept
from results_page.tables import CLASSES, DASH, Row, interval, number

_SIGNIFICANT = 0.05
# Tau between two scores, and its key in published.yaml.
PAIRS = {
    "attention, gradient": ("tau_attention_input_gradient", "gradient"),
    "attention, leave-one-out": ("tau_attention_loo", "loo"),
    "gradient, leave-one-out": ("tau_input_gradient_loo", "gradient_loo"),
}
P_VALUES = ("p_attention_input_gradient", "p_attention_loo")
JS = ("worst_js", "worst_share", "search_js")
AGREEMENT = "reliability.parquet"  # beside the kept runs of an experiment
WITH_ITSELF = {  # columns of what `attnlight reliability` writes, and what the page calls them
    "tau_attention": "attention with itself, across seeds",
    "tau_input_gradient": "gradient with itself, across seeds",
    "tau_loo": "leave-one-out with itself, across seeds",
    "tau_shuffled_attention": "attention with another seed's, shuffled",
}
_RANDOM, _TRAINED = "random vectors, N(0, 0.1²)", "vectors trained on IMDb and SST"
# The experiments with a BiLSTM and with the average encoder.
ARMS = {
    _RANDOM: ("sst_bilstm", "sst_average"),
    _TRAINED: ("sst_bilstm_vectors", "sst_average_vectors"),
}
# Experiments whose vectors start from N(0, 0.1²); with _scale_0.3 behind the name, from N(0, 0.3²).
SCALED = {
    "sst_bilstm": "BiLSTM",
    "sst_average": "average",
    "sst_average_scaled_dot": "average, scaled dot",
}
WIDER = "_scale_0.3"
# Arm and encoder of each experiment whose tau is shown by epoch.
_EPOCHS = {
    "sst_bilstm": (_RANDOM, "BiLSTM"),
    "sst_average": (_RANDOM, "average"),
    "sst_bilstm_vectors": (_TRAINED, "BiLSTM"),
    "sst_average_vectors": (_TRAINED, "average"),
    "sst_average_scaled_dot": (_RANDOM, "average, scaled dot"),
    f"sst_average_scaled_dot{WIDER}": ("random vectors, N(0, 0.3²)", "average, scaled dot"),
}
# What the page calls each of Jain & Wallace's experiments.
MODELS = {
    f"{c}_{e}{end}": {"corpus": corpus, "encoder": encoder, "attention": attention}
    for c, corpus in {"sst": "SST", "imdb": "IMDb"}.items()
    for end, attention in {"": "additive", "_scaled_dot": "scaled dot"}.items()
    for e, encoder in {"bilstm": "BiLSTM", "cnn": "CNN", "average": "average"}.items()
}


def correlation(kept: Kept) -> Iterator[Row]:
    """Tau of attention with either importance over all seeds, ours beside the published."""
    for name, words in MODELS.items():
        columns = kept[name].test("importance_correlation", partial=True)
        seeds, texts = columns["prediction"].shape
        row: dict[str, object] = {**words, "seeds": seeds, "texts": texts}
        for pair in ("attention, gradient", "attention, leave-one-out"):
            (column, key), other = PAIRS[pair], pair.partition(", ")[2]
            theirs = (figure or DASH for figure in kept.published["tau"][name][key])
            by_seed = (number(mean, 2) for mean in np.nanmean(columns[column], axis=1))
            row |= {
                f"tau with {other}": seeds_then_instances(columns[column]),
                f"each seed#{other}": " / ".join(by_seed),
                f"published#{other}": " / ".join(theirs),
                f"significant#{other}": significant(columns[column.replace("tau", "p", 1)]),
            }
        row["tau of the two importances"] = seeds_then_instances(columns["tau_input_gradient_loo"])
        yield row


def significant(p: NDArray[np.float64]) -> str | None:
    """Share with p at most 0.05, (S, n), as it is and corrected (Benjamini & Hochberg) by seed.

    None where no p-value is defined.
    """
    known = [defined for run in p if len(defined := run[~np.isnan(run)])]
    both = known, map(false_discovery_control, known)
    shares = (np.mean([(run <= _SIGNIFICANT).mean() for run in runs]) for runs in both)
    return " / ".join(f"{share:.2f}" for share in shares) if known else None


def adversaries(kept: Kept) -> Iterator[Row]:
    """The largest JS by predicted class: exact, as a share of its ceiling, and as searched."""
    for name, words in MODELS.items():
        columns = kept[name].test("adversarial_attention", partial=True)
        theirs = kept.published["search_js"].get(name, [None, None])
        for place, predicted in enumerate(CLASSES):
            members = columns["prediction"] == place
            worst, share, searched = (
                np.where(members, columns.get(measure, np.nan), np.nan) for measure in JS
            )
            above = np.where(np.isnan(worst), np.nan, worst > 0.6)
            yield {
                **(dict.fromkeys(words, "") if place else words),
                "predicted": predicted,
                "seeds": len(members),
                "texts": f"{members.sum(axis=1).mean():,.0f}",
                "worst JS": seeds_then_instances(worst),
                "share of ceiling": seeds_then_instances(share),
                "share above 0.6": number(np.nanmean(np.nanmean(above, axis=1)), 2),
                "texts searched": f"{(~np.isnan(searched)).sum(axis=1).mean():,.0f}",
                "JS of the search": seeds_then_instances(searched),
                "exact less search": seeds_then_instances(worst - searched),
                "search, published": theirs[place],
            }


def reliability(kept: Kept, models: Mapping[str, Row] = MODELS) -> Iterator[Row]:
    """How far seeds of each model agree: after its words a cell for each of `WITH_ITSELF`.

    A cell holds the mean tau over pairs of seeds with an interval that resamples seeds and texts (of
    two seeds texts alone), then the lowest and the highest pair; None where one seed was trained.

    Raises:
        InputError: The runs compared are not those that were kept.
    """
    for experiment, words in models.items():
        folders = kept[experiment].folders
        path = folders[0].parent / AGREEMENT
        if not path.exists():
            yield words | {"seeds": 1, "texts": None} | dict.fromkeys(WITH_ITSELF.values())
            continue
        held = read_table(path).to_pandas()
        runs = [f"{kept[experiment].name}/{run.name}" for run in folders]
        pairs = held[["first", "second"]].drop_duplicates().to_numpy()
        if [*map(tuple, pairs)] != [*combinations(runs, 2)]:
            raise InputError(f"{path} compares other runs than those beside it; keep them again.")
        index = held["index"].unique()
        row = words | {"seeds": len(runs), "texts": len(index)}
        for name, cell in WITH_ITSELF.items():
            tau = held[name].to_numpy(np.float64).reshape(-1, len(index))
            by_pair = np.nanmean(tau, axis=1)
            ends = f", pairs {number(by_pair.min(), 2)} to {number(by_pair.max(), 2)}"
            mean = mean_over_pairs(tau, len(runs), index)
            row |= {cell: interval(mean) + (ends if len(tau) > 1 else "")}
        yield row


def arms(kept: Kept) -> Iterator[Row]:
    """Tau of both encoders over seeds, their difference, and the published means."""
    published = kept.published["tau_overall"]
    for arm, names in ARMS.items():
        both = [kept[name].test("importance_correlation") for name in names]
        for place, (pair, (column, key)) in enumerate(PAIRS.items()):
            bilstm, average = (columns[column] for columns in both)
            yield {
                "arm": "" if place else arm,
                "tau between": pair,
                "seeds": len(bilstm),
                "BiLSTM": with_deviation(bilstm),
                "average encoder": with_deviation(average),
                "difference": difference_of_groups(average, bilstm),
                "BiLSTM, published": published["bilstm"][key],
                "average, published": published["average"][key],
            }
        # How far each score agrees with itself across seeds: without it a tau means little.
        bilstm, average = reliability(kept, {name: {} for name in names})
        for words in WITH_ITSELF.values():
            yield {
                "tau between": words,
                "seeds": bilstm["seeds"],
                "BiLSTM": bilstm[words],
                "average encoder": average[words],
                **dict.fromkeys(("difference", "BiLSTM, published", "average, published")),
            }


def by_epoch(kept: Kept) -> Iterator[Row]:
    """Tau on validation by epoch of training, mean over the seeds that trained as long."""
    for name, words in _EPOCHS.items():
        for place, column in enumerate(("input_gradient", "loo")):
            curve = f"importance_correlation/tau_attention_{column}"
            arm, encoder = ("", "") if place else words
            row = {"arm": arm, "encoder": encoder, "attention with": column.replace("_", " ")}
            for epoch, known in kept[name].curves[curve].groupby("epoch"):
                row[str(epoch + 1)] = f"{known.mean():.2f} ({known.count()})"
            yield row


def by_scale(kept: Kept) -> Iterator[Row]:
    """Tau of each encoder for each scale of the random vectors that training starts from."""
    for base, encoder in SCALED.items():
        for scale, name in (("0.1", base), ("0.3", base + WIDER)):
            columns = kept[name].test("importance_correlation")
            best = kept[name].curves["accuracy"].groupby("seed").max()
            yield {
                "encoder": encoder,
                "initial scale": scale,
                "seeds": len(best),
                "epochs chosen": " / ".join(str(epoch + 1) for epoch in kept[name].chosen),
                "validation accuracy": f"{best.mean():.3f} ± {best.std():.3f}",
                **{f"tau, {pair}": with_deviation(columns[x]) for pair, (x, _) in PAIRS.items()},
            }


def with_deviation(tau: NDArray[np.float64]) -> str:
    """Mean of tau (S, n) with its interval over seeds and texts, ± the deviation over seeds."""
    found = interval(seeds_then_instances(tau))
    return found if len(tau) == 1 else f"{found} ± {np.nanmean(tau, axis=1).std(ddof=1):.2f}"
