"""`attnlight reliability`: how well runs of several seeds agree on the importance of items."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from attnlight.arguments import VerbParser
from attnlight.errors import InputError
from attnlight.files import replacing
from attnlight.report.tables import Table, interval, number

if TYPE_CHECKING:
    import pandas as pd

DESCRIPTION = """\
For each text, Kendall's tau-b between two runs of the same corpus: of their attention, of their
gradients and of their leave-one-out scores over the words. Agreement between seeds is the scale on
which to judge how well attention agrees with other scores. `shuffled attention` is one run's
attention against the other's in random order, which is 0 on average. The input is
RUN/records/test/importance_correlation.parquet, written by `ImportanceCorrelation` with
keep_scores: true."""
_NULL = "tau_shuffled_attention"
_RECORD = Path("records", "test", "importance_correlation.parquet")
_PREFIX = "scores_"


def main(argv: list[str]) -> int:
    """Print the agreement of the runs.

    Raises:
        InputError: A run lacks the scores, the runs do not have the same rows of one corpus, or the
            file cannot be written.
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
    taus = agreement(read_scores(options.runs), options.seed)
    if options.output is not None:
        import pyarrow as pa

        from attnlight.records.parquet import open_writer

        with replacing(options.output) as temporary:
            columns = pa.Table.from_pandas(taus).replace_schema_metadata()
            with open_writer(temporary, columns.schema) as writer:
                writer.write_table(columns)
    print(table(taus, len(options.runs), options.seed).to_markdown(), end="")
    return 0


def read_scores(runs: Sequence[Path]) -> dict[Path, pd.DataFrame]:
    """Read the scores of the items from the records of some runs.

    Returns:
        By run a frame with a row for each instance, by dataset index and position: in each column
        an array of the scores of its items, None if it has none.

    Raises:
        InputError: A run lacks the record, a record was written without `keep_scores`, or the
            records do not have the same instances.
    """
    import pandas as pd

    from attnlight.records import KEY, read_record, record_columns
    from attnlight.report.run import require_same_instances

    scores_by_run = {}
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
        columns = read_record(path, [*KEY, *names]).columns
        scores = pd.DataFrame({n.removeprefix(_PREFIX): list(columns[n]) for n in columns})
        scores_by_run[run] = scores.set_index([*KEY])
    for run in runs[1:]:
        require_same_instances(runs[0] / _RECORD, run / _RECORD)
    return scores_by_run


def agreement(scores: Mapping[Path, pd.DataFrame], seed: int = 0) -> pd.DataFrame:
    """Tau between each pair of runs on each instance, for each score that all runs have.

    Args:
        scores: The result of `read_scores` for at least two runs.
        seed: Seed of the random order of the shuffled attention.

    Returns:
        For each pair of runs, in the order of `itertools.combinations`, a row for each instance
        that all runs have scores for: `index`, `position`, the names of the runs as `first` and
        `second`, and `tau_<score>` for each score, NaN where undefined.

    Raises:
        InputError: The runs have no score in common, or differ in the items of an instance.
    """
    import pandas as pd

    from attnlight.statistics.agreement import shuffled, tau_between

    runs = ["/".join(run.resolve().parts[-2:]) for run in scores]
    first, *others = scores.values()
    names = [name for name in first if all(name in other for other in others)]
    if not names:
        raise InputError(f"{' and '.join(runs)} have no scores in common.")
    joined = pd.concat(scores.values(), axis="columns", keys=range(len(runs)))
    sizes = joined.xs(names[0], axis="columns", level=1).map(len, na_action="ignore")
    for (index, _), row in sizes[sizes.nunique(axis="columns") > 1].iterrows():
        shortest, longest = row.idxmin(), row.idxmax()
        raise InputError(
            f"{runs[shortest]} and {runs[longest]} read instance {index} as "
            f"{row[shortest]:.0f} and as {row[longest]:.0f} items; "
            "reliability needs one corpus, tokenised in one way."
        )
    joined = joined[sizes.notna().all(axis="columns")]
    keys = joined.index.to_frame(index=False).astype(np.int64)
    taus = []
    for a, b in combinations(range(len(runs)), 2):
        pair = keys.assign(first=runs[a], second=runs[b])
        for name in names:
            pair[f"tau_{name}"] = tau_between(joined[a, name].tolist(), joined[b, name].tolist())
        if "attention" in names:
            null = shuffled(joined[b, "attention"].tolist(), keys.to_numpy(), seed)
            pair[_NULL] = tau_between(joined[a, "attention"].tolist(), null)
        taus.append(pair)
    return pd.concat(taus, ignore_index=True)


def table(taus: pd.DataFrame, runs: int, seed: int = 0) -> Table:
    """Mean agreement of each score between runs, with intervals over runs and instances."""
    from attnlight.report.figures.importance_correlation import WORDS
    from attnlight.statistics.agreement import mean_over_pairs
    from attnlight.statistics.bootstrap import defined_mean

    pairs, lines = runs * (runs - 1) // 2, []
    index = taus["index"].to_numpy().reshape(pairs, -1)[0]
    words = {_NULL: "shuffled attention"} | {f"tau_{name}": label for name, label in WORDS.items()}
    for name in taus.columns[4:]:
        tau = taus[name].to_numpy().reshape(pairs, -1)
        mean = mean_over_pairs(tau, runs, index, seed=seed)
        ends = [number(end.reduce(defined_mean(tau))) for end in (np.fmin, np.fmax)]
        cells = [number(mean.mean), interval(mean), *ends, f"{mean.defined:,}"]
        lines.append([words.get(name, name.removeprefix("tau_")), *cells])
    return Table(
        f"Kendall's tau-b of each score between {runs} runs ({pairs} "
        f"{'pair' if pairs == 1 else 'pairs'}, {len(index):,} instances)",
        ("score", "mean τ", "95 % interval", "lowest pair", "highest pair", "n"),
        lines,
        "The interval resamples runs, then instances; with two runs only instances.",
    )
