"""The tests on classifiers of two classes beside a forward pass and the released algorithms."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from statistics import median

import lightning.pytorch as pl
import numpy as np
import torch
from torch import Tensor
from torch.testing import assert_close

from attnlight.batch import AttentionOutput
from attnlight.callbacks import AttentionPermutation, InterpretabilityTest
from attnlight.callbacks.hooks.readouts import HeldReadouts, shared_readout
from attnlight.datamodules import CorpusDataModule
from attnlight.functional import erase_ranking, permutations, ranking, read, worst_case_attention
from attnlight.functional.adversary.worst_case import best_of
from attnlight.functional.readout.heads import flatten_heads
from attnlight.models import FlatClassifier
from attnlight.probing.leave_one_out import leave_one_out as importances
from attnlight.tasks import AttentionClassifier
from tests.bases import trainer
from tests.benchmarks import rivals
from tests.benchmarks.measuring import Measured, clock, interleave, over, ratios, spread
from tests.benchmarks.scene import (
    TEXTS,
    TOKENS,
    Scene,
    arguments,
    configured_tests,
    corpus_of,
    median_length_batch,
    random_texts,
    spread_out,
)

EPSILON = 0.01  # the adversary's tolerance
# How near two ways to compute the same must come.
require_close = partial(assert_close, rtol=0, atol=1e-5, check_dtype=False)


def permutation(
    repetitions: int = 3, corpus: CorpusDataModule | None = None, accelerator: str = "cpu"
) -> Measured:
    """Per cent that `AttentionPermutation` adds to `Trainer.test` on IMDb, record included."""
    data = corpus or corpus_of("imdb", subset=None)
    data.prepare()
    pl.seed_everything(0, verbose=False)
    task = AttentionClassifier(data.spec, **arguments("models/bilstm_additive"))
    with tempfile.TemporaryDirectory(prefix="attnlight-permutation-") as folder:

        def test(*callbacks: InterpretabilityTest) -> float:
            tester = trainer(Path(folder), *callbacks, accelerator=accelerator)
            return clock(lambda: tester.test(task, data, verbose=False))

        ways = {"without": test, "with": lambda: test(AttentionPermutation())}
        seconds = interleave(ways, repetitions)
    found = over(seconds, imdb_permutation=("with", "without"))
    added = [100 * (ratio - 1) for ratio in found.values["imdb_permutation"]]
    details = {"texts": f"{len(data.dataset('test')):,}"}
    return found | Measured({"imdb_permutation": added}, details)


def permutation_on_a_gpu() -> Measured:
    """The same on a GPU."""
    torch.set_default_device("cpu")  # Lightning moves the model and the batches
    return permutation(accelerator="gpu")


@torch.no_grad()
def cheap_tests(repetitions: int = 7, batches: int = 4, **sizes: int) -> Measured:
    """What the cheap tests measure batch by batch over the forward passes."""
    scene = Scene.drawn(batches, **sizes)
    return _over_forward("cheap_tests", scene, repetitions, apart=True)


@torch.no_grad()
def joined_batches(
    repetitions: int = 7, batches: int = 16, texts: int = TEXTS, tokens: Sequence[int] = (200, 20)
) -> Measured:
    """What the cheap tests measure of batches that wait for each other, on 1 and 2 threads."""
    found, before = Measured({}, {}), torch.get_num_threads()
    for length in tokens:
        scene = Scene.drawn(batches, texts, length)
        for threads in (1, 2):
            torch.set_num_threads(threads)
            found |= _over_forward(f"joined_{length}_{threads}", scene, repetitions)
    torch.set_num_threads(before)  # tests of this function share their process with others
    return found


def _over_forward(name: str, scene: Scene, repetitions: int, apart: bool = False) -> Measured:
    """Time of the cheap tests on the outputs of an epoch over that of its forward passes."""
    tests = configured_tests("cheap")

    def measure() -> None:
        held = [HeldReadouts() for _ in tests]
        for batch, output in zip(scene.batches, scene.outputs, strict=True):
            readout, _ = shared_readout(batch, output, scene.model, batch.index >= 0)
            last = apart or batch is scene.batches[-1]
            for test, waiting in zip(tests, held, strict=True):
                for part in (*waiting.add(readout), *(waiting.release() if last else ())):
                    test.measure(part.batch, part.output, part)

    ways = {"forward passes": partial(clock, scene.forward), "tests": partial(clock, measure)}
    seconds = interleave(ways, repetitions)
    details = {
        f"{scene.size}, threads: {torch.get_num_threads()}": spread(seconds["forward passes"])
    }
    return Measured({name: ratios(seconds["tests"], seconds["forward passes"])}, details)


@torch.no_grad()
def shuffling(repetitions: int = 7, batches: int = 4, **sizes: int) -> Measured:
    """How many times as fast `AttentionPermutation` is as reading out every shuffle."""
    scene, test = Scene.drawn(batches, **sizes), AttentionPermutation()

    def ours() -> Tensor:
        pairs = zip(scene.batches, scene.outputs, strict=True)
        return torch.cat([test.measure(*pair, scene.model)["median_tvd"] for pair in pairs])

    def theirs(same: bool = False) -> Tensor:
        found = []
        for output in scene.outputs:
            orders = (torch.rand(output.mask.shape).argsort(-1) for _ in range(test.draws))
            if same:
                drawn = permutations(output.mask.sum(-1), output.rows, test.draws, test.seed)
                orders = (order for order in drawn.unbind(1))
            found.append(rivals.shuffled_distance(scene.model, output, orders))
        return torch.cat(found)

    require_close(ours(), theirs(same=True))
    return scene.speedup("permutation_speedup", ours, theirs, repetitions, calls=3)


@torch.no_grad()
def erasing(repetitions: int = 7, batches: int = 4, **sizes: int) -> Measured:
    """How many times as fast `erase_ranking` is as reading out after every erasure."""
    scene = Scene.drawn(batches, **sizes)
    orders = [ranking(output.weights.squeeze(1), output.mask) for output in scene.outputs]

    def each(way: Callable[[AttentionOutput, Tensor], Tensor]) -> Tensor:
        return torch.cat([way(*pair) for pair in zip(scene.outputs, orders, strict=True)])

    ours = partial(each, flipped_after)
    theirs = partial(each, partial(rivals.erased_until_flip, scene.model))
    equal = ours() == theirs()
    agreement = f"{int(equal.sum())} of {len(equal)}"
    if equal.double().mean() < 0.98:
        raise RuntimeError(f"texts that flip after as many erasures: only {agreement}")
    found = scene.speedup("erasure_speedup", ours, theirs, repetitions, calls=20)
    return found | Measured({}, {"texts on which both agree": agreement})


def flipped_after(output: AttentionOutput, order: Tensor) -> Tensor:
    """Items erased when the decision first changes, (B,), from the logits after every step."""
    assert output.item_logits is not None
    logits = erase_ranking(output.weights, output.item_logits, output.bias, output.mask, order)
    changed = logits.argmax(-1) != output.logits.argmax(-1, keepdim=True)
    return torch.where(changed.any(-1), changed.byte().argmax(-1) + 1, -1)


@torch.no_grad()
def adversary(repetitions: int = 5, batches: int = 2, steps: int = 500, **sizes: int) -> Measured:
    """How many times as fast `worst_case_attention` is as Jain & Wallace's search."""
    scene = Scene.drawn(batches, **sizes)
    model, outputs = scene.model, scene.outputs
    searched: list[list[Tensor]] = []

    def search(steps: int) -> list[Tensor]:
        """The released code's attentions (B, K, N) of each batch."""
        parts = [(o.weights, o.mask, rivals.moved_by(model, o)) for o in outputs]
        return [rivals.searched_attention(*part, EPSILON, steps=steps) for part in parts]

    def ours() -> Tensor:
        return torch.cat([worst_js(output) for output in outputs])

    exact, _ = ours(), search(3)

    def theirs() -> None:
        searched.append(search(steps))

    speedup = scene.speedup("adversary_speedup", ours, theirs, repetitions, calls=20, warm_ups=0)
    found = torch.stack([torch.cat(list(map(feasible_js, outputs, each))) for each in searched])
    if above := int((found > exact + 1e-9).sum()):
        raise RuntimeError(f"the search ends above the exact answer in {above} of {found.numel()}")
    means = f"{exact.mean():.3f} and {found.mean():.3f} nats"
    return speedup | Measured({}, {"mean JS, exact and searched": means})


def worst_js(output: AttentionOutput) -> Tensor:
    """The exact answer, (B,)."""
    assert output.item_logits is not None
    items = output.item_logits
    return worst_case_attention(output.weights, items, output.mask, EPSILON)[1].squeeze(1)


def feasible_js(output: AttentionOutput, attentions: Tensor) -> Tensor:
    """The largest JS from the original among attentions (B, K, N) within epsilon, or 0."""
    assert output.item_logits is not None
    own, _ = flatten_heads(output.weights, output.mask)
    readout = partial(read, item_logits=output.item_logits.squeeze(1).double())
    found = attentions.double() / attentions.double().sum(-1, keepdim=True)
    return best_of(readout, own, EPSILON, found.unbind(1))[1]


@torch.no_grad()
def leave_one_out(
    repetitions: int = 3,
    corpus: CorpusDataModule | None = None,
    texts: int = TEXTS,
    tokens: int = TOKENS,
) -> Measured:
    """How many times as fast leave-one-out is as encoding the whole batch for every position."""
    data = corpus or corpus_of("imdb", subset=None)
    data.prepare()
    test = data.dataset("test")
    torch.manual_seed(0)
    rows = np.random.default_rng(0).choice(len(test), texts, replace=False)
    batches = {
        "drawn at random": test[sorted(rows.tolist())],
        "sorted by length": median_length_batch(test, texts),
        "of equal length": random_texts(0, texts, tokens, data.vocab_size),
    }
    model = spread_out(FlatClassifier(data.vocab_size, num_classes=2).eval(), [*batches.values()])
    encoders, details, found = {"ours": model, "packed sequences": rivals.packed(model)}, {}, {}
    for name, batch in batches.items():
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
        timed = {way: partial(clock, call) for way, call in ways.items()}
        seconds = interleave(timed, repetitions, warm_ups=0)
        require_close(results["ours"], results["theirs"])
        found[name], lengths = ratios(seconds["theirs"], seconds["ours"]), batch.mask.sum(-1)
        details[f"{texts} texts {name}"] = (
            f"{int(lengths.min())} to {int(lengths.max())} tokens; ours {spread(seconds['ours'])}, "
            f"theirs {spread(seconds['theirs'])}, {median(found[name]):.2f} times ours; their "
            f"encoder: {encoder}"
        )
    names = {"leave_one_out_imdb": "drawn at random", "leave_one_out_equal": "of equal length"}
    return Measured({name: found[texts] for name, texts in names.items()}, details)
