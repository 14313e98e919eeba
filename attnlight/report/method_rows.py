"""One row for each attribution method of a run, and which of them differ."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import combinations
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from attnlight.figures import figure_rows
from attnlight.figures.methods import METHODS, method_words
from attnlight.figures.tables import Table, estimate, number
from attnlight.records import Record, Source, read_metadata
from attnlight.report.markup import described_table

if TYPE_CHECKING:
    from attnlight.statistics.bootstrap import MeanInterval

ALPHA = 0.05
_RANDOM, _EXCESS = "random", "excess_"
_DASH = number(np.nan)


class Measure(NamedTuple):
    """A measure of attribution methods.

    Attributes:
        test: The test whose record has it, in snake case.
        column: Its column without the label of a method.
        head: Its heading.
        short: Its heading in the terminal; "" if it is not shown there.
        higher: Whether higher is better.
    """

    test: str
    column: str
    head: str
    short: str
    higher: bool


MEASURES = (
    Measure("faithfulness", "excess_comprehensiveness", "excess compreh. ↑", "compr. ↑", True),
    Measure("faithfulness", "excess_sufficiency", "excess sufficiency ↓", "suff. ↓", False),
    Measure("plausibility", "auprc", "AUPRC ↑", "AUPRC ↑", True),
    Measure("plausibility", "token_f1", "token F1 ↑", "", True),
    Measure("plausibility", "iou_f1", "IoU F1 ↑", "", True),
    Measure("sanity", "signed", "sanity ↓", "sanity ↓", False),
    Measure("attribution_cost", "cost", "cost ↓", "cost ↓", False),
)
TESTS = tuple(dict.fromkeys(measure.test for measure in MEASURES))


@dataclass
class MethodRows:
    """The attribution methods that the records of one split have.

    Attributes:
        labels: Methods in words, by label.
        means: Mean of a measure (by its column) and method.
        verdicts: `passes`, `fails` or `undecidable` by method, where sanity was recorded.
        letters: Letters of a measure and method: two that share one are not told apart.
        pairs: Of each measure and pair of methods the difference in mean on shared instances.
        instances: Number of instances of each test that was recorded.
    """

    labels: dict[str, str] = field(default_factory=dict)
    means: dict[tuple[str, str], MeanInterval] = field(default_factory=dict)
    verdicts: dict[str, str] = field(default_factory=dict)
    letters: dict[tuple[str, str], str] = field(default_factory=dict)
    pairs: list[dict[str, Any]] = field(default_factory=list)
    instances: dict[str, int] = field(default_factory=dict)

    def tables(self, missing: Mapping[str, str]) -> list[Table]:
        """A row for each method and, where methods were compared, which are told apart.

        Args:
            missing: Command that writes the record of each test that is missing, by test.
        """
        found = []
        if self.labels:
            rows = [
                [words, *(self._cell(measure, label) for measure in MEASURES)]
                for label, words in self.labels.items()
            ]
            counts = [f"{test.replace('_', ' ')} {n:,}" for test, n in self.instances.items()]
            lacking = "".join(
                f" Not recorded: {test.replace('_', ' ')} (`{command}`)."
                for test, command in missing.items()
            )
            fields = {"counts": ", ".join(counts), "missing": lacking}
            head = [measure.head for measure in MEASURES]
            found.append(described_table("methods", rows, head, **fields))
        if self.letters:
            columns = {column: None for column, _ in self.letters}
            compared = [measure for measure in MEASURES if measure.column in columns]
            rows = [
                [words, *(self.letters.get((m.column, label), _DASH) for m in compared)]
                for label, words in self.labels.items()
                if any((column, label) in self.letters for column in columns)
            ]
            head = [measure.head for measure in compared]
            found.append(described_table("letters", rows, head))
        return found

    def terminal_table(self) -> Table:
        """Means and letters in 80 columns."""
        shown = [measure for measure in MEASURES if measure.short]
        rows = []
        for label, words in self.labels.items():
            cells = [words]
            for measure in shown:
                mean = self.means.get((measure.column, label))
                value = _DASH if mean is None else f"{mean.mean:.2f}".replace("nan", _DASH)
                verdict = self.verdicts.get(label, "") if measure.test == "sanity" else ""
                letters = self.letters.get((measure.column, label), "")
                cells.append(" ".join(filter(None, (verdict, value, letters))))
            rows.append(cells)
        head = ["method", *(measure.short for measure in shown)]
        return Table(
            "Attribution methods; those that share a letter are not told apart", head, rows
        )

    def _cell(self, measure: Measure, label: str) -> str:
        mean = self.means.get((measure.column, label))
        verdict = f"{self.verdicts[label]} " if measure.test == "sanity" and mean else ""
        return _DASH if mean is None else verdict + estimate(mean)


def method_rows(records: Mapping[str, Source]) -> MethodRows:
    """Means of each attribution method, and tests between methods on shared instances.

    Args:
        records: Records of one split by test; those of other tests are not read.
    """
    found, labels = MethodRows(), list[str]()
    for test in (test for test in TESTS if test in records):
        metadata = read_metadata(records[test])
        clusters = metadata.get("clusters", "index")
        # Random is among the methods of faithfulness, whose metadata name the others.
        of_test = list(dict.fromkeys([*metadata.get("methods", ()), _RANDOM]))
        step = f"_{len(metadata['parts'])}" if test == "sanity" else ""  # all parts are random
        measures = [measure for measure in MEASURES if measure.test == test]
        names = [f"{m.column}{step}_{label}" for m in measures for label in of_test]
        beside = [f"{measure.column.removeprefix(_EXCESS)}_{_RANDOM}" for measure in measures]
        beside += [f"{measure.column}_seeds_{label}" for measure in measures for label in of_test]
        rows, _ = figure_rows(records[test], [clusters, *names, *beside])
        order = rows[clusters].argsort(kind="stable")
        rows = {name: values[order] for name, values in rows.items()}
        if not len(order):
            continue
        for measure in measures:
            values = {}
            for label in of_test:
                name = f"{measure.column}{step}_{label}"
                if name in rows:
                    values[label] = rows[name].astype(np.float64)
                elif label == _RANDOM and (own := name.removeprefix(_EXCESS)) in rows:
                    values[label] = 0.0 * rows[own]  # undefined where random is
            labels += values
            if values:
                _compare(found, measure, values, rows[clusters].astype(np.int64))
        if test == "sanity":
            from attnlight.statistics.sanity import sanity_verdicts

            verdicts = sanity_verdicts(Record(rows, metadata))
            found.verdicts = {label: verdict.verdict for label, verdict in verdicts.items()}
        found.instances[test] = len(order)
    known = sorted(dict.fromkeys(labels), key=lambda label: [*METHODS, label].index(label))
    found.labels = {label: method_words(label) for label in known}
    return found


def _compare(
    found: MethodRows,
    measure: Measure,
    values: Mapping[str, NDArray[np.float64]],
    clusters: NDArray[np.int64],
) -> None:
    """Add the means of a measure by method, (R,) each, and the tests between methods that have values."""
    from attnlight.statistics.bootstrap import bootstrap_means
    from attnlight.statistics.paired import holm
    from attnlight.statistics.permutation import paired_permutation_tests, shared_letters

    means = bootstrap_means(np.stack([*values.values()], axis=1), clusters)
    found.means |= {
        (measure.column, label): mean for label, mean in zip(values, means, strict=True)
    }
    labels = [label for label in values if not np.isnan(values[label]).all()]
    columns = np.stack([values[label] for label in labels or values], axis=1)
    shared = ~np.isnan(columns).any(axis=1)
    if len(labels) < 2 or not shared.any():
        return
    columns, clusters = columns[shared], clusters[shared]
    best = np.argsort(columns.mean(axis=0) * (-1 if measure.higher else 1), kind="stable")
    columns, labels = columns[:, best], [labels[number] for number in best]
    pairs = list(combinations(range(len(labels)), 2))
    p = paired_permutation_tests(columns, clusters)
    adjusted = holm([p[pair] for pair in pairs])
    differences = np.stack([columns[:, i] - columns[:, j] for i, j in pairs], axis=1)
    apart = np.zeros_like(p, dtype=bool)
    for (i, j), mean, own in zip(
        pairs, bootstrap_means(differences, clusters), adjusted.tolist(), strict=True
    ):
        apart[i, j] = apart[j, i] = own < ALPHA
        names = {"measure": measure.column, "first": labels[i], "second": labels[j]}
        difference = {"difference": mean.mean, "low": mean.low, "high": mean.high}
        found.pairs.append(names | difference | {"n": mean.defined, "p": p[i, j], "p_holm": own})
    for label, letters in zip(labels, shared_letters(apart), strict=True):
        found.letters[measure.column, label] = letters
