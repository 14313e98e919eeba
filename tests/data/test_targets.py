"""What is asked of a sentence, on sentences small enough to read."""

import torch

from attnlight.batch import BOS, TextBatch
from attnlight.data.targets import prepend_boundary


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
