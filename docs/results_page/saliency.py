"""Attribution methods compared: faithfulness, planted truth, people, states, cost, sanity."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import kendalltau, spearmanr

from attnlight.figures import methods
from attnlight.records import read_record
from attnlight.report.measure_bounds import UNIT
from attnlight.statistics import holm, seeds_then_instances
from attnlight.statistics.paired import paired_permutation_tests
from attnlight.statistics.sanity import sanity_verdicts
from results_page import NAMES
from results_page.archive import Archive, conditions
from results_page.cells import columns as read
from results_page.tables import Row, column_mean, interval, number

Values = NDArray[np.float64]
STUDY = "saliency"
SANITY = "records/test/sanity.parquet"
_NAME = rf"{STUDY}-(?P<corpus>.+?)_(?P<encoder>bilstm|cnn|average|none|han)(?:_affine)?"
_NAMES = NAMES["saliency"]
_EVIDENCE = ("planted", "planted_negation", "babi_1")  # the truth is known and nobody marked it
METHODS = {label: words for label, words in methods.METHODS.items() if label != "external"}
_ATTENTION, _RANDOM = "attention", "random"
# Where the readout is affine its values are those of gradient x attention, which stands for both.
_TWICE = "attention_contribution"
FAITHFUL = {"comprehensiveness": 1, "sufficiency": -1}  # and whether higher or lower is better
_COMPLETE, _STEPS = "incomplete_integrated_gradients", "steps_integrated_gradients"
MODELS = conditions(STUDY, _NAME, _NAMES["corpora"] | _NAMES["encoders"])
_KNOWN = [x for x in MODELS if x.startswith(tuple(f"{STUDY}-{corpus}_" for corpus in _EVIDENCE))]
PLANTED = [name for name in MODELS if name.startswith(f"{STUDY}-planted")]


def tested(archive: Archive, test: str) -> Iterator[tuple[str, Row, dict[str, Any]]]:
    """The archived conditions of a test, each with its words and the columns of its records."""
    for name in (name for name in MODELS if name in archive):
        if (archive[name].folders[0] / f"records/test/{test}.parquet").is_file():
            yield name, archive.words(name, MODELS[name]), read(archive[name], test)


def recorded(columns: Mapping[str, Any], measure: str) -> dict[str, Values]:
    """A measure's columns (S, n) by method."""
    names = {label: f"{measure}_{label}" for label in METHODS}
    return {label: columns[name] for label, name in names.items() if name in columns}


def faithfulness(archive: Archive) -> Iterator[Row]:
    """Excess over random of each method, and whether it is told apart from the best one."""
    for _, row, columns in tested(archive, "faithfulness"):
        cells: dict[str, dict[str, object]] = {}
        for measure, sign in FAITHFUL.items():
            values, clusters = recorded(columns, f"excess_{measure}"), columns["index"]
            adjusted = against_best([*values.values()], clusters, sign)
            for (label, of_method), p in zip(values.items(), adjusted, strict=True):
                cell = cells.setdefault(label, {"method": METHODS[label]})
                cell[measure] = interval(seeds_then_instances(of_method, clusters), 3)
                cell[f"p#{measure}"] = "best" if np.isnan(p) else number(p)
                less = seeds_then_instances(of_method - values[_ATTENTION], clusters)
                own = None if label == _ATTENTION else interval(less, 3)
                cell[f"less attention's#{measure}"] = own
        count = int((~np.isnan(values[_ATTENTION])).any(axis=0).sum())
        yield from ({**row, "instances": count, **cell} for cell in cells.values())


def against_best(values: list[Values], clusters: NDArray[np.int64], sign: int) -> Values:
    """Holm's p-values of each method's difference from the best one, NaN of the best itself.

    Args:
        values: Values of each method, (S, n); the mean over seeds is compared, by permutation.
        clusters: Cluster of each instance, (n,), in ascending order.
        sign: 1 if higher is better, -1 if lower is.
    """
    means = np.stack([of_method.mean(axis=0) for of_method in values], axis=1)
    defined = ~np.isnan(means).any(axis=1)
    best = int(np.argmax(sign * means[defined].mean(axis=0)))
    p_values = paired_permutation_tests(means[defined], clusters[defined])[best]
    p_values[best] = np.nan
    return holm(p_values)


def by_method(archive: Archive, test: str, measure: str) -> Iterator[Row]:
    """A measure of each method by corpus and encoder.

    AUPRC is against known evidence, beside chance; cost is a multiple of the time of a forward pass.
    """
    cells: dict[str, Row] = {}
    chance: Row = {"method": "chance"}
    for name, row, columns in tested(archive, test):
        if test == "plausibility" and name not in _KNOWN:
            continue
        heading = f"{row['corpus']}, {row['encoder']}; {row['seeds']} seeds"
        chosen: Any = slice(None)
        if "batch" in columns:  # a value for each batch
            _, chosen = np.unique(columns["batch"][0], return_index=True)
        bounds = UNIT if measure == "auprc" else (0, np.inf)
        for label, values in recorded(columns, measure).items():
            cell = cells.setdefault(label, {"method": METHODS[label]})
            cell[heading] = seeds_then_instances(values[:, chosen], bounds=bounds)
        if measure == "auprc":
            chance[heading] = number(float(np.nanmean(columns["chance_auprc"])), 2)
    yield from (*cells.values(), *([chance] if measure == "auprc" else []))


def right_and_faithful(archive: Archive) -> Iterator[Row]:
    """Rank correlation over a run's methods of faithfulness with AUPRC against the planted evidence.

    Beside it the AUPRC that is lost by choosing the most faithful method.
    """
    runs = []
    for name, row, columns in (x for x in tested(archive, "faithfulness") if x[0] in PLANTED):
        right = recorded(archive[name].test("plausibility", partial=True), "auprc")
        labels = [label for label in right if label not in (_RANDOM, _TWICE)]
        auprc = np.stack([np.nanmean(right[label], axis=1) for label in labels], axis=1)
        for measure, sign in FAITHFUL.items():
            values = recorded(columns, f"excess_{measure}")
            faith = np.stack([sign * np.nanmean(values[x], axis=1) for x in labels], axis=1)
            for areas, excess in zip(auprc, faith, strict=True):
                tau, rho = kendalltau(areas, excess).statistic, spearmanr(areas, excess).statistic
                found = {"Kendall's tau": tau, "Spearman": rho}
                found["AUPRC lost"] = areas.max() - areas[np.argmax(excess)]
                runs.append({"faithfulness": measure, **row, **found})
    for measure, own in pd.DataFrame(runs).groupby("faithfulness"):
        count = own["encoder"].nunique()
        all_runs = (("all", f"{count} encoder{'s' * (count != 1)}"), own)
        for (corpus, encoder), group in (all_runs, *own.groupby(["corpus", "encoder"], sort=False)):
            words = {"faithfulness": measure, "corpus": corpus, "encoder": encoder}
            cells: Row = {"runs": len(group)}
            for column in found:
                values = group[column].to_numpy()
                bounds = UNIT if column == "AUPRC lost" else (-1, 1)
                # A value of each run: the interval is over runs alone, of one model too few.
                mean = seeds_then_instances(values[:, None], bounds=bounds)
                each = " / ".join(number(x, 2) for x in values)
                cells[column] = mean if group is own else each
            best = f"{(group['AUPRC lost'] == 0).sum()} of {len(group)}"
            yield words | cells | {"the most faithful is the most right": best}


def plausibility(archive: Archive) -> Iterator[Row]:
    """Agreement of each method with what people marked, beside chance and people among each other."""
    people = {"chance": "chance", "human": "another person"}
    for _, row, columns in (x for x in tested(archive, "plausibility") if x[0] not in _KNOWN):
        marked = int((~np.isnan(columns["chance_auprc"][0])).sum())
        for label, words in (METHODS | people).items():
            names = {
                x: f"{label}_{x}" if label in people else f"{x}_{label}"
                for x in _NAMES["plausible"]
            }
            if names["auprc"] not in columns or np.isnan(columns[names["auprc"]]).all():
                continue
            cells = {
                heading: column_mean(columns, names[x])
                for x, heading in _NAMES["plausible"].items()
            }
            less = columns[names["auprc"]] - columns[f"auprc_{_ATTENTION}"]
            own = None if label == _ATTENTION else seeds_then_instances(less, bounds=(-1, 1))
            found = {**row, "texts": marked, "explanation": words, **cells}
            yield found | {"AUPRC less attention's": own}


def states(archive: Archive) -> Iterator[Row]:
    """Whether states stand for their tokens, by corpus and encoder."""
    for _, row, columns in tested(archive, "state_token_agreement"):
        items = "sentences" if row["encoder"] == "HAN" else "tokens"
        clusters = columns["index"]
        cells = {
            heading: column_mean(columns, name, clusters)
            for name, heading in _NAMES["states"].items()
        }
        yield {**row, "items": items, "texts": len(np.unique(clusters)), **cells}


def completeness(archive: Archive) -> Iterator[Row]:
    """Share of the rows in which integrated gradients are complete to their tolerance."""
    for _, row, columns in tested(archive, "faithfulness"):
        if _COMPLETE in columns:
            flagged, clusters = columns[_COMPLETE], columns["index"]
            yield {
                **row,
                "rows": int((~np.isnan(flagged)).sum()),
                "complete": interval(seeds_then_instances(1 - flagged, clusters, bounds=UNIT), 4),
                "flagged": int(np.nansum(flagged)),
                "gradients per row, mean": f"{np.nanmean(columns[_STEPS]):.1f}",
            }


def sanity(archive: Archive) -> Iterator[Row]:
    """Verdict on each method by the correlations with models of random parameters."""
    for name in (name for name in MODELS if name in archive):
        for path in (folder / SANITY for folder in archive[name].folders):
            record = read_record(path) if path.is_file() else None
            by_size = sanity_verdicts(record, "sizes") if record else {}
            for label, verdict in (sanity_verdicts(record) if record else {}).items():
                yield {
                    **MODELS[name].words,
                    "method": METHODS.get(label, label),
                    "all parameters random": verdict.randomised,
                    "two seeds": verdict.seeds,
                    "verdict": verdict.verdict,
                    "all random, sizes": by_size[label].randomised,
                    "two seeds, sizes": by_size[label].seeds,
                    "verdict, sizes": by_size[label].verdict,
                }
