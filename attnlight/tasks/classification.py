"""Train a classifier whose attention is to be tested."""

from __future__ import annotations

from typing import Any

from attnlight.models.options import ClassifierNet, CustomNetwork
from attnlight.tasks.attention import AttentionTask


class AttentionClassifier(AttentionTask):
    """A classifier that reads a text through attention over its words, or over its sentences.

    The loss is cross-entropy; with two classes the model has one logit z and (0, z) makes it the
    binary cross-entropy of Jain & Wallace.

    Args:
        spec: What a model must know of its corpus; the command line takes it from there.
        net: The network.
        options: `optimizer`, `loss` and `vectors`, see `AttentionTask`.
    """

    asks = "classification"

    def __init__(
        self,
        spec: dict[str, Any],
        net: ClassifierNet | CustomNetwork = ClassifierNet(),
        **options: Any,  # noqa: ANN401
    ) -> None:
        super().__init__(spec, "classification", net, **options)  # type: ignore[arg-type]
