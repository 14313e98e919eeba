"""The text that a page begins with: the median case, in the colours of some scores."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from attnlight.report.texts import LAYERS, Chosen, ShownText, Token

_TOKENS = 40  # so many have a place on the first screen
# Layers that are the scores of an attribution.
_METHODS = {"input_gradient": "input_gradient", "occlusion": "loo"}


class FirstText(NamedTuple):
    """A text with its layers.

    Attributes:
        text: The text.
        tokens: The part of it that is shown.
        before: Whether tokens before that part are left out.
        after: Number of tokens after it that are left out.
        layers: Layers by name.
        median: Whether it is a median case of a test.
        framed: Whether the part has tokens of the smallest flip set.
    """

    text: ShownText
    tokens: list[Token]
    before: bool
    after: int
    layers: dict[str, str]
    median: bool
    framed: bool


def first_text(
    shown: Sequence[ShownText],
    cases: Chosen | None,
    methods: Sequence[str],
    metadata: Mapping[str, Any],
) -> FirstText | None:
    """The first text of a page, or None if it has none.

    Args:
        shown: The texts of the page.
        cases: Those of one test, of which short typical ones are preferred; None: any text.
        methods: Names of attributions, the best first.
        metadata: Of the record of texts.
    """
    if not shown:
        return None
    rows, texts = {text.row: text for text in shown}, list(shown)
    if cases is not None:
        _, lowest, highest, typical = cases
        texts = [rows[row] for row, _ in (*typical, *lowest, *highest)]
    short = (text for text in texts if len(text.tokens) <= _TOKENS + 1 and not text.hidden)
    text = next(short, texts[0])
    layers = {"attention": LAYERS["attention"]}
    best = (_METHODS[name] for name in (*methods, *_METHODS) if name in _METHODS)
    recorded = {layer for token in text.tokens for layer in token.shares}
    for layer in (*(layer for layer in best if layer in recorded),)[:1]:
        best_of_all = bool(methods) and _METHODS.get(methods[0]) == layer
        layers[layer] = f"{LAYERS[layer]}{', the best other method' if best_of_all else ''}"
    if "worst_case" in recorded:
        moved = f" (within {metadata['epsilon']:g})" if "epsilon" in metadata else ""
        layers["worst_case"] = f"another attention, same prediction{moved}"
    start, stop = 0, len(text.tokens)
    if stop > _TOKENS + 1:  # where attention is
        weights = [token.shares.get("attention", 0) for token in text.tokens]
        start = int(np.convolve(weights, np.ones(_TOKENS), "valid").argmax())
        stop = start + _TOKENS
    left = sum(bool(token.word) for token in text.tokens[stop:]) + text.hidden
    part = text.tokens[start:stop]
    framed = any("minimal" in token.shares for token in part)
    return FirstText(text, part, start > 0, left, layers, cases is not None, framed)
