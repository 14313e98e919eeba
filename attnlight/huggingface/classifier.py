"""A transformers model as an `AttentionModel`: the attention of its last layer's classifying token."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal, get_type_hints

import torch
from torch import Tensor
from transformers import PreTrainedModel
from typing_extensions import override

from attnlight.batch import EOS, IMPERMISSIBLE, SEGMENT, AttentionOutput, TextBatch
from attnlight.data.pieces import longest_text
from attnlight.errors import InputError, require_words
from attnlight.functional.readout.instances import texts_of_rows
from attnlight.huggingface.configuration import build_configuration
from attnlight.huggingface.last_layer import LastLayer
from attnlight.huggingface.load_model import LinearForSequenceClassification
from attnlight.huggingface.loading import open_model, require_head, stored_options
from attnlight.huggingface.reading import (
    require_readable,
    require_tokenizer,
    segments,
    weights_are_there,
)
from attnlight.huggingface.trained_elsewhere import TrainedElsewhere
from attnlight.probing.flat_texts import SHARE
from attnlight.probing.leave_one_out import last_places
from attnlight.probing.patches import Patch, among, uniform

SpecialTokens = Literal["fixed", "attended"]
Items = Literal["pieces", "words"]
ItemsOf = Literal["both", "passage", "query"]
InformationFlow = Literal["free", "restricted"]
# In `AttentionOutput.memory`: the values of the last layer (B, H, N, D / H); by position of a text's rows
# the layer's input at the query (B, P, D), the query's weights on tokens that are no items, 0 elsewhere,
# (B, P, H, N), and the weight that all items have together, (B, P, H, 1); and, where items are words,
# `SHARE` and the item of each token, (B, N).
_QUERY, _VALUES, _FIXED, _MASS, _ITEM = "query", "values", "fixed", "mass", "item"


class HuggingFaceClassifier(TrainedElsewhere):
    """A classifier of transformers, read through the attention of its last layer.

    What is tested is one row of each head of the last layer: that of the token which the head reads,
    the first of an encoder, the last of a decoder. It says nothing of the layers below.

    Args:
        path: Folder or hub id of a model, or a model of transformers. One that was not trained to
            classify gets its architecture's head with random parameters, or an affine map of the state
            of the token that is tested if transformers has no such head. None: all parameters are drawn
            at random, for a model of `config` that is trained on the tokens of the corpus.
        tokenizer: The fast tokenizer of a model of transformers, or its folder or hub id, to read raw
            text; None: that of `path`, and a model of transformers reads batches only.
        num_classes: Number of classes C; None: the model's.
        vocab_size: Number of token ids V of the corpus; None: the model's.
        special_tokens: `fixed`: special tokens, such as [CLS], and the first token of a decoder keep
            their weights whatever is done to attention, and the weights of the others sum to 1;
            `attended`: they are items like all others.
        items: `pieces`: tokens are items; `words`: the pieces of a word are one. Its weight is the
            sum of theirs, and what it is given is shared among them in proportion to their original
            weights, equally if these are 0. Batches then are (B, W, P), see `TokenDataset`.
        items_of: Of a passage and a query that are one text, the part whose tokens are items; the weights
            of the other part are fixed.
        uniform_heads: Heads of the last layer with uniform attention.
        information_flow: `restricted`: in all layers impermissible tokens attend only to one another, and
            so do the others; the token that the head reads attends to all, and no other attends to it
            (Pruthi et al. 2020). Information then reaches it through the tested row alone; `free`: by
            any token.
        freeze: Whether only the last layer and what follows it are trained.
        config: The model's configuration, which checkpoints store; None: that of `path`.
        fingerprint: Fingerprint of the weights of `path`, which checkpoints store.

    Attributes:
        transformer: The model of transformers, whose attention `intercept` reaches.
        last_layer: Passes through the model, and through its last layer alone.
        attention_layers: The modules that compute attention, layer 0 first.
        whole_words: Whether items are words.
        scope: What pages and the terminal say of its attention.
        pairwise: Whether the output for a text takes memory for each pair of its items.

    Raises:
        InputError: There is no such model, it is damaged, it does not assign one of several classes to
            a text or has another number of them, its attention cannot be intercepted, or a head does not
            exist.
    """

    scope: ClassVar[str] = "Its attention is of the last layer only."
    pairwise: ClassVar[bool] = True
    stored_options = staticmethod(stored_options)
    require_tokenizer = require_tokenizer
    uniform: Tensor
    missing: str | None

    def __init__(
        self,
        path: str | Path | PreTrainedModel | None = None,
        tokenizer: Any = None,  # noqa: ANN401
        num_classes: int | None = None,
        vocab_size: int | None = None,
        special_tokens: SpecialTokens = "fixed",
        items: Items = "pieces",
        items_of: ItemsOf = "both",
        uniform_heads: Sequence[int] = (),
        information_flow: InformationFlow = "free",
        freeze: bool = False,
        config: Mapping[str, Any] | None = None,
        fingerprint: str | None = None,
    ) -> None:
        super().__init__()
        hints = get_type_hints(HuggingFaceClassifier.__init__)
        require_words(type(self).__name__, locals(), hints)
        path = str(path) if isinstance(path, Path) else path
        source = open_model(
            *(path, num_classes, vocab_size, config, fingerprint),
            tokenizer=tokenizer,
            head=self.head,
        )
        if self.head != "next":
            require_head(source.model, num_classes, self.head)
        settings = source.model.config.get_text_config()
        self.transformer = source.model
        self.last_layer = LastLayer(source.model)
        self.attention_layers = self.last_layer.attentions
        self.special_tokens = special_tokens
        self.whole_words, self.items_of = items == "words", items_of
        self.information_flow = information_flow
        self.new = source.new
        self.path = path if isinstance(path, str) else None
        self.hparams = {} if self.path is None else {"net": {"path": self.path}}
        self.tokenizer = source.tokenizer
        self.missing, self.longest = source.missing, longest_text(settings.to_dict())
        own_head = self.head == "texts" and not isinstance(
            source.model, LinearForSequenceClassification
        )
        self.padding = settings.pad_token_id if own_head else -1
        heads = int(settings.num_attention_heads)
        if wrong := [head for head in uniform_heads if not 0 <= head < heads]:
            raise InputError(f"there is no head {wrong[0]}; heads are 0 to {heads - 1}.")
        equal = torch.tensor([head in uniform_heads for head in range(heads)])
        self.register_buffer("numbers", source.numbers)
        self.register_buffer("uniform", equal[:, None], persistent=False)
        self.register_load_state_dict_post_hook(weights_are_there)  # type: ignore[no-untyped-call]
        if freeze:
            above = self.parameter_parts
            trained = {*above["head"], *above[f"layer_{len(self.attention_layers)}"]}
            for name, parameter in self.named_parameters():
                parameter.requires_grad_(name in trained)
        self.train()

    @property
    def parameter_parts(self) -> dict[str, tuple[str, ...]]:
        """The parameters of each part of the network by name, from the output down."""
        names = [name for name, _ in self.named_parameters()]
        layers, count = f"transformer.{self.last_layer.place}", len(self.last_layer.attentions)
        parts: dict[str, list[str]] = {"head": []}
        parts |= {f"layer_{number}": [] for number in range(count, 0, -1)} | {"embeddings": []}
        first = next((n for n, name in enumerate(names) if name.startswith(layers)), 0)
        for place, name in enumerate(names):
            if name.startswith(f"{layers}."):
                number = int(name.removeprefix(f"{layers}.").partition(".")[0]) + 1
                parts[f"layer_{number}"].append(name)
            else:
                parts["embeddings" if place < first else "head"].append(name)
        return {part: tuple(members) for part, members in parts.items()}

    @staticmethod
    def uniform_net(net: dict[str, Any], head: int | None) -> dict[str, Any]:
        """Options of the same model with uniform attention in its last layer, see `models.build`."""
        config = build_configuration(net["config"], "the base")
        heads = config.get_text_config().num_attention_heads
        chosen = range(heads) if head is None else [*net.get("uniform_heads", ()), head]
        return net | {"uniform_heads": list(chosen)}

    @staticmethod
    def guided_net(net: dict[str, Any], **options: object) -> dict[str, Any]:
        """Refuse the variant by `InputError`: the last layer has no attention above its states."""
        raise InputError(
            "attention of the last layer cannot be a guide's: train the base and its guided variant by "
            "`--model huggingface_pooled`, whose attention is above the states."
        )

    @torch.no_grad()
    def draw_parameters(self) -> None:
        """Draw all parameters as the model's architecture draws them before any training."""
        fresh = type(self.transformer)(self.transformer.config)
        for own, drawn in zip(self.parameters(), fresh.parameters(), strict=True):
            own.copy_(drawn)

    def embed(self, batch: TextBatch) -> Tensor:
        """Embeddings of the tokens without their positions, (*batch.tokens.shape, E), 0 on padding."""
        embeddings: Tensor = self.transformer.get_input_embeddings()(self.numbers[batch.tokens])
        return embeddings.masked_fill(~batch.mask.unsqueeze(-1), 0.0)

    def read_tokens(self, batch: TextBatch) -> Tensor:
        """Position of the token whose last state the head reads, (B,) long."""
        if not self.last_layer.causal:
            return batch.mask.int().argmax(-1)
        # Heads of transformers take a last token that is also that of padding for padding.
        passed = (batch.tokens == EOS) & (self.numbers[EOS] == self.padding)
        return last_places(batch.mask & ~passed).clamp(min=0)

    @override
    def forward(
        self, batch: TextBatch, weights: Tensor | None = None, embeddings: Tensor | None = None
    ) -> AttentionOutput:
        """Read a batch.

        Args:
            batch: B texts of N tokens, or of W words of tokens, special tokens included.
            weights: Attention of the last layer's query over the items that replaces the model's,
                (B, H, N).
            embeddings: Token embeddings that replace `embed(batch)`, of the same shape.

        Returns:
            One row per text, R = B. `states` (B, N, D) are the input of the last layer, of words the
            mean of their tokens'. `item_logits` and `bias` are None: what follows attention is not
            affine.

        Raises:
            InputError: The batch has other items, or queries beside the texts; it has no segments, of one
                of which `items_of` is; a text is longer than the model reads; or the model's weights are
                missing.
        """
        flat = require_readable(self, batch)
        embeddings = flat.tokens(self.embed(batch) if embeddings is None else embeddings)
        batch, mask = flat.batch, flat.batch.mask
        flow, inputs = self._flow(batch), segments(self.transformer, batch)
        states, found = self.last_layer.read(
            self.transformer, embeddings, mask, patch=flow, inputs=inputs
        )
        last = found[len(self.attention_layers) - 1]
        text, position, query = self._rows(batch)
        # Under autocast attention and logits are in half precision; tests need the full one.
        parts = (states, last.weights[text, :, query], last.values)
        states, row, values = (part.to(embeddings.dtype) for part in parts)
        reached = self._items(batch)[text] & last.allowed[text, 0, query]
        chosen, mask = row * reached.unsqueeze(1), flat.sums(reached.int()) > 0
        mass = chosen.sum(-1, keepdim=True)
        own = flat.sums(chosen) / mass.clamp(min=torch.finfo(mass.dtype).tiny)
        own = torch.where(self.uniform, uniform(own, mask.unsqueeze(1)), own)
        memory, places = {_VALUES: values}, 1 + int(position.max()) if len(text) else 0
        of_rows = {_QUERY: states[text, query], _MASS: mass, _FIXED: row - chosen}
        for name, part in of_rows.items():
            grid = part.new_zeros(len(batch) * places, *part.shape[1:])
            grid = grid.index_copy(0, text * places + position, part)
            memory[name] = grid.view(len(batch), places, *part.shape[1:])
        if self.whole_words:
            memory |= {_ITEM: flat.item, SHARE: flat.shares(chosen, reached)}
            states = flat.means(states)
        output = AttentionOutput(
            rows=torch.stack([batch.index[text], position], dim=1),
            logits=row,
            weights=own if weights is None else weights,
            item_logits=None,
            bias=None,
            mask=mask,
            states=states,
            memory=memory,
        )
        return self.read_out(output, weights is None)

    def _rows(self, batch: TextBatch) -> tuple[Tensor, Tensor, Tensor]:
        """Text and position of each row, and the token whose row of attention it is, (R,) long each."""
        texts = torch.arange(len(batch), device=batch.index.device)
        return texts, torch.zeros_like(texts), self.read_tokens(batch)

    def read_out(self, output: AttentionOutput, own: bool) -> AttentionOutput:
        """An output with its logits, and with scores if its weights are the model's own."""
        weights = output.weights
        if own and not self.uniform.any():
            # Their softmax over the items is the attention, also of special tokens that keep theirs.
            output.scores = weights.clamp(min=torch.finfo(weights.dtype).tiny).log()
        output.logits = self.readout(output, weights.unsqueeze(2)).squeeze(1)
        return output

    def _flow(self, batch: TextBatch) -> Patch | None:
        """What restricts the flow of information between tokens; None: it is free."""
        if self.information_flow == "free":
            return None
        if IMPERMISSIBLE not in batch.extras:
            raise InputError(
                f"information_flow is restricted, but the corpus has no column {IMPERMISSIBLE} along the "
                "tokens: give it as `marks` or `extras` of `data`."
            )
        kind = batch.extras[IMPERMISSIBLE] > 0
        read = torch.zeros_like(batch.mask).scatter(1, self.read_tokens(batch)[:, None], True)
        alike = (kind.unsqueeze(2) == kind.unsqueeze(1)) & ~read.unsqueeze(1)
        return among((alike | read.unsqueeze(2)).unsqueeze(1))

    def readout(self, output: AttentionOutput, weights: Tensor) -> Tensor:
        """Logits (R, K, C) of K candidate attentions (R, H, K, N) over the states of `output`.

        Weights of special tokens that are no items stay what they are.
        """
        text, position = texts_of_rows(output.rows), output.rows[:, 1]
        query, values = output.memory[_QUERY][text, position], output.memory[_VALUES]
        rows = self.substituted(output, weights)
        logits = self.last_layer.logits(self.transformer, query, rows, values, text)
        return logits.to(query.dtype)

    def substituted(self, output: AttentionOutput, weights: Tensor) -> Tensor:
        """The query's weights over all tokens, (R, H, [K,] N), for attention over items of that shape."""
        text, position = texts_of_rows(output.rows), output.rows[:, 1]
        parts = [output.memory[name][text, position] for name in (_FIXED, _MASS)]
        if SHARE in output.memory:  # a row is a text
            parts += [output.memory[SHARE], output.memory[_ITEM].unsqueeze(1)]
        if weights.ndim == 4:
            parts = [part.unsqueeze(2) for part in parts]
        fixed, mass, *shared = parts
        if shared:
            share, item = shared
            weights = weights.gather(-1, item.expand(*weights.shape[:-1], -1)) * share
        return fixed + mass * weights

    def _items(self, batch: TextBatch) -> Tensor:
        """Tokens that are items, (B, N) bool."""
        items = batch.mask if self.special_tokens == "attended" else batch.attendable()
        if self.special_tokens == "fixed" and self.last_layer.causal:
            rest = items & (batch.mask.cumsum(-1) > 1)
            items = torch.where(rest.any(-1, keepdim=True), rest, items)
        if self.items_of == "both":
            return items
        if SEGMENT not in batch.extras:
            raise InputError(
                f"items are of the {self.items_of}, but the texts are no pairs: set `items_of` to both, or "
                "`joined: true` in `data`."
            )
        return items & (batch.extras[SEGMENT] == (self.items_of == "query"))
