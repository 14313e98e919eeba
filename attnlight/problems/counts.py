"""What F1 counts in finished records, where it is not of classes; arrays are NumPy's."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from attnlight.data.bio import split_tag

Integers = NDArray[np.int64]
Places = NDArray[np.bool_]
Count = Callable[[Integers, Integers, Integers, Sequence[str]], tuple[Places, Places, Places]]


def chunk_places(
    label: Integers, prediction: Integers, starts: Integers, classes: Sequence[str]
) -> tuple[Places, Places, Places]:
    """First tokens of chunks, as conlleval reads tags: of the labels, of the predictions, of both.

    A token without a class is outside all chunks.

    Args:
        label: True class of each token, one sentence after the other, (R,), -1 where it has none.
        prediction: Predicted class, (R,), -1 where it was not measured.
        starts: Place of the first token of each sentence, (S,).
        classes: Names of the tags.

    Returns:
        Three arrays (R,); a chunk is in the last where its type and both ends are the same.
    """
    import torch

    from attnlight.functional.spans import TagScheme, find_chunks

    parts = [split_tag(tag) for tag in [*classes, "O"]]
    kinds = ["", *sorted({kind for _, kind in parts if kind})]
    scheme = TagScheme(
        torch.tensor([kinds.index(kind) - 1 for _, kind in parts]),
        torch.tensor([prefix == "I" for prefix, _ in parts]),
    )
    begins = torch.zeros(len(label), dtype=torch.bool)
    begins[starts] = True
    (gold, gold_ends), (found, found_ends) = (
        find_chunks(torch.from_numpy(np.where(tags < 0, len(classes), tags)), begins, scheme)
        for tags in (label, prediction)
    )
    both = (found >= 0) & (found == gold) & (found_ends == gold_ends)
    return (gold >= 0).numpy(), (found >= 0).numpy(), both.numpy()


def count_of(problem: str, target: str | None) -> Count | None:
    """The count of a problem by its name and its target; None where F1 is of classes."""
    return chunk_places if (problem, target) == ("tagging", "tokens") else None
