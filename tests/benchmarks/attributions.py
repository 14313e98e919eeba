"""Attribution methods beside a forward pass, beside captum and beside a gradient."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from statistics import median

import lightning.pytorch as pl
import torch
from torch import Tensor
from torch.testing import assert_close

from attnlight.attribution import LRP, Attribution, Gradient, InputGradient, IntegratedGradients
from attnlight.batch import AttentionOutput, TextBatch
from attnlight.data.samplers import OnceSampler
from attnlight.datamodules import CorpusDataModule
from attnlight.functional import log_odds
from attnlight.models import FlatClassifier
from attnlight.tasks import AttentionClassifier
from tests.bases import trainer
from tests.benchmarks.measuring import Measured, clock, interleave, ratios, spread
from tests.benchmarks.scene import TEXTS, Scene, arguments, corpus_of

FEW = 8  # texts for which integrated gradients are compared
STEPS = 32  # nodes at which integrated gradients are compared with captum's
# Processor time: with one thread it does not depend on what else the machine does.
timed = partial(clock, timer=time.process_time)


def attributions(
    repetitions: int = 3,
    corpus: CorpusDataModule | None = None,
    trained: int = 100,
    batches: int = 3,
    texts: int = TEXTS,
    lengths: tuple[int, int] = (20, 200),
) -> Measured:
    """What gradient methods cost on IMDb, and LRP on texts of two lengths.

    Args:
        repetitions: Rounds that count.
        corpus: In place of IMDb.
        trained: Training batches that the model of IMDb has seen.
        batches: Test batches that `input_gradient` explains, of all lengths.
        texts: Texts of a batch.
        lengths: Tokens of the texts that LRP explains.
    """
    data = corpus or corpus_of("imdb", subset=None)
    data.prepare()
    pl.seed_everything(0, verbose=False)
    task = AttentionClassifier(data.spec, **arguments("models/bilstm_additive"))
    with tempfile.TemporaryDirectory(prefix="attnlight-attributions-") as folder:
        limits = {"max_epochs": 1, "limit_train_batches": trained, "limit_val_batches": 0}
        trainer(Path(folder), **limits).fit(task, data)
    model, test = task.eval().model, data.dataset("test")
    assert isinstance(model, FlatClassifier)
    ordered = list(OnceSampler(test.lengths, texts))  # as evaluation loads them, by length
    places = [(2 * number + 1) * len(ordered) // (2 * batches) for number in range(batches)]
    scenes = [Scene(model, [test[ordered[place]]], []) for place in places]
    found = _input_gradient(scenes, repetitions)
    batch = scenes[batches // 2].batches[0]
    few = batch.select(torch.arange(len(batch)) < FEW)
    parts = [found, _integrated_gradients(Scene(model, [few], []), repetitions)]
    for number, tokens in enumerate(lengths):
        scene = Scene.drawn(1, texts, tokens)
        name = f"lrp_{('short', 'long')[number]}"
        ways = {"gradient": Gradient(), "lrp": LRP()}
        seconds = interleave(_ways(scene.model, scene.batches[0], ways), repetitions)
        size = f"{len(scene.batches[0])} texts of {tokens} tokens"
        times = ", ".join(f"{way} {spread(taken)}" for way, taken in seconds.items())
        parts.append(Measured({name: ratios(seconds["lrp"], seconds["gradient"])}, {size: times}))
    return Measured(
        {name: values for part in parts for name, values in part.values.items()},
        {name: text for part in parts for name, text in part.details.items()},
    )


def _ways(
    model: FlatClassifier, batch: TextBatch, methods: Mapping[str, Attribution]
) -> dict[str, Callable[[], float]]:
    """What explains the predicted class of a batch by each method and returns the seconds."""
    with torch.no_grad():
        output = model(batch)
    target = output.logits.argmax(-1)
    return {
        name: partial(timed, partial(method, model, batch, output, target))
        for name, method in methods.items()
    }


def _input_gradient(scenes: list[Scene], repetitions: int) -> Measured:
    """`input_gradient` over the forward pass, on all the scenes together."""
    totals = {"forward": [0.0] * repetitions, "explained": [0.0] * repetitions}
    for scene in scenes:
        (batch,) = scene.batches
        ways = _ways(scene.model, batch, {"explained": InputGradient()})
        forward = torch.no_grad()(partial(scene.model, batch))
        seconds = interleave({"forward": partial(timed, forward)} | ways, repetitions)
        for name, taken in seconds.items():
            totals[name] = [a + b for a, b in zip(totals[name], taken, strict=True)]
    lengths = [int(scene.batches[0].mask.sum(-1).max()) for scene in scenes]
    details = {
        f"{len(scenes)} test batches of up to {', '.join(map(str, lengths))} tokens": (
            f"forward passes {spread(totals['forward'])}, input_gradient "
            f"{spread(totals['explained'])}"
        )
    }
    return Measured({"input_gradient": ratios(totals["explained"], totals["forward"])}, details)


def _integrated_gradients(scene: Scene, repetitions: int) -> Measured:
    """Integrated gradients over captum's, whose best number of nodes at once is found first.

    Raises:
        AssertionError: At the same nodes the two disagree.
    """
    model, (batch,) = scene.model, scene.batches
    with torch.no_grad():
        output = model(batch)
    target = output.logits.argmax(-1)
    same = IntegratedGradients(tolerance=0.0, steps=STEPS, max_steps=STEPS)
    theirs = partial(_captum, model, batch, output, target)
    assert_close(theirs(1), same(model, batch, output, target), rtol=1e-3, atol=1e-4)
    speed = {nodes: timed(partial(theirs, nodes)) for nodes in (1, 4, 16)}
    fastest = min(speed, key=speed.__getitem__)
    methods = {"same": same, "default": IntegratedGradients()}
    ways = _ways(model, batch, methods) | {"captum": partial(timed, partial(theirs, fastest))}
    seconds = interleave(ways, repetitions)
    _, columns = methods["default"].explain(model, batch, output, target)
    size = f"{len(batch)} test texts of up to {int(batch.mask.sum(-1).max())} tokens"
    details = {
        size: f"captum, {fastest} of {STEPS} nodes at once, {spread(seconds['captum'])}; ours "
        f"{spread(seconds['same'])}; at the default tolerance {spread(seconds['default'])}, "
        f"{columns['steps'].mean():.1f} nodes a text, median error "
        f"{median(columns['completeness_error'].tolist()):.1e}"
    }
    values = {
        "integrated_gradients": ratios(seconds["same"], seconds["captum"]),
        "integrated_gradients_default": ratios(seconds["default"], seconds["captum"]),
    }
    return Measured(values, details)


def _captum(
    model: FlatClassifier, batch: TextBatch, output: AttentionOutput, target: Tensor, nodes: int
) -> Tensor:
    """captum's integrated gradients (B, N) from zero embeddings, so many nodes at once."""
    from captum.attr import IntegratedGradients as Captum

    texts = torch.arange(len(batch))

    def odds(embeddings: Tensor) -> Tensor:
        copies = len(embeddings) // len(texts)
        logits = model(batch.select(texts.repeat(copies)), embeddings=embeddings).logits
        return log_odds(logits, target.repeat(copies))

    inputs = model.embed(batch).detach()
    values: Tensor = Captum(odds).attribute(
        inputs.requires_grad_(),
        inputs.detach().masked_fill(output.mask.unsqueeze(-1), 0.0),
        n_steps=STEPS,
        method="gausslegendre",
        internal_batch_size=nodes * len(texts),
    )
    return values.sum(-1).detach().double().masked_fill(~output.mask, 0.0)
