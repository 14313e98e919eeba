"""The caveat above a verdict card: what makes all its lines worth little."""

from __future__ import annotations

import numpy as np

from attnlight.report.verdict.claims import Estimate, rules
from attnlight.report.verdict.drafts import Drafts


def caveat(of: Drafts) -> str:
    """Sentences on the model's accuracy and on rows without numbers; "" where neither is amiss."""
    return " ".join(filter(None, (_majority(of), _non_finite(of))))


def _majority(of: Drafts) -> str:
    """Whether the model is not shown to predict better than the most frequent label does."""
    if not of.has("predictions", "label"):
        return ""
    texts, (label, prediction) = of.columns(of.records["predictions"], "label", "prediction")
    known = label >= 0
    if not known.any():
        return ""
    texts, label, prediction = texts[known], label[known], prediction[known]
    classes, counts = np.unique(label, return_counts=True)
    largest = classes[counts.argmax()]
    right, constant = (1.0 * (label == answer) for answer in (prediction, largest))
    gain = Estimate.of(texts, right - constant)
    low, high = gain.interval(1 - rules()["level"])
    if low > 0 or gain.texts < rules()["least_texts"]:
        return ""
    return str(rules()["majority"]).format(
        texts=f"{gain.texts:,}",
        accuracy=right.mean(),
        share=constant.mean(),
        value=gain.value,
        interval=f"[{low:.2f}, {high:.2f}]",
        **{"class": of.class_name("predictions", int(largest))},
    )


def _non_finite(of: Drafts) -> str:
    """How many rows were not measured, of the record where they are the most."""
    counts = [(entry.get("non_finite") or 0, entry["rows"]) for entry in of.metadata.values()]
    broken, rows = max(counts, default=(0, 0))
    if not broken:
        return ""
    says = rules()["all_non_finite" if broken == rows else "some_non_finite"]
    return str(says).format(broken=f"{broken:,}", rows=f"{rows:,}")
