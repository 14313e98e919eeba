"""What is asked of a sentence, on sentences small enough to read."""

import pytest
import torch

from attnlight.batch import BOS, MARKED, TextBatch
from attnlight.data.targets import IGNORED, Target, prepend_boundary
from attnlight.errors import InputError

TAGS = ["O", "B-NP", "I-NP", "B-SBAR"]
NUMBERS = {tag: number for number, tag in enumerate(TAGS)}


def test_labels_of_each_target() -> None:
    sentence = ["B-SBAR", "B-NP", "I-NP"]
    every = Target().labels(sentence, NUMBERS, 0)
    assert every == [3, 1, 2]
    one = Target("marked").labels(sentence, NUMBERS, 1)
    assert one == [IGNORED, 1, IGNORED]
    assert Target("sentence").labels(sentence, NUMBERS, 0) == [1, *[IGNORED] * 3]
    assert Target("sentence").labels(sentence[1:], NUMBERS, 0) == [0, *[IGNORED] * 2]
    assert Target("sentence", "NP").labels(["O", "I-NP"], NUMBERS, 0)[0] == 1


def test_classes_and_columns_of_each_target() -> None:
    assert Target().classes(TAGS) == Target("marked").classes(TAGS) == TAGS
    assert Target("sentence").classes(TAGS) == ["no SBAR", "SBAR"]
    assert Target("sentence", "NP").classes(TAGS) == ["no NP", "NP"]
    columns = [Target(name).columns for name in ("tokens", "marked", "sentence")]
    assert columns == [[], [MARKED], [MARKED]]


def test_another_target_is_refused() -> None:
    with pytest.raises(InputError, match="'sbar'; it must be one of tokens, marked, sentence"):
        Target("sbar")  # type: ignore[arg-type]


def test_a_boundary_token_before_each_text_answers() -> None:
    batch = TextBatch(
        index=torch.tensor([0, 1]),
        tokens=torch.tensor([[5, 6, 7], [8, 0, 0]]),
        mask=torch.tensor([[True] * 3, [True, False, False]]),
        extras={"pos": torch.tensor([[2, 3, 4], [5, 0, 0]])},
    )
    found = prepend_boundary(batch)
    assert found.tokens.tolist() == [[BOS, 5, 6, 7], [BOS, 8, 0, 0]]
    assert found.mask.tolist() == [[True] * 4, [True, True, False, False]]
    assert found.extras["pos"].tolist() == [[0, 2, 3, 4], [0, 5, 0, 0]]
    assert found.instances().tolist() == [[True, False, False, False]] * 2
    assert found.attendable().tolist() == [[False, *row] for row in batch.mask.tolist()]
    assert torch.equal(batch.instances(), batch.attendable())  # all tokens, where none is marked
