"""A tagger of transformers as an `AttentionModel`: the attention of its last layer's words."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor
from transformers import PreTrainedModel
from typing_extensions import override

from attnlight.batch import TextBatch
from attnlight.huggingface.classifier import HuggingFaceClassifier, SpecialTokens
from attnlight.problems import Tagging


class HuggingFaceTagger(HuggingFaceClassifier):
    """A model of transformers that tags tokens, read through the attention of its last layer.

    What is tested are rows of each head of the last layer: that of the first token of each word, which
    the head reads. Items are the tokens of the sentence. It says nothing of the layers below.

    Args:
        path: Folder or hub id of a model, or a model of transformers. One that was not trained to tag
            gets its architecture's head with random parameters. None: as for `HuggingFaceClassifier`.
        tokenizer: The fast tokenizer of a model of transformers, as for `HuggingFaceClassifier`.
        num_classes: Number of tags C; None: the model's.
        vocab_size: Number of token ids V of the corpus; None: the model's.
        special_tokens, uniform_heads, freeze, config, fingerprint: As for
            `HuggingFaceClassifier`.

    Raises:
        InputError: There is no such model, it is damaged, it does not tag tokens or has another number of
            tags, its attention cannot be intercepted, or a head does not exist.
    """

    head = "tokens"

    def __init__(
        self,
        path: str | Path | PreTrainedModel | None = None,
        tokenizer: Any = None,  # noqa: ANN401
        num_classes: int | None = None,
        vocab_size: int | None = None,
        special_tokens: SpecialTokens = "fixed",
        uniform_heads: Sequence[int] = (),
        freeze: bool = False,
        config: Mapping[str, Any] | None = None,
        fingerprint: str | None = None,
    ) -> None:
        options = {"uniform_heads": uniform_heads, "freeze": freeze}
        options |= {"config": config, "fingerprint": fingerprint, "special_tokens": special_tokens}
        super().__init__(path, tokenizer, num_classes, vocab_size, **options)  # type: ignore[arg-type]

    @property
    @override
    def problem(self) -> Tagging:  # type: ignore[override]
        return Tagging(super().problem.spec)

    @override
    def _rows(self, batch: TextBatch) -> tuple[Tensor, Tensor, Tensor]:
        """Rows are the tokens of `TextBatch.instances`."""
        text, position = batch.instances().nonzero().unbind(-1)
        return text, position, position
