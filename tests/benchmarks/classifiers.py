"""The tests on classifiers of two classes beside a forward pass and the released algorithms."""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

import lightning.pytorch as pl
import numpy as np
import torch
from torch import Tensor

from attnlight.batch import AttentionOutput
from attnlight.callbacks import AttentionPermutation, InterpretabilityTest
from attnlight.datamodules import CorpusDataModule
from attnlight.functional import (
    erase_ranking,
    js_divergence,
    permutations,
    ranking,
    read,
    total_variation,
    worst_case_attention,
)
from attnlight.functional import leave_one_out as importances
from attnlight.models import FlatClassifier
from attnlight.tasks import AttentionClassifier
from tests.bases import trainer
from tests.benchmarks import rivals
from tests.benchmarks.measuring import Measurement, clock, interleave, spread
from tests.benchmarks.scene import (
    TEXTS,
    TOKENS,
    Scene,
    arguments,
    configured_tests,
    corpus_of,
    median_length_batch,
    random_texts,
    recompute_item_logits,
    spread_out,
)

EPSILON, CLOSE = 0.01, 1e-5  # the adversary's tolerance; how near two ways to the same must come


def require_close(one: Tensor, other: Tensor) -> float:
    """The largest difference.

    Raises:
        RuntimeError: It is above `CLOSE`: the two are not the same.
    """
    apart = float((one.double() - other.double()).abs().max())
    if not apart <= CLOSE:
        raise RuntimeError(f"two ways to compute the same are {apart} apart")
    return apart


def permutation(
    repetitions: int = 3, corpus: CorpusDataModule | None = None
) -> dict[str, Measurement]:
    """Per cent that `AttentionPermutation` adds to `Trainer.test`, record and figure included.

    On all test texts of IMDb, not a fifth of them. The BiLSTM is as it was drawn: neither its cost
    nor that of the shuffles depends on training.
    """
    data = corpus or corpus_of("imdb", subset=None)
    data.prepare()
    pl.seed_everything(0, verbose=False)
    task = AttentionClassifier(data.spec, **arguments("models/bilstm_additive"))
    with tempfile.TemporaryDirectory(prefix="attnlight-permutation-") as folder:

        def test(*callbacks: InterpretabilityTest) -> None:
            trainer(Path(folder), *callbacks).test(task, data, verbose=False)

        ways = {"without": test, "with": lambda: test(AttentionPermutation())}
        processor: dict[str, list[float]] = {}
        seconds = interleave(ways, repetitions, processor=processor)
    added = [
        Measurement(
            [
                100 * (mine / other - 1)
                for mine, other in zip(way["with"], way["without"], strict=True)
            ]
        )
        for way in (seconds, processor)
    ]
    details = {
        "texts": f"{len(data.dataset('test')):,}",
        "test without": spread(seconds["without"]),
        "test with": spread(seconds["with"]),
        "processor time without": spread(processor["without"]),
        "processor time with": spread(processor["with"]),
        "processor time added": added[1].text("%"),
    }
    return {"imdb_permutation": Measurement(added[0].values, details)}


@torch.no_grad()
def cheap_tests(
    repetitions: int = 7, warm_ups: int = 2, batches: int = 4, **sizes: int
) -> dict[str, Measurement]:
    """What the cheap tests measure over the forward pass that each batch takes before them."""
    scene, tests = Scene.drawn(batches, **sizes), configured_tests("cheap")
    names = ["forward", *(type(test).__name__ for test in tests)]
    seconds: dict[str, list[float]] = {name: [] for name in names}
    for number in range(warm_ups + repetitions):
        for name in names:
            seconds[name].append(0.0)
        for batch in scene.batches:
            outputs: list[AttentionOutput] = []
            seconds["forward"][number] += clock(lambda: outputs.append(scene.model(batch)))  # noqa: B023
            for test in tests:
                taken = clock(lambda: test.measure(batch, outputs[0], scene.model))  # noqa: B023
                seconds[type(test).__name__][number] += taken
    counted = {name: taken[warm_ups:] for name, taken in seconds.items()}
    forward = counted.pop("forward")
    details = {"texts": scene.size, "forward passes": spread(forward)}
    for name, taken in counted.items():
        details[f"`{name}` over them"] = f"{Measurement.of_ratios(taken, forward, {}).median:.3f}"
    together = [sum(taken) for taken in zip(*counted.values(), strict=True)]
    return {"cheap_tests": Measurement.of_ratios(together, forward, details)}


@torch.no_grad()
def shuffling(repetitions: int = 7, batches: int = 4, **sizes: int) -> dict[str, Measurement]:
    """How many times as fast `AttentionPermutation` is as reading out every shuffle.

    Raises:
        RuntimeError: With the same shuffles the two disagree.
    """
    scene, test = Scene.drawn(batches, **sizes), AttentionPermutation()
    model, outputs = scene.model, scene.outputs()

    def ours() -> Tensor:
        pairs = zip(scene.batches, outputs, strict=True)
        return torch.cat([test.measure(*pair, model)["median_tvd"] for pair in pairs])

    def theirs(readout: rivals.Readout, same: bool = False) -> Tensor:
        found = []
        for output in outputs:
            orders = rivals.random_orders(output.mask, test.draws)
            if same:
                sizes = output.mask.sum(-1)
                orders = permutations(sizes, output.rows, test.draws, test.seed).unbind(1)
            found.append(rivals.shuffled_distance(model, output, orders, readout))
        return torch.cat(found)

    apart = require_close(ours(), theirs("sum", same=True))
    ways: dict[str, Callable[[], object]] = {
        "theirs": partial(theirs, "sum"),
        "scored": partial(theirs, "scored"),
        "product": partial(theirs, "product"),
        "items": lambda: [recompute_item_logits(model, output) for output in outputs],
        "ours": ours,
    }
    seconds = interleave(ways, repetitions, calls={"ours": 3})
    details = scene.details(seconds) | {
        "theirs, also scoring attention anew before each shuffle": _also(seconds, "scored"),
        "theirs, reading out by one matrix product instead": _also(seconds, "product"),
        "largest difference of the median distance, with the same shuffles": f"{apart:.0e}",
    }
    speedup = Measurement.of_ratios(seconds["theirs"], seconds["ours"], details)
    return {"permutation_speedup": speedup}


def _also(seconds: Mapping[str, Sequence[float]], way: str) -> str:
    """The times of another way and how many times ours they are."""
    ratio = Measurement.of_ratios(seconds[way], seconds["ours"], {}).median
    return f"{spread(seconds[way])}; {ratio:.2f} times ours"


@torch.no_grad()
def erasing(repetitions: int = 7, batches: int = 4, **sizes: int) -> dict[str, Measurement]:
    """How many times as fast `erase_ranking` is as reading out after every erasure.

    Raises:
        RuntimeError: The two disagree about when decisions change, in more than 1 text of 50.
    """
    scene = Scene.drawn(batches, **sizes)
    model, outputs = scene.model, scene.outputs()
    orders = [ranking(output.weights.squeeze(1), output.mask) for output in outputs]

    def each(way: Callable[[AttentionOutput, Tensor], Tensor]) -> Tensor:
        return torch.cat([way(*pair) for pair in zip(outputs, orders, strict=True)])

    theirs = partial(each, partial(rivals.erased_until_flip, model))
    found = each(flipped_after)
    equal = found == theirs()
    if equal.double().mean() < 0.98:
        raise RuntimeError(f"of {len(equal)} texts only {int(equal.sum())} flip after as many")
    ways: dict[str, Callable[[], object]] = {
        "theirs": theirs,
        "drop_flipped": partial(each, partial(rivals.erased_until_flip, model, drop_flipped=True)),
        "items": lambda: [recompute_item_logits(model, output) for output in outputs],
        "ours": partial(each, flipped_after),
    }
    seconds = interleave(ways, repetitions, calls={"ours": 20})
    details = scene.details(seconds) | {
        "theirs, texts leaving once their decision has changed": _also(seconds, "drop_flipped"),
        "items erased when the decision changes, median": f"{statistics.median(found.tolist()):g}",
        "texts on which both agree": f"{int(equal.sum())} of {len(equal)}",
    }
    speedup = Measurement.of_ratios(seconds["theirs"], seconds["ours"], details)
    return {"erasure_speedup": speedup}


def flipped_after(output: AttentionOutput, order: Tensor) -> Tensor:
    """Items erased when the decision first changes, (B,), from the logits after every step."""
    assert output.item_logits is not None
    logits = erase_ranking(output.weights, output.item_logits, output.bias, output.mask, order)
    changed = logits.argmax(-1) != output.logits.argmax(-1, keepdim=True)
    return torch.where(changed.any(-1), changed.byte().argmax(-1) + 1, -1)


@torch.no_grad()
def adversary(
    repetitions: int = 5, batches: int = 2, steps: int = 500, **sizes: int
) -> dict[str, Measurement]:
    """How many times as fast `worst_case_attention` is as Jain & Wallace's search.

    Raises:
        RuntimeError: The search ends above the exact answer, which nothing does.
    """
    scene = Scene.drawn(batches, **sizes)
    model, outputs = scene.model, scene.outputs()
    searched: list[list[Tensor]] = []

    def search(steps: int) -> list[Tensor]:
        return [rivals.searched_attention(model, o, EPSILON, steps=steps) for o in outputs]

    def ours() -> Tensor:
        return torch.cat([worst_js(output) for output in outputs])

    exact, _ = ours(), search(3)
    ways: dict[str, Callable[[], object]] = {
        "theirs": lambda: searched.append(search(steps)),
        "items": lambda: [recompute_item_logits(model, output) for output in outputs],
        "ours": ours,
    }
    seconds = interleave(ways, repetitions, warm_ups=0, calls={"ours": 20})
    found = torch.stack([torch.cat(list(map(feasible_js, outputs, each))) for each in searched])
    above = int((found > exact + 1e-9).sum())
    if above:
        raise RuntimeError(f"the search ends above the exact answer in {above} of {found.numel()}")
    details = scene.details(seconds) | {
        "searches that end above the exact answer": f"{above} of {found.numel()}",
        "searches that find nothing within epsilon": f"{int((found == 0).sum())} of {found.numel()}",
        "mean JS, exact and searched": f"{exact.mean():.3f} and {found.mean():.3f} nats",
    }
    speedup = Measurement.of_ratios(seconds["theirs"], seconds["ours"], details)
    return {"adversary_speedup": speedup}


def worst_js(output: AttentionOutput) -> Tensor:
    """The exact answer, (B,)."""
    assert output.item_logits is not None
    items = output.item_logits
    return worst_case_attention(output.weights, items, output.mask, EPSILON)[1].squeeze(1)


def feasible_js(output: AttentionOutput, attentions: Tensor) -> Tensor:
    """The largest JS from the original among attentions (B, K, N) within epsilon, (B,); 0 if none.

    In double precision and from item logits: what the exact answer is exact for.
    """
    assert output.item_logits is not None
    both = torch.cat([output.weights, attentions], dim=1).double()
    both = both / both.sum(-1, keepdim=True)
    predictions = read(both, output.item_logits.squeeze(1).double()).softmax(-1)
    moved = total_variation(predictions[:, 1:], predictions[:, :1])
    js = js_divergence(both[:, 1:], both[:, :1])
    return js.masked_fill(moved > EPSILON, 0.0).amax(-1)


@torch.no_grad()
def leave_one_out(
    repetitions: int = 3,
    corpus: CorpusDataModule | None = None,
    texts: int = TEXTS,
    tokens: int = TOKENS,
) -> dict[str, Measurement]:
    """How many times as fast leave-one-out is as encoding the whole batch for every position.

    Raises:
        RuntimeError: The two ways disagree.
    """
    data = corpus or corpus_of("imdb", subset=None)
    test = data.dataset("test")
    torch.manual_seed(0)
    rows = np.random.default_rng(0).choice(len(test), texts, replace=False)
    batches = {
        "drawn at random": test[sorted(rows.tolist())],
        "sorted by length": median_length_batch(test, texts),
        "of equal length": random_texts(0, texts, tokens, data.vocab_size),
    }
    model = spread_out(FlatClassifier(data.vocab_size, num_classes=2).eval(), [*batches.values()])
    packed, details, found = rivals.packed(model), {}, {}
    for name, batch in batches.items():
        encoders = {"ours": model, "packed sequences": packed}
        speed = {n: min(clock(lambda: way(batch)) for _ in range(4)) for n, way in encoders.items()}  # noqa: B023
        encoder = min(speed, key=speed.__getitem__)
        output, rival = model(batch), encoders[encoder]
        few = batch.select(torch.arange(len(batch)) < 2)
        importances(model, few, model(few))
        results: dict[str, Tensor] = {}
        ways: dict[str, Callable[[], object]] = {
            "theirs": lambda: results.update(theirs=rivals.deleted_distance(rival, batch, output)),  # noqa: B023
            "ours": lambda: results.update(ours=importances(model, batch, output)),  # noqa: B023
        }
        seconds = interleave(ways, repetitions, warm_ups=0)
        found[name] = Measurement.of_ratios(seconds["theirs"], seconds["ours"], details)
        apart, lengths = require_close(results["ours"], results["theirs"]), batch.mask.sum(-1)
        details[f"{texts} texts {name}"] = (
            f"{int(lengths.min())} to {int(lengths.max())} tokens; ours {spread(seconds['ours'])}, "
            f"theirs {spread(seconds['theirs'])}, {found[name].median:.2f} times ours; their "
            f"encoder: {encoder}; largest importance {results['ours'].max():.2f}, difference "
            f"{apart:.0e}"
        )
    return {
        "leave_one_out_imdb": found["drawn at random"],
        "leave_one_out_equal": found["of equal length"],
    }
