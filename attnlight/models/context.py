"""Base of the classifiers: one row per text, decoded from the weighted mean of its states."""

from abc import ABC, abstractmethod
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import linear, pad
from typing_extensions import override

from attnlight.batch import AttentionOutput, HasReach, TextBatch
from attnlight.errors import InputError, require_at_least
from attnlight.functional._cpu import blocks
from attnlight.models.deletion import leave_out, resumable
from attnlight.models.embedding import Embedding
from attnlight.models.guided import Guide, leave_one_out_guided
from attnlight.models.options import ClassifierNet, DropoutOn, PairNet
from attnlight.probing.leave_one_out import reencode

# Input of the last encoder, (B, N, E); its real items, and those that attention may reach, (B, N)
# bool; indices (B, N, 1) that restore the batch's order of the states, None if it is unchanged; and
# the attention of the levels below.
Items = tuple[Tensor, Tensor, Tensor, Tensor | None, tuple[Tensor, ...] | None]
PARTS = ("encoder", "attention")
# In `AttentionOutput.memory`: state of each query; classes that each text may be answered with;
# product of states and decoder weights, if what follows is not affine.
QUERY, ALLOWED_CLASSES, PROJECTED = "query", "allowed_classes", "projected"


def refuse_queries(
    batch: TextBatch, remedy: str = "`problem: pairs` in `model` (AttentionTask has it)"
) -> None:
    """Raise `InputError`, which names a remedy, if a batch has queries: the model reads single texts."""
    if batch.query is not None:
        raise InputError(
            "the model reads single texts, but the corpus gives pairs of a passage and a query: set "
            f"{remedy}, or give a corpus of single texts."
        )


class ContextClassifier(nn.Module, ABC):
    """Base of the classifiers that decode the attention-weighted mean of a text's states.

    For two classes the decoder has one logit z, and the output is (0, z). Each level is an encoder
    and attention; a subclass names the levels, makes them and a `decoder`, an affine map of states,
    and computes what attention and decoder read beside the states.

    Attributes:
        levels: Prefix of the names of each level's `encoder` and `attention`.
        affine: Whether logits are affine in attention; else `_finish` is not affine.
        cheap_readout: Whether tests may evaluate the readout tens of thousands of times for a text.
        guide: Source of the attention that tests see; None: the model's attention. A model with a
            guide must encode each item alone: encoder `average` or `none`.
        with_embeddings: Whether the input of the encoder is part of the states.
        parameter_parts: The modules of each part by name, from the output down, see `part_names`.
    """

    levels: ClassVar[tuple[str, ...]] = ("",)
    affine: bool = True
    cheap_readout: ClassVar[bool] = True
    dropout_on: DropoutOn = "context"
    decoder: nn.Linear
    parameter_parts: dict[str, tuple[str, ...]]

    def __init__(self, vocab_size: int, num_classes: int, net: ClassifierNet | PairNet) -> None:
        super().__init__()
        require_at_least(2, num_classes=num_classes)
        self.embedding = Embedding(vocab_size, net.embedding_size, net.embedding_scale)
        self.embedding_dropout = nn.Dropout(net.embedding_dropout)
        self.dropout = nn.Dropout(net.dropout)
        self.guide: Guide | None = None
        self.with_embeddings = net.attend_to == "states_and_embeddings"
        below = (level + kind for level in reversed(self.levels) for kind in reversed(PARTS))
        self.parameter_parts = {name: (name,) for name in ("decoder", *below, "embedding")}

    @property
    def reach(self) -> int | None:
        """Number of items on either side on which a state depends; None: all."""
        if type(self).forward is not ContextClassifier.forward:
            return None
        encoder = getattr(self, f"{self.levels[-1]}encoder")
        return encoder.reach if isinstance(encoder, HasReach) else None

    @staticmethod
    def uniform_net(net: dict[str, Any], head: int | None) -> dict[str, Any]:
        """Options of the same classifier with uniform attention, see `models.build`."""
        if head is not None:
            raise InputError(f"head is {head}, but the attention of a classifier has one head.")
        return net | {"attention": "uniform"}

    @staticmethod
    def guided_net(
        net: dict[str, Any], guide: str, context: str | None, query_key: bool
    ) -> dict[str, Any]:
        """Options of a classifier that encodes each word alone: the MLP of Wiegreffe & Pinter."""
        if context == "full" or query_key:
            raise InputError(
                "a guided classifier reads words alone: context full and query_key "
                "are options of a tagger."
            )
        attention = "additive" if guide == "learned" else "uniform"
        changed = {"encoder": "average", "attention": attention, "attention_size": None}
        return net | changed | ({"attend_to": "states"} if "attend_to" in net else {})

    def embed(self, batch: TextBatch) -> Tensor:
        """Embeddings of the batch's tokens, (B, N, E) or (B, S, N, E), zero on padding."""
        embeddings: Tensor = self.embedding(batch.tokens)
        return embeddings

    @override
    def forward(
        self, batch: TextBatch, weights: Tensor | None = None, embeddings: Tensor | None = None
    ) -> AttentionOutput:
        """Read a batch.

        Boundary tokens are encoded but never attended to. A text with nothing to attend to has
        weights of zero and the logits of an empty context.

        Args:
            batch: B texts of N tokens, or of S sentences of tokens, which then are the N items.
            weights: Attention over the items that replaces the model's, (B, 1, N).
            embeddings: Token embeddings that replace `embed(batch)`, of the same shape.

        Returns:
            One row per text, R = B, and one head; `states` are (B, N, D). `item_logits` is None in
            training mode; at padding it is finite and arbitrary.
        """
        memory = self._memory(batch)
        items, seen, mask, places, layers = self._items(batch, embeddings)
        encoder, attention = (getattr(self, self.levels[-1] + part) for part in PARTS)
        # Under autocast, states and logits are in half precision; tests need the full one.
        known = self._known_states(batch) if embeddings is None else None
        states: Tensor = self._attended(encoder(items, seen), items) if known is None else known
        if places is not None:
            states = states.gather(1, places.expand_as(states))
            mask = mask.gather(1, places.squeeze(-1))
        scores = None
        if weights is None and self.guide is not None:
            weights = self.guide(batch).to(states.dtype)
        elif weights is None:
            weighed = attention(states, mask, memory.get(QUERY))
            weights, scores = (values.unsqueeze(1) for values in weighed)
        context = (weights @ states).squeeze(1)
        if self.dropout_on == "logits":
            logits = self.dropout(self._finish(self._project(context), memory))
        else:
            logits = self._finish(self._project(self.dropout(context)), memory)
        bias, item_logits = self._finish(self.decoder.bias, memory), None
        if not self.training and self.affine:
            item_logits = self._finish(self._project(states), memory).unsqueeze(1)
        elif not self.training:
            memory[PROJECTED] = linear(states, self.decoder.weight).to(states.dtype)
        return AttentionOutput(
            rows=torch.stack([batch.index, torch.zeros_like(batch.index)], dim=1),
            logits=logits,
            weights=weights,
            item_logits=item_logits,
            bias=bias,
            mask=mask,
            states=states,
            layers=layers,
            memory=memory,
            scores=scores,
        )

    def readout(self, output: AttentionOutput, weights: Tensor) -> Tensor:
        """Logits (B, K, C) of K candidate attentions (B, 1, K, N) over the states of `output`."""
        weights, projected = weights.squeeze(1), output.memory.get(PROJECTED)
        if projected is None:
            return self._finish(self._project(weights @ output.states), output.memory)
        return self._finish(weights @ projected + self.decoder.bias, output.memory)

    def transformed_states(self, output: AttentionOutput) -> Tensor:
        """What each item would add to the decoder's values if it had all attention, (B, 1, N, P)."""
        return linear(output.states, self.decoder.weight).unsqueeze(1)

    def leave_one_out(
        self, batch: TextBatch, output: AttentionOutput, budget: int, only: Tensor | None = None
    ) -> Tensor:
        """Logits (B, N, C) after each item is deleted, as `functional.reencode` returns them."""
        if self.guide is not None:
            return leave_one_out_guided(self, batch, output, budget)
        encoder, attention = (getattr(self, self.levels[-1] + part) for part in PARTS)
        overridden = type(self).forward is not ContextClassifier.forward
        # An accelerator runs whole recurrences in less time than it is given single steps.
        whole = encoder.reach is None and not output.mask.is_cpu
        if overridden or whole or not resumable(encoder, attention):
            return reencode(self, batch, output, budget, only)
        # Words in blocks of texts of similar length; sentences, whose words are read once, are few.
        flat = batch.mask.ndim == 2
        lengths = batch.mask.sum(-1) if flat else batch.index.new_zeros(len(batch))
        lengths, order = lengths.sort(stable=True)
        memory, parts = self._memory(batch), []  # of queries, each is encoded once
        query = memory.get(QUERY)
        sizes = lengths.tolist()
        for block in blocks(sizes, budget):
            texts, size = order[block], sizes[block.stop - 1] if flat else batch.mask.shape[1]
            tokens, seen_tokens = (values[texts, :size] for values in (batch.tokens, batch.mask))
            part = TextBatch(batch.index[texts], tokens, seen_tokens)
            items, seen, mask, places, _ = self._items(part)
            asked = None if query is None else query[texts]
            # Sentences, which `places` order anew, are few: all of them are deleted.
            chosen = None if only is None or places is not None else only[texts, :size]
            network, tensors = (encoder, attention, self.decoder), (items, seen, mask)
            values = leave_out(*network, *tensors, budget, asked, self.with_embeddings, chosen)
            if places is not None:
                values = values.gather(1, places.expand_as(values))
            parts.append(pad(values, (0, 0, 0, output.mask.shape[1] - size), value=torch.nan))
        values = torch.cat(parts)[order.argsort()]
        return self._finish(values, memory).masked_fill(values[..., :1].isnan(), torch.nan)

    def _attended(self, states: Tensor, embeddings: Tensor) -> Tensor:
        """What attention weights (B, N, D), from an encoder's states and input, as precise as that."""
        states = states.to(embeddings.dtype)
        return torch.cat([states, embeddings], dim=-1) if self.with_embeddings else states

    def _project(self, states: Tensor) -> Tensor:
        """The decoder's affine map (..., P) of states (..., D)."""
        values: Tensor = self.decoder(states).to(self.decoder.weight.dtype)
        return values

    def _finish(self, values: Tensor, memory: dict[str, Tensor]) -> Tensor:
        """Logits (..., C) from values of the decoder, (P,) or (B, ..., P)."""
        return values if values.shape[-1] > 1 else pad(values, (1, 0))

    def _items(self, batch: TextBatch, embeddings: Tensor | None = None) -> Items:
        """Input of the last encoder for a batch, see `Items`."""
        if batch.tokens.ndim != 2:
            raise InputError(
                "the model reads flat texts, but the corpus gives sentences: set `sentences: "
                "false` in `data`, or `hierarchical: true` in `model`."
            )
        embeddings = self.embed(batch) if embeddings is None else embeddings
        return self.embedding_dropout(embeddings), batch.mask, batch.attendable(), None, None

    def _known_states(self, batch: TextBatch) -> Tensor | None:
        """States (B, N, D) of a batch that need not be computed; None: they must be."""
        return None

    @abstractmethod
    def _memory(self, batch: TextBatch) -> dict[str, Tensor]:
        """What attention and decoder read beside the states of a batch."""
