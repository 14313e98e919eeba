"""Checks of a network of transformers before it reads a batch."""

from __future__ import annotations

import json
from typing import Any

from attnlight.batch import TextBatch
from attnlight.errors import InputError
from attnlight.models.context import refuse_queries
from attnlight.probing.flat_texts import FlatTexts


def weights_are_there(network: Any, incompatible: Any) -> None:  # noqa: ANN401
    """A hook: note that a network has received the weights of a checkpoint."""
    network.missing, network.new = None, ()


def require_readable(network: Any, batch: TextBatch) -> FlatTexts:  # noqa: ANN401
    """The texts of a batch, if a network has its weights and can read them.

    The network has the attributes `missing`, `longest`, the most tokens of a text, and `whole_words`.

    Raises:
        InputError: Its weights are missing; the batch has sentences, queries or other items; or a text
            is longer than the model reads.
    """
    if network.missing is not None:
        raise InputError(f"the model has no weights: {network.missing}")
    refuse_queries(batch, "`joined: true` in `data`")
    if network.whole_words and batch.tokens.ndim != 3:
        raise InputError(
            "the model reads words (items: words), but the batch has tokens (B, N): encode texts by "
            "`encode`, or give tokens and mask as (B, W, P), of W words with P pieces each."
        )
    if not network.whole_words and batch.tokens.ndim != 2:
        raise InputError("a transformer reads flat texts: set `sentences` to none in `data`.")
    flat = FlatTexts.of(batch)
    most: int | None = network.longest
    longest = int(flat.batch.mask.sum(-1).amax()) if len(batch) else 0
    if most is not None and flat.batch.mask[:, most:].any():
        raise InputError(
            f"a text has {longest} tokens, but the model reads {most} at most: set `truncate` of `data`."
        )
    return flat


def require_tokenizer(network: Any, tokenizer: str | None) -> None:  # noqa: ANN401
    """Check that a corpus has the tokens of a network; one without a tokenizer has any.

    `tokenizer` is the corpus's, as JSON text; the network has its own, or None, and its `path`.

    Raises:
        InputError: It has other tokens.
    """
    if network.tokenizer is None or tokenizer is None:
        return
    found, expected = (
        json.loads(text)["model"]["vocab"] for text in (tokenizer, network.tokenizer)
    )
    if found != expected:
        raise InputError(
            "the corpus in `data` has other tokens than the model: set `tokenizer` of `data` to its "
            f"folder or hub id, {network.path}."
        )
