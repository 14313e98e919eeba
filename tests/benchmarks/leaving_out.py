"""How many times as fast leave-one-out is as encoding the whole batch anew for every position."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from attnlight.batch import TextBatch
from attnlight.data.dataset import TokenDataset
from attnlight.data.samplers import OnceSampler
from attnlight.datamodules import CorpusDataModule
from attnlight.functional import leave_one_out as ours
from attnlight.models import FlatClassifier
from tests.benchmarks.measuring import Measurement, against, clock, spread
from tests.benchmarks.permutation import imdb
from tests.benchmarks.rivals import deleted_distance, packed
from tests.benchmarks.scene import TEXTS, TOKENS, random_texts, spread_out
from tests.benchmarks.speedups import require_close

REPETITIONS = 3


@torch.no_grad()
def leave_one_out(
    threads: int,
    repetitions: int = REPETITIONS,
    corpus: CorpusDataModule | None = None,
    texts: int = TEXTS,
    tokens: int = TOKENS,
) -> dict[str, Measurement]:
    """Both speedups; the details also have that on texts of one length, as loaders batch them.

    Args:
        threads: Threads of torch.
        repetitions: Runs of each way, in turn.
        corpus: Whose test split is read, if not IMDb's.
        texts: Texts of a batch.
        tokens: Tokens of the texts of equal length.

    Raises:
        RuntimeError: The two ways disagree.
    """
    torch.set_num_threads(threads)
    data = corpus or imdb()
    dataset = data.dataset("test")
    torch.manual_seed(0)
    batches = {
        "drawn at random": drawn(dataset, texts),
        "sorted by length": of_like_length(dataset, texts),
        "of equal length": random_texts(0, texts, tokens, data.vocab_size),
    }
    model = spread_out(FlatClassifier(data.vocab_size, num_classes=2).eval(), [*batches.values()])
    details: dict[str, str] = {}
    found = {}
    for name, batch in batches.items():
        found[name] = measure(model, batch, repetitions, f"{len(batch)} texts {name}", details)
    return {
        "leave_one_out_imdb": Measurement(found["drawn at random"].values, details),
        "leave_one_out_equal": Measurement(found["of equal length"].values, details),
    }


def measure(
    model: FlatClassifier, batch: TextBatch, repetitions: int, name: str, details: dict[str, str]
) -> Measurement:
    """The speedup on one batch, whose times are added to the details."""
    output, rival = model(batch), quicker(model, batch)
    few = batch.select(torch.arange(len(batch)) < 2)
    ours(model, few, model(few))
    results: dict[str, Tensor] = {}

    def keep(way: str, importance: Tensor) -> None:
        results[way] = importance

    seconds = against(
        {"theirs": lambda: keep("theirs", deleted_distance(rival, batch, output))},
        lambda: keep("ours", ours(model, batch, output)),
        repetitions,
        warm_ups=0,
    )
    found = Measurement.of_speedups(seconds["ours"], seconds["theirs"], {})
    apart = require_close(results["ours"], results["theirs"])
    lengths = batch.mask.sum(-1)
    encoder = "ours" if rival is model else "packed sequences"
    details[name] = (
        f"{int(lengths.min())} to {int(lengths.max())} tokens; ours {spread(seconds['ours'])}, "
        f"theirs {spread(seconds['theirs'])}, {found.median:.2f} times ours; their encoder: "
        f"{encoder}; largest importance {results['ours'].max():.2f}, difference {apart:.0e}"
    )
    return found


def quicker(model: FlatClassifier, batch: TextBatch) -> FlatClassifier:
    """The model as it is, or over packed sequences as in the released code: whichever is faster."""
    ways = [model, packed(model)]
    seconds = [min(clock(lambda: way(batch)) for _ in range(4)) for way in ways]  # noqa: B023
    return ways[int(np.argmin(seconds))]


def drawn(dataset: TokenDataset, texts: int) -> TextBatch:
    """A batch of texts drawn at random from a split, of whatever lengths fall together."""
    rows = np.random.default_rng(0).choice(len(dataset), texts, replace=False)
    return dataset[sorted(rows.tolist())]


def of_like_length(dataset: TokenDataset, texts: int) -> TextBatch:
    """A batch as evaluation loads it, sorted by length: the one of median length."""
    batches = list(OnceSampler(len(dataset), texts, lengths=dataset.lengths))
    batches.sort(key=lambda rows: int(dataset.lengths[rows].max()))
    return dataset[batches[len(batches) // 2]]
