import itertools
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor
from torch.nn.functional import pad

from attnlight.functional import erase_ranking, first_flip, masked_softmax, minimal_flip_set, read
from attnlight.functional.erasure import flips as flips_module


@pytest.fixture(autouse=True, params=["few rows", "many rows"], scope="module")
def treated_as(request: pytest.FixtureRequest) -> Iterator[None]:
    """Of many rows those that nothing can flip are left out first."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "many rows":
            patch.setattr("attnlight.functional.erasure.flips._UNSCREENED", 0)
        yield


def subsets(items: int) -> Tensor:
    """All subsets of so many items but the empty one, (2^N - 1, N) bool, smallest first."""
    chosen = torch.tensor(list(itertools.product([False, True], repeat=items))[1:])
    return chosen[chosen.sum(-1).argsort(stable=True)]


def decisions(weights: Tensor, items: Tensor, bias: Tensor, erased: Tensor) -> Tensor:
    """Decisions (B, M) with each subset (M, N) erased; one head's sums are not divided."""
    if weights.ndim == 2:
        weights, items = weights.unsqueeze(1), items.unsqueeze(1)
    left = weights.unsqueeze(2) * ~erased
    mass = left.sum(-1, keepdim=True)
    shares = left if left.shape[1] == 1 else left / torch.where(mass > 0, mass, 1.0)
    logits = torch.einsum("bhmn,bhnc->bhmc", shares, items)
    empty = bias.expand(len(weights), -1)[:, None, None] / weights.shape[1]
    return torch.where(mass > 0, logits, empty).sum(1).argmax(-1)


def brute_force(weights: Tensor, items: Tensor, bias: Tensor) -> Tensor:
    """Size (B,) of the smallest subset whose erasure changes the decision, or -1."""
    every = subsets(weights.shape[-1])
    nothing = torch.zeros_like(every[:1])
    own = decisions(weights, items, bias, nothing)
    sizes = torch.where(decisions(weights, items, bias, every) != own, every.sum(-1), 99).amin(-1)
    return sizes.masked_fill(sizes == 99, -1)


def flips(weights: Tensor, items: Tensor, bias: Tensor, members: Tensor) -> Tensor:
    """Whether erasing a row's own members (B, N) changes its decision, (B,)."""
    found = []
    for row, member in enumerate(members):
        one = slice(row, row + 1)
        erased = torch.stack([torch.zeros_like(member), member])
        pair = decisions(weights[one], items[one], bias, erased)[0]
        found.append(bool(pair[0] != pair[1]))
    return torch.tensor(found)


def random_case(
    classes: int, rows: int, items: int, heads: int | None = None, zeros: float = 0.2
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    random = torch.Generator().manual_seed(classes)
    shape = (rows, items) if heads is None else (rows, heads, items)
    scores = 1.5 * torch.randn(shape, dtype=torch.float64, generator=random)
    scores = scores.masked_fill(torch.rand(shape, generator=random) < zeros, -2000.0)
    mask = torch.ones(rows, items, dtype=torch.bool)
    logits = torch.randn(*shape, classes, dtype=torch.float64, generator=random)
    # A preferred class, so that many items must go.
    logits[..., -1] += 1.2
    bias = torch.randn(classes, dtype=torch.float64, generator=random)
    return masked_softmax(scores, mask), logits, bias, mask


def dyadic_case(
    classes: int, rows: int, items: int, seed: int = 0
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Multiples of 1/16 as weights, zeros among them, and small integers as logits: many ties."""
    random = torch.Generator().manual_seed(100 * seed + classes)
    cuts = torch.randint(0, 17, (rows, items - 1), generator=random).sort(-1).values
    ends = pad(torch.cat([cuts, torch.full((rows, 1), 16)], dim=1), (1, 0))
    weights = ends.diff(dim=-1).double() / 16
    logits = torch.randint(-2, 3, (rows, items, classes), generator=random).double()
    bias = torch.randint(-1, 2, (classes,), generator=random).double()
    return weights, logits, bias, torch.ones(rows, items, dtype=torch.bool)


@pytest.mark.parametrize("classes", [2, 3, 4, 5])
def test_minimal_set_equals_brute_force(classes: int) -> None:
    case = random_case(classes, rows=600, items=8)
    tied = dyadic_case(classes, rows=2000, items=7)
    top = read(*tied[:2]).topk(2).values
    assert (top[:, 0] == top[:, 1]).sum() > 50  # ties of the decision itself
    for weights, items, bias, mask in (case, tied):
        size, members = minimal_flip_set(weights, items, bias, mask)
        assert torch.equal(size, brute_force(weights, items, bias))
        assert size.unique().numel() >= 6
        assert torch.equal(flips(weights, items, bias, members), size > 0)
        assert torch.equal(members.sum(-1), size.clamp(min=0))
        assert not (members & (weights == 0)).any()


def test_a_lead_is_not_lost_in_a_quotient() -> None:
    random = torch.Generator().manual_seed(0)
    weight, low = torch.rand(2, 2000, dtype=torch.float64, generator=random)
    total = weight * (low + 1)
    unit = torch.nextafter(total, total + 1) - total
    # One unit in the last place is a lead of class 1, but not after dividing by the weight.
    lost = (total + unit) / weight == total / weight
    assert lost.sum() > 100
    weight, low, unit = weight[lost], low[lost] + 1, unit[lost]
    tiny, none = torch.full_like(weight, 2.0**-60), torch.zeros_like(weight)
    weights = torch.stack([1 - weight, weight, tiny], dim=-1)
    first = torch.stack([none, none + 9, low, low, none, unit * 2**60], dim=-1)
    order = torch.tensor([[0, 1, 2]]).expand(len(weight), 3)
    items = first.unflatten(-1, (3, 2))
    count = first_flip(weights, items, torch.tensor([0.0, 1.0]), order >= 0, order)
    assert (count == -1).all()


@pytest.mark.parametrize("heads", [None, 1, 2])
def test_first_flip_is_the_first_changed_row_of_the_erasures(heads: int | None) -> None:
    weights, items, bias, mask = random_case(3, rows=400, items=9, heads=heads)
    mask = torch.arange(9) < 1 + torch.arange(400)[:, None] % 9
    off = ~(mask if heads is None else mask.unsqueeze(1))
    weights = weights.masked_fill(off, 0.0)
    weights = weights / weights.sum(-1, keepdim=True).clamp(min=1e-300)
    random = torch.Generator().manual_seed(1)
    order = torch.rand(400, 9, generator=random).masked_fill(~mask, 2.0).argsort(-1)
    logits = erase_ranking(weights, items, bias, mask, order).argmax(-1)
    # A row whose attention underflowed everywhere has an empty context from the start.
    empty = bias / (heads or 1)
    own = torch.where(
        weights.sum(-1, keepdim=True) > 0, torch.einsum("...n,...nc->...c", weights, items), empty
    )
    decision = (own if heads is None else own.sum(1)).argmax(-1)
    found = first_flip(weights, items, bias, mask, order)
    for row in range(400):
        changed = [k + 1 for k in range(int(mask[row].sum())) if logits[row, k] != decision[row]]
        assert found[row] == (changed[0] if changed else -1)
    assert found.unique().numel() > 6


@pytest.mark.parametrize("heads", [None, 2])
@pytest.mark.parametrize("classes", [2, 5])
def test_several_rankings_are_followed_each_by_itself(
    heads: int | None, classes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = random_case(classes, rows=50, items=6, heads=heads)
    random = torch.Generator().manual_seed(1)
    orders = torch.rand(50, 7, 6, generator=random).argsort(-1)
    alone = torch.stack([first_flip(*case, order) for order in orders.unbind(1)], dim=1)
    assert torch.equal(first_flip(*case, orders), alone)
    # In pieces of two rankings.
    monkeypatch.setattr(flips_module, "_TERMS", 2 * 50 * (heads or 1) * 6 * (classes + 1))
    assert torch.equal(first_flip(*case, orders), alone)
    assert torch.equal(minimal_flip_set(*case)[0], brute_force(*case[:3])) or heads == 2


@pytest.mark.parametrize("classes", [2, 4])
def test_several_heads_give_a_set_that_flips_and_an_upper_bound(classes: int) -> None:
    case = random_case(classes, rows=1000, items=7, heads=2)
    size, members = minimal_flip_set(*case)
    least = brute_force(*case[:3])
    assert torch.equal(flips(*case[:3], members), size > 0)
    assert torch.equal(members.sum(-1), size.clamp(min=0))
    reached = size > 0
    assert (size[reached] >= least[reached]).all()
    assert (least[~reached] != 1).all()
    assert (size == least).double().mean() > 0.75


def test_all_but_a_hundred_millionth_on_one_item() -> None:
    weights = torch.tensor([[1 - 1e-8, 4e-9, 6e-9]], dtype=torch.float64)
    mask = torch.ones(1, 3).bool()
    items = torch.tensor([[[5.0, 0.0], [1.0, 0.0], [0.0, 0.8]]], dtype=torch.float64)
    size, members = minimal_flip_set(weights, items, torch.zeros(2), mask)
    assert (size.item(), members[0].tolist()) == (1, [True, False, False])
    items[0, 2, 1] = 0.6
    size, members = minimal_flip_set(weights, items, torch.zeros(2), mask)
    assert (size.item(), members[0].tolist()) == (2, [True, True, False])
