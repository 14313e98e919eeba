"""A translation network: a decoder whose every step attends to the states of the source."""

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from typing_extensions import override

from attnlight.batch import AttentionOutput, TextBatch
from attnlight.errors import InputError, require_at_least
from attnlight.functional.readout.instances import texts_of_rows
from attnlight.models.attention import normalizer_of
from attnlight.models.embedding import Embedding
from attnlight.models.encoders import ENCODERS
from attnlight.models.guided import Guide
from attnlight.models.options import Seq2SeqNet, group_of

# In `AttentionOutput.memory`, of each text: the decoder's state that a step starts from, (B, T, S),
# and the embedding of the word before, (B, T, E).
STATE, WORD = "decoder state", "word before"
_DOTS = ("general", "dot", "scaled_dot")
# Elements of the hidden layers and logits of candidates that are computed at once.
_CPU_BLOCK, _ACCELERATOR_BLOCK = 1 << 22, 1 << 26


class Seq2Seq(nn.Module):
    """An encoder of the source, and a recurrent decoder that predicts the next word of the target.

    The step `bahdanau` is that of Bahdanau et al. (2015): weights are `softmax(v . tanh(W_h h + W_s s + b))`
    (`additive`) of the state s before the step, whose GRU reads the word before and the weighted mean c
    of the states h; logits are an affine map of the new state, of c and of that word. `luong` is that of
    Luong et al. (2015): the GRU reads words alone, weights are of its state s after the step (`general`:
    of `s . W h`), and logits are an affine map of `tanh(W [c; s])`. With `none` there are no weights: the
    decoder starts from the encoder's last states, and c is 0. In all forms the weights of step t choose
    word t.

    A row is a target token; the words before it are given. Rows share the states, so that a changed
    weight of one step does not change later steps in `readout`. In training the word before is the
    predicted one with probability 1 - `teacher_forcing`, drawn for each step of a batch.

    Args:
        vocab_size: Number of token ids of the source.
        num_classes: Number of words C of the target, its end among them.
        options: Options of `Seq2SeqNet`.

    Raises:
        InputError: A size is not positive, a probability is outside [0, 1], or a dot product is of
            states of different sizes.
    """

    cheap_readout: ClassVar[bool] = False
    parameter_parts: ClassVar[dict[str, tuple[str, ...]]] = {  # see `part_names`
        "decoder": ("decoder", "combine", "cell", "start", "target_embedding"),
        "attention": ("key", "query", "value"),
        "encoder": ("encoder",),
        "embedding": ("embedding",),
    }

    def __init__(self, vocab_size: int, num_classes: int, **options: Any) -> None:  # noqa: ANN401
        super().__init__()
        net = group_of(Seq2SeqNet, options)
        require_at_least(2, num_classes=num_classes)
        if not 0 <= net.teacher_forcing <= 1:
            raise InputError(f"teacher_forcing is {net.teacher_forcing}; it must be 0 to 1.")
        self.kind, self.teacher_forcing = net.attention, net.teacher_forcing
        self.normalize = normalizer_of(net.normalizer)
        self.guide: Guide | None = None
        self.embedding = Embedding(vocab_size, net.embedding_size, net.embedding_scale)
        self.encoder = ENCODERS[net.encoder](net.embedding_size, net.hidden_size)
        size, state = self.encoder.output_size, net.decoder_size or net.hidden_size
        if net.attention in ("dot", "scaled_dot") and size != state:
            raise InputError(
                f"{net.attention} multiplies states of size {size} with states of the decoder of size "
                f"{state}: set decoder_size to {size}, or use general."
            )
        # The last row is the word before the first.
        self.target_embedding = nn.Embedding(num_classes + 1, net.embedding_size)
        self.start = nn.Linear(size, state)
        self.luong = _step_of(vars(net)) == "luong"
        inputs = net.embedding_size if self.luong else net.embedding_size + size
        self.cell = nn.GRU(inputs, state, batch_first=True)
        self.key = self.query = self.value = None
        if net.attention == "additive":
            inner = net.attention_size or state
            self.key, self.query = nn.Linear(size, inner), nn.Linear(state, inner, bias=False)
            self.value = nn.Linear(inner, 1, bias=False)
        elif net.attention == "general":
            self.key = nn.Linear(size, state, bias=False)
        self.combine = nn.Linear(size + state, state) if self.luong else None
        read = state if self.luong else state + size + net.embedding_size
        self.decoder = nn.Linear(read, num_classes)
        self.dropout = nn.Dropout(net.dropout)
        if net.initialization is not None:
            for parameter in self.parameters():
                nn.init.normal_(parameter, 0.0, net.initialization)

    @staticmethod
    def uniform_net(net: dict[str, Any], head: int | None) -> dict[str, Any]:
        """Options of the same network with uniform attention, see `models.build`."""
        if head is not None:
            raise InputError(
                f"head is {head}, but the attention of a translation network has one head."
            )
        return net | {"attention": "uniform", "step": _step_of(net)}

    @staticmethod
    def guided_net(
        net: dict[str, Any], guide: str, context: str | None, query_key: bool
    ) -> dict[str, Any]:
        """Options of the same network without attention of its own, unless the guide is learned."""
        if context == "full" or query_key:
            raise InputError("context full and query_key are options of a tagger.")
        return net if guide == "learned" else Seq2Seq.uniform_net(net, None)

    def embed(self, batch: TextBatch) -> Tensor:
        """Embeddings of the source's tokens, (B, N, E), zero on padding."""
        embeddings: Tensor = self.embedding(batch.tokens)
        return embeddings

    @override
    def forward(
        self, batch: TextBatch, weights: Tensor | None = None, embeddings: Tensor | None = None
    ) -> AttentionOutput:
        """Read a batch.

        Args:
            batch: B sources of N tokens, with the classes of their targets, (B, T).
            weights: Attention that replaces the model's at every step, (R, 1, N): the states of later
                steps follow from it.
            embeddings: Embeddings of the source that replace `embed(batch)`, (B, N, E).

        Returns:
            One row per target token. `states` are the encoder's, (B, N, D); `bias`, the logits
            without a source, is left to `readout`.
        """
        if batch.target is None or batch.tokens.ndim != 2:
            raise InputError(
                "a translation network reads sources with targets: give a corpus of translations in "
                "`data`, such as TranslationDataModule."
            )
        (states, keys, state), mask = self.begin(batch, embeddings), batch.attendable()
        real = batch.target >= 0
        text, position = real.nonzero().unbind(-1)
        if weights is None and self.guide is not None:
            weights = self.guide(batch).to(states.dtype)
        given = None
        if weights is not None:
            given = states.new_zeros(*real.shape, mask.shape[1]).index_put(
                (text, position), weights[:, 0].to(states.dtype)
            )
        first = torch.full_like(batch.target[:, :1], self.target_embedding.num_embeddings - 1)
        known = torch.cat([first, batch.target[:, :-1].clamp(min=0)], dim=1)  # the words before
        inputs = self.dropout(self.target_embedding(known))
        parts = self._decode(inputs, (states, keys, mask), state, given)
        before, words, attention, scores, hidden = parts
        own = attention[text, position].unsqueeze(1)
        # The map to the vocabulary is of real tokens alone, and of all steps at once.
        logits = self.decoder(hidden[text, position])
        return AttentionOutput(
            rows=torch.stack([batch.index[text], position], dim=1),
            logits=logits.to(states.dtype),
            weights=own if weights is None else weights,
            item_logits=None,
            bias=None,
            mask=mask[text],
            states=states,
            memory={STATE: before, WORD: words},
            scores=None if weights is not None else scores[text, position].unsqueeze(1),
        )

    def readout(self, output: AttentionOutput, weights: Tensor) -> Tensor:
        """Logits (R, K, C) of K candidate attentions (R, 1, K, N) over the states of `output`.

        Each costs one step of the decoder and the map to the vocabulary; the encoder is not called.
        """
        text, position = texts_of_rows(output.rows), output.rows[:, 1]
        state, words = (output.memory[name][text, position] for name in (STATE, WORD))
        width = max(self.decoder.out_features, output.states.shape[1:].numel())
        block = _CPU_BLOCK if text.device.type == "cpu" else _ACCELERATOR_BLOCK
        size = max(1, block // max(1, weights.shape[2] * width))
        logits = []
        for rows in torch.split(torch.arange(len(text), device=text.device), size):
            contexts = weights[rows, 0] @ output.states[text[rows]]
            logits.append(self.decoder(self._hidden(contexts, state[rows], words[rows])[0]))
        return torch.cat(logits)

    def _hidden(self, contexts: Tensor, state: Tensor, words: Tensor) -> tuple[Tensor, Tensor]:
        """What the map to the vocabulary reads, (R, K, F), and the states after it, (R, K, S).

        Of contexts (R, K, D), states (R, S) and the words before (R, E).
        """
        state, words = (
            values.unsqueeze(1).expand(-1, contexts.shape[1], -1) for values in (state, words)
        )
        if self.combine is not None:
            return self.dropout(self.combine(torch.cat([contexts, state], -1)).tanh()), state
        inputs, start = torch.cat([words, contexts], -1).flatten(0, 1), state.flatten(0, 1)
        after = self.cell(inputs.unsqueeze(1), start.unsqueeze(0).contiguous())[1].view_as(state)
        return self.dropout(torch.cat([after, contexts, words], -1)), after

    def _weigh(self, keys: Tensor, state: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """Weights and scores (B, T, N) of keys (B, N, A) for states of the decoder (B, T, S)."""
        if self.value is not None:
            assert self.query is not None
            hidden = torch.tanh(keys.unsqueeze(1) + self.query(state).unsqueeze(2))
            scores = self.value(hidden).squeeze(-1)
        elif self.kind in _DOTS:
            scores = state @ keys.mT
            scores = scores / keys.shape[-1] ** 0.5 if self.kind == "scaled_dot" else scores
        else:
            scores = keys.new_zeros(*state.shape[:2], keys.shape[1])
        reached = mask.unsqueeze(1).expand_as(scores)
        if self.kind == "none":
            return torch.zeros_like(scores), scores
        return self.normalize(scores.flatten(0, 1), reached.flatten(0, 1)).view_as(scores), scores

    def begin(
        self, batch: TextBatch, embeddings: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """States (B, N, D) and keys (B, N, A) of the sources, and the decoder's first state (B, S)."""
        embeddings = self.embed(batch) if embeddings is None else embeddings
        states = self.encoder(self.dropout(embeddings), batch.mask).to(embeddings.dtype)
        last = self.encoder.final(states, batch.mask, batch.attendable())
        keys = states if self.key is None else self.key(states)
        return states, keys, torch.tanh(self.start(last))

    def next_word(
        self, source: tuple[Tensor, Tensor, Tensor], before: Tensor, state: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Logits (B, C) of the word after `before` (B,), -1 in the beginning, and the next state (B, S).

        `source` are states and keys of `begin`, and the sources' attendable tokens (B, N) bool.
        """
        start = self.target_embedding.num_embeddings - 1
        word = self.target_embedding(torch.where(before < 0, start, before))
        *_, hidden, after = self._step(source, word, state)
        return self.decoder(hidden), after

    def _decode(
        self,
        words: Tensor,
        source: tuple[Tensor, Tensor, Tensor],
        state: Tensor,
        given: Tensor | None,
    ) -> tuple[Tensor, ...]:
        """What `_step` returns, but the last, of all steps after words (B, T, E), (B, T, ...)."""
        parts, forced = [], not self.training or self.teacher_forcing == 1
        if self.luong and forced and self.value is None:
            # States depend on words alone, by one recurrence.
            states, keys, mask = source
            before = self.cell(words, state.unsqueeze(0))[0]
            known = (given, given) if given is not None else self._weigh(keys, before, mask)
            rows = (values.flatten(0, 1) for values in (before, words))
            hidden = self._hidden((known[0] @ states).flatten(0, 1).unsqueeze(1), *rows)[0]
            return before, words, *known, hidden.view(*words.shape[:2], -1)
        hidden = state  # of the step before
        for step in range(words.shape[1]):
            word = words[:, step]
            if self.training and step and torch.rand(()) >= self.teacher_forcing:
                with torch.no_grad():
                    predicted = self.decoder(hidden).argmax(-1)
                word = self.dropout(self.target_embedding(predicted))
            weights = None if given is None else given[:, step]
            *part, state = self._step(source, word, state, weights)
            hidden = part[-1]
            parts.append(part)
        return tuple(torch.stack(part, 1) for part in zip(*parts, strict=True))

    def _step(
        self,
        source: tuple[Tensor, Tensor, Tensor],
        word: Tensor,
        state: Tensor,
        weights: Tensor | None = None,
    ) -> tuple[Tensor, ...]:
        """One step of the decoder after a word (B, E), with the attention that is given, or its own.

        Returns:
            The state (B, S) that attention is of, the word, weights and scores (B, N), what the map to
            the vocabulary reads, (B, F), and the next state.
        """
        states, keys, mask = source
        if self.luong:
            state = self.cell(word.unsqueeze(1), state.unsqueeze(0).contiguous())[1].squeeze(0)
        scores = weights
        if weights is None:
            both = self._weigh(keys, state.unsqueeze(1), mask)
            weights, scores = (values.squeeze(1) for values in both)
        assert scores is not None
        hidden, after = self._hidden(weights.unsqueeze(1) @ states, state, word)
        return state, word, weights, scores, hidden.squeeze(1), after.squeeze(1)


def _step_of(net: Mapping[str, Any]) -> str:
    """The step of a network by its options."""
    return net.get("step") or ("luong" if net.get("attention") in _DOTS else "bahdanau")
