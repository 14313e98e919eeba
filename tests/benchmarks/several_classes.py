"""Worst-case attention for several classes: linear programs beside the candidates before them.

`python -m tests.benchmarks.several_classes RUN ...` compares both on texts of trained models, from
what `attnlight predict` wrote, and writes `RUN/worst_case.parquet`, which docs/results.md shows.
"""

from __future__ import annotations

import sys
from pathlib import Path
from time import process_time
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import torch
from torch import Tensor

from attnlight.data.selection import choose
from attnlight.functional import read, worst_case_attention
from attnlight.functional.adversary.worst_case import best_of
from attnlight.functional.readout.heads import flatten_heads, flatten_item_logits
from attnlight.storage.files import replacing
from tests.benchmarks.measuring import Measured, spread
from tests.benchmarks.tilting import tilted_attentions
from tests.functional.adversaries import readouts

EPSILON = 0.01
CLASSES, ITEMS = (3, 4, 6, 9, 12, 16, 20), 60
# Rows, items and classes of the bound.
MOST = (12, 200, 20)
# Classes of which few carry mass, as of a trained model, and the number of the bound.
MANY, MANY_BOUND = (100, 300, 1000), 100
# Classes from which attentions with the same logits were not looked for.
_MANY = 10
# Texts of a run that are compared on, chosen by a hash with this seed.
_TEXTS, _SEED = 500, 0


def before(weights: Tensor, items: Tensor, mask: Tensor) -> Tensor:
    """JS (R,) of the best candidate without programs, with attentions of the same logits."""
    js = worst_case_attention(weights, items, mask, EPSILON, programs=False)[1]
    if items.shape[-1] >= _MANY:
        return js
    own, reach = flatten_heads(weights, mask)
    logits = flatten_item_logits(own, items, reach)
    tried = tilted_attentions(own, logits, reach)
    return torch.maximum(js, best_of(lambda a: read(a, logits), own, EPSILON, tried)[1])


def compare(weights: Tensor, items: Tensor) -> dict[str, Any]:
    """JS (R,) without and with programs, its bound, and milliseconds of processor time of each."""
    mask = torch.ones_like(weights, dtype=torch.bool)
    start = process_time()
    old = before(weights, items, mask)
    middle = process_time()
    _, js, upper = worst_case_attention(weights, items, mask, EPSILON)
    times = {"before_ms": 1000 * (middle - start), "now_ms": 1000 * (process_time() - middle)}
    if (js < old - 1e-12).any() or (js > upper).any():
        raise RuntimeError("an answer is below that without programs, or above its bound")
    return {"before": old, "now": js, "upper": upper} | times


def several_classes(
    rows: int = 24, most: tuple[int, int, int] = MOST, repetitions: int = 3
) -> Measured:
    """Milliseconds of processor time a row of `worst_case_attention`, bound included, for `most`."""
    details = {}
    for count in CLASSES:
        compare(*readouts(1, 4, count)[:2])
        found = compare(*readouts(rows, ITEMS, count)[:2])
        details[f"{count} classes, {ITEMS} items"] = (
            f"mean JS {found['before'].mean():.3f} before, {found['now'].mean():.3f} now, bound "
            f"{found['upper'].mean():.3f}; {found['before_ms'] / rows:.1f} and "
            f"{found['now_ms'] / rows:.1f} ms a row"
        )
    many = {
        count: [compare(*peaked(rows // 4 or 1, count)) for _ in range(repetitions)]
        for count in (MANY if rows > 2 else (MANY_BOUND,))
    }
    for count, found_each in many.items():
        found = found_each[0]
        details[f"{count} classes, few of which carry mass, {ITEMS} items"] = (
            f"mean JS {found['now'].mean():.3f}, bound {found['upper'].mean():.3f}; "
            f"{found['now_ms'] / len(found['now']):.1f} ms a row"
        )
    taken = [compare(*readouts(*most)[:2]) for _ in range(repetitions)]
    seconds = {
        way: [each[f"{way}_ms"] / 1000 / most[0] for each in taken] for way in ("before", "now")
    }
    details[f"{most[2]} classes, {most[1]} items, processor time a row"] = (
        f"{spread(seconds['now'])}, without programs {spread(seconds['before'])}"
    )
    times = [found["now_ms"] / len(found["now"]) for found in many[MANY_BOUND]]
    return Measured(
        {"several_classes": [1000 * each for each in seconds["now"]], "many_classes": times},
        details,
    )


def peaked(rows: int, classes: int) -> tuple[Tensor, Tensor]:
    """Weights and item logits whose classes differ by much in probability."""
    weights, logits, _ = readouts(rows, ITEMS, classes)
    random = torch.Generator().manual_seed(1)
    return weights, logits + 6 * torch.randn(rows, 1, classes, generator=random).double()


def compare_run(run: Path) -> None:
    """Write `run/worst_case.parquet` from `run/predictions.parquet`, one row a text."""
    file = pq.ParquetFile(run / "predictions.parquet")
    index = file.read(columns=["index"])["index"].to_numpy()
    chosen, compared = set(choose(index, _TEXTS, _SEED).tolist()), []
    for batch in file.iter_batches(64, columns=["index", "attention", "item_logits"]):
        for row in (row for row in batch.to_pylist() if row["index"] in chosen):
            weights, items = (torch.tensor([row[name]]) for name in ("attention", "item_logits"))
            found = compare(weights.double(), items.double())
            numbers = {name: float(value) for name, value in found.items()}
            compared.append({"index": row["index"], "items": weights.shape[-1]} | numbers)
    with replacing(run / "worst_case.parquet") as temporary:
        pq.write_table(pa.Table.from_pylist(compared), temporary)


if __name__ == "__main__":
    torch.set_num_threads(1)
    for folder in sys.argv[1:]:
        compare_run(Path(folder))
