"""The headline of each test: the one mean that a reader should see, in a sentence."""

from collections.abc import Iterator
from fnmatch import filter as matching
from pathlib import Path
from typing import NamedTuple

import numpy as np
from rich.markup import escape
from rich.table import Table

from attnlight.figures import describe
from attnlight.figures.tables import filled, interval
from attnlight.report.run import stored_records
from attnlight.report.summary import RecordSummary, summarise
from attnlight.statistics.bootstrap import MeanInterval


class Headline(NamedTuple):
    """The headline of a record."""

    measure: str
    mean: MeanInterval  # its mean over all rows
    says: str  # what the mean says, a sentence
    read: str  # how to read it
    column: str  # column of the record that orders its texts from one extreme to the other


def headline(summary: RecordSummary) -> Headline | None:
    """The first described headline that the record has; without descriptions its first mean."""
    description = describe(summary.record.test)
    of_all_rows = ((name, mean) for (name, group), mean in summary.means.items() if group is None)
    defined = [measure for measure, mean in of_all_rows if not np.isnan(mean.mean)]
    for pattern, texts in description.headlines.items():
        for measure in matching(defined, pattern)[:1]:
            mean = summary.means[measure, None]
            other = measure.removeprefix(pattern.partition("*")[0]).replace("_", " ")
            # A bound that differs from the other, or has none, is named as such.
            bounds = [(name, None) for name in texts.get("equal", "").split()]
            means = [summary.means[key].mean for key in bounds if key in summary.means]
            known = len(means) == len(bounds) and np.allclose(means[:1], means[1:], atol=1e-6)
            least = "" if not bounds or known else "at least "
            says = filled(texts["says"], value=mean.mean, other=other, least=least)
            return Headline(measure, mean, says, texts["read"], texts.get("by", measure))
    for measure in () if description.headlines else defined[:1]:
        mean = summary.means[measure, None]
        words = description.words(measure)
        return Headline(measure, mean, f"{measure} is {mean.mean:.2f}.", words, measure)
    return None


def headlines(
    records_dir: Path, corpus: str = "", stage: str = "test"
) -> Iterator[tuple[str, Headline]]:
    """Name and headline of every test record of a split that has one.

    The corpus "" is that of training; `stage` is `test` or `val`.
    """
    for record in stored_records(records_dir):
        if (record.stage, record.corpus, record.epoch) == (stage, corpus, None):
            summary = summarise(record, by_class=False)
            found = headline(summary)
            if found is not None:
                yield f"{record.test}{' (partial)' * bool(summary.metadata.get('partial'))}", found


def headline_table(records_dir: Path, corpus: str = "", stage: str = "test") -> Table:
    """The headline of every test record of a split with its 95 % interval, for the terminal."""
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    for name, found in headlines(records_dir, corpus, stage):
        table.add_row(f"[bold]{escape(name)}", escape(f"{found.says} {interval(found.mean)}"))
    return table
