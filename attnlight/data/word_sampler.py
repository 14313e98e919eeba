"""Words of a corpus, drawn in place of the words of a text."""

import json
from contextlib import suppress
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer
from torch import Tensor

from attnlight.batch import TextBatch
from attnlight.data.whole_words import WholeWords
from attnlight.errors import InputError
from attnlight.functional.random import draw_keys

_OTHER, _CAPITAL, _PUNCTUATION, _CONTINUING = range(4)


class WordSampler:
    """Words of some texts, drawn by their frequency there among those of the replaced word's kind.

    A token continues a word (`##ing`), is punctuation (no letter or digit), begins with a capital, or
    is of the kind `other`, as unknown words are. A word of a kind of which fewer than two occur is
    replaced by words of any kind, a word perhaps by itself, and none by a special token. The texts are
    a `TokenDataset` or the like with a method `token_counts(size)`, the tokenizer is JSON text.
    """

    def __init__(self, tokenizer: str, texts: Any) -> None:  # noqa: ANN401
        kinds, special = _kinds_of_tokens(tokenizer)
        counts = np.where(special, 0, texts.token_counts(len(kinds)))
        if (counts > 0).sum() < 2:
            raise InputError(
                "replacement resample draws from texts of at least two different words; these have "
                f"{(counts > 0).sum()}."
            )
        order = np.argsort(kinds, kind="stable")
        totals = np.bincount(kinds, counts, minlength=4).astype(np.int64)
        few = np.bincount(kinds, counts > 0, minlength=4) < 2
        # A number below `sizes` of a kind, added to `starts`, is below one of `ends`, that of a word.
        starts = np.where(few, 0, totals.cumsum() - totals)
        sizes, ends = np.where(few, totals.sum(), totals), counts[order].cumsum()
        self._arrays = [torch.from_numpy(found) for found in (kinds, order, starts, sizes, ends)]

    def draw(self, batch: TextBatch, draws: int, seed: int) -> Tensor:
        """Tokens to replace those of a batch, long, (D, B, N) or (D, B, S, N).

        Functions of seed, dataset row, the token's place in its text and number of the draw alone.
        """
        tokens, mask = batch.tokens.flatten(1), batch.mask.flatten(1)
        kinds, order, starts, sizes, ends = (values.to(tokens.device) for values in self._arrays)
        # Position -1 is that of no row: the numbers of rows order their items at random.
        position, longest = torch.full_like(batch.index, -1), int(mask.sum(-1).max())
        keys = draw_keys(seed, batch.index, position, draws, longest)
        places = (mask.cumsum(-1) - 1).clamp(min=0).unsqueeze(1).expand(-1, draws, -1)
        kind = kinds[tokens].unsqueeze(1)
        numbers = (keys.gather(-1, places) & 0x7FFFFFFF_FFFFFFFF) % sizes[kind] + starts[kind]
        drawn = order[torch.searchsorted(ends, numbers, right=True)]
        return drawn.transpose(0, 1).reshape(draws, *batch.tokens.shape)


def word_replacements(
    replacement: Any,  # noqa: ANN401
    sampler: WordSampler | None,
    batch: TextBatch,
    draws: int,
    seed: int,
) -> list[Any]:
    """What replaces the words of a batch: draws of tokens for `resample`, else the replacement itself."""
    if replacement != "resample":
        return [replacement]
    if sampler is None:
        raise InputError("replacement resample is for tests, which know its words.")
    return list(sampler.draw(batch, draws, seed))


def _kinds_of_tokens(tokenizer: str) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Kind of each id, (V,), and whether it is special."""
    parsed = Tokenizer.from_str(tokenizer)
    vocabulary = parsed.get_vocab(with_added_tokens=True)
    kinds = np.full(max(vocabulary.values()) + 1, _OTHER, np.int64)
    special, continuing = np.arange(len(kinds)) < 4, np.zeros(len(kinds), np.bool_)
    for added in json.loads(tokenizer)["added_tokens"]:
        special[added["id"]] |= added["special"]
    with suppress(InputError):  # the tokens do not say where a word begins
        continuing = WholeWords(tokenizer).continuing
    for token, number in vocabulary.items():
        text = token if parsed.decoder is None else parsed.decoder.decode([token])
        text = text.strip(" \u0120\u2581")
        if continuing[number]:
            kinds[number] = _CONTINUING
        elif not any(letter.isalnum() for letter in text):
            kinds[number] = _PUNCTUATION
        elif text[0].isupper():
            kinds[number] = _CAPITAL
    return np.where(special, _OTHER, kinds), special
