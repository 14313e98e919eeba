"""Attribution methods beside a forward pass, beside captum and beside a gradient."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from functools import partial, reduce
from operator import or_
from pathlib import Path

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
from tests.benchmarks.measuring import Measured, interleave, ratios, spread, timed
from tests.benchmarks.scene import TEXTS, Scene, arguments, corpus_of

FEW = 8  # texts for which integrated gradients are compared
STEPS = 32  # nodes at which integrated gradients are compared with captum's


def attributions(
    repetitions: int = 3,
    corpora: tuple[CorpusDataModule, CorpusDataModule] | None = None,
    epochs: int = 3,
    batches: int = 3,
    texts: int = TEXTS,
    lengths: tuple[int, int] = (20, 200),
) -> Measured:
    """What gradient methods cost on IMDb and on SST (trained), and LRP on two lengths."""
    imdb, sst = corpora or (corpus_of("imdb", subset=None), corpus_of("sst"))
    long, short = (_scenes(*each, batches, texts) for each in ((imdb, 0), (sst, epochs)))
    model, batch = long[0]
    few = batch.select(torch.arange(min(len(batch), FEW)))
    names = ["integrated_gradients_short", "integrated_gradients_default"]
    parts = [
        _input_gradient(long, repetitions),
        _integrated_gradients(model, few, repetitions, ["integrated_gradients"]),
        _integrated_gradients(*short[0], repetitions, names),
    ]
    for name, tokens in zip(("lrp_short", "lrp_long"), lengths, strict=True):
        scene = Scene.drawn(1, texts, tokens)
        ways = {"gradient": Gradient(), "lrp": LRP()}
        seconds = interleave(_ways(scene.model, scene.batches[0], ways), repetitions)
        size = f"{len(scene.batches[0])} texts of {tokens} tokens"
        times = ", ".join(f"{way} {spread(taken)}" for way, taken in seconds.items())
        parts.append(Measured({name: ratios(seconds["lrp"], seconds["gradient"])}, {size: times}))
    return reduce(or_, parts)


def _scenes(
    data: CorpusDataModule, epochs: int, batches: int, texts: int
) -> list[tuple[FlatClassifier, TextBatch]]:
    """A model trained for some epochs with each of some test batches, at even steps of length."""
    data.prepare()
    pl.seed_everything(0, verbose=False)
    task = AttentionClassifier(data.spec, **arguments("models/bilstm_additive"))
    if epochs:
        with tempfile.TemporaryDirectory(prefix="attnlight-attributions-") as folder:
            trainer(Path(folder), max_epochs=epochs, limit_val_batches=0).fit(task, data)
    model, test = task.eval().model, data.dataset("test")
    assert isinstance(model, FlatClassifier)
    ordered = list(OnceSampler(test.lengths, texts))
    places = [(2 * number + 1) * len(ordered) // (2 * batches) for number in range(batches)]
    return [(model, test[ordered[place]]) for place in places]


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


def _input_gradient(scenes: list[tuple[FlatClassifier, TextBatch]], repetitions: int) -> Measured:
    """`input_gradient` over the forward pass, on all the scenes together."""
    totals = {"forward": [0.0] * repetitions, "explained": [0.0] * repetitions}
    for model, batch in scenes:
        forward = torch.no_grad()(partial(model, batch))
        ways = _ways(model, batch, {"explained": InputGradient()})
        seconds = interleave({"forward": partial(timed, forward)} | ways, repetitions)
        for name, taken in seconds.items():
            totals[name] = [a + b for a, b in zip(totals[name], taken, strict=True)]
    lengths = ", ".join(str(int(batch.mask.sum(-1).max())) for _, batch in scenes)
    forward, explained = map(spread, totals.values())
    text = f"forward passes {forward}, input_gradient {explained}"
    details = {f"{len(scenes)} test batches of up to {lengths} tokens": text}
    return Measured({"input_gradient": ratios(totals["explained"], totals["forward"])}, details)


def _integrated_gradients(
    model: FlatClassifier, batch: TextBatch, repetitions: int, names: list[str]
) -> Measured:
    """Integrated gradients over captum's, at as many nodes and at the default tolerance."""
    with torch.no_grad():
        output = model(batch)
    target = output.logits.argmax(-1)
    same = IntegratedGradients(tolerance=0.0, steps=STEPS, max_steps=STEPS)
    methods = dict(zip(names, (same, IntegratedGradients()), strict=False))
    theirs = partial(captum_gradients, model, batch, output, target)
    assert_close(theirs(1), same(model, batch, output, target), rtol=1e-3, atol=1e-4)
    speed = {nodes: timed(partial(theirs, nodes)) for nodes in (1, 4, 16)}
    fastest = min(speed, key=speed.__getitem__)
    ways = _ways(model, batch, methods) | {"captum": partial(timed, partial(theirs, fastest))}
    seconds = interleave(ways, repetitions)
    found = f"captum, {fastest} of {STEPS} nodes at once, {spread(seconds['captum'])}"
    for name, method in methods.items():
        _, columns = method.explain(model, batch, output, target)
        found += (
            f"; ours, {columns['steps'].mean():.1f} nodes a text, {spread(seconds[name])}, largest "
            f"error {columns['completeness_error'].max():.0e}"
        )
    size = f"{len(batch)} test texts of up to {int(batch.mask.sum(-1).max())} tokens"
    values = {name: ratios(seconds[name], seconds["captum"]) for name in names}
    return Measured(values, {size: found})


def captum_gradients(
    model: FlatClassifier, batch: TextBatch, output: AttentionOutput, target: Tensor, nodes: int
) -> Tensor:
    """captum's integrated gradients (B, N) from zero embeddings, so many nodes at once."""
    from captum.attr import IntegratedGradients as Captum  # type: ignore[import-untyped]

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
