"""Sampled positions against loops over pairs, and against all positions of planted texts."""

from itertools import combinations

import numpy as np
import pytest
import torch
from scipy.stats import kendalltau, somersd
from torch import Tensor

from attnlight.batch import AttentionOutput, TextBatch
from attnlight.errors import InputError
from attnlight.functional import somers_d
from attnlight.functional.position_sample import PositionSample
from attnlight.functional.ranking import dense_ranks


def planted(
    texts: int, items: int, agreement: float = 0.5, seed: int = 0
) -> tuple[TextBatch, AttentionOutput, list[Tensor], Tensor]:
    """Texts of different lengths, attention and another score, and effects that agree with both."""
    random = torch.Generator().manual_seed(seed)
    lengths = torch.randint(items // 2, items + 1, (texts,), generator=random)
    mask, index = torch.arange(items) < lengths[:, None], torch.arange(texts) * 3 + 1
    common, *noise = torch.randn(4, texts, items, generator=random).double()
    attention = (1.5 * common).masked_fill(~mask, -torch.inf).softmax(-1)
    other = (common + noise[0]).abs() * mask
    effects = (agreement * common + (1 - agreement**2) ** 0.5 * noise[1] + noise[2] ** 3 / 9).abs()
    batch = TextBatch(index, torch.zeros(texts, items, dtype=torch.long), mask)
    output = AttentionOutput(
        rows=torch.stack([index, torch.zeros_like(index)], 1),
        logits=torch.zeros(texts, 2),
        weights=attention.unsqueeze(1),
        item_logits=None,
        bias=None,
        mask=mask,
        states=attention.unsqueeze(-1),
    )
    return batch, output, [attention, other], effects


def taus(x: Tensor, y: Tensor, sample: PositionSample) -> tuple[Tensor, ...]:
    return sample.tau(dense_ranks(x, sample.mask), dense_ranks(y, sample.known))


@pytest.mark.parametrize("agreement", [0.0, 0.9])
def test_nearly_unbiased_and_intervals_cover(agreement: float) -> None:
    """200 texts of up to 200 items, 64 of which are known, on ten samples."""
    batch, output, rankings, effects = planted(200, 200, agreement)
    truth = [
        kendalltau(one[mask], other[mask]).statistic
        for one, other, mask in zip(rankings[0], effects, output.mask, strict=True)
    ]
    off, covered = [], []
    for seed in range(10):
        sample = PositionSample.of_texts(batch, output, rankings, 64, seed)
        tau, low, high = (x.numpy() for x in taus(rankings[0], effects, sample))
        off.append((tau - truth).mean())
        covered.append(((low <= truth) & (truth <= high)).mean())
        assert np.abs(tau - truth).mean() < 0.09  # as of so many items
        assert (high - low).max() < 1
    assert abs(np.mean(off)) <= 0.01
    assert 0.93 <= np.mean(covered) <= 0.97


def test_top_items_are_in_every_sample_and_the_others_equally_often() -> None:
    batch, output, rankings, _ = planted(4, 40)
    counts = torch.zeros(4, 40)
    for seed in range(400):
        sample = PositionSample.of_texts(batch, output, rankings, 24, seed)
        assert (sample.known.sum(-1) == output.mask.sum(-1).clamp(max=24)).all()
        assert not (sample.known & ~output.mask).any()
        counts += sample.known
    for scores in rankings:
        top = scores.masked_fill(~output.mask, -1).topk(3).indices
        assert sample.certain.gather(-1, top).all()
    assert (sample.certain.sum(-1) <= 6).all()
    rest = output.mask & ~sample.certain
    shares = (24 - sample.certain.sum(-1)) / rest.sum(-1)
    for count, others, share in zip(counts, rest, shares.clamp(max=1), strict=True):
        assert (count[others] / 400 - share).abs().max() < 0.11
    torch.testing.assert_close(
        sample.item_weights()[sample.certain].unique(), torch.ones(1).double()
    )
    torch.testing.assert_close(sample.item_weights().sum(-1), output.mask.sum(-1).double())


def test_a_function_of_seed_and_text_alone() -> None:
    batch, output, rankings, _ = planted(6, 60)
    whole = PositionSample.of_texts(batch, output, rankings, 30, 5)
    order = torch.tensor([4, 1])
    part = batch.select(order), output.select(order, order), [x[order] for x in rankings]
    one = PositionSample.of_texts(*part, 30, 5)
    assert torch.equal(one.known, whole.known[order])
    other = PositionSample.of_texts(batch, output, rankings, 30, 6)
    assert not torch.equal(other.known, whole.known)


def test_weighted_pairs_equal_a_loop() -> None:
    batch, output, rankings, effects = planted(5, 50)
    effects = (4 * effects).round() / 4  # ties
    sample = PositionSample.of_texts(batch, output, rankings, 24, 0)
    tau, _, _ = taus(rankings[0], effects, sample)
    compared = sample.compact(rankings[0], effects, sample.known)
    found = somers_d(*compared, least=0.1, weights=sample.pair_weights())
    for row in range(5):
        places = sample.known[row].nonzero().flatten().tolist()
        drawn = [n for n in places if not sample.certain[row, n]]
        m, n = len(drawn), int((output.mask[row] & ~sample.certain[row]).sum())
        sums, clear, total = [0.0, 0.0, 0.0], [0.0, 0.0], 0.0
        largest = float(effects[row, places].max())
        for i, j in combinations(places, 2):
            both = (i in drawn) + (j in drawn)
            weight = {0: 1.0, 1: n / m, 2: n * (n - 1) / m / (m - 1)}[both]
            x = np.sign(float(rankings[0][row, i] - rankings[0][row, j]))
            y = np.sign(step := float(effects[row, i] - effects[row, j]))
            for k, value in enumerate((x * y, x * x, y * y)):
                sums[k] += weight * value
            if abs(step) > 0.1 * largest:
                clear = [clear[0] + weight * x * y, clear[1] + weight]
            total += weight
        assert total == pytest.approx(
            int(output.mask[row].sum()) * (output.mask[row].sum() - 1) / 2
        )
        assert float(tau[row]) == pytest.approx(sums[0] / (sums[1] * sums[2]) ** 0.5)
        assert float(found[row]) == pytest.approx(clear[0] / clear[1])


def test_all_positions_give_tau_itself() -> None:
    batch, output, rankings, effects = planted(5, 40)
    effects[0] = 1.0  # all tied
    sample = PositionSample.of_texts(batch, output, rankings, 40, 0)
    assert torch.equal(sample.known, output.mask)
    tau, low, high = taus(rankings[0], effects, sample)
    assert tau[0].isnan()
    for row in range(1, 5):
        mask = output.mask[row]
        expected = kendalltau(rankings[0][row, mask], effects[row, mask]).statistic
        for value in (tau, low, high):
            assert float(value[row]) == pytest.approx(expected)
        d = somersd(effects[row, mask], rankings[0][row, mask]).statistic
        compared = [x[row : row + 1] for x in sample.compact(rankings[0], effects, sample.known)]
        weights = sample.pair_weights()[row : row + 1]
        assert float(somers_d(*compared, weights=weights)) == pytest.approx(d)


def test_tokens_are_refused() -> None:
    batch, output, rankings, _ = planted(3, 30)
    output.rows[:, 0] = batch.index[0]
    with pytest.raises(InputError, match="leave out positions"):
        PositionSample.of_texts(batch, output, rankings, 20, 0)
