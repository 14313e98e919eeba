"""A tagger of transformers as an `AttentionModel`: the attention of its last layer's words."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel
from typing_extensions import override

from attnlight.batch import AttentionOutput, TextBatch
from attnlight.functional.readout.instances import texts_of_rows
from attnlight.huggingface.classifier import HuggingFaceClassifier, SpecialTokens
from attnlight.huggingface.reading import require_readable, segments
from attnlight.probing.patches import uniform
from attnlight.problems import Tagging

# In `AttentionOutput.memory`: values of the last layer, (B, H, N, D / H), and its attention, (B, H, N, N).
_VALUES, _GRID = "values", "grid"


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
    def forward(
        self, batch: TextBatch, weights: Tensor | None = None, embeddings: Tensor | None = None
    ) -> AttentionOutput:
        """Read a batch of sentences, see `HuggingFaceClassifier`: one row per token of `TextBatch.instances`."""
        flat = require_readable(self, batch)
        given = self.embed(batch) if embeddings is None else embeddings
        inputs = segments(self.transformer, flat.batch)
        states, found = self.last_layer.read(self.transformer, given, batch.mask, inputs=inputs)
        last = found[len(self.attention_layers) - 1]
        text, position = batch.instances().nonzero().unbind(-1)
        mask = self._items(batch)[text] & last.allowed[text, 0, position]
        # Under autocast attention and logits are in half precision; tests need the full one.
        states, grid, values = (x.to(given.dtype) for x in (states, last.weights, last.values))
        row = grid[text, :, position]
        chosen = row * mask.unsqueeze(1)
        own = chosen / chosen.sum(-1, keepdim=True).clamp(min=torch.finfo(row.dtype).tiny)
        own = torch.where(self.uniform, uniform(own, mask.unsqueeze(1)), own)
        output = AttentionOutput(
            rows=torch.stack([batch.index[text], position], dim=1),
            logits=row,
            weights=own if weights is None else weights,
            item_logits=None,
            bias=None,
            mask=mask,
            states=states,
            memory={_VALUES: values, _GRID: grid},
        )
        return self.read_out(output, weights is None)

    @override
    def readout(self, output: AttentionOutput, weights: Tensor) -> Tensor:
        """Logits (R, K, C) of K candidate attentions (R, H, K, N) over the states of `output`."""
        text, position = texts_of_rows(output.rows), output.rows[:, 1]
        states, values = output.states[text, position], output.memory[_VALUES]
        rows = self.substituted(output, weights)
        logits = self.last_layer.logits(self.transformer, states, rows, values, text)
        return logits.to(states.dtype)

    @override
    def substituted(self, output: AttentionOutput, weights: Tensor) -> Tensor:
        text, position = texts_of_rows(output.rows), output.rows[:, 1]
        row = output.memory[_GRID][text, :, position]
        chosen = row * output.mask.unsqueeze(1)
        fixed, mass = row - chosen, chosen.sum(-1, keepdim=True)
        if weights.ndim == 4:
            fixed, mass = fixed.unsqueeze(2), mass.unsqueeze(2)
        return fixed + mass * weights
