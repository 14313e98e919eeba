"""How well runs of several seeds agree on the importance of items."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from pathlib import Path

import numpy as np
import pandas as pd

from attnlight.errors import InputError
from attnlight.figures.methods import COMPARED, method_words
from attnlight.figures.tables import Table, estimate, interval, number
from attnlight.records import KEY, SCORES, kept_scores, read_record, record_columns
from attnlight.report.markup import described_table
from attnlight.report.run import require_same_instances
from attnlight.statistics.agreement import agreement_between, mean_over_pairs, shuffled
from attnlight.statistics.bootstrap import bootstrap_means, defined_mean

RECORD = "records/test/{}.parquet"  # of a test, in the folder of a run
_NULL = "tau_shuffled_attention"
KINDS = {"tau": "Kendall's τ", "spearman": "Spearman", "overlap": "top tenth shared"}


def read_scores(
    runs: Sequence[Path], test: str = "importance_correlation"
) -> dict[Path, pd.DataFrame]:
    """Read the scores of the items from the records of some runs, as the test compares them.

    `test` is the test's name in snake case.

    Returns:
        By run a frame with a row for each instance, by dataset index and position: in each column
        an array of the scores of its items, None if it has none.

    Raises:
        InputError: A run lacks the record, a record was written without `keep_scores`, or the
            records do not have the same instances.
    """
    scores_by_run = {}
    for run in runs:
        path = run / RECORD.format(test)
        names = kept_scores(path)
        record = read_record(path, [*KEY, *(f"{SCORES}{name}" for name in names)])
        scores = pd.DataFrame(
            {name.removeprefix(SCORES): list(values) for name, values in record.columns.items()}
        ).set_index([*KEY])
        if record.metadata.get("signed") is False:  # signed scores are compared by size
            scores = scores.map(np.abs, na_action="ignore")
        scores_by_run[run] = scores
    for run in runs[1:]:
        require_same_instances(runs[0] / RECORD.format(test), run / RECORD.format(test))
    return scores_by_run


def agreement(
    scores: Mapping[Path, pd.DataFrame], seed: int = 0, kinds: Iterable[str] = ("tau",)
) -> pd.DataFrame:
    """Agreement of each pair of runs on each instance, for each score that all runs have.

    `scores` are what `read_scores` returns for at least two runs, `kinds` some of `tau`, `spearman`
    and `overlap`; the order of the shuffled attention has the `seed`.

    Returns:
        For each pair of runs, in the order of `itertools.combinations`, a row for each instance
        that all runs have scores for: `index`, `position`, the names of the runs as `first` and
        `second`, and `<kind>_<score>` for each score, NaN where undefined.

    Raises:
        InputError: The runs have no score in common, or differ in the items of an instance.
    """
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
            found = agreement_between(joined[a, name].tolist(), joined[b, name].tolist())
            pair = pair.assign(**{f"{kind}_{name}": found[kind] for kind in kinds})
        if "attention" in names:
            null = shuffled(joined[b, "attention"].tolist(), keys.to_numpy(), seed)
            pair[_NULL] = agreement_between(joined[a, "attention"].tolist(), null)["tau"]
        taus.append(pair)
    return pd.concat(taus, ignore_index=True)


def table(taus: pd.DataFrame, runs: int, seed: int = 0) -> Table:
    """Mean agreement of each score between runs, with intervals over runs and instances."""
    pairs, lines = runs * (runs - 1) // 2, []
    index = taus["index"].to_numpy().reshape(pairs, -1)[0]
    words = {_NULL: "shuffled attention"} | {
        f"tau_{name}": label for name, label in COMPARED.items()
    }
    for name in taus.columns[4:][taus.columns[4:].str.startswith("tau_")]:
        tau = taus[name].to_numpy().reshape(pairs, -1)
        mean = mean_over_pairs(tau, runs, index, bounds=(-1, 1), seed=seed)
        ends = [number(end.reduce(defined_mean(tau))) for end in (np.fmin, np.fmax)]
        cells = [number(mean.mean), interval(mean), *ends, f"{np.count_nonzero(~np.isnan(tau)):,}"]
        lines.append([words.get(name, name.removeprefix("tau_")), *cells])
    pairs_text = f"{pairs} {'pair' if pairs == 1 else 'pairs'}"
    return described_table("agreement", lines, runs=runs, pairs=pairs_text, instances=len(index))


def pair_table(runs: Sequence[Path], taus: pd.DataFrame, test: str, seed: int = 0) -> Table:
    """Mean agreement of each pair of scores within the runs, beside its ceiling.

    The ceiling is the smaller of the agreements of both scores between the runs. The table has no
    rows if the records hold no agreement of pairs. `taus` is the result of `agreement` for the
    records of a test in these runs.
    """
    columns = [name for name in taus.columns[4:] if name != _NULL]
    available = set.intersection(*(set(record_columns(r / RECORD.format(test))) for r in runs))
    kinds = [kind for kind in KINDS if any(name.startswith(f"{kind}_") for name in columns)]
    names = [name.removeprefix(f"{kinds[0]}_") for name in columns if name.startswith(kinds[0])]
    stems = {pair: "_".join(pair) for pair in combinations(names, 2)}
    pairs = [p for p, stem in stems.items() if {f"{kind}_{stem}" for kind in kinds} <= available]
    measures = [f"{kind}_{'_'.join(pair)}" for pair in pairs for kind in kinds]
    lines = []
    if measures:
        paths = (run / RECORD.format(test) for run in runs)
        records = [read_record(path, [*KEY, *measures]).columns for path in paths]
        each = np.stack([[record[name] for name in measures] for record in records])
        means = bootstrap_means(defined_mean(each.T), records[0][KEY[0]], seed=seed)
        of_pairs = taus.groupby(["first", "second"])[columns].mean()
        ceilings, by_measure = of_pairs.mean(), dict(zip(measures, means, strict=True))
        for pair in pairs:
            cells = []
            for kind in kinds:
                ceiling = min(ceilings[f"{kind}_{name}"] for name in pair)
                cells += [estimate(by_measure[f"{kind}_{'_'.join(pair)}"]), number(ceiling)]
            label = " and ".join(COMPARED.get(name, method_words(name)) for name in pair)
            lines.append([label, *cells])
    head = [cell for kind in kinds for cell in (KINDS[kind], "ceiling")]
    return described_table("agreement_of_pairs", lines, head)
