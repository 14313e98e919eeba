"""Which attribution methods depend on what the model has learned."""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from attnlight.records import Record
from attnlight.statistics.bootstrap import MeanInterval, bootstrap_means

MIN_CORRELATION = 0.2  # of two seeds; a smaller one decides nothing
SHARE = 0.5  # of the correlation of two seeds, which random parameters must not exceed


@dataclass(frozen=True)
class Verdict:
    """Whether a method's explanations change when all parameters are random."""

    verdict: Literal["fails", "passes", "undecidable"]  # `fails`, `passes` or `undecidable`
    # Mean correlation of the trained model's explanations with those of the model all of whose
    # parts are random.
    randomised: MeanInterval
    # That with the explanations of another seed; of no values without a second run.
    seeds: MeanInterval


def sanity_verdicts(
    record: Record, kind: Literal["signed", "sizes"] = "signed"
) -> dict[str, Verdict]:
    """The verdict on each method of a record of `Sanity`, by label.

    The last step of the cascade counts, in which all parts are random: before it, scores may
    rightly stay alike, as attention does when only the decoder is random. A method fails if the
    lower end of that correlation's 95 % interval exceeds half of the mean correlation of two seeds.
    Nothing is decided without a second run, if two seeds correlate by less than 0.2, or if a
    correlation is defined on fewer than two texts, where it has no interval. The record has the
    metadata `parts` and `methods`; `kind` is of scores with their signs, or of their sizes.
    """
    labels, last = list(record.metadata["methods"]), len(record.metadata["parts"])
    index = record.columns["index"]
    undefined = np.full(len(index), np.nan)
    columns = [
        record.columns.get(f"{kind}_{step}_{label}", undefined)
        for step in (last, "seeds")
        for label in labels
    ]
    means = bootstrap_means(np.stack(columns, axis=1).astype(np.float64), index)
    texts = [len(np.unique(index[~np.isnan(values)])) for values in columns]
    verdicts = {}
    for label, randomised, seeds, *known in zip(
        labels, means, means[len(labels) :], texts, texts[len(labels) :], strict=False
    ):
        decidable = seeds.mean >= MIN_CORRELATION and min(known) > 1
        fails = randomised.low > SHARE * seeds.mean
        verdict = Verdict("fails" if fails else "passes", randomised, seeds)
        verdicts[label] = verdict if decidable else Verdict("undecidable", randomised, seeds)
    return verdicts
