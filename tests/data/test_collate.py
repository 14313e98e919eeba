"""Batches of texts of no corpus; those of a corpus are in test_dataset.py."""

import numpy as np

from attnlight.data.collate import collate_ids


def test_texts_are_padded_as_a_loop_pads_them() -> None:
    rng = np.random.default_rng(1)
    texts = [
        [rng.integers(1, 99, rng.integers(1, 6)).tolist() for _ in range(rng.integers(1, 5))]
        for _ in range(6)
    ]
    flat = [sum(text, []) for text in texts]  # noqa: RUF017
    sizes = [list(map(len, text)) for text in texts]
    apart, together = collate_ids(flat, sizes), collate_ids(flat)
    for b, text in enumerate(texts):
        for s in range(max(map(len, texts))):
            for n in range(max(map(max, sizes))):
                real = s < len(text) and n < len(text[s])
                assert apart.mask[b, s, n] == real
                assert apart.tokens[b, s, n] == (text[s][n] if real else 0)
        padding = [0] * (together.tokens.shape[1] - len(flat[b]))
        assert together.tokens[b].tolist() == flat[b] + padding
        assert together.mask[b].sum() == len(flat[b])
    assert together.index.tolist() == list(range(6))
    assert together.labels is None
    assert len(collate_ids([])) == 0
