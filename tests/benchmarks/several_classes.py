"""Worst-case attention for several classes: linear programs beside the candidates before them.

`python -m tests.benchmarks.several_classes RUN ...` compares both on texts of trained models, from
what `attnlight predict` wrote, and writes `RUN/worst_case.parquet`, which docs/results.md shows.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import pyarrow as pa
import pyarrow.parquet as pq
import torch
from torch import Tensor

from attnlight.data.selection import choose
from attnlight.files import replacing
from attnlight.functional import read, worst_case_attention
from attnlight.functional.adversary.worst_case import best_of
from attnlight.functional.readout.heads import flatten_heads, flatten_item_logits
from tests.benchmarks.measuring import Measurement, spread
from tests.benchmarks.tilting import tilted_attentions

EPSILON = 0.01
CLASSES, ITEMS = (3, 4, 6, 9, 12, 16, 20), 60
# Rows, items and classes of the bound.
MOST = (12, 200, 20)
# Classes from which attentions with the same logits were not looked for.
_MANY = 10

Instance = tuple[Tensor, Tensor, Tensor]
T = TypeVar("T")


def readouts(rows: int, items: int, classes: int, seed: int = 0) -> Instance:
    """Random affine readouts: attention (R, N), item logits (R, N, C) and the mask."""
    random = torch.Generator().manual_seed(seed)
    scores = torch.randn(rows, items, dtype=torch.float64, generator=random)
    logits = 2 * torch.randn(rows, items, classes, dtype=torch.float64, generator=random)
    return scores.softmax(-1), logits, torch.ones(rows, items, dtype=torch.bool)


def before(weights: Tensor, items: Tensor, mask: Tensor) -> Tensor:
    """JS (R,) of the best candidate without programs, with attentions of the same logits."""
    js = worst_case_attention(weights, items, mask, EPSILON, programs=False)[1]
    if items.shape[-1] >= _MANY or not len(js):
        return js
    own, reach = flatten_heads(weights, mask)
    logits = flatten_item_logits(own, items, reach)
    tried = tilted_attentions(own, logits, reach)
    return torch.maximum(js, best_of(lambda a: read(a, logits), own, EPSILON, tried)[1])


def now(weights: Tensor, items: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """JS (R,) with programs, and its bound (R,)."""
    _, js, upper = worst_case_attention(weights, items, mask, EPSILON)
    return js, upper


def several_classes(
    classes: Sequence[int] = CLASSES,
    rows: int = 24,
    most: tuple[int, int, int] = MOST,
    repetitions: int = 3,
) -> dict[str, Measurement]:
    """Milliseconds of processor time a row of `worst_case_attention`, bound included, for `most`.

    Raises:
        RuntimeError: An answer is below that without programs, or above its bound.
    """
    details = {}
    for count in classes:
        before(*readouts(1, 4, count)), now(*readouts(1, 4, count))
        instances = readouts(rows, ITEMS, count)
        old, old_seconds = _timed(before, instances)
        (js, upper), seconds = _timed(now, instances)
        if (js < old - 1e-12).any() or (js > upper).any():
            raise RuntimeError("an answer is below that without programs, or above its bound")
        improved = (js > old + 1e-6).double().mean()
        details[f"{count} classes, {ITEMS} items"] = (
            f"mean JS {old.mean():.3f} before, {js.mean():.3f} now, bound {upper.mean():.3f}; "
            f"{improved:.0%} of {rows} rows improved, by {(js - old).mean():.3f} on average; "
            f"{1000 * old_seconds / rows:.1f} and {1000 * seconds / rows:.1f} ms a row"
        )
    largest, taken = readouts(*most), {"before": [], "now": []}
    for _ in range(repetitions):
        for name, way in (("before", before), ("now", now)):
            taken[name].append(_timed(way, largest)[1] / most[0])
    details[f"{most[2]} classes, {most[1]} items, processor time a row"] = (
        f"{spread(taken['now'])}, without programs {spread(taken['before'])}"
    )
    return {"several_classes": Measurement([1000 * each for each in taken["now"]], details)}


def _timed(way: Callable[..., T], instances: Instance) -> tuple[T, float]:
    """What it finds, and its seconds of processor time: on one thread other jobs hardly change it."""
    start = time.process_time()
    found = way(*instances)
    return found, time.process_time() - start


def compare_run(run: Path, texts: int, seed: int = 0) -> None:
    """Write `run/worst_case.parquet`: JS before and now, bound and milliseconds, one row a text.

    Args:
        run: A run folder with `predictions.parquet`.
        texts: How many texts to compare on, chosen by a seeded hash.
        seed: Seed of the choice.
    """
    file = pq.ParquetFile(run / "predictions.parquet")
    index = file.read(columns=["index"])["index"].to_numpy()
    chosen, compared = set(choose(index, texts, seed).tolist()), []
    for batch in file.iter_batches(64, columns=["index", "attention", "item_logits"]):
        for row in (row for row in batch.to_pylist() if row["index"] in chosen):
            weights, items = (torch.tensor([row[name]]) for name in ("attention", "item_logits"))
            instance = weights.double(), items.double(), torch.ones(1, weights.shape[-1]).bool()
            old, old_seconds = _timed(before, instance)
            (js, upper), seconds = _timed(now, instance)
            compared.append(
                {
                    "index": float(row["index"]),
                    "items": float(weights.shape[-1]),
                    "before": float(old.mean()),
                    "now": float(js.mean()),
                    "upper": float(upper.mean()),
                    "before_ms": 1000 * old_seconds,
                    "now_ms": 1000 * seconds,
                }
            )
    with replacing(run / "worst_case.parquet") as temporary:
        pq.write_table(pa.Table.from_pylist(compared), temporary)


def main(arguments: Sequence[str] | None = None) -> None:
    """Compare on the texts of trained models."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN")
    parser.add_argument("--texts", type=int, default=500, help="of each, chosen by a seeded hash")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    for run in options.runs:
        compare_run(run, options.texts)
        print(run / "worst_case.parquet", flush=True)


if __name__ == "__main__":
    main()
