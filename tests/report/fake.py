"""Run folders whose records are simulated."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations, product
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from attnlight.figures import draw
from attnlight.records import ShardWriter, merge_shards
from tests.callbacks.every import NEEDS, every
from tests.figures import erased

Rows = dict[str, NDArray[Any]]
METHODS = ("attention", "gradient_x_attention", "random")
_OPTIONS: dict[str, Any] = {"EvidenceMass": {"swap": True}, "Faithfulness": {"normalized": True}}
_OPTIONS |= {"AttentionInterchange": {"level": "head"}}
_OPTIONS |= {"AttributionCost": {"methods": ["attention", "gradient"]}}
_OPTIONS |= {"Plausibility": {"methods": ["attention", "input_gradient"]}}
_TESTS = {kind: _OPTIONS.get(n, {}) for n, kind in every(*NEEDS.keys() - {"words"}).items()}
MEASURES = {kind.name: list(kind(**options).measures) for kind, options in _TESTS.items()}
# Some of a test's measures, and those that only a run knows.
MEASURES |= {
    "predictions": ["max_attention", "attention_entropy"],
    "attention_permutation": ["median_tvd", "median_js", "flip_rate", "uniform_tvd"],
    "adversarial_attention": ["worst_js", "worst_share", "worst_tvd", "upper_js"],
    "base_divergence": ["attention_js", "prediction_tvd", "base_max_attention"],
    "single_erasure": ["flip_top_attention", "outdone_expected_gradient"],
    "decision_flip": ["removed_fraction_attention", "minimal_count", "excess_random"],
}
MEASURES["importance_correlation"] = [
    f"{measure}_{pair}"
    for pair in ("attention_input_gradient", "attention_loo", "input_gradient_loo")
    for measure in ("tau", "p")
]
MEASURES["head_roles"] += [f"mass_{role}" for role in ("punctuation", "same_chunk")]
MEASURES["head_roles"] += [f"chance_{role}" for role in ("punctuation", "same_chunk")]
MEASURES["head_roles"] += [f"correct_{x}_{n}" for x in ("pruned", "random") for n in (0, 50, 100)]
MEASURES["attention_sinks"] += ["mass_punctuation", "tau_without_punctuation"]
MEASURES["saliency_agreement"] = []  # they are named by pairs of methods
_STEPS = (3, "seeds", "random")
MEASURES["sanity"] = [f"signed_{step}_{method}" for step in _STEPS for method in METHODS]
WRITTEN = ("predictions", "attention_permutation")  # what a run of `write_run` holds
CONFIG = """\
# lightning.pytorch==2.6.6
seed_everything: 7
trainer:
  callbacks:
    - class_path: attnlight.callbacks.Predictions
model:
  class_path: attnlight.tasks.AttentionClassifier
  init_args: {net: {encoder: bilstm, attention: additive}}
data:
  class_path: attnlight.datamodules.TextDataModule
  init_args: {path: SetFit/sst5, name: null}
"""


def rows_of(test: str, n: int = 60, classes: int = 2, seed: int = 0) -> Rows:
    """Simulated rows of a test, with `index` and `position`."""
    random = np.random.default_rng(seed)
    scores = np.exp(2 * random.normal(size=(n, classes)))
    probabilities = (scores / scores.sum(axis=1, keepdims=True)).astype(np.float32)
    rows: Rows = {
        "index": np.arange(n),
        "position": np.zeros(n, dtype=np.int64),
        "prediction": probabilities.argmax(axis=1),
        "max_attention": random.random(n, dtype=np.float32),
    }
    if test == "predictions":
        return rows | {
            "label": random.integers(0, classes, n),
            "probabilities": probabilities,
            "length": random.integers(1, 40, n),
            "attention_entropy": 3 * random.random(n, dtype=np.float32),
        }
    if test in ("single_erasure", "decision_flip"):
        return rows | getattr(erased, test)(random, n)
    rows |= {name: random.random(n, dtype=np.float32) for name in MEASURES[test]}
    if test == "counterfactual_use":
        rows["original"] = np.where(rows["index"] % 2, np.nan, rows["index"] + 1.0)
    if test == "attribution_cost":
        rows["batch"] = rows["index"] % 7
    if test in ("state_token_agreement", "conicity"):
        rows["items"] = random.integers(1, 40, n)
    stems: list[tuple[str, str]] = []
    if test == "head_ablation":
        ablated = product(("uniform", "shuffled", "off"), ("tvd", "flip_rate"))
        stems = [(f"{measure}_head_{name}", f"{measure}_layer_{name}") for name, measure in ablated]
    if test == "attention_interchange":
        rows["pair"] = rows["index"] // 2 * 2.0
        stems = [(f"{x}_head", f"{x}_layer") for x in ("covered", "turns")]
    if test == "attention_sinks":
        stems = [(f"mass_{sink}",) * 2 for sink in ("special", "first", "punctuation")]
    if test == "alignment_error":
        few = rows["index"] < 3
        for name, value in {"weights": [0.25, 0.75], "links": [2, 0], "words": ["a", "$b"]}.items():
            rows[f"shown_{name}"] = np.array([value if one else None for one in few] + [0], object)[
                :-1
            ]
        rows["label"] = random.integers(0, classes, n)
    if test == "head_roles":
        stems = [(name,) * 2 for name in MEASURES[test] if name.startswith("mass_")]
    for of_heads, of_layers in stems:
        rows[f"{of_heads}_by_head"] = random.random((n, 12), dtype=np.float32)
        rows[f"{of_layers}_by_layer"] = random.random((n, 3), dtype=np.float32)
    if test == "sanity":
        for step in (1, 2, 3, "seeds", "random"):
            for name in (f"{kind}_{step}_{m}" for kind in ("signed", "sizes") for m in METHODS):
                rows[name] = random.uniform(-1, 1, n)
    if test == "saliency_agreement":
        rows |= {f"tied_{method}": random.integers(0, 2, n) / 1 for method in METHODS}
        for pair in combinations(METHODS, 2):
            for kind in ("tau", "spearman", "overlap", "pearson", "js"):
                rows[f"{kind}_{'_'.join(pair)}"] = random.random(n, dtype=np.float32)
        rows["chance_overlap"] = random.random(n)
    if "proven" in rows:
        rows["proven"] = np.where(rows["proven"] < 0.1, np.nan, np.round(rows["proven"]))
    return rows


def drawn(test: str, rows: Rows, *names: Any, **metadata: Any) -> Figure:
    figure = draw(test, rows, *names, **metadata)
    assert figure is not None
    return figure


def write_record(
    path: Path, rows: Mapping[str, Any], *, excluded: Iterable[Any] = (), **metadata: object
) -> Path:
    """Write a record, a row for each text unless `index` is given; the excluded keys have no values."""
    path.parent.mkdir(parents=True, exist_ok=True)
    columns = dict(rows)
    index = columns.pop("index", np.arange(len(next(iter(rows.values())))))
    position = columns.pop("position", np.zeros(len(index), np.int64))
    writer = ShardWriter(path.with_suffix(".arrow"))
    writer.add(np.stack([index, position], axis=1), columns)
    writer.exclude(np.array([*excluded], np.int64).reshape(-1, 2), ("max_attention",))
    writer.close()
    merge_shards([writer.path], path, metadata=metadata)
    return path


def write_run(
    folder: Path,
    *,
    epochs: Sequence[int] = (0, 1),
    stages: Sequence[str] = ("test",),
    classes: Sequence[str] = ("negative", "positive"),
    partial: bool = False,
) -> Path:
    """Write a run folder with the records of both tests, its configuration and its logs."""
    about = {"classes": list(classes), "checkpoint": "best.ckpt", "partial": partial}
    for test in WRITTEN:
        described = about | {"test": test, "measures": MEASURES[test]}
        for stage in stages:
            path = folder / "records" / stage / f"{test}.parquet"
            write_record(path, rows_of(test, classes=len(classes)), stage=stage, **described)
        for epoch in epochs:
            path = folder / "records" / "val" / f"{test}-{epoch}.parquet"
            rows = rows_of(test, 30, len(classes), seed=epoch)
            write_record(path, rows, stage="val", epoch=epoch, **described)
    (folder / "fit.yaml").write_text(CONFIG)
    write_metrics(folder / "logs" / "version_0", "epoch,train/loss,val/accuracy\n0,0.7,0.55\n")
    write_metrics(folder / "logs" / "version_1", "epoch,test/accuracy\n0,0.625\n")
    return folder


def write_metrics(version: Path, text: str) -> None:
    """Write what a CSVLogger leaves."""
    version.mkdir(parents=True, exist_ok=True)
    (version / "metrics.csv").write_text(text)
