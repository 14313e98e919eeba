"""`attnlight reliability`: how far runs of several seeds agree on which items matter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

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
_NULL = "tau_shuffled_attention"
_RECORD = Path("records", "test", "importance_correlation.parquet")
_PREFIX = "scores_"


def main(argv: list[str]) -> int:
    """Print how far the runs agree.

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
    print(table(found, len(options.runs), options.seed).to_markdown(), end="")
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


def agreement(scores: Mapping[Path, pd.DataFrame], seed: int = 0) -> pd.DataFrame:
    """Tau between each two runs on each instance, for each score that all have.

    Args:
        scores: What `read_scores` reads of at least two runs.
        seed: Seed of the random order of the shuffled attention.

    Returns:
        For each pair of runs, in the order of `itertools.combinations`, a row for each instance
        that all runs have scores for: `index`, `position`, the names of the runs as `first` and
        `second`, and `tau_<score>` for each score, NaN where undefined.

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
    pairs = pd.DataFrame(combinations(runs, 2), columns=["first", "second"])
    found = pairs.merge(pd.DataFrame(rows, columns=["index", "position"]), how="cross")
    found = found[["index", "position", "first", "second"]]
    for name in names:
        columns = [held.loc[kept, name].tolist() for held in scores.values()]
        tau = [tau_between(a, b) for a, b in combinations(columns, 2)]
        found[f"tau_{name}"] = np.concatenate(tau)
    if "attention" in names:
        columns = [held.loc[kept, "attention"].tolist() for held in scores.values()]
        null = [tau_between(a, shuffled(b, rows, seed)) for a, b in combinations(columns, 2)]
        found[_NULL] = np.concatenate(null)
    return found


def table(found: pd.DataFrame, runs: int, seed: int = 0) -> Table:
    """Mean agreement of each score of so many runs with itself, with intervals over both."""
    from attnlight.report.figures.importance_correlation import WORDS
    from attnlight.report.tables import Table, interval, number
    from attnlight.statistics.agreement import mean_over_pairs

    pairs, lines = runs * (runs - 1) // 2, []
    index = found["index"].to_numpy().reshape(pairs, -1)[0]
    words = {_NULL: "shuffled attention"} | {f"tau_{name}": said for name, said in WORDS.items()}
    for name in found.columns[4:]:
        tau = found[name].to_numpy().reshape(pairs, -1)
        mean = mean_over_pairs(tau, runs, index, seed=seed)
        by_pair = [float(np.nanmean(pair)) for pair in tau if not np.isnan(pair).all()] or [np.nan]
        ends = [number(min(by_pair)), number(max(by_pair))]
        cells = [number(mean.mean), interval(mean), *ends, f"{mean.defined:,}"]
        lines.append([words.get(name, name.removeprefix("tau_")), *cells])
    return Table.of(
        f"Kendall's tau-b of each score with itself between {runs} runs ({pairs} "
        f"{'pair' if pairs == 1 else 'pairs'}, {len(index):,} instances)",
        ("score", "mean τ", "95 % interval", "lowest pair", "highest pair", "n"),
        lines,
        "The interval resamples runs, then instances; of two runs instances alone.",
    )


def write_agreement(found: pd.DataFrame, path: Path) -> None:
    """Write what `agreement` found as parquet.

    Raises:
        InputError: The file cannot be written.
    """
    import pyarrow as pa

    from attnlight.files import replacing
    from attnlight.records.parquet import open_writer

    table = pa.Table.from_pandas(found, preserve_index=False).replace_schema_metadata()
    with replacing(path) as temporary, open_writer(temporary, table.schema) as writer:
        writer.write_table(table)
