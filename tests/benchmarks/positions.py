"""How near a sample of positions comes to Kendall's tau of all, of a model's own leave-one-out."""

from __future__ import annotations

import torch

from attnlight.callbacks import ImportanceCorrelation
from attnlight.functional.position_sample import PositionSample
from attnlight.functional.ranking import dense_ranks
from attnlight.probing.input_gradient import input_gradient
from attnlight.probing.leave_one_out import leave_one_out
from tests.benchmarks import card
from tests.benchmarks.measuring import Measured, timed
from tests.benchmarks.scene import Scene


@torch.no_grad()
def positions(
    scene: card.Scene | None = None, samples: int = 40, count: int = 64, cost_of: int = 16
) -> Measured:
    """Bias and coverage over samples of each text, and the time that a sampled text takes."""
    model, batch = scene or card.planted(texts=200, epochs=3)
    output = model(batch)
    with torch.enable_grad():
        gradients = input_gradient(model, batch, output)
    effects, attention = leave_one_out(model, batch, output), output.weights[:, 0]
    ranks = [dense_ranks(scores, output.mask) for scores in (attention, effects)]
    found = []
    for seed in range(samples):
        rankings = [attention, gradients]
        sample = PositionSample.of_texts(batch, output, rankings, count, seed)
        found.append(torch.stack(sample.tau(*ranks)))
    whole = PositionSample(output.mask, output.mask, output.mask)
    truth, _, _ = whole.tau(*ranks)
    tau, low, high = torch.stack(found, dim=1)
    covered = ((low <= truth) & (truth <= high)).double().mean().item()
    test, drawn = ImportanceCorrelation(positions=count), Scene.drawn(1, cost_of)
    given = drawn.batches[0], drawn.outputs[0], drawn.model
    seconds = timed(lambda: test.measure(*given)) / cost_of
    values = {
        "positions_bias": [(tau - truth).mean().abs().item()],
        "positions_coverage": [abs(covered - 0.95)],
        "positions_cost": [1000 * seconds],
    }
    off = (
        f"{(tau - truth).abs().mean().item():.3f} on average, {truth.mean().item():.3f} their mean"
    )
    samples_of = f"{len(batch)} texts of {output.mask.shape[1]} items, {samples} samples of {count}"
    return Measured(values, {samples_of: f"tau of a text off by {off}; coverage {covered:.3f}"})
