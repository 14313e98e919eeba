"""Studies whose runs are simulated."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

GUIDES = {
    "uniform": 0.7,
    "learned": 0.75,
    "base": 0.8,
    "shuffled": 0.66,
    "adversary": 0.6,
    "other": 0.78,
}
GRID = {0.0005: (0.25, 0.18), 0.002: (0.45, 0.2), 0.01: (0.66, 0.21)}  # JS and TVD by lambda


class FakeStudy:
    """Runs are added one by one, then written as `attnlight study` does.

    Args:
        texts: Number of test texts n.
        classes: Names of the classes.
    """

    def __init__(self, texts: int = 120, classes: Sequence[str] = ("negative", "positive")) -> None:
        random = np.random.default_rng(5)
        self.head: dict[str, Any] = {
            "schema": 1,
            "study": "fake",
            "experiment": "sst_bilstm",
            "corpus": "planted",
            "classes": list(classes),
            "selected": None,
        }
        self.runs: list[dict[str, Any]] = []
        self.rows: dict[str, dict[str, NDArray[Any]]] = {}
        self.label = random.integers(0, len(classes), texts)
        self.index = 7 + 3 * np.arange(texts)
        self.peaks = random.random(texts)

    def add(
        self,
        name: str,
        role: str,
        right: float = 0.8,
        js: float | None = None,
        tvd: float = 0.1,
        state: str = "finished",
        **entry: Any,
    ) -> None:
        """Add a run that is right on a share of texts, as far from its base as told on average."""
        random = np.random.default_rng(len(self.runs))
        entry.setdefault("seed", len(self.runs))
        entry.setdefault("base", None if role == "base" else "base-s0")
        if entry.get("guide") in ("adversary", "other"):
            entry.setdefault("told_by", f"{entry['guide']}-s{len(self.runs)}")
        validation = {"accuracy": right, "f1": right, "attention_js": js, "prediction_tvd": tvd}
        self.runs.append(
            {"name": name, "role": role, "guide": None, "term": None, "lambda": None}
            | {"state": state, "epoch": len(self.runs) % 4, "validation": validation}
            | entry
        )
        if state != "finished":
            return
        n = len(self.label)
        wrong = (self.label + 1) % len(self.head["classes"])
        rows = {"prediction": np.where(random.random(n) < right, self.label, wrong)}
        rows |= dict.fromkeys(
            ("attention_js", "prediction_tvd", "base_max_attention"), np.full(n, np.nan)
        )
        rows |= {name: np.full(n, np.nan) for name in ("worst_js", "search_js", "search_tvd")}
        if role == "base":
            rows |= {"worst_js": 0.6 + 0.05 * random.random(n)}
            rows |= {"search_js": 0.5 + 0.05 * random.random(n), "search_tvd": np.full(n, 0.009)}
        if js is not None:
            rows["attention_js"] = np.clip(js + 0.1 * random.normal(size=n), 0, np.log(2))
            rows["prediction_tvd"] = np.clip(tvd + 0.03 * random.normal(size=n), 0, 1)
            rows["base_max_attention"] = self.peaks
        self.rows[name] = rows

    def write(self, folder: Path) -> Path:
        """Write study.json and study.parquet."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "study.json").write_text(json.dumps(self.head | {"runs": self.runs}))
        order = np.random.default_rng(1).permutation(len(self.label))
        parts = [
            {"run": [name] * len(order), "index": self.index[order], "label": self.label[order]}
            | {column: values[order] for column, values in rows.items()}
            for name, rows in self.rows.items()
        ]
        columns: dict[str, Any] = {}
        for name in parts[0]:
            values = np.concatenate([part[name] for part in parts])
            if name == "run":
                columns[name] = pa.array(values.tolist()).dictionary_encode()
            elif values.dtype.kind == "f":
                columns[name] = pa.array(values.astype(np.float32), mask=np.isnan(values))
            else:
                columns[name] = values
        pq.write_table(pa.table(columns), folder / "study.parquet", compression="zstd")
        return folder


def whole(seeds: int = 5, bases: int = 2, **options: Any) -> FakeStudy:
    """A study with every role: attention is needed, the adversary is beyond seeds, its MLP poor."""
    study = FakeStudy(**options)
    frontier = {"tvd": [0.0, 0.01, 0.1, 0.3], "js": [0.1, 0.55, 0.62, 0.65]}
    for base in range(bases):
        study.add(f"base-s{base}", "base", 0.85, frontier=frontier, seed=base)
    for seed in range(seeds):
        study.add(f"uniform-s{seed}", "uniform", 0.7, 0.3 + 0.01 * seed, 0.25, seed=seed)
    for base in range(bases):
        for seed in range(10, 10 + seeds):
            told = {"seed": seed, "base": f"base-s{base}"}
            study.add(f"seed-b{base}-s{seed}", "seed", 0.84, 0.27, 0.22 - 0.002 * seed, **told)
    for guide, right in GUIDES.items():
        for seed in range(seeds):
            study.add(f"guide-{guide}-s{seed}", "guide", right, guide=guide, seed=seed)
    for base in range(bases):
        add_adversaries(study, seeds, base)
    study.head["selected"] = {"run": "adversary-kl-l0.01-s0", "term": "kl", "lambda": 0.01}
    other = {"run": "adversary-js-l0.002-s0", "term": "js", "lambda": 0.002}
    study.head["best"] = {"kl": study.head["selected"], "js": other, "tvd": None}
    return study


def add_adversaries(study: FakeStudy, seeds: int, base: int = 0) -> None:
    """A grid of lambdas with KL and JS; lambda 0 is run once for both."""
    for seed in range(seeds):
        told: dict[str, Any] = {"seed": seed, "base": f"base-s{base}"}
        mark = f"b{base}-" if base else ""
        name = f"adversary-{mark}kl-l0-s{seed}"
        study.add(name, "adversary", 0.83, 0.23, 0.175, term="kl", **told, **{"lambda": 0.0})
        for lam, (js, tvd) in GRID.items():
            told["lambda"] = lam
            name = f"adversary-{mark}kl-l{lam}-s{seed}"
            study.add(name, "adversary", 0.82, js, tvd + 0.002 * seed, term="kl", **told)
            name = f"adversary-{mark}js-l{lam}-s{seed}"
            study.add(name, "adversary", 0.82, 0.9 * js, tvd + 0.02, term="js", **told)
