"""A decoder-only model that answers from a context, as an `AttentionModel`."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor
from transformers import PreTrainedModel
from typing_extensions import override

from attnlight.batch import NOT_ALLOWED, AttentionOutput, TextBatch
from attnlight.data.pieces import read_tokenizer
from attnlight.data.raw_text import RawText
from attnlight.data.sentences import SentenceRules
from attnlight.errors import InputError, require_at_least
from attnlight.functional.attribution.log_odds import log_odds
from attnlight.huggingface import ablation, free_text
from attnlight.huggingface.classifier import HuggingFaceClassifier
from attnlight.huggingface.folder import model_folder
from attnlight.huggingface.prompt_template import (
    CHAT_TEMPLATE,
    PLAIN_TEMPLATE,
    Prompts,
    chat_template,
    encode_answers,
    encode_part,
    fill_chat,
    join_prompts,
    split_template,
    text_tokenizer,
)
from attnlight.probing.flat_texts import SHARE
from attnlight.probing.patches import uniform
from attnlight.problems import Pairs

# In `AttentionOutput.memory` beside those of the classifier: the log probability of the tokens of each
# answer after its first, (B, C).
_REST = "rest"
_PARTS = ("before", "between", "after")  # of the template, in names of buffers


class AnswerModel(HuggingFaceClassifier):
    """A causal model of transformers that answers a question from a context.

    A prompt is the template with a passage as `{context}` and a query as `{question}`. Classes are
    answers: the logit of one is the joint log probability of its tokens after the prompt, whose keys and
    values are computed once. What is tested is a row of each head of the last layer: that of the token
    that predicts the answer's first token. Its weights on the template, the question and special tokens
    are fixed whatever is done to attention; items are the sentences, or the tokens, of the passage.

    In free text (`free`) there are two classes: the greedy answer of the complete context, whose log odds
    are those of the joint probability of its tokens, and any other answer. Long answers have small
    probabilities: where the complete context gives one less than 2 / 3, its log odds are raised to log 2
    there, and by as much in all changed contexts, so that it is what is predicted until its odds halve.

    Args:
        path: Folder or hub id of a model, or a model of transformers. None: a model of `config` that is
            trained on the tokens of the corpus, with random parameters.
        tokenizer: The fast tokenizer of a model of transformers, as for `HuggingFaceClassifier`.
        classes: The answers; by default those of the corpus or of the rows.
        template: The prompt, with `{context}` and `{question}`, in which `[BOS]` and `[EOS]` are the
            tokenizer's special tokens. Null: a short one.
        chat: Whether the template is a user's message in the chat template that the tokenizer has.
        items: What attention is read of, where a passage is raw text: its `sentences` or its `tokens`.
        free: Answer in free text of at most so many tokens; the rows have no labels. Null: in `classes`.
        vocab_size: Number of token ids V of the corpus; None: the model's.
        config, fingerprint: As for `HuggingFaceClassifier`.

    Raises:
        InputError: There is no such model, it does not predict the next token, an answer has no token, or
            the template lacks a place.
    """

    scope: ClassVar[str] = (
        "Its attention is of the last layer only, of the token that predicts the answer's first token."
    )
    head = "next"
    answers: Tensor

    def __init__(
        self,
        path: str | Path | PreTrainedModel | None = None,
        tokenizer: Any = None,  # noqa: ANN401
        classes: Sequence[str] = (),
        template: str | None = None,
        chat: bool = True,
        items: Literal["sentences", "tokens"] = "sentences",
        free: int | None = None,
        vocab_size: int | None = None,
        config: Mapping[str, Any] | None = None,
        fingerprint: str | None = None,
    ) -> None:
        require_at_least(1, free=free)
        if free is not None and (classes or path is None):
            raise InputError(
                "free text has no `classes`, and a model of `config` is trained on them: leave out `free`."
            )
        classes = classes if free is None else free_text.CLASSES
        options = {"config": config, "fingerprint": fingerprint}
        super().__init__(path, tokenizer, max(2, len(classes)), vocab_size, **options)  # type: ignore[arg-type]
        if not self.last_layer.causal:
            raise InputError(f"{path} is an encoder: expected a decoder.")
        self.classes, self.items, self.free, self.new = list(classes), items, free, ()
        del self.attention_layers  # several passes make one output
        for name in (*_PARTS, "answers"):
            self.register_buffer(name, torch.zeros(0, dtype=torch.long))
        self.register_load_state_dict_pre_hook(_resize)  # type: ignore[no-untyped-call]
        given = path if tokenizer is None else tokenizer
        rendered = chat_template(given) if chat and self.tokenizer is not None else None
        template = template or (PLAIN_TEMPLATE if rendered is None else CHAT_TEMPLATE)
        self.template = template if rendered is None else fill_chat(rendered, template)
        self.texts, self.places = split_template(self.template)
        if self.tokenizer is not None:
            full, self.tokenizer = self.tokenizer, text_tokenizer(self.tokenizer)
            self._encode(full, text_tokenizer(full, spaced=not self.texts[-1][-1:].isspace()))

    def _encode(self, tokenizer: str, of_answers: str) -> None:
        """Take the ids of the template and of the answers from tokenizers."""
        self._of_answers, ends = of_answers, [text.rstrip(" ") for text in self.texts[:-1]]
        for name, text in zip(_PARTS, [*ends, self.texts[-1]], strict=True):
            self.register_buffer(name, encode_part(tokenizer, text))
        self.name_answers(self.classes)

    def name_answers(self, classes: Sequence[str]) -> None:
        """Take these answers as classes."""
        named = classes if self.free is None else ()
        self.classes, self.answers = list(classes), encode_answers(self._of_answers, named)
        self.to(self.numbers.device)

    @override
    def require_tokenizer(self, tokenizer: str | None) -> None:
        """Take the tokenizer of the corpus that the model is trained on; one of its own stays."""
        if self.path is None and tokenizer is not None:
            self._encode(tokenizer, tokenizer)
        elif tokenizer is not None:
            super().require_tokenizer(tokenizer)

    @classmethod
    @override
    def encoding_of(cls, options: Mapping[str, Any], classes: Sequence[str]) -> RawText:
        """The encoding of passages and queries of a model that was trained elsewhere."""
        if options.get("path") is None:
            raise InputError("a model of `config` has no weights: train it by `attnlight fit`.")
        if options.get("free") is not None:
            raise InputError(
                "free text has no labels, which commands need: leave out `free`, or write "
                "`attnlight.run(AnswerModel(path, free=16), rows)` in Python."
            )
        path = str(options["path"])
        tokenizer, _ = read_tokenizer(str(model_folder(path)))
        named = options.get("classes") or classes
        return _raw(text_tokenizer(tokenizer.to_str()), named, path, options.get("items"))

    @property
    @override
    def raw(self) -> RawText:
        if self.tokenizer is None:
            raise InputError(
                "a model in memory needs a tokenizer: `AnswerModel(model, tokenizer)`."
            )
        return _raw(self.tokenizer, self.classes, self.path, self.items)

    @property
    @override
    def problem(self) -> Pairs:
        spec = {"vocab_size": len(self.numbers), "classes": self.classes, "features": {}}
        return Pairs({**spec, "target": "tokens", "query": True})

    @override
    def announce_classes(self, classes: Sequence[str], accuracy: float | None = None) -> None:
        """Nothing is to be said: classes are named by their tokens."""

    def prompts(self, batch: TextBatch, embeddings: Tensor | None = None) -> Prompts:
        """The prompts of a batch; embeddings are in place of `embed(batch)`."""
        parts = [getattr(self, name) for name in _PARTS]
        if self.missing is not None or not any(map(len, parts)):
            raise InputError(f"the model has no weights or no template: {self.missing}.")
        table = self.transformer.get_input_embeddings()
        given = self.embed(batch) if embeddings is None else embeddings
        found = join_prompts(batch, parts, self.places, lambda ids: table(self.numbers[ids]), given)
        lengths, most = found.mask.sum(-1), self.longest and self.longest - (self.free or 0)
        if most is not None and int(lengths.amax()) > most:
            raise InputError(
                f"{int((lengths > most).sum())} of {len(batch)} prompts are longer than the {most:,} tokens "
                f"that the model reads, the longest of {int(lengths.amax()):,}: leave these rows out."
            )
        return found

    @override
    def forward(
        self, batch: TextBatch, weights: Tensor | None = None, embeddings: Tensor | None = None
    ) -> AttentionOutput:
        """Answer questions, see `HuggingFaceClassifier`."""
        flat, vectors, mask = self.prompts(batch, embeddings)
        states, found, cache = self.last_layer.read_last(self.transformer, vectors, mask)
        last = found[max(found)]
        row, values = (part.to(vectors.dtype) for part in (last.weights[:, :, 0], last.values))
        # Items outside the window of a layer have weight 0, and alike where all are: they have no effect.
        inside = flat.batch.mask
        chosen, items = row * inside.unsqueeze(1), flat.sums(inside.int()) > 0
        mass = chosen.sum(-1, keepdim=True)
        own = flat.sums(chosen) / mass.clamp(min=torch.finfo(mass.dtype).tiny)
        own = torch.where(mass > 0, own, uniform(own, items.unsqueeze(1)))
        of_rows = {"query": states[:, -1], "mass": mass, "fixed": row - chosen}
        memory = {name: part.unsqueeze(1) for name, part in of_rows.items()} | {"values": values}
        memory |= {"item": flat.item, SHARE: flat.shares(chosen, inside)}
        first = self.free is not None and not batch.known
        if first:
            batch.known[free_text.ANSWER] = free_text.free_answers(self, batch)
            batch.known[free_text.RAISED] = torch.zeros(len(batch), device=mask.device)
        read = mask, mask.sum(-1), batch.allowed_classes, batch.known.get(free_text.ANSWER)
        memory |= {_REST: ablation.later_tokens(self, cache, *read), **batch.known}
        rows = torch.stack([batch.index, torch.zeros_like(batch.index)], dim=1)
        used = own if weights is None else weights
        states = flat.means(states)
        output = AttentionOutput(rows, row, used, None, None, items, states, memory=memory)
        if first:
            logits = self.readout(output, used.unsqueeze(2)).squeeze(1).detach()
            odds = log_odds(logits, torch.zeros_like(batch.index))
            batch.known[free_text.RAISED] = (math.log(2) - odds).clamp(min=0)
            memory |= batch.known
        return self.read_out(output, weights is None)

    @override
    def readout(self, output: AttentionOutput, weights: Tensor) -> Tensor:
        """Logits (R, K, C) of K candidate attentions (R, H, K, N) of the row that is tested.

        They change the first token of an answer alone: no later token reads the last layer of the row.
        """
        memory, rows = output.memory, self.substituted(output, weights)
        query, text = memory["query"].squeeze(1), torch.arange(len(rows), device=rows.device)
        logits = self.last_layer.logits(self.transformer, query, rows, memory["values"], text)
        names = () if self.free is None else (free_text.ANSWER, free_text.RAISED)
        known = {name: memory[name].unsqueeze(1) for name in names}
        return self.answer_logits(logits, memory[_REST].unsqueeze(1), known)

    def answer_logits(self, logits: Tensor, rest: Tensor, known: Mapping[str, Tensor]) -> Tensor:
        """Log probabilities (..., C) of answers from logits of the first token (..., V) and `later_tokens`.

        `known` has free answers (..., A), and what the log odds of these are raised by, (...).
        """
        first = logits.to(torch.promote_types(logits.dtype, torch.float32)).log_softmax(-1)
        if self.free is not None:
            return free_text.free_logits(first, rest, known)
        found = first[..., self.numbers[self.answers[:, 0]]] + rest
        return torch.where(rest <= NOT_ALLOWED, NOT_ALLOWED, found)

    free_texts = free_text.free_texts
    answer_attention = ablation.answer_attention
    copied_answers = ablation.copied_answers
    ablated_logits = ablation.ablated_logits


def _resize(network: AnswerModel, state: Mapping[str, Any], prefix: str, *_: object) -> None:
    """A hook: give the buffers of template and answers the sizes of a checkpoint's."""
    for name in (*_PARTS, "answers"):
        if (values := state.get(prefix + name)) is not None:
            network.register_buffer(name, torch.empty_like(values))


def _raw(tokenizer: str, classes: Sequence[str], path: str | None, items: str | None) -> RawText:
    """The encoder of passages, whose sentences are separate unless `items` are tokens, and of queries."""
    sentences = None if items == "tokens" else SentenceRules().identity() | {"nested": True}
    encoder = RawText(tokenizer, list(classes), path, sentences)
    encoder.paired = True
    return encoder
