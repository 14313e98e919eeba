"""Tables with a row for each attribution method: means, and which methods differ."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from attnlight.figures import figure_rows
from attnlight.figures.methods import METHODS, method_words
from attnlight.figures.tables import Table, by_cluster, estimate, number
from attnlight.records import Record, Source, read_metadata
from attnlight.report.markup import described_table
from attnlight.statistics.bootstrap import MeanInterval, bootstrap_means
from attnlight.statistics.paired import holm, paired_permutation_tests, shared_letters
from attnlight.statistics.sanity import sanity_verdicts

ALPHA = 0.05
_RANDOM, _EXCESS = "random", "excess_"  # a label; and columns of a measure minus that of random
_DASH = number(np.nan)


class Measure(NamedTuple):
    """A measure of attribution methods."""

    test: str  # the test that records it, in snake case
    column: str  # its column in the record, without the suffix `_<label of a method>`
    head: str  # heading of its column in tables
    higher: bool  # whether higher is better


MEASURES = (
    Measure("faithfulness", "excess_comprehensiveness", "excess compreh. ↑", True),
    Measure("faithfulness", "excess_sufficiency", "excess sufficiency ↓", False),
    Measure("plausibility", "auprc", "AUPRC ↑", True),
    Measure("plausibility", "token_f1", "token F1 ↑", True),
    Measure("plausibility", "iou_f1", "IoU F1 ↑", True),
    Measure("sanity", "signed", "sanity ↓", False),
    Measure("attribution_cost", "cost", "cost ↓", False),
)
TESTS = tuple(dict.fromkeys(measure.test for measure in MEASURES))


@dataclass
class MethodRows:
    """Statistics of the attribution methods in the records of one split."""

    labels: dict[str, str] = field(default_factory=dict)  # the methods in words, by label
    # Mean of each measure and method, by `Measure.column` and label.
    means: dict[tuple[str, str], MeanInterval] = field(default_factory=dict)
    # `passes`, `fails` or `undecidable` by label, if sanity was recorded.
    verdicts: dict[str, str] = field(default_factory=dict)
    # Letters by measure and label: two methods that share one do not differ significantly.
    letters: dict[tuple[str, str], str] = field(default_factory=dict)
    # For each measure and pair of methods, the difference in mean on shared instances with its 95 %
    # interval, and the p-value before and after Holm's correction.
    pairs: list[dict[str, Any]] = field(default_factory=list)
    instances: dict[str, int] = field(default_factory=dict)  # number of instances by recorded test

    def tables(self, missing: Mapping[str, str]) -> list[Table]:
        """A table of means and, if methods were compared, one of letters; a row for each method.

        `missing` has for each test without a record the command that writes it.
        """
        (sanity,) = (measure.column for measure in MEASURES if measure.test == "sanity")
        marks = {(sanity, label): f"{mark} " for label, mark in self.verdicts.items()}
        means = {key: marks.get(key, "") + estimate(mean) for key, mean in self.means.items()}
        counts = [f"{test.replace('_', ' ')} {n:,}" for test, n in self.instances.items()]
        commands = ((test.replace("_", " "), command) for test, command in missing.items())
        lacking = "".join(f" Not recorded: {test} (`{command}`)." for test, command in commands)
        fields = {"counts": ", ".join(counts), "missing": lacking}
        tables = []
        for name, cells in {"methods": means, "letters": self.letters}.items():
            shown = {column for column, _ in cells}
            measures = [measure for measure in MEASURES if measure.column in shown]
            rows = [
                [words, *(cells.get((measure.column, label), _DASH) for measure in measures)]
                for label, words in self.labels.items()
                if any((column, label) in cells for column in shown)
            ]
            head = [measure.head for measure in measures]
            if rows:
                tables.append(described_table(name, rows, head, **fields))
        return tables


def method_rows(records: Mapping[str, Source]) -> MethodRows:
    """Means of each attribution method, and tests between methods on shared instances.

    Records are those of one split by test; those of tests outside `TESTS` are not read.
    """
    result = MethodRows()
    for test in (test for test in TESTS if test in records):
        metadata = read_metadata(records[test])
        clusters = metadata.get("clusters", "index")
        # Faithfulness measures random attribution without listing it as a method.
        labels = list(dict.fromkeys([*metadata.get("methods", ()), _RANDOM]))
        # Sanity: the last step of the cascade, where all parts are random.
        step = f"_{len(metadata['parts'])}" if test == "sanity" else ""
        columns = [clusters]
        measures = [measure for measure in MEASURES if measure.test == test]
        for column in (measure.column for measure in measures):
            columns += [f"{column}{step}_{label}" for label in labels]
            columns.append(f"{column.removeprefix(_EXCESS)}_{_RANDOM}")
            columns += [f"{column}_seeds_{label}" for label in labels]  # for `sanity_verdicts`
        rows = by_cluster(figure_rows(records[test], columns)[0], clusters)
        if not len(rows["index"]):
            continue
        for measure in measures:
            values = {}
            for label in labels:
                name = f"{measure.column}{step}_{label}"
                if name in rows:
                    values[label] = rows[name].astype(np.float64)
                elif label == _RANDOM and (raw := name.removeprefix(_EXCESS)) in rows:
                    values[label] = 0.0 * rows[raw]  # its own excess: 0, NaN where it is undefined
            if values:
                _add_measure(result, measure, values, rows["index"])
        if test == "sanity":
            verdicts = sanity_verdicts(Record({**rows}, metadata))
            result.verdicts = {label: verdict.verdict for label, verdict in verdicts.items()}
        result.instances[test] = len(rows["index"])
    recorded = dict.fromkeys(label for _, label in result.means)
    ordered = sorted(recorded, key=lambda label: [*METHODS, label].index(label))  # others come last
    result.labels = {label: method_words(label) for label in ordered}
    return result


def _add_measure(
    result: MethodRows,
    measure: Measure,
    values: Mapping[str, NDArray[np.float64]],
    clusters: NDArray[np.int64],
) -> None:
    """Add the means of a measure by method, (R,) each, and the tests between methods that have values."""
    means = bootstrap_means(np.stack([*values.values()], axis=1), clusters)
    keys = ((measure.column, label) for label in values)
    result.means.update(zip(keys, means, strict=True))
    labels = [label for label in values if not np.isnan(values[label]).all()]
    if len(labels) < 2:
        return
    columns = np.stack([values[label] for label in labels], axis=1)
    shared = ~np.isnan(columns).any(axis=1)
    if not shared.any():
        return
    columns, clusters = columns[shared], clusters[shared]
    best_first = np.argsort(columns.mean(axis=0) * (-1 if measure.higher else 1), kind="stable")
    columns, labels = columns[:, best_first], [labels[number] for number in best_first]
    pairs = list(combinations(range(len(labels)), 2))
    p_values = paired_permutation_tests(columns, clusters)
    adjusted = holm([p_values[pair] for pair in pairs]).tolist()
    differences = np.stack([columns[:, i] - columns[:, j] for i, j in pairs], axis=1)
    means = bootstrap_means(differences, clusters)
    significant = np.zeros_like(p_values, dtype=bool)
    for (i, j), mean, p_holm in zip(pairs, means, adjusted, strict=True):
        significant[i, j] = significant[j, i] = p_holm < ALPHA
        pair: dict[str, Any] = {"measure": measure.column, "first": labels[i], "second": labels[j]}
        pair |= {"difference": mean.mean, "low": mean.low, "high": mean.high, "n": mean.defined}
        result.pairs.append(pair | {"p": p_values[i, j], "p_holm": p_holm})
    for label, letters in zip(labels, shared_letters(significant), strict=True):
        result.letters[measure.column, label] = letters
