"""What is collected of a tagger's runs: a row for each test sentence, means over validation tokens."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from attnlight.compatibility import section
from attnlight.records import read_metadata
from attnlight.statistics.collapse import frequency_loss
from attnlight.statistics.f1 import f1_by_class
from attnlight.studies.commands import DIVERGENCE
from attnlight.studies.plan import PlannedRun, base_name
from attnlight.studies.sections import read_yaml
from attnlight.studies.state import StudyFolder
from attnlight.studies.tokens import Tokens, read_tokens, whole
from attnlight.studies.validation import Measures

_COUNTS = ("tokens", "correct", "agree", "gold", "found", "matched", "choices", "tau_rows")
_COMPARED = (
    "attention_js",
    "attention_js_mean",
    "attention_js_share",
    "attention_tau",
    "prediction_tvd",
)
_HEADS = "attention_js_heads"
SCHEMA = pa.schema(
    {"index": pa.int64()}
    | dict.fromkeys(_COUNTS, pa.int32())
    | dict.fromkeys(("nll_gold", "nll_base", *_COMPARED), pa.float32())
    | {_HEADS: pa.list_(pa.float32())}
)


def rows(folder: StudyFolder, run: PlannedRun) -> Mapping[str, NDArray[Any]]:
    """Columns of `SCHEMA` of a finished run, (S,) for S test sentences, or (S, H) for H heads.

    Counts and sums are over the tokens of a sentence that were measured. A base has no column that
    compares with it, and a sentence of one answer has no chunks.

    Raises:
        RecordError: A record is missing or damaged.
        InputError: A record holds other tokens than that of the base.
    """
    held = read_tokens(folder, run, "test")
    values: dict[str, NDArray[Any]] = {
        "tokens": held.measured,
        "correct": held.correct,
        "nll_gold": held.losses(held.label),
    }
    if folder.study.target == "tokens":
        values |= dict(zip(("gold", "found", "matched"), held.chunks(), strict=True))
    if run.base is not None:
        values |= _compared(held)
        values["choices"] = ~np.isnan(values["attention_js_share"])
        values["tau_rows"] = ~np.isnan(values["attention_tau"])
    found = {name: held.sums(column) for name, column in values.items()}
    return found | {"index": held.index[held.starts]}


def _compared(held: Tokens) -> dict[str, NDArray[Any]]:
    """What tells how far each token is from the base, (R,) or (R, H), NaN where undefined."""
    unknown = np.full(len(held.index), np.nan)
    found: dict[str, NDArray[Any]] = {
        name: held.divergence.get(name, unknown) for name in ("base_prediction", *_COMPARED)
    }
    if _HEADS not in held.divergence:  # one head, or nothing was measured
        found["attention_js_mean"] = found["attention_js"]
    base = whole(found.pop("base_prediction"))
    return found | {
        _HEADS: held.divergence.get(_HEADS, found["attention_js"][:, None]),
        "nll_base": held.losses(base),
        "agree": held.measured & (held.prediction == base),
    }


def validation(folder: StudyFolder, run: PlannedRun) -> Measures:
    """Measures of a run on the validation split at its best epoch.

    Returns:
        `f1` (of chunks; where a sentence has one answer the mean over classes), `accuracy`, and the
        means over measured tokens `nll_gold`, `nll_base` (nats), `attention_js`,
        `attention_js_mean`, `attention_js_share`, `attention_tau`, `prediction_tvd` and, for each
        head of the base, `attention_js_heads`; None where there is nothing to take a mean of.

    Raises:
        RecordError: A record is missing or damaged.
        InputError: A record holds other tokens than that of the base.
    """
    held = read_tokens(folder, run, "val")
    compared = {} if run.base is None else _compared(held)
    heads = _means(compared[_HEADS]) if compared else []
    return {
        "f1": _f1(held, chunks=folder.study.target == "tokens"),
        "accuracy": float(held.correct.mean()),
        "nll_gold": _mean(held.losses(held.label)),
        **{name: _mean(compared.get(name)) for name in ("nll_base", *_COMPARED)},
        _HEADS: heads or None,
    }


def _f1(held: Tokens, *, chunks: bool) -> float:
    if not chunks:
        (f1,) = f1_by_class(held.prediction[None], held.label, len(held.classes))
        return float(np.nanmean(f1))
    gold, found, both = (int(where.sum()) for where in held.chunks())
    return 2 * both / (gold + found) if gold + found else 0.0


def _mean(values: NDArray[Any] | None) -> float | None:
    """Mean of what is defined."""
    defined = np.empty(0) if values is None else values[~np.isnan(values)]
    return float(defined.mean(dtype=np.float64)) if len(defined) else None


def _means(values: NDArray[Any]) -> list[float]:
    """Mean of each column of what is defined; none where nothing is."""
    means = [_mean(column) for column in values.T]
    return [mean for mean in means if mean is not None]


def described(folder: StudyFolder, run: PlannedRun) -> dict[str, Any]:
    """What `study.json` says of a finished run beyond what it says of all."""
    told: dict[str, Any] = {"told_by": folder.told_by(run), "epochs": folder.epochs(run)}
    if run.base is not None:
        path = folder.record(run.name, "test", DIVERGENCE)
        return told | {"heads": read_metadata(path).get("heads")}
    held = read_tokens(folder, run, "val")
    counts = np.bincount(held.prediction[held.measured], minlength=len(held.classes))
    return told | {"heads": None, "ignorant": frequency_loss(counts)}


def about(folder: StudyFolder) -> dict[str, Any]:
    """What `study.json` says of the whole study beyond what it says of all."""
    base = read_yaml(folder.run(base_name(folder.study.base.seeds[0])) / "fit.yaml")
    return {
        "task": "tagging",
        "target": folder.study.target,
        "options": folder.study.condition,
        "readout": section(base["model"])["init_args"]["net"]["readout"],
        "pos": base["data"]["init_args"]["pos"],
    }
