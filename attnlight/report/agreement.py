"""`attnlight reliability`: how far runs of several seeds agree on which items matter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from attnlight.arguments import VerbParser
from attnlight.errors import InputError

if TYPE_CHECKING:
    import pandas as pd

    from attnlight.report.tables import Table

DESCRIPTION = """\
For each text, Kendall's tau-b between what two runs of the same corpus make of its words: their
attention, their gradients and their leave-one-out scores, each compared with itself in the other
run. How far attention may be asked to agree with anything else is bounded by how far it agrees
with itself. `shuffled attention` is one run's attention against the other's in random order, which
is 0 on average. Reads RUN/records/test/importance_correlation.parquet, written by
`ImportanceCorrelation` with keep_scores: true."""
NULL = "shuffled attention"
_RECORD = Path("records", "test", "importance_correlation.parquet")
_PREFIX = "scores_"


class Agreement(NamedTuple):
    """Tau between each two of S runs.

    Attributes:
        runs: Names of the runs.
        rows: Dataset index and position of each instance that all runs have scores for, (n, 2).
        tau: By name of a score, and for the shuffled attention, (P, n) for the P pairs of runs in
            the order of `itertools.combinations`, NaN where undefined.
    """

    runs: Sequence[str]
    rows: NDArray[np.int64]
    tau: Mapping[str, NDArray[np.float64]]


def main(argv: list[str]) -> int:
    """Print how far the runs agree.

    Args:
        argv: The arguments after `reliability`.

    Raises:
        InputError: A run lacks the scores, or the runs are not of the same rows of one corpus.
    """
    parser = VerbParser("reliability", description=DESCRIPTION)
    parser.add_argument(
        "runs", metavar="RUN", nargs="+", type=Path, help="checkpoints/<experiment>/<run>"
    )
    parser.add_argument(
        "--output", metavar="FILE", type=Path, help="write tau of each text and pair (parquet)"
    )
    parser.add_argument(
        "--seed", type=int, default=0, help="seed of the random orders and of the intervals"
    )
    options = parser.parse_args(argv)
    if len(options.runs) < 2 or len({run.resolve() for run in options.runs}) < len(options.runs):
        raise InputError("attnlight reliability compares two or more different runs.")
    found = agreement(read_scores(options.runs), options.seed)
    if options.output is not None:
        write_agreement(found, options.output)
    print(table(found, options.seed).to_markdown(), end="")
    return 0


def read_scores(runs: Sequence[Path]) -> dict[Path, pd.DataFrame]:
    """Read the scores that the records of some runs keep.

    Returns:
        By run, under dataset index and position of each instance, an array of the scores of its
        items in each column, None where it has none.

    Raises:
        InputError: A run has no such record, one was written without `keep_scores`, or they are not
            of the same instances.
    """
    import pandas as pd

    from attnlight.records import KEY, read_record, record_columns
    from attnlight.report.run import require_same_instances

    found = {}
    for run in runs:
        path = run / _RECORD
        if not path.is_file():
            raise InputError(
                f"{run} has no {_RECORD}: run `attnlight test` with ImportanceCorrelation and "
                "keep_scores: true."
            )
        names = [name for name in record_columns(path) if name.startswith(_PREFIX)]
        if not names:
            raise InputError(f"{path} holds no scores: test again with keep_scores: true.")
        held = read_record(path, [*KEY, *names]).columns
        scores = pd.DataFrame({name: list(column) for name, column in held.items()})
        scores = scores.set_index(list(KEY))
        found[run] = scores.rename(columns=lambda name: name.removeprefix(_PREFIX))
    for run in runs[1:]:
        require_same_instances(runs[0] / _RECORD, run / _RECORD)
    return found


def agreement(scores: Mapping[Path, pd.DataFrame], seed: int = 0) -> Agreement:
    """Tau between each two runs on each instance, for each score that all have.

    Args:
        scores: What `read_scores` reads of at least two runs.
        seed: Seed of the random order of the shuffled attention.

    Raises:
        InputError: The runs have no score in common, or read an instance as other items.
    """
    import pandas as pd

    from attnlight.statistics.agreement import shuffled, tau_between

    runs = ["/".join(run.resolve().parts[-2:]) for run in scores]
    first, *others = scores.values()
    names = [name for name in first if all(name in other for other in others)]
    if not names:
        raise InputError(f"{' and '.join(runs)} have no scores in common.")
    items = [held[names[0]].map(len, na_action="ignore") for held in scores.values()]
    sizes = pd.concat(items, axis="columns", keys=range(len(runs)))
    for (index, _), row in sizes[sizes.nunique(axis="columns") > 1].iterrows():
        few, many = row.idxmin(), row.idxmax()
        raise InputError(
            f"{runs[few]} and {runs[many]} read instance {index} as {row[few]:.0f} and as "
            f"{row[many]:.0f} items; reliability needs one corpus, tokenised in one way."
        )
    kept = sizes.notna().all(axis="columns")
    rows = np.array(kept.index[kept].tolist(), dtype=np.int64).reshape(-1, 2)
    tau = {}
    for name in names:
        columns = [held.loc[kept, name].tolist() for held in scores.values()]
        pairs = list(combinations(columns, 2))
        tau[name] = np.stack([tau_between(a, b) for a, b in pairs])
        if name == "attention":
            null = np.stack([tau_between(a, shuffled(b, rows, seed)) for a, b in pairs])
    if "attention" in tau:
        tau[NULL] = null
    return Agreement(runs, rows, tau)


def table(found: Agreement, seed: int = 0) -> Table:
    """Mean agreement of each score with itself, with intervals over runs and instances."""
    from attnlight.report.figures.importance_correlation import WORDS
    from attnlight.report.tables import Table, interval, number
    from attnlight.statistics.agreement import mean_over_pairs

    lines = []
    for name, tau in found.tau.items():
        mean = mean_over_pairs(tau, len(found.runs), found.rows[:, 0], seed=seed)
        by_pair = [float(np.nanmean(pair)) for pair in tau if not np.isnan(pair).all()] or [np.nan]
        ends = [number(min(by_pair)), number(max(by_pair))]
        cells = [number(mean.mean), interval(mean), *ends, f"{mean.defined:,}"]
        lines.append([WORDS.get(name, name), *cells])
    pairs = len(found.runs) * (len(found.runs) - 1) // 2
    return Table.of(
        f"Kendall's tau-b of each score with itself between {len(found.runs)} runs ({pairs} "
        f"{'pair' if pairs == 1 else 'pairs'}, {len(found.rows):,} instances)",
        ("score", "mean τ", "95 % interval", "lowest pair", "highest pair", "n"),
        lines,
        "The interval resamples runs, then instances; of two runs instances alone.",
    )


def write_agreement(found: Agreement, path: Path) -> None:
    """Write tau of each instance and pair of runs as parquet.

    Columns: index, position, first and second (names of the runs), and tau_<score> for each score.

    Raises:
        InputError: The file cannot be written.
    """
    import pandas as pd
    import pyarrow as pa

    from attnlight.files import replacing
    from attnlight.records.parquet import write_table

    pairs = pd.DataFrame(combinations(found.runs, 2), columns=["first", "second"])
    rows = pd.DataFrame(found.rows, columns=["index", "position"])
    frame = pairs.merge(rows, how="cross")[["index", "position", "first", "second"]]
    for name, tau in found.tau.items():
        frame[f"tau_{name.replace(' ', '_')}"] = tau.ravel()
    table = pa.Table.from_pandas(frame, preserve_index=False).replace_schema_metadata()
    with replacing(path) as temporary:
        write_table(table, temporary)
