"""How many times as fast tests are as the released algorithms, on the same hidden states."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from attnlight.batch import AttentionOutput, TextBatch
from attnlight.callbacks import AttentionPermutation
from attnlight.functional import (
    erase_ranking,
    js_divergence,
    permutations,
    ranking,
    read,
    total_variation,
    worst_case_attention,
)
from attnlight.functional.erasure.flips import first_change
from tests.benchmarks import rivals
from tests.benchmarks.measuring import Measurement, against, spread
from tests.benchmarks.scene import TEXTS, TOKENS, from_states, scene

DRAWS, EPSILON = 100, 0.01
CLOSE = 1e-5  # how near two ways to compute the same must come


@torch.no_grad()
def shuffling(
    threads: int,
    repetitions: int = 7,
    batches: int = 4,
    texts: int = TEXTS,
    tokens: int = TOKENS,
) -> Measurement:
    """How many times as fast `AttentionPermutation` is as reading out every shuffle.

    Raises:
        RuntimeError: With the same shuffles the two disagree.
    """
    torch.set_num_threads(threads)
    shared, test = scene(batches, texts, tokens), AttentionPermutation(draws=DRAWS)
    model, outputs = shared.model, shared.outputs

    def ours(batch: TextBatch, output: AttentionOutput) -> Tensor:
        return test.measure(batch, output, model)["median_tvd"]

    def theirs(readout: rivals.Readout) -> object:
        orders = [rivals.random_orders(output.mask, DRAWS) for output in outputs]
        return [
            rivals.shuffled_distance(model, *pair, readout)
            for pair in zip(outputs, orders, strict=True)
        ]

    pairs = list(zip(shared.batches, outputs, strict=True))
    apart = 0.0
    for batch, output in pairs:
        shuffles = permutations(output.mask.sum(-1), output.rows, DRAWS, test.seed).unbind(1)
        same = rivals.shuffled_distance(model, output, shuffles)
        apart = max(apart, require_close(ours(batch, output), same))
    seconds = against(
        {
            "theirs": lambda: theirs("sum"),
            "scored": lambda: theirs("scored"),
            "product": lambda: theirs("product"),
            "items": lambda: [from_states(model, output) for output in outputs],
        },
        lambda: [ours(*pair) for pair in pairs],
        repetitions,
        times=3,
    )
    details = {
        "texts": shared.size,
        **compared(seconds),
        "theirs, also scoring attention anew before each shuffle": also(seconds, "scored"),
        "theirs, reading out by one matrix product instead": also(seconds, "product"),
        "largest difference of the median distance, with the same shuffles": f"{apart:.0e}",
    }
    return Measurement.of_speedups(seconds["ours"], seconds["theirs"], details)


def compared(seconds: Mapping[str, Sequence[float]]) -> dict[str, str]:
    """Details of times: ours, theirs, and that of the item logits that ours starts from."""
    both = [mine + items for mine, items in zip(seconds["ours"], seconds["items"], strict=True)]
    counted = Measurement.of_speedups(both, seconds["theirs"], {}).median
    return {
        "ours": spread(seconds["ours"]),
        "theirs": spread(seconds["theirs"]),
        "item logits, which come with the forward pass": f"{spread(seconds['items'])}; with them "
        f"theirs takes {counted:.2f} times ours",
    }


def also(seconds: Mapping[str, Sequence[float]], way: str) -> str:
    """The times of another way and how many times ours they are."""
    found = Measurement.of_speedups(seconds["ours"], seconds[way], {})
    return f"{spread(seconds[way])}; {found.median:.2f} times ours"


def require_close(one: Tensor, other: Tensor) -> float:
    """The largest difference.

    Raises:
        RuntimeError: It is above `CLOSE`: the two are not the same.
    """
    apart = float((one.double() - other.double()).abs().max())
    if not apart <= CLOSE:
        raise RuntimeError(f"two ways to compute the same are {apart} apart")
    return apart


@torch.no_grad()
def erasing(
    threads: int,
    repetitions: int = 7,
    batches: int = 4,
    texts: int = TEXTS,
    tokens: int = TOKENS,
) -> Measurement:
    """How many times as fast `erase_ranking` is as reading out after every erasure.

    Raises:
        RuntimeError: The two disagree about when decisions change, in more than 1 text of 50.
    """
    torch.set_num_threads(threads)
    shared = scene(batches, texts, tokens)
    model, outputs = shared.model, shared.outputs
    orders = [ranking(output.weights.squeeze(1), output.mask) for output in outputs]

    def each(way: Callable[[AttentionOutput, Tensor], Tensor]) -> Tensor:
        return torch.cat([way(*pair) for pair in zip(outputs, orders, strict=True)])

    def ours() -> Tensor:
        return each(flipped_after)

    def theirs(*, leaving: bool) -> Tensor:
        return each(
            lambda output, order: rivals.erased_until_flip(model, output, order, leaving=leaving)
        )

    found = ours()
    equal = found == theirs(leaving=False)
    if equal.double().mean() < 0.98:
        raise RuntimeError(f"of {len(equal)} texts only {int(equal.sum())} flip after as many")
    seconds = against(
        {
            "theirs": lambda: theirs(leaving=False),
            "leaving": lambda: theirs(leaving=True),
            "items": lambda: [from_states(model, output) for output in outputs],
        },
        ours,
        repetitions,
        times=20,
    )
    details = {
        "texts": shared.size,
        **compared(seconds),
        "theirs, texts leaving once their decision has changed": also(seconds, "leaving"),
        "items erased when the decision changes, median": f"{statistics.median(found.tolist()):g}",
        "texts on which both agree": f"{int(equal.sum())} of {len(equal)}",
    }
    return Measurement.of_speedups(seconds["ours"], seconds["theirs"], details)


def flipped_after(output: AttentionOutput, order: Tensor) -> Tensor:
    """Items erased when the decision first changes, (B,), from the logits after every step."""
    assert output.item_logits is not None
    logits = erase_ranking(output.weights, output.item_logits, output.bias, output.mask, order)
    return first_change(logits.argmax(-1) != output.logits.argmax(-1, keepdim=True))


@torch.no_grad()
def adversary(
    threads: int,
    repetitions: int = 5,
    batches: int = 2,
    texts: int = TEXTS,
    tokens: int = TOKENS,
    steps: int = 500,
) -> Measurement:
    """How many times as fast `worst_case_attention` is as Jain and Wallace's search.

    Raises:
        RuntimeError: The search ends above the exact answer, which nothing does.
    """
    torch.set_num_threads(threads)
    shared = scene(batches, texts, tokens)
    model, outputs = shared.model, shared.outputs
    searched: list[list[Tensor]] = []

    def ours() -> list[Tensor]:
        return [worst_js(output) for output in outputs]

    def theirs(steps: int = steps) -> list[Tensor]:
        return [rivals.searched_attention(model, o, EPSILON, steps=steps) for o in outputs]

    ours(), theirs(steps=3)
    seconds = against(
        {
            "theirs": lambda: searched.append(theirs()),
            "items": lambda: [from_states(model, output) for output in outputs],
        },
        ours,
        repetitions,
        warm_ups=0,
        times=20,
    )
    found = torch.stack([torch.cat(list(map(feasible_js, outputs, each))) for each in searched])
    exact = torch.cat(ours()).expand_as(found)
    above = int((found > exact + 1e-9).sum())
    if above:
        raise RuntimeError(f"the search ends above the exact answer in {above} of {found.numel()}")
    details = {
        "texts": shared.size,
        **compared(seconds),
        "searches that end above the exact answer": f"{above} of {found.numel()}",
        "searches that find nothing within epsilon": f"{int((found == 0).sum())} of {found.numel()}",
        "mean JS, exact and searched": f"{exact.mean():.3f} and {found.mean():.3f} nats",
    }
    return Measurement.of_speedups(seconds["ours"], seconds["theirs"], details)


def worst_js(output: AttentionOutput) -> Tensor:
    """The exact answer, (B,)."""
    assert output.item_logits is not None
    items = output.item_logits
    return worst_case_attention(output.weights, items, output.mask, EPSILON)[1].squeeze(1)


def feasible_js(output: AttentionOutput, attentions: Tensor) -> Tensor:
    """The largest JS from the own attention among those (B, K, N) within epsilon, (B,); 0 if none.

    In double precision and from item logits: what the exact answer is exact for.
    """
    assert output.item_logits is not None
    both = torch.cat([output.weights, attentions], dim=1).double()
    both = both / both.sum(-1, keepdim=True)
    predictions = read(both, output.item_logits.squeeze(1).double()).softmax(-1)
    moved = total_variation(predictions[:, 1:], predictions[:, :1])
    js = js_divergence(both[:, 1:], both[:, :1])
    return js.masked_fill(moved > EPSILON, 0.0).amax(-1)
