"""A classifier of pairs: a query, a question or a hypothesis, attends over a passage."""

from typing import Any

from torch import Tensor, nn
from typing_extensions import override

from attnlight.batch import BOS, EOS, NOT_ALLOWED, TextBatch
from attnlight.errors import InputError
from attnlight.models.attention import ATTENTIONS, RANDOM_ATTENTIONS
from attnlight.models.context import ALLOWED_CLASSES, QUERY, ContextClassifier
from attnlight.models.embedding import Embedding
from attnlight.models.encoders import ENCODERS
from attnlight.models.options import PairNet, group_of


class PairClassifier(ContextClassifier):
    """The network of Jain and Wallace (2019) for question answering and inference.

    The query's encoder gives one vector q, see `Encoder.final`. The states h of the passage are
    scored against q, and their weighted mean c is decoded together with it: with `affine` the logits
    are `W_c c + W_q q + b`, and with `tanh` they are `W tanh(W_p c + b_p + W_q q + b_q) + b`, whose
    hidden layer has half the size of a state. A class that a text may not be answered with has the
    logit `NOT_ALLOWED`. Its options are those of `PairNet`.

    Attributes:
        query_embedding: Embedding of the query's tokens; None: that of the passage.
        query_encoder: Encoder of the query; None: that of the passage.
        query_decoder: The decoder's affine map of q.
        output: Layer after the tanh; None: there is no tanh.

    Raises:
        InputError: There are fewer than two classes, a dropout is outside [0, 1), sizes do not fit,
            or one encoder is to be shared and to be two.
    """

    def __init__(self, vocab_size: int, num_classes: int, **options: Any) -> None:  # noqa: ANN401
        net = group_of(PairNet, options)
        super().__init__(vocab_size, num_classes, net)
        query_encoder = net.query_encoder or net.encoder
        if net.share and query_encoder != net.encoder:
            raise InputError(
                f"share is true, but encoder is {net.encoder} and query_encoder {query_encoder}: "
                "leave query_encoder out."
            )
        self.encoder = ENCODERS[net.encoder](net.embedding_size, net.hidden_size)
        self.query_embedding, self.query_encoder = None, None
        query_size = self.encoder.output_size
        size = query_size + net.embedding_size * self.with_embeddings
        if not net.share:
            self.query_embedding = Embedding(vocab_size, net.embedding_size, net.embedding_scale)
            self.query_encoder = ENCODERS[query_encoder](net.embedding_size, net.hidden_size)
            query_size = self.query_encoder.output_size
        kind = (ATTENTIONS | RANDOM_ATTENTIONS)[net.attention]
        self.attention = kind(size, query_size, net.attention_size, net.normalizer)
        outputs = num_classes if num_classes > 2 else 1
        self.affine = net.decoder == "affine"
        inner = outputs if self.affine else max(1, size // 2)
        self.decoder = nn.Linear(size, inner)
        self.query_decoder = nn.Linear(query_size, inner, bias=not self.affine)
        self.output = None if self.affine else nn.Linear(inner, outputs)
        parts = {name: (name, f"query_{name}") for name in self.parameter_parts}
        self.parameter_parts = parts | {"decoder": ("output", "decoder", "query_decoder")}

    @staticmethod
    @override
    def guided_net(
        net: dict[str, Any], guide: str, context: str | None, query_key: bool
    ) -> dict[str, Any]:
        """Options of a network that encodes the passage's words alone, and queries as before."""
        own = {"query_encoder": net["query_encoder"] or net["encoder"], "share": False}
        return ContextClassifier.guided_net(net, guide, context, query_key) | own

    @override
    def _finish(self, values: Tensor, memory: dict[str, Tensor]) -> Tensor:
        texts = (len(memory[QUERY]), *[1] * (values.ndim - 2), -1)
        values = values + self.query_decoder(memory[QUERY]).to(values.dtype).view(texts)
        if self.output is not None:
            values = self.output(values.tanh()).to(values.dtype)
        logits = super()._finish(values, memory)
        allowed = memory.get(ALLOWED_CLASSES)
        return logits if allowed is None else logits.masked_fill(~allowed.view(texts), NOT_ALLOWED)

    @override
    def _memory(self, batch: TextBatch) -> dict[str, Tensor]:
        query, mask = batch.query, batch.query_mask
        if query is None or mask is None:
            raise InputError(
                "the model reads pairs of a passage and a query, but the corpus gives single texts: "
                "give a corpus of pairs in `data`, `queries` beside raw texts, or another model."
            )
        embeddings = self.embedding_dropout((self.query_embedding or self.embedding)(query))
        encoder = self.query_encoder or self.encoder
        states = encoder(embeddings, mask).to(embeddings.dtype)
        items = mask & (query != BOS) & (query != EOS)
        memory = {QUERY: encoder.final(states, mask, items)}
        if batch.allowed_classes is not None:
            memory[ALLOWED_CLASSES] = batch.allowed_classes
        return memory
