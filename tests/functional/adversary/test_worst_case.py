import itertools
import math
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.functional import pad

from attnlight.errors import InputError
from attnlight.functional import (
    masked_softmax,
    opaque_adversary,
    read,
    search_adversary,
    total_variation,
    worst_case_attention,
    worst_case_js,
)
from attnlight.functional.adversary.exact import max_js_attention
from attnlight.functional.adversary.gradient_search import normal_scores
from tests.benchmarks.rivals import searched_attention
from tests.functional.adversaries import KINDS, case, jensen_shannon, moved, require_kept


def every_vertex(weights: Tensor, logits: Tensor, epsilon: float) -> list[float]:
    """JS of each vertex of one instance of two classes, by loops over items and pairs."""
    e = (logits[:, 1] - logits[:, 0]).tolist()
    own = 1 / (1 + math.exp(-float(weights @ torch.tensor(e, dtype=torch.float64))))
    bounds = [
        math.log(p / (1 - p)) if 0 < p < 1 else math.copysign(math.inf, p - 0.5)
        for p in (own - epsilon, own + epsilon)
    ]
    vertices = [np.eye(len(e))[i] for i in range(len(e)) if bounds[0] <= e[i] <= bounds[1]]
    for bound, i, j in itertools.product(bounds, range(len(e)), range(len(e))):
        if math.isfinite(bound) and e[i] < bound < e[j]:
            share = (bound - e[i]) / (e[j] - e[i])
            vertices.append((1 - share) * np.eye(len(e))[i] + share * np.eye(len(e))[j])
    return jensen_shannon(torch.from_numpy(np.array(vertices)), weights).tolist()


def on_the_boundary(
    weights: Tensor, logits: Tensor, mask: Tensor, epsilon: float, count: int, seed: int
) -> Tensor:
    """Random attentions (B, K, N), drawn back towards the model's own as far as epsilon asks."""
    random = torch.Generator().manual_seed(seed)
    noise = torch.randn(len(mask), count, mask.shape[1], dtype=torch.float64, generator=random)
    scale = 10 ** (2 * torch.rand(len(mask), count, 1, dtype=torch.float64, generator=random))
    target = masked_softmax(noise * scale, mask)
    low, high = torch.zeros_like(scale), torch.ones_like(scale)
    for _ in range(30):
        share = (low + high) / 2
        mixed = torch.lerp(weights.unsqueeze(1), target, share)
        own = read(weights, logits).softmax(-1).unsqueeze(1)
        kept = total_variation(read(mixed, logits).softmax(-1), own) <= epsilon
        low, high = (
            torch.where(kept[..., None], share, low),
            torch.where(kept[..., None], high, share),
        )
    return torch.lerp(weights.unsqueeze(1), target, low)


def check_attained(
    found: tuple[Tensor, ...], weights: Tensor, logits: Tensor, mask: Tensor, epsilon: float
) -> None:
    require_kept(found, weights, mask, lambda attention: read(attention, logits), epsilon)


@pytest.mark.parametrize(("epsilon", "pairs"), [(0.01, 5), (0.3, 1 << 20), (1.0, 5)])
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "extreme"])
def test_two_classes_equal_the_best_of_all_vertices(
    kind: str, epsilon: float, pairs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever pairs of items are solved at once, and whichever are pruned."""
    monkeypatch.setattr("attnlight.functional.adversary.exact._PAIRS", pairs)
    weights, logits, mask = case(kind, rows=24, items=24)
    found = worst_case_attention(weights, logits, mask, epsilon)
    check_attained(found, weights, logits, mask, epsilon)
    for row in range(24):
        kept = mask[row]
        best = max(every_vertex(weights[row, kept], logits[row, kept], epsilon))
        assert found[1][row].item() == pytest.approx(best, abs=1e-12)
    assert torch.equal(found[1], found[2])


@pytest.mark.parametrize(("classes", "epsilon"), [(2, 1e-6), (2, 0.1), (3, 0.02), (5, 0.2)])
@pytest.mark.parametrize("kind", KINDS)
def test_no_random_attention_is_further_than_the_bound(
    kind: str, classes: int, epsilon: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    weights, logits, mask = case(kind, rows=8, items=8, classes=classes, seed=1)
    found = worst_case_attention(weights, logits, mask, epsilon)
    check_attained(found, weights, logits, mask, epsilon)
    others = on_the_boundary(weights, logits, mask, epsilon, count=300, seed=2)
    js = jensen_shannon(others, weights.unsqueeze(1))
    assert (js <= found[2][:, None] + 1e-12).all()
    monkeypatch.setattr("attnlight.functional.adversary.multiclass._PAIRS", 300)
    monkeypatch.setattr("attnlight.functional.adversary.multiclass._MIXTURES", 5)
    in_blocks = worst_case_attention(weights, logits, mask, epsilon)
    torch.testing.assert_close(in_blocks[1], found[1], rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("classes", [2, 3, 4])
def test_no_search_is_further(classes: int) -> None:
    weights, logits, mask = case("random", rows=10, items=10, classes=classes)
    rows = torch.arange(20).reshape(10, 2)
    found, js = search_adversary(weights, logits, mask, 0.01, rows, steps=200, learning_rate=0.05)
    assert (moved(found, weights, logits) <= 0.01 + 1e-9).all()
    torch.testing.assert_close(jensen_shannon(found, weights), js)
    assert js[0] == 0  # one item
    assert js.mean() > 0.1
    alone = worst_case_attention(weights, logits, mask, 0.01)
    assert (js <= alone[2] + 1e-12).all()
    assert alone[1].mean() > js.mean()
    if classes == 2:
        assert (js <= alone[1] + 1e-12).all()
    joined = worst_case_attention(weights, logits, mask, 0.01, found)
    check_attained(joined, weights, logits, mask, 0.01)
    assert (joined[1] >= torch.maximum(js, alone[1])).all()
    assert torch.equal(joined[2], torch.maximum(alone[2], joined[1]))


@pytest.mark.parametrize("bounds", [(-math.inf, 0.5), (0.5, math.inf)])
def test_an_item_on_a_bound_is_within_it(bounds: tuple[float, float]) -> None:
    weights, e = torch.tensor([[[0.45, 0.05, 0.5]], [[0.0, 0.5, 1.0]]], dtype=torch.float64)
    low, high = torch.tensor(bounds, dtype=torch.float64).reshape(2, 1, 1)
    attention, js = max_js_attention(weights, e, low, high, torch.ones(1, 3, dtype=torch.bool))
    assert attention.tolist() == [[0, 1, 0]]
    assert js[0].tolist() == pytest.approx(jensen_shannon(attention, weights[0]).tolist())


class TestSeveralTolerances:
    EPSILONS = torch.tensor([1e-4, 0.01, 0.05, 0.3, 0.9, 1.0], dtype=torch.float64)

    @pytest.mark.parametrize("kind", KINDS)
    def test_each_is_that_of_the_attention_at_it(self, kind: str) -> None:
        weights, logits, mask = case(kind, rows=24, items=12)
        found = worst_case_js(weights, logits, mask, self.EPSILONS)
        for epsilon, js in zip(self.EPSILONS.tolist(), found.unbind(-1), strict=True):
            expected = worst_case_attention(weights, logits, mask, epsilon)[1]
            torch.testing.assert_close(js, expected, rtol=0, atol=1e-12)
        assert (found.diff() >= 0).all()

    def test_heads_are_solved_one_by_one(self) -> None:
        weights, logits, mask = case("random", rows=12, items=6)
        heads, items = torch.stack([weights, weights], 1), torch.stack([logits, 0 * logits], 1)
        found = worst_case_js(heads, items, mask, self.EPSILONS)
        alone = worst_case_js(weights, logits, mask, self.EPSILONS)
        torch.testing.assert_close(found[:, 0], alone, rtol=0, atol=1e-12)

    @pytest.mark.parametrize(
        ("classes", "epsilons", "message"),
        [
            *((2, bad, "above 0 and ascending") for bad in ([0.0, 0.1], [0.2, 0.1], [math.nan])),
            (3, [0.1], "of 3 classes, but must be of 2"),
        ],
    )
    def test_what_it_refuses(self, classes: int, epsilons: list[float], message: str) -> None:
        with pytest.raises(InputError, match=message):
            worst_case_js(*case("random", 2, 3, classes=classes), torch.tensor(epsilons))


@pytest.mark.parametrize("epsilon", [0.0, -0.1, math.nan])
def test_epsilon_must_be_above_0(epsilon: float) -> None:
    weights, logits, mask = case("random", 2, 3)
    opaque = partial(opaque_adversary, weights, lambda given: read(given.squeeze(1), logits))
    for search in (partial(worst_case_attention, weights, logits), opaque):
        with pytest.raises(InputError, match=r"epsilon is .* must be above 0"):
            search(mask, epsilon)


@pytest.mark.parametrize("classes", [2, 3])
def test_float32_keeps_to_epsilon_as_it_is_read(classes: int) -> None:
    weights, logits, mask = case("random", rows=20, items=30, classes=classes)
    weights, logits = weights.float(), logits.float()
    adversary, js, _ = worst_case_attention(weights, logits, mask, 0.01)
    assert (moved(adversary.float(), weights, logits) <= 0.01 + 1e-6).all()
    assert js.mean() > 0.3


@pytest.mark.parametrize("kind", ["random", "uniform", "sharp"])
def test_a_class_without_probability_does_not_count(kind: str) -> None:
    weights, logits, mask = case(kind, rows=24, items=12)
    third = pad(logits, (0, 1), value=-3000.0)
    expected = worst_case_attention(weights, logits, mask, 0.03)
    found = worst_case_attention(weights, third, mask, 0.03)
    torch.testing.assert_close(found[1], expected[1], rtol=1e-9, atol=1e-10)
    torch.testing.assert_close(found[2], expected[1], rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("epsilon", [0.05, 0.2])
@pytest.mark.parametrize("classes", [3, 4])
def test_several_classes_reach_the_best_of_a_fine_grid_on_every_edge(
    classes: int, epsilon: float
) -> None:
    weights, logits, mask = case("random", rows=24, items=8, classes=classes)
    js = worst_case_attention(weights, logits, mask, epsilon)[1]
    share = torch.linspace(0, 1, 1001, dtype=torch.float64)
    best = torch.zeros_like(js)
    for i, j in itertools.combinations(range(8), 2):
        attention = torch.zeros(24, 1001, 8, dtype=torch.float64)
        attention[:, :, i], attention[:, :, j] = 1 - share, share
        own = read(weights, logits).softmax(-1).unsqueeze(1)
        kept = total_variation(read(attention, logits).softmax(-1), own) <= epsilon
        kept &= (mask[:, i] & mask[:, j])[:, None]
        values = jensen_shannon(attention, weights.unsqueeze(1)).masked_fill(~kept, 0.0)
        best = torch.maximum(best, values.amax(-1))
    assert (best > 0.1).sum() > 8
    assert (js >= best - 1e-9).all()


@pytest.mark.parametrize("classes", [2, 3])
def test_heads_are_taken_one_by_one_with_the_others_held(classes: int) -> None:
    random = torch.Generator().manual_seed(0)
    mask = torch.arange(6) < 1 + torch.arange(12)[:, None] % 6
    weights = masked_softmax(torch.randn(12, 2, 6, dtype=torch.float64, generator=random), mask)
    logits = torch.randn(12, 2, 6, classes, dtype=torch.float64, generator=random)
    rows = torch.arange(24).reshape(12, 2)
    own = read(weights, logits)
    found = worst_case_attention(weights, logits, mask, 0.02)
    searched = search_adversary(weights, logits, mask, 0.02, rows, steps=20)
    assert found[0].shape == searched[0].shape == (12, 2, 6)
    assert all(part.shape == (12, 2) for part in (*found[1:], searched[1]))
    for head in range(2):
        folded = logits[:, head] + read(weights[:, 1 - head], logits[:, 1 - head]).unsqueeze(1)
        alone = worst_case_attention(weights[:, head], folded, mask, 0.02)
        torch.testing.assert_close(found[1][:, head], alone[1])
        torch.testing.assert_close(found[2][:, head], alone[2])
        for adversary in (found[0], searched[0]):
            changed = weights.clone()
            changed[:, head] = adversary[:, head]
            distance = total_variation(read(changed, logits).softmax(-1), own.softmax(-1))
            assert (distance <= 0.02 + 1e-9).all()


weight = st.one_of(st.sampled_from([0.0, 1e-30, 1e-8, 1.0]), st.floats(0, 1))
logit = st.one_of(st.sampled_from([-1e4, -1.0, 0.0, 1.0, 1e4]), st.floats(-5, 5))


@settings(deadline=None, max_examples=200)
@given(
    st.lists(st.tuples(weight, logit), min_size=1, max_size=7).filter(
        lambda pairs: sum(pair[0] for pair in pairs) > 1e-20
    ),
    st.sampled_from([1e-4, 0.01, 0.05, 0.5, 0.9]),
)
def test_any_instance_of_two_classes(pairs: list[tuple[float, float]], epsilon: float) -> None:
    columns = torch.tensor(pairs, dtype=torch.float64)
    weights = (columns[:, 0] / columns[:, 0].sum())[None]
    logits = pad(columns[None, :, 1:], (1, 0))
    mask = torch.ones_like(weights).bool()
    found = worst_case_attention(weights, logits, mask, epsilon)
    check_attained(found, weights, logits, mask, epsilon)
    others = on_the_boundary(weights, logits, mask, epsilon, count=50, seed=0)
    assert (jensen_shannon(others, weights.unsqueeze(1)) <= found[1][:, None] + 1e-12).all()


def test_search_is_the_released_algorithm(monkeypatch: pytest.MonkeyPatch) -> None:
    weights, logits, mask = case("random", rows=8, items=8)
    rows, original = torch.arange(16).reshape(8, 2), weights.unsqueeze(1)
    starts = normal_scores(0, rows, 1, 5, mask)
    monkeypatch.setattr(torch, "randn", lambda *size, dtype: starts)

    def change(attentions: Tensor) -> Tensor:
        before, after = (read(w, logits).softmax(-1) for w in (original, attentions))
        return (after - before).abs().sum(-1) / 2

    attentions = searched_attention(original, mask, change, 0.01, steps=60, learning_rate=0.1)
    js = jensen_shannon(attentions, original).masked_fill(change(attentions) > 0.05, 0.0)
    best = attentions[torch.arange(8), js.argmax(-1)].where(js.amax(-1, keepdim=True) > 0, weights)
    assert (js.amax(-1) > 0.1).any()
    found = search_adversary(
        weights, logits, mask, 0.05, rows, steps=60, learning_rate=0.1, search_epsilon=0.01
    )
    torch.testing.assert_close(found, (best, js.amax(-1)), rtol=1e-5, atol=1e-7)


def test_search_returns_the_own_attention_where_nothing_else_keeps_to_epsilon() -> None:
    weights, logits, mask = case("random", rows=12, items=12)
    rows = torch.arange(24).reshape(12, 2)
    adversary, js = search_adversary(weights, logits, mask, 1e-9, rows, steps=2)
    torch.testing.assert_close(adversary, weights)
    assert (js == 0).all()


def test_search_starts_from_normal_scores() -> None:
    rows = torch.arange(2000).reshape(1000, 2)
    numbers = normal_scores(0, rows, 2, 5, torch.ones(2000, 8).bool())
    assert numbers.shape == (2000, 5, 8)
    assert numbers.isfinite().all()
    assert abs(numbers.mean().item()) < 0.02
    assert numbers.std().item() == pytest.approx(1, abs=0.02)
    assert numbers.flatten().unique().numel() > 79_990
