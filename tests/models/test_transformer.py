"""Parts of the encoder against torch's own and against naive loops."""

import math

import pytest
import torch

from attnlight.models.transformer import EncoderLayer, sinusoids


def test_positions_by_their_formula() -> None:
    signal = sinusoids(5, torch.zeros(6, dtype=torch.float64))
    for place in range(5):
        for wave in range(3):
            phase = place / 10_000 ** (wave / 2)
            assert float(signal[place, wave]) == pytest.approx(math.sin(phase), abs=1e-12)
            assert float(signal[place, 3 + wave]) == pytest.approx(math.cos(phase), abs=1e-12)


def test_a_layer_by_a_naive_loop() -> None:
    torch.manual_seed(1)
    layer = EncoderLayer(8, 2, 6).double().eval()
    layer.requires_grad_(False)
    states = torch.randn(1, 4, 8, dtype=torch.float64)
    result, weights = layer(states, torch.ones(1, 4, dtype=torch.bool))
    normed, after = layer.norm(states[0]), layer.after
    for query in range(4):
        contexts = []
        for head in range(2):
            part = slice(4 * head, 4 * head + 4)
            q = (layer.attention.query.weight @ normed[query])[part]
            scores = [float(q @ (layer.attention.key.weight @ x)[part]) / 2 for x in normed]
            total = sum(map(math.exp, scores))
            own = [math.exp(score) / total for score in scores]
            torch.testing.assert_close(weights[0, head, query], torch.tensor(own).double())
            values = [(layer.attention.value.weight @ x)[part] for x in normed]
            contexts.append(sum(w * v for w, v in zip(own, values, strict=True)))
        hidden = states[0, query] + after.output.weight @ torch.cat(contexts)
        inner = after.feed_forward.inner(after.norm(hidden)).clamp(min=0)
        expected = hidden + after.feed_forward.outer(inner).clamp(min=0)
        torch.testing.assert_close(result[0, query], expected)
