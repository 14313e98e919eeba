"""Train a classifier whose attention is to be tested."""

from __future__ import annotations

from typing import Any

from attnlight.models.options import ClassifierNet, CustomNetwork
from attnlight.tasks.attention import AttentionTask


class AttentionClassifier(AttentionTask):
    """A classifier with attention over the words or the sentences of a text.

    The loss is cross-entropy; with two classes the logits are (0, z), and it is the binary
    cross-entropy of Jain & Wallace.

    Args:
        spec: Description of the corpus; the command line supplies it.
        net: The network.
        options: `optimizer`, `loss`, `vectors` and `objective`, see `AttentionTask`.
    """

    problem_name = "classification"

    def __init__(
        self,
        spec: dict[str, Any],
        net: ClassifierNet | CustomNetwork = ClassifierNet(),
        **options: Any,  # noqa: ANN401
    ) -> None:
        super().__init__(spec, "classification", net, **options)  # type: ignore[arg-type]
