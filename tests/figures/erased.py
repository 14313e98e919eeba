"""Simulated columns of the tests that erase items."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Rows = dict[str, NDArray[Any]]
SCORES = ("attention", "gradient", "gradient_x_attention")
ORDERS = (*SCORES, "random_first")


def single_erasure(random: np.random.Generator, n: int, released: bool = True) -> Rows:
    """Columns of `single_erasure`; every ninth text has one item only."""
    rows: Rows = {}
    for score in SCORES:
        rows[f"flip_top_{score}"] = random.random(n) < 0.2
        rows[f"outdone_expected_{score}"] = random.random(n)
        for kind in ("drawn", "expected", *(["released"] if released else [])):
            flips = random.random(n)
            rows[f"flip_other_{kind}_{score}"] = flips if kind == "expected" else flips < 0.05
            rows[f"delta_weight_{kind}_{score}"] = random.random(n)
            rows[f"delta_js_{kind}_{score}"] = 0.1 * random.normal(size=n) + 0.05
    rows = {name: values.astype(np.float32) for name, values in rows.items()}
    for values in rows.values():
        values[8::9] = np.nan
    return rows


def decision_flip(random: np.random.Generator, n: int, affine: bool = True) -> Rows:
    """Columns of `decision_flip`: what is never flipped is null, and so is an unknown minimum."""
    length = random.integers(1, 30, n)
    least = 1 + (random.random(n) * length / 2).astype(int)
    rows: Rows = {"length": length, "minimal_count": least.astype(np.float32)}
    never = random.random(n) < 0.2
    rows |= _of_ranking("minimal", least, length, random, never)
    del rows["removed_count_minimal"]
    for name in (*ORDERS, "random"):
        count = least + (random.random(n) * (length - least + 1)).astype(int)
        stuck = never | (random.random(n) < 0.1)
        rows |= _of_ranking(name, count, length, random, stuck)
        if name != "random_first":
            rows[f"excess_{name}"] = rows[f"removed_count_{name}"] - rows["minimal_count"]
    rows["minimal_count"][never] = np.nan
    if not affine:
        for name in rows:
            if "minimal" in name or name.startswith("excess"):
                rows[name] = np.full(n, np.nan, dtype=np.float32)
    return rows


def _of_ranking(
    name: str,
    count: NDArray[np.int64],
    length: NDArray[np.int64],
    random: np.random.Generator,
    never: NDArray[np.bool_],
) -> Rows:
    values = {
        "removed_count": count.astype(np.float32),
        "removed_fraction": (count / length).astype(np.float32),
        "removed_mass": (count / length * random.random(len(count))).astype(np.float32),
        "needs_all": (count == length).astype(np.float32),
    }
    for column in values.values():
        column[never] = np.nan
    values["never_flips"] = never.astype(np.float32)
    return {f"{measure}_{name}": column for measure, column in values.items()}
