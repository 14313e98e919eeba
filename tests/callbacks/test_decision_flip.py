"""Erasing from the top of a ranking: every column against plain loops and brute force."""

import itertools
import math

import numpy as np
import pytest
import torch
from torch import Tensor

from attnlight.batch import AttentionOutput
from attnlight.callbacks import DecisionFlip
from attnlight.errors import InputError
from attnlight.functional import random_rankings
from attnlight.models.readout import SCORES
from tests.callbacks.handmade import Hidden, Oracle, batch_of, output_of, random_output

MEASURES = ("removed_count", "removed_fraction", "removed_mass", "needs_all", "never_flips")


def columns_of(output: AttentionOutput, **options: object) -> dict[str, Tensor]:
    test = DecisionFlip(**options)  # type: ignore[arg-type]
    with torch.no_grad():
        return dict(test.measure(batch_of(output), output, Hidden(output)))


def followed(oracle: Oracle, order: list[int]) -> list[float]:
    """The five measures of one order, erased step by step."""
    for count in range(1, len(order) + 1):
        gone = order[:count]
        if oracle.flips(gone):
            left = [head[n] for head in oracle.heads for n in order[count:]]
            mass = sum(oracle.weights[n] for n in gone)
            return [count, count / len(order), mass, float(not any(left)), 0.0]
    return [math.nan] * 4 + [1.0]


def fewest(oracle: Oracle) -> float:
    """Size of the smallest set whose erasure flips the decision, by trying all."""
    for count in range(1, len(oracle.items) + 1):
        if any(oracle.flips(list(gone)) for gone in itertools.combinations(oracle.items, count)):
            return count
    return math.nan


def near(found: Tensor, expected: float) -> bool:
    return float(found) == pytest.approx(expected, abs=1e-9, nan_ok=True)


@pytest.mark.parametrize("absolute", [False, True])
@pytest.mark.parametrize(("heads", "classes"), [(1, 2), (1, 4), (3, 3)])
def test_rankings_equal_plain_loops(heads: int, classes: int, absolute: bool) -> None:
    output = random_output(heads, classes)
    found = columns_of(output, gradient="absolute" if absolute else "signed", seed=4)
    random = random_rankings(output.mask, output.rows, 5, seed=4)
    for row in range(60):
        oracle = Oracle(output, row)
        assert found["length"][row] == len(oracle.items)
        for score in SCORES:
            expected = followed(oracle, oracle.order(score, absolute))
            for measure, value in zip(MEASURES, expected, strict=True):
                assert near(found[f"{measure}_{score}"][row], value), (row, measure, score)
        orders = random[row, :, : len(oracle.items)].tolist()
        draws = np.array([followed(oracle, order) for order in orders])
        for measure, values in zip(MEASURES, draws.T, strict=True):
            assert near(found[f"{measure}_random_first"][row], values[0]), (row, measure)
            defined = values[~np.isnan(values)]
            mean = float(defined.mean()) if len(defined) else math.nan
            assert near(found[f"{measure}_random"][row], mean), (row, measure)
    for name in (*SCORES, "random"):
        never = found[f"never_flips_{name}"].mean()
        assert 0 < never < 1
        counts = found[f"removed_count_{name}"]
        assert counts.nan_to_num().unique().numel() > 4
    assert 0 < found["needs_all_attention"].nanmean() < 1
    partly = found["never_flips_random"]
    assert ((partly > 0) & (partly < 1)).any()


def unopposed(oracle: Oracle) -> list[int]:
    """Attention's order without the items whose erasure raises the log odds of the prediction."""

    def odds(erased: list[int]) -> float:
        logits = oracle.without(erased)
        target = int(oracle.without([]).argmax())
        others = torch.cat([logits[:target], logits[target + 1 :]])
        return float(logits[target] - others.logsumexp(0))

    effects = {n: odds([]) - odds([n]) for n in oracle.items}
    median = sorted(effects.values())[(len(effects) - 1) // 2]
    least = min(0.0, median) - 0.1 * max(map(abs, effects.values()))
    return [n for n in oracle.order("attention") if effects[n] >= least]


@pytest.mark.parametrize(("heads", "classes"), [(1, 2), (1, 4), (3, 3)])
def test_attention_without_opposing_items_equals_a_loop(heads: int, classes: int) -> None:
    output = random_output(heads, classes)
    found = columns_of(output, unopposed=True)
    shorter = 0
    for row in range(60):
        oracle = Oracle(output, row)
        order = unopposed(oracle)
        expected = followed(oracle, order)
        expected[1] *= len(order) / len(oracle.items)
        if not math.isnan(expected[3]):
            gone = order[: int(expected[0])]
            rest = [head[n] for head in oracle.heads for n in oracle.items if n not in gone]
            expected[3] = float(not any(rest))
        for measure, value in zip(MEASURES, expected, strict=True):
            assert near(found[f"{measure}_attention_unopposed"][row], value), (row, measure)
        excess = expected[0] - float(found["minimal_count"][row])
        assert near(found["excess_attention_unopposed"][row], excess)
        shorter += len(order) < len(oracle.items)
    assert shorter > 20
    assert 0 < found["never_flips_attention_unopposed"].mean() < 1


def test_unopposed_columns_are_measures_only_if_asked() -> None:
    added = {
        name
        for name in DecisionFlip(unopposed=True).measures
        if name not in DecisionFlip().measures
    }
    found = columns_of(random_output(), unopposed=True).keys() - columns_of(random_output()).keys()
    assert added == found - {"removed_count_attention_unopposed"}


@pytest.mark.parametrize("classes", [2, 3, 5])
def test_the_minimum_equals_brute_force(classes: int) -> None:
    output = random_output(classes=classes)
    found = columns_of(output)
    for row in range(60):
        oracle = Oracle(output, row)
        least = fewest(oracle)
        assert near(found["minimal_count"][row], least)
        assert near(found["removed_fraction_minimal"][row], least / len(oracle.items))
        assert float(found["never_flips_minimal"][row]) == math.isnan(least)
    for name in (*SCORES, "random"):
        excess = found[f"removed_count_{name}"] - found["minimal_count"]
        assert torch.equal(found[f"excess_{name}"].nan_to_num(-1), excess.nan_to_num(-1))
        assert not (excess < 0).any()
        assert (excess > 0).any()
        # Whatever a ranking flips, the minimum does.
        flips = found[f"never_flips_{name}"] < 1
        assert not (flips & (found["never_flips_minimal"] == 1)).any()
    several = found["minimal_count"].nan_to_num() > 1
    assert (several & (found["needs_all_minimal"] == 0)).any()
    mass = found["removed_mass_minimal"]
    assert ((mass > 0) | mass.isnan()).all()
    assert ((mass >= 1 - 1e-12) == (found["needs_all_minimal"] == 1)).all()


def test_several_heads_bound_the_minimum_from_above() -> None:
    output = random_output(heads=2)
    found = columns_of(output)["minimal_count"]
    least = torch.tensor([fewest(Oracle(output, row)) for row in range(60)])
    reached = ~found.isnan()
    assert (found[reached] >= least[reached]).all()
    assert (found[reached] == least[reached]).double().mean() > 0.75


def by_hand(bias: list[float]) -> dict[str, Tensor]:
    """Three words: one for class 1 holds nearly all, one for class 1 nothing, one is for class 0."""
    weights = torch.tensor([[[0.75, 0.0, 0.25]]])
    items = torch.tensor([[[[0.0, 4.0], [0.0, 9.0], [0.0, 1.0]]]])
    return columns_of(output_of(weights, items, torch.tensor(bias)), draws=3)


def test_only_when_nothing_is_left() -> None:
    found = by_hand([1.0, 0.0])
    assert found["removed_count_attention"].item() == 2
    assert found["removed_fraction_attention"].item() == pytest.approx(2 / 3)
    assert found["minimal_count"].item() == 2
    for name in (*SCORES, "random", "random_first", "minimal"):
        assert found[f"needs_all_{name}"].item() == 1
        assert found[f"removed_mass_{name}"].item() == 1
        assert found[f"never_flips_{name}"].item() == 0
    # The gradient also erases the word without weight, which is of no use.
    assert found["removed_count_gradient"].item() == 3
    assert found["excess_gradient"].item() == 1


def test_never() -> None:
    found = by_hand([0.0, 1.0])
    for name in (*SCORES, "random", "random_first", "minimal"):
        assert found[f"never_flips_{name}"].item() == 1
        for measure in ("removed_fraction", "removed_mass", "needs_all"):
            assert found[f"{measure}_{name}"].isnan().all()
    assert found["minimal_count"].isnan().all()
    assert found["excess_random"].isnan().all()


def test_ties_go_from_left_to_right_whatever_the_rounding() -> None:
    """Equal words must be erased in the same order whatever their last digits."""
    noise = 1e-7 * torch.rand(50, 1, 4, dtype=torch.float64)
    weights = torch.full((50, 1, 4), 0.25, dtype=torch.float64) + noise
    items = torch.tensor([[0.0, 1.0], [0.0, 1.0], [0.0, 1.0], [1.5, 0.0]], dtype=torch.float64)
    output = output_of(
        weights / weights.sum(-1, keepdim=True), items.expand(50, 1, 4, 2), torch.zeros(2).double()
    )
    found = columns_of(output)
    assert (found["removed_count_attention"] == 2).all()
    assert (found["minimal_count"] == 2).all()


def test_one_item_and_none() -> None:
    mask = torch.tensor([[True, False], [False, False]])
    weights = torch.tensor([[[1.0, 0.0]], [[0.0, 0.0]]])
    items = torch.tensor([[0.0, 1.0], [0.0, 1.0]]).expand(2, 1, 2, 2)
    found = columns_of(output_of(weights, items, torch.tensor([1.0, 0.0]), mask))
    assert found["length"].tolist() == [1, 0]
    for name in (*SCORES, "random", "minimal"):
        assert found[f"removed_fraction_{name}"][0] == found[f"needs_all_{name}"][0] == 1
        assert found[f"never_flips_{name}"][1].isnan()


def test_uniform_attention_where_nothing_is_left() -> None:
    """Mohankumar et al. (2020): the bias is never read."""
    weights = torch.tensor([[[0.5, 0.375, 0.125]]])
    items = torch.tensor([[[[0.0, 4.0], [0.0, 1.0], [0.0, 1.0]]]])
    output = output_of(weights, items, torch.tensor([9.0, 0.0]))
    assert columns_of(output)["removed_count_attention"].item() == 3
    assert columns_of(output, emptied="uniform")["never_flips_attention"].item() == 1
    items = torch.tensor([[[[0.0, 4.0], [9.0, 0.0], [9.0, 9.5]]]])
    output = output_of(torch.tensor([[[0.875, 0.0, 0.125]]]), items, torch.zeros(2))
    found = columns_of(output, emptied="uniform")
    assert found["removed_count_attention"].item() == 2
    assert found["needs_all_attention"].item() == 1


def test_uniform_attention_is_for_one_head() -> None:
    with pytest.raises(InputError, match="one attention head; this one has 2"):
        columns_of(random_output(heads=2), emptied="uniform")
