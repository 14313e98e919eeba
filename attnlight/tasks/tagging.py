"""Train a tagger whose attention is to be tested."""

from __future__ import annotations

from typing import Any

from attnlight.models.options import CustomNetwork, TaggerNet
from attnlight.tasks.attention import AttentionTask


class ChunkTagger(AttentionTask):
    """A tagger that reads each token's sentence through self-attention.

    The loss is cross-entropy of the real tokens, or of those that the corpus's `target` asks for;
    validation and test log it with the accuracy of tokens and precision, recall and F1 of chunks or,
    where a sentence has one answer, accuracy and `f1`, the mean over classes.

    Args:
        spec: What a model must know of its corpus; the command line takes it from there. Classes
            are of the BIO scheme.
        net: The network.
        options: `optimizer`, `loss` and `vectors`, see `AttentionTask`.
    """

    asks = "tagging"

    def __init__(
        self,
        spec: dict[str, Any],
        net: TaggerNet | CustomNetwork = TaggerNet(),
        **options: Any,  # noqa: ANN401
    ) -> None:
        super().__init__(spec, "tagging", net, **options)  # type: ignore[arg-type]
