"""Words of a corpus, drawn in place of the words of a text."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from attnlight.batch import HasTokenCounts, TextBatch
from attnlight.data.whole_words import WholeWords
from attnlight.errors import InputError
from attnlight.functional.random import draw_keys

_OTHER, _CAPITAL, _PUNCTUATION, _CONTINUING = range(4)


class WordSampler:
    """Words of some texts, drawn by their frequency there among those of the replaced word's kind.

    A token is a piece that continues a word (`##ing`), punctuation (no letter or digit), begins with
    a capital, or is of the kind `other`, as unknown words are. A word of a kind of which fewer than
    two words occur is replaced by words of any kind. Special tokens are never drawn. A draw may be the
    replaced word itself.

    Args:
        tokenizer: The tokenizer as JSON text.
        texts: The texts, such as a training split.

    Raises:
        InputError: Fewer than two different words occur.
    """

    def __init__(self, tokenizer: str, texts: HasTokenCounts) -> None:
        kinds, special = _kinds(tokenizer)
        counts = np.where(special, 0, texts.token_counts(len(kinds)))
        if (counts > 0).sum() < 2:
            raise InputError(
                f"replacement resample draws from the words of the texts, of which {(counts > 0).sum()} "
                "occur; expected at least two different words, or use `unk` or `delete`."
            )
        order = np.argsort(kinds, kind="stable")
        totals = np.bincount(kinds, counts, minlength=4).astype(np.int64)
        few = np.bincount(kinds, counts > 0, minlength=4) < 2
        # A number below `sizes` of a kind, added to `starts`, is below one of `ends`, that of a word.
        starts = np.where(few, 0, totals.cumsum() - totals)
        sizes, ends = np.where(few, totals.sum(), totals), counts[order].cumsum()
        self._arrays = [torch.from_numpy(found) for found in (kinds, order, starts, sizes, ends)]

    def draw(self, batch: TextBatch, draws: int, seed: int) -> Tensor:
        """Tokens to replace those of a batch, (D, B, N) long, or (D, B, S, N).

        Each is a function of the seed, the text's dataset row, the token's place in its text and the
        number of the draw alone.
        """
        device, tokens, mask = batch.tokens.device, batch.tokens.flatten(1), batch.mask.flatten(1)
        kinds, order, starts, sizes, ends = (values.to(device) for values in self._arrays)
        # Position -1 is that of no row, whose numbers order its items at random.
        keys = draw_keys(
            seed, batch.index, torch.full_like(batch.index, -1), draws, int(mask.sum(-1).max())
        )
        places = (mask.cumsum(-1) - 1).clamp(min=0).unsqueeze(1).expand(-1, draws, -1)
        kind = kinds[tokens].unsqueeze(1)
        numbers = (keys.gather(-1, places) & 0x7FFFFFFF_FFFFFFFF) % sizes[kind] + starts[kind]
        drawn = order[torch.searchsorted(ends, numbers, right=True)]
        return drawn.movedim(1, 0).reshape(draws, *batch.tokens.shape)


def draw_replacements(
    replacement: Any,  # noqa: ANN401
    words: WordSampler | None,
    batch: TextBatch,
    draws: int,
    seed: int,
) -> list[Any]:
    """What replaces the words of a batch, one way or several of equal weight.

    Of `resample` they are draws of tokens like the batch's, of any other replacement itself.

    Raises:
        InputError: The words to draw from are not known.
    """
    if replacement != "resample":
        return [replacement]
    if words is None:
        raise InputError(
            "replacement resample draws words of a corpus, which only tests know: use `unk` or "
            "`delete` here."
        )
    return list(words.draw(batch, draws, seed))


def _kinds(tokenizer: str) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Kind of each id, (V,), and whether it is of a special token."""
    from tokenizers import Tokenizer

    parsed = Tokenizer.from_str(tokenizer)
    vocabulary = parsed.get_vocab(with_added_tokens=True)
    kinds = np.full(max(vocabulary.values()) + 1, _OTHER, np.int64)
    special = np.arange(len(kinds)) < 4
    for added in json.loads(tokenizer)["added_tokens"]:
        special[added["id"]] |= added["special"]
    try:
        continuing = WholeWords(tokenizer).continuing
    except InputError:  # the tokens do not say where a word begins
        continuing = np.zeros_like(special)
    for token, number in vocabulary.items():
        text = token if parsed.decoder is None else parsed.decoder.decode([token])
        text = text.strip(" \u0120\u2581")
        if special[number]:
            continue
        if continuing[number]:
            kinds[number] = _CONTINUING
        elif not any(letter.isalnum() for letter in text):
            kinds[number] = _PUNCTUATION
        elif text[0].isupper():
            kinds[number] = _CAPITAL
    return kinds, special
