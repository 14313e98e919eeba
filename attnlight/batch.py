"""In-memory types: batch, model output, model protocol."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol, Self, runtime_checkable

import torch
from torch import Tensor, nn

PAD, UNK, BOS, EOS = range(4)
SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[BOS]", "[EOS]")
NOT_ALLOWED = -1e4  # logit of a class that a text may not be answered with; finite, probability 0
# Keys of `TextBatch.extras`: tokens that are rows of a tagger, unless all are; and, of a passage and a
# query that are one text, 1 from the first token of the query on.
MARKED, SEGMENT = "marked", "segment"
SURE, POSSIBLE = 2, 1  # values of `TextBatch.links`
MANY_CLASSES = 256  # of more classes no logits are stored, and records hold the most probable ones
IMPERMISSIBLE = "impermissible"  # 1 on items that deceptive attention must avoid


@dataclass
class _Tensors:
    """A dataclass of tensors, and of tuples and dictionaries of tensors."""

    def apply(self, function: Callable[[Tensor], Tensor]) -> Self:
        """A copy with `function` applied to every tensor."""
        changed: dict[str, Any] = {}
        for name, value in vars(self).items():
            if isinstance(value, Tensor):
                changed[name] = function(value)
            elif isinstance(value, dict):
                changed[name] = {key: function(item) for key, item in value.items()}
            elif isinstance(value, list | tuple):
                changed[name] = tuple(function(item) for item in value)
        return replace(self, **changed)


@dataclass
class TextBatch(_Tensors):
    """B texts of at most N tokens (S sentences, or words, of N tokens where items are these).

    Attributes:
        index: Dataset row of each text, (B,). -1 marks a repeat that a padded sampler added to give
            all ranks the same number of batches; it is neither recorded nor counted.
        tokens: Token ids, (B, N) or (B, S, N); 0 is padding.
        mask: Tokens that the encoder reads, same shape, bool; boundary tokens included.
        labels: Classes (B,), (B, N) for tagging, or None.
        query: Token ids of a question or hypothesis, (B, M), or None.
        query_mask: Tokens that the query encoder reads, (B, M), or None.
        allowed_classes: Classes that each text may be answered with, (B, C) bool; None: all.
        target: Class of each token of a text's translation, its end included, (B, T), -100 on padding;
            None where rows are no target tokens. `trim` leaves it whole.
        links: Whether a target token is aligned to a source token, (B, T, N) int8: `SURE`, `POSSIBLE`
            or 0; None where it is not known.
        extras: Columns aligned with the tokens, each of their shape: planted `evidence`,
            `impermissible`, `rationale` and the like; 0 on padding and boundary tokens, which only
            `marked`, the tokens that are rows of a tagger, and `segment` may include.
        known: What a model that answers in free text, or translates, found of the complete texts, texts
            first: shortened and changed copies keep it.
    """

    index: Tensor
    tokens: Tensor
    mask: Tensor
    labels: Tensor | None = None
    query: Tensor | None = None
    query_mask: Tensor | None = None
    allowed_classes: Tensor | None = None
    target: Tensor | None = None
    links: Tensor | None = None
    extras: dict[str, Tensor] = field(default_factory=dict)
    known: dict[str, Tensor] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.index)

    def to(self, *args: Any, **kwargs: Any) -> TextBatch:  # noqa: ANN401
        """The batch on another device; arguments as for `torch.Tensor.to`."""
        return self.apply(lambda tensor: tensor.to(*args, **kwargs))

    def pin_memory(self) -> TextBatch:
        """The batch in page-locked memory."""
        return self.apply(lambda tensor: tensor.pin_memory())

    def select(self, texts: Tensor) -> TextBatch:
        """The texts where `texts` (B,) bool is true, or those of these indices, long."""
        return self.apply(lambda tensor: tensor[texts])

    def trim(self, items: int) -> TextBatch:
        """The first `items` places of each text; labels of texts, query, classes and target stay."""
        labels = self.labels
        return replace(
            self,
            tokens=self.tokens[:, :items],
            mask=self.mask[:, :items],
            labels=labels if labels is None or labels.ndim == 1 else labels[:, :items],
            links=None if self.links is None else self.links[..., :items],
            extras={name: values[:, :items] for name, values in self.extras.items()},
        )

    def attendable(self) -> Tensor:
        """Tokens that attention may reach: all but padding and boundary tokens, shape of mask."""
        return self.mask & (self.tokens != BOS) & (self.tokens != EOS)

    def instances(self) -> Tensor:
        """Tokens that are rows of a tagger, (B, N) bool: those `marked`, or all attendable ones.

        A marked boundary token attends to its text and is not attended to.
        """
        marked = self.extras.get(MARKED)
        return self.attendable() if marked is None else self.mask & (marked != 0)


@dataclass
class AttentionOutput(_Tensors):
    """The output of a model for a batch.

    An instance (row) is a text for a classifier and a token for a tagger: R rows, H heads,
    N attended items (words, or sentences in a hierarchical model), C >= 2 classes (a model with one
    logit z returns (0, z)). Where the readout after attention is affine,
    `logits = sum over h, n of weights * item_logits`.

    Attributes:
        rows: Dataset index and position (0 for classifiers) of each row, (R, 2) long.
        logits: (R, C).
        weights: Attention (R, H, N); each row sums to 1 and is exactly 0 off the mask.
        item_logits: Logits that each item would produce alone, with the bias divided evenly among
            heads, (R, H, N, C), may be an expanded view; None where the readout is not affine, and
            during training, when they are not used. A class that is not allowed has the logit
            `NOT_ALLOWED` in `logits` and `bias`, and divided evenly among heads here.
        bias: Logits of an empty context, (C,) or (R, C); None: those that `readout` gives for weights of
            0, which take another pass from attention to logits (`empty_logits`).
        mask: Items that attention may reach, (R, N) bool.
        states: The items' representations, (B, N, D).
        layers: Attention of other layers (a HAN's words, a transformer's (B, H, N, N)), texts first,
            or None.
        memory: Further inputs of the model's `readout`, by name, texts first. A model stores no
            state of its own between a batch and its readout.
        scores: Scores of the items before the softmax, or what is in its place, (R, H, N), arbitrary off
            the mask; None where attention was given to the model or some head does not score items.
    """

    rows: Tensor
    logits: Tensor
    weights: Tensor
    item_logits: Tensor | None
    bias: Tensor | None
    mask: Tensor
    states: Tensor
    layers: tuple[Tensor, ...] | None = None
    memory: dict[str, Tensor] = field(default_factory=dict)
    scores: Tensor | None = None

    def select(self, texts: Tensor | slice, rows: Tensor) -> AttentionOutput:
        """The rows where `rows` (R,) bool is true, with the states where `texts` (B,) bool is.

        Both may be indices (long) instead; `texts` may be a slice.
        """
        layers = self.layers and tuple(layer[texts] for layer in self.layers)
        return AttentionOutput(
            rows=self.rows[rows],
            logits=self.logits[rows],
            weights=self.weights[rows],
            item_logits=None if self.item_logits is None else self.item_logits[rows],
            bias=self.bias if self.bias is None or self.bias.ndim == 1 else self.bias[rows],
            mask=self.mask[rows],
            states=self.states[texts],
            layers=layers,
            memory={name: values[texts] for name, values in self.memory.items()},
            scores=None if self.scores is None else self.scores[rows],
        )

    @property
    def probabilities(self) -> Tensor:
        """Class probabilities (R, C)."""
        return torch.softmax(self.logits, dim=-1)


@runtime_checkable
class AttentionModel(Protocol):
    """The interface that tests require; any `nn.Module` that implements it can be tested."""

    def __call__(
        self, batch: TextBatch, weights: Tensor | None = None, embeddings: Tensor | None = None
    ) -> AttentionOutput:
        """Compute the output for a batch.

        Args:
            batch: B texts.
            weights: Attention to use in place of the model's, (R, H, N).
            embeddings: Token embeddings to use in place of `embed(batch)`, (B, N, E).
        """

    def embed(self, batch: TextBatch) -> Tensor:
        """Token embeddings (B, N, E), zero on padding."""

    def readout(self, output: AttentionOutput, weights: Tensor) -> Tensor:
        """Logits (R, K, C) of K candidate attentions (R, H, K, N) over the states of `output`."""


@runtime_checkable
class LayeredModel(AttentionModel, Protocol):
    """A model with layers of self-attention, whose weights tests record and replace.

    Its modules pass their weights through `functional.interception.interception_of`.
    """

    @property
    def attention_layers(self) -> Sequence[nn.Module]:
        """The numbered modules that compute the attention of each layer, in order of their calls."""


# What a model may have beyond `AttentionModel`; docs/your_own.md says what each of it brings.


@runtime_checkable
class HasScope(Protocol):
    """A model that says what its attention is of: a sentence for pages and the terminal."""

    scope: str


@runtime_checkable
class HasItems(Protocol):
    """A model that says what its items are called on pages, such as `sentences`."""

    items: str


@runtime_checkable
class HasReach(Protocol):
    """A model or encoder whose states depend on `reach` items on either side; None: on all."""

    @property
    def reach(self) -> int | None:
        """Number of items; None: all."""


@runtime_checkable
class HasLeaveOneOut(Protocol):
    """A model that deletes items faster than by encoding each shortened text."""

    def leave_one_out(
        self, batch: TextBatch, output: AttentionOutput, budget: int, only: Tensor | None = None
    ) -> Tensor:
        """Logits (R, N, C) after each item is deleted; NaN off the mask.

        Of items (R, N) not in `only`, which a test with `positions` gives, they may be anything.
        """


@runtime_checkable
class HasTransformedStates(Protocol):
    """A model that says what its attention sums, where its readout is not affine."""

    def transformed_states(self, output: AttentionOutput) -> Tensor:
        """Value vectors of the items of each head, (B, H, N, D)."""


@runtime_checkable
class HasWordLevel(Protocol):
    """A model whose items are sentences, which it composes of their words by attention."""

    def word_level(self, batch: TextBatch, output: AttentionOutput) -> AttentionOutput:
        """The output with the words inside sentences as items, each with its weight in its sentence.

        `readout` takes it too: it renormalises the weights of each sentence, and computes the vectors
        of the sentences, their states and the attention over them. A sentence without weights is none.
        """


@runtime_checkable
class HasReadTokens(Protocol):
    """A layered model that predicts from the last state of one token of each text."""

    def read_tokens(self, batch: TextBatch) -> Tensor:
        """The place of that token, (B,) long."""


@runtime_checkable
class HasReadoutCost(Protocol):
    """A model that says whether its readout may be evaluated tens of thousands of times for a row."""

    cheap_readout: bool


@runtime_checkable
class HasParameterParts(Protocol):
    """A network that names its parts."""

    @property
    def parameter_parts(self) -> Mapping[str, tuple[str, ...]]:
        """The modules of each part by name, from the output down."""


@runtime_checkable
class HasOwnParameters(Protocol):
    """A network that starts from pretrained parameters."""

    def draw_parameters(self) -> None:
        """Draw all parameters anew, the pretrained ones included, as for an untrained network."""


@runtime_checkable
class HasPairwiseCost(Protocol):
    """A model that says whether its output takes memory for each pair of the items of a text."""

    pairwise: bool


@runtime_checkable
class HasKeptStates(Protocol):
    """A model with a frozen encoder, which reads each text of some splits once."""

    def keep_states(self, splits: Iterable[Any]) -> None:
        """Keep the states of the texts of these splits."""


@runtime_checkable
class HasTokenizer(Protocol):
    """A model with a vocabulary of its own."""

    def require_tokenizer(self, tokenizer: str | None) -> None:
        """Raise an `InputError` unless a corpus is encoded by this tokenizer, a JSON."""


@runtime_checkable
class HasAblation(Protocol):
    """A model that leaves items out of a text in other ways than removing them."""

    def ablated_logits(
        self,
        batch: TextBatch,
        kept: Tensor,
        way: Literal["removed", "masked", "hidden"],
        budget: int | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Logits (B, K, C) of K sets of items (B, K, N), and their cost in texts, (B, K)."""
        ...


@runtime_checkable
class HasAnswerAttention(Protocol):
    """A model of several layers that answers by one token of each text."""

    def answer_attention(
        self, batch: TextBatch, of: Literal["attention", "value_norm", "rollout"]
    ) -> Tensor:
        """What the token that answers takes from each item by layer and head, (B, L, H, N)."""
        ...

    def copied_answers(self, batch: TextBatch, answer: Tensor) -> Tensor:
        """Whether the largest weight of each head is on the answer (B,) in the context, (B, L, H)."""
        ...


@runtime_checkable
class HasAnswers(Protocol):
    """A model whose classes are answers in words, which whoever asks may name."""

    classes: list[str]

    def name_answers(self, classes: Sequence[str]) -> None:
        """Take these answers as classes."""
        ...


@runtime_checkable
class HasFreeAnswers(Protocol):
    """A model that may answer in free text."""

    def free_texts(self, batch: TextBatch) -> list[str] | None:
        """The answer to each text; None: answers are classes."""
        ...


@runtime_checkable
class HasWholeWords(Protocol):
    """A model or dataset that says whether words of several tokens are items, (B, W, N)."""

    whole_words: bool


@runtime_checkable
class HasGuide(Protocol):
    """A network whose attention another model may supply, by a function of the batch; None: none does."""

    guide: Callable[[TextBatch], Tensor] | None


@runtime_checkable
class HasStoredOptions(Protocol):
    """A class of networks that adds to its options what a checkpoint needs to build it again."""

    @staticmethod
    def stored_options(options: dict[str, Any]) -> dict[str, Any]:
        """The options to store."""


@runtime_checkable
class HasEncoding(Protocol):
    """A class of networks that read their weights when they are built, and their own tokens."""

    @classmethod
    def encoding_of(cls, options: Mapping[str, Any], classes: Sequence[str]) -> object:
        """The `RawText` that encodes its texts."""


@runtime_checkable
class HasWords(Protocol):
    """A dataset that gives the words of its texts."""

    index: Any

    def words(self, position: int) -> list[str]:
        """The words of the text at a position of the dataset."""
