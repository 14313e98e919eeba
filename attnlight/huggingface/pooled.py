"""The flat classifier with a transformers model as its encoder: attention over the last states."""

from collections.abc import Iterable, Mapping
from typing import Any, Literal, Self

import torch
from torch import Tensor, nn
from torch.nn.functional import pad
from transformers import PreTrainedModel
from typing_extensions import override

from attnlight.batch import PAD, SEGMENT, TextBatch
from attnlight.data.dataset import TokenDataset
from attnlight.data.digests import text_digest
from attnlight.data.pieces import longest_text
from attnlight.huggingface.attention import attention_layers
from attnlight.huggingface.loading import open_model, stored_options
from attnlight.huggingface.reading import (
    positions,
    require_readable,
    require_tokenizer,
    weights_are_there,
)
from attnlight.huggingface.states import KeptStates
from attnlight.models.attention import ATTENTIONS, AttentionName
from attnlight.models.context import ContextClassifier, Items
from attnlight.models.encoders import Average, Encoder
from attnlight.models.options import ClassifierNet
from attnlight.models.parts import weights_digest
from attnlight.probing.interception import is_intercepting


class TransformerEncoder(Encoder):
    """The states of a transformers model.

    Args:
        model: The model without a head.
        freeze: Whether it is not trained; it is then without dropout too.
    """

    def __init__(self, model: PreTrainedModel, freeze: bool) -> None:
        super().__init__()
        self.model = model
        self.freeze = freeze
        self.longest = longest_text(model.config.get_text_config().to_dict())
        self.output_size = int(model.config.get_text_config().hidden_size)
        model.requires_grad_(not freeze).train(not freeze)

    @override
    def train(self, mode: bool = True) -> Self:
        return super().train(mode and not self.freeze)

    @override
    def forward(self, embeddings: Tensor, mask: Tensor) -> Tensor:
        most = mask.shape[1] if self.longest is None else self.longest
        real = mask[:, :most]
        states: Tensor = self.model(
            inputs_embeds=embeddings[:, :most],
            attention_mask=real.long(),
            **positions(self.model, real),
        ).last_hidden_state
        return pad(states, (0, 0, 0, mask.shape[1] - states.shape[1]))


class HuggingFacePooledClassifier(ContextClassifier):
    """A classifier that attends over the last states of a model of transformers.

    Its attention is a layer of its own above the model, and its logits are affine in it. Special tokens
    are read and not attended to.

    Args:
        path: Folder or hub id of a model, or a model of transformers.
        num_classes: Number of classes C.
        vocab_size: Number of token ids V; None: the model's.
        attention: The scoring function of a state.
        attention_size: Size of additive attention's hidden layer; None: half a state.
        dropout: Dropout of the classification layer.
        freeze: Whether the model of transformers is not trained. Its states of a text are then computed
            once, see `keep_states`.
        encoder: `transformer`, or `average`: an affine map and tanh of the model's token embeddings, for
            variants that read each token alone.
        hidden_size: Size of that map.
        config: The model's configuration, which checkpoints store; None: that of `path`.
        fingerprint: Fingerprint of the weights of `path`, which checkpoints store.

    Attributes:
        attention_layers: The modules that compute the model's attention, layer 0 first.

    Raises:
        InputError: There is no such model, its attention cannot be intercepted, or an option is out of
            range.
    """

    stored_options = staticmethod(stored_options)
    require_tokenizer = require_tokenizer
    encoder: Encoder
    missing: str | None
    whole_words: bool = False

    def __init__(
        self,
        path: str | PreTrainedModel,
        num_classes: int,
        vocab_size: int | None = None,
        attention: AttentionName = "additive",
        attention_size: int | None = None,
        dropout: float = 0.0,
        freeze: bool = False,
        encoder: Literal["transformer", "average"] = "transformer",
        hidden_size: int = 128,
        config: Mapping[str, Any] | None = None,
        fingerprint: str | None = None,
    ) -> None:
        source = open_model(path, None, vocab_size, config, fingerprint, head=None)
        base: Any = source.model.base_model
        with torch.no_grad():
            vectors = base.get_input_embeddings()(source.numbers)
            vectors[PAD] = 0.0
        net = ClassifierNet(embedding_size=vectors.shape[1], dropout=dropout)
        super().__init__(len(vectors), num_classes, net)
        self.embedding.weight.data = vectors
        self.embedding.requires_grad_(not freeze)
        self.path = path if isinstance(path, str) else None
        self.tokenizer = source.tokenizer
        self.missing, self.longest = source.missing, longest_text(base.config.to_dict())
        self.attention_layers = attention_layers(base)
        self.architecture = type(base), base.config
        if encoder == "average":
            self.encoder = Average(vectors.shape[1], hidden_size)
            self.attention_layers = []
        else:
            base.set_input_embeddings(nn.Identity())  # parameters that are not used stop DDP
            if "pooler" in dict(base.named_children()):
                base.pooler = None
            self.encoder = TransformerEncoder(base, freeze)
        size = self.encoder.output_size
        self.attention = ATTENTIONS[attention](size, attention_size=attention_size)
        self.decoder = nn.Linear(size, num_classes if num_classes > 2 else 1)
        self.register_load_state_dict_post_hook(weights_are_there)  # type: ignore[no-untyped-call]
        self._kept: tuple[KeptStates, ...] = ()

    def keep_states(self, splits: Iterable[TokenDataset]) -> None:
        """Compute the states of the texts of these splits once, if the model is frozen.

        They lie beside the prepared corpus, for all runs with the same model. Texts with other
        tokens, given embeddings and an intercepted model are computed as ever.
        """
        if isinstance(self.encoder, TransformerEncoder) and self.encoder.freeze:
            self._kept = tuple(KeptStates(texts) for texts in splits if not texts.paired)

    @torch.no_grad()
    def draw_parameters(self) -> None:
        """Draw the pretrained parameters as their architecture draws them before any training."""
        fresh: Any = self.architecture[0](self.architecture[1])
        table = fresh.get_input_embeddings()
        # A special token that the model lacks has the vector of another one.
        vectors = table(torch.arange(len(self.embedding.weight)) % table.num_embeddings)
        self.embedding.weight.copy_(vectors).select(0, PAD).zero_()
        if isinstance(self.encoder, TransformerEncoder):
            drawn = dict(fresh.named_parameters())
            for name, parameter in self.encoder.model.named_parameters():
                parameter.copy_(drawn[name])

    @override
    def _items(self, batch: TextBatch, embeddings: Tensor | None = None) -> Items:
        items, seen, mask, places, layers = super()._items(batch, embeddings)
        return self._in_segments(batch, items), seen, mask, places, layers

    def _in_segments(self, batch: TextBatch, embeddings: Tensor) -> Tensor:
        """Embeddings (B, N, E) with what the model adds to those of queries, beyond what it adds to all."""
        if SEGMENT not in batch.extras:
            return embeddings
        modules = dict(self.encoder.named_modules())
        types: Any = modules.get("model.embeddings.token_type_embeddings")
        if types is None or types.num_embeddings < 2:
            return embeddings
        difference: Tensor = types.weight[1] - types.weight[0]
        return embeddings + batch.extras[SEGMENT].unsqueeze(-1).to(embeddings) * difference

    @override
    def _memory(self, batch: TextBatch) -> dict[str, Tensor]:
        require_readable(self, batch)
        return {}

    @override
    def _known_states(self, batch: TextBatch) -> Tensor | None:
        tensors = [*self.embedding.parameters(), *self.encoder.parameters()]
        if not self._kept or is_intercepting() or any(tensor.is_inference() for tensor in tensors):
            return None
        digests = map(weights_digest, (self.embedding, self.encoder))
        digest = text_digest("".join([repr(self.architecture), *digests]))
        device = self.embedding.weight.device

        @torch.no_grad()
        def encode(texts: TextBatch) -> Tensor:
            texts = texts.to(device)
            require_readable(self, texts)
            states: Tensor = self.encoder(self._in_segments(texts, self.embed(texts)), texts.mask)
            return states

        read = (kept.read(batch, digest, self.encoder.output_size, encode) for kept in self._kept)
        dtype = self.decoder.weight.dtype
        return next((states.to(dtype) for states in read if states is not None), None)
