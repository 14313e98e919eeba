"""Pairs of a text and an edit of it for the page, each as one text with both."""

import numpy as np

from attnlight.functional.alignment import align
from attnlight.records import RecordFile, read_rows
from attnlight.report.texts import Chosen, shortened, text_name

_WORDS, _PAIRS = 400, 3  # most of a pair, and of the pairs of an end
_Words = list[tuple[str, float]]  # words of a text and their attention
# Name and value of a pair, and of each word its side (-1: of the original alone, 0: of both, 1: of the
# edit alone) and its share of the largest attention in per cent.
ShownPair = tuple[str, float, list[tuple[str, int, int]]]


def shown_differences(
    record: RecordFile, chosen: Chosen, texts: RecordFile
) -> dict[str, list[ShownPair]]:
    """Pairs with the lowest, the highest and typical values of a column, by these words.

    The record has the dataset index of the original of each edit, `original`; of any other record
    the result is empty. A pair of which the record `texts` lacks a text is left out.
    """
    if "original" not in record.columns:
        return {}
    edits = np.array([index for index, _ in chosen.rows])
    pairs = read_rows(record, ["index", "original"], texts=edits)
    originals = {int(pair["index"]): int(pair["original"]) for pair in pairs}
    wanted = np.array([*originals, *originals.values()])
    words: dict[int, _Words] = {}
    for row in read_rows(texts, ["index", "tokens", "items", "attention"], texts=wanted):
        spans = zip(row["items"], np.mean(list(row["attention"]), axis=0), strict=True)
        by_token = {place: w for (start, stop), w in spans for place in range(start, stop)}
        tokens = ((shortened(row["tokens"][place]), by_token[place]) for place in by_token)
        words[int(row["index"])] = list(tokens)
    ends = {"Lowest": chosen.lowest, "Highest": chosen.highest, "Typical": chosen.typical}
    return {
        end: [
            (text_name(row), value, _difference(words[originals[row[0]]], words[row[0]]))
            for row, value in rows
            if row[0] in words and originals[row[0]] in words
        ][:_PAIRS]
        for end, rows in ends.items()
    }


def _difference(original: _Words, edit: _Words) -> list[tuple[str, int, int]]:
    """The first words of both texts, in each block of their alignment those of the original first."""
    blocks = align([word for word, _ in original], [word for word, _ in edit])
    of_edit = dict(zip(blocks.second, edit, strict=True))
    found: list[tuple[int, int, str, float]] = []
    for block, (word, weight) in zip(blocks.first, original, strict=True):
        edited = blocks.edited[block]
        mean = weight if edited else (weight + of_edit[block][1]) / 2
        found.append((block, -edited, word, mean))
    for block, (word, weight) in zip(blocks.second, edit, strict=True):
        found += [(block, 1, word, weight)] * blocks.edited[block]
    found.sort(key=lambda item: item[0])  # stable
    largest = max(weight for *_, weight in found) or 1.0
    return [(word, side, round(100 * weight / largest)) for _, side, word, weight in found[:_WORDS]]
