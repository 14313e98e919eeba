"""What users would take in attnlight's place, on the same texts: the released loops, captum and ferret."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from statistics import median

import torch
from scipy.stats import kendalltau
from torch import Tensor, nn
from torch.testing import assert_close

from attnlight.attribution import Gradient, IntegratedGradients, Occlusion
from attnlight.batch import UNK, TextBatch
from attnlight.callbacks import AttentionPermutation, ImportanceCorrelation
from attnlight.functional import log_odds
from attnlight.probing.input_gradient import input_gradient
from tests.benchmarks import card, classifiers, rivals
from tests.benchmarks.attributions import STEPS, captum_gradients
from tests.benchmarks.ferret_sets import removed_sets
from tests.benchmarks.measuring import Measured, interleave, ratios, spread, timed
from tests.benchmarks.pretrained import MINILM
from tests.benchmarks.scene import Scene

Ways = Mapping[str, Callable[[], Tensor]]


def peers(
    repetitions: int = 7,
    texts: int = 32,  # the batch size of Jain & Wallace's code
    tokens: int = 200,
    steps: int = 500,
    shape: Mapping[str, int] = MINILM,
    ferret: bool = True,
) -> Measured:
    """How many times as long as ours each takes, processor time, and ours over a forward pass."""
    scene = Scene.drawn(1, texts, tokens)
    model, batch = card.bert(max(2, texts // 4), **shape)
    released, captum = _released(scene, steps), _captum(model, batch)
    measured = [_row(name, ways, scene.forward, repetitions) for name, ways in released.items()]
    forward = torch.no_grad()(partial(model, batch))
    measured += [_row(name, ways, forward, repetitions) for name, ways in captum.items()]
    if ferret:
        measured.append(
            _row("peers_ferret", *removed_sets(shape, *batch.tokens.shape), repetitions)
        )
    found = Measured(
        {}, {"texts": f"{scene.size}; of the BERT {len(batch)} of {batch.tokens.shape[1]} tokens"}
    )
    for one in measured:
        found |= one
    return found


def _row(name: str, ways: Ways, forward: Callable[[], object], repetitions: int) -> Measured:
    """Theirs over ours, whose values agree, and what both take of a forward pass."""
    if name not in ("peers_adversary", "peers_permutation"):  # whose draws are their own
        of_ties = 2e-2 if name == "peers_leave_one_out" else 1e-4  # which ours takes as such
        assert_close(ways["theirs"](), ways["ours"](), rtol=1e-3, atol=of_ties, check_dtype=False)
    clocks = {kind: partial(timed, way) for kind, way in {**ways, "forward": forward}.items()}
    seconds = interleave(clocks, repetitions)
    floor = median(ratios(seconds["ours"], seconds["forward"]))
    times = f"ours {spread(seconds['ours'])}, theirs {spread(seconds['theirs'])}"
    return Measured(
        {name: ratios(seconds["theirs"], seconds["ours"])},
        {name.replace("_", " "): f"{times}; ours is {floor:.1f} forward passes"},
    )


def _released(scene: Scene, steps: int) -> dict[str, Ways]:
    """Jain & Wallace's loops and our tests, on a BiLSTM of two classes."""
    model, batch, output = scene.model, scene.batches[0], scene.outputs[0]
    permutation, taus = AttentionPermutation(), ImportanceCorrelation(gradients=[])

    def shuffled() -> Tensor:
        orders = (torch.rand(output.mask.shape).argsort(-1) for _ in range(permutation.draws))
        return rivals.shuffled_distance(model, output, orders)

    def searched() -> Tensor:
        moved = rivals.moved_by(model, output)
        return rivals.searched_attention(output.weights, output.mask, moved, 0.01, steps=steps)

    def deleted() -> Tensor:
        found = rivals.deleted_distance(model, batch, output).numpy()
        pairs = zip(output.weights[:, 0].numpy(), found, strict=True)
        return torch.tensor([kendalltau(*pair).statistic for pair in pairs])

    def differentiated() -> Tensor:
        embeddings = model.embed(batch).detach().requires_grad_()
        weights = output.weights.detach()
        with torch.enable_grad():
            positive = model(batch, weights=weights, embeddings=embeddings).logits[:, 1].sigmoid()
            (gradient,) = torch.autograd.grad(positive.sum(), embeddings)
        effects = (gradient * embeddings).detach().sum(-1).abs()
        return effects / effects.sum(-1, keepdim=True)

    def ours() -> Tensor:
        effects = input_gradient(model, batch, output)
        return effects / effects.sum(-1, keepdim=True)

    no_grad = torch.no_grad()
    own = (batch, output, model)
    return {
        "peers_permutation": {
            "theirs": no_grad(shuffled),
            "ours": lambda: permutation.measure(*own)["median_tvd"],  # type: ignore[arg-type]
        },
        "peers_adversary": {
            "theirs": no_grad(searched),
            "ours": lambda: classifiers.worst_js(output),
        },
        "peers_leave_one_out": {
            "theirs": no_grad(deleted),
            "ours": lambda: taus.measure(*own)["tau_attention_loo"],  # type: ignore[arg-type]
        },
        "peers_gradient": {"theirs": differentiated, "ours": ours},
    }


def _captum(model: nn.Module, batch: TextBatch) -> dict[str, Ways]:
    """captum's methods and ours, on a BERT of MiniLM's size below an attention layer."""
    from captum.attr import FeatureAblation, Saliency  # type: ignore[import-untyped]

    with torch.no_grad():
        output = model(batch)
    target, explained = output.logits.argmax(-1), (model, batch, output, output.logits.argmax(-1))

    def odds(embeddings: Tensor) -> Tensor:
        return log_odds(model(batch, embeddings=embeddings).logits, target)

    def of_tokens(tokens: Tensor) -> Tensor:
        changed = TextBatch(batch.index, tokens, batch.mask, batch.labels)
        return log_odds(model(changed).logits, target)

    def saliency() -> Tensor:
        inputs = model.embed(batch).detach().requires_grad_()  # type: ignore[operator]
        values: Tensor = Saliency(odds).attribute(inputs, abs=False)
        return values.norm(dim=-1).detach().double()

    def ablation() -> Tensor:
        values: Tensor = FeatureAblation(of_tokens).attribute(batch.tokens, baselines=UNK)
        return values.double()

    same = IntegratedGradients(tolerance=0.0, steps=STEPS, max_steps=STEPS)
    return {
        "peers_captum_gradient": {"theirs": saliency, "ours": lambda: Gradient()(*explained)},
        "peers_captum_integrated": {
            "theirs": lambda: captum_gradients(*explained, 16),  # type: ignore[arg-type]
            "ours": lambda: same(*explained),
        },
        "peers_captum_ablation": {
            "theirs": torch.no_grad()(ablation),
            "ours": lambda: Occlusion()(*explained),
        },
    }
