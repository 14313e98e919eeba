"""How tasks of each kind are optimised."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from attnlight.errors import InputError
from attnlight.tasks import AttentionTask, ChunkTagger
from attnlight.tasks.options import Optimizer
from tests.bases import arguments, classifier, spec
from tests.tasks.tagged import SMALL as SMALL_TAGGER
from tests.tasks.test_classification import HAN, SMALL, fit
from tests.tasks.test_learning_rates import Rates


def flat(**options: Any) -> AttentionTask:
    return classifier(spec(40, 2), **SMALL, **options)


def hierarchical(**options: Any) -> AttentionTask:
    return classifier(spec(40, 2), **HAN, **options)


def tagger(**options: Any) -> AttentionTask:
    return ChunkTagger(spec(40, ["O", "B-NP"]), **arguments(SMALL_TAGGER | options))


Make = Callable[..., AttentionTask]
PARTS: dict[Make, list[str]] = {
    flat: ["embedding", "encoder", "attention", "decoder"],
    hierarchical: [
        "embedding",
        "word_encoder",
        "word_attention",
        "sentence_encoder",
        "sentence_attention",
        "decoder",
    ],
    tagger: ["embedding", "projection", "attention", "decoder"],
}
EACH = pytest.mark.parametrize("make", PARTS)


@EACH
class TestOptimizer:
    def test_parts_have_weight_decays_by_name(self, make: Make) -> None:
        names = PARTS[make]
        decays = {name: n for n, name in enumerate(names, start=1)}
        task = make(optimizer={"weight_decay": decays, "betas": (0.8, 0.98)})
        optimizer = task.configure_optimizers()
        assert isinstance(optimizer, torch.optim.Adam)
        assert {tuple(group["betas"]) for group in optimizer.param_groups} == {(0.8, 0.98)}
        held = [(group["weight_decay"], group["params"]) for group in optimizer.param_groups]
        decayed = [(decay, parameters) for decay, parameters in held if decay]
        for number, (name, found) in enumerate(zip(names, decayed, strict=True), start=1):
            decay, parameters = found
            assert decay == number
            own = list(getattr(task.model, name).parameters())
            assert all(p is q for p, q in zip(own, parameters, strict=True))
        assert sum(len(ps) for _, ps in held) == len(list(task.model.parameters()))

    def test_another_part_is_refused(self, make: Make) -> None:
        parts = [name for name, part in make().model.named_children() if "dropout" not in name]
        with pytest.raises(InputError, match=f"'readout'; the model has {', '.join(parts)}"):
            make(optimizer={"weight_decay": {"readout": 0.1}}).configure_optimizers()


PLATEAU = {"learning_rate": 1e-6, "plateau_factor": 0.5}


class TestPlateau:
    @pytest.mark.parametrize(
        ("options", "expected"),
        [(PLATEAU, [1e-6, 1e-6, 0.5e-6, 0.25e-6]), ({"learning_rate": 1e-6}, [1e-6] * 4)],
    )
    def test_rate_is_halved_after_each_epoch_without_a_new_best(
        self, options: dict[str, float], expected: list[float]
    ) -> None:
        """The rate is too small to change a prediction: the first epoch is the best."""
        rates = Rates()
        fit(classifier(spec(40, 2), **HAN, optimizer=options), 4, rates)
        assert [rates.rates[step][0] for step in range(0, 16, 4)] == expected


@pytest.mark.parametrize("hierarchical", [False, True])
def test_gradients_are_clipped_with_those_of_embeddings_among_them(hierarchical: bool) -> None:
    """On a CPU these are sparse until just before the step."""
    options = SMALL | {"hierarchical": hierarchical, "initialization": "xavier"}
    task = classifier(spec(40, 2), **options, optimizer={"name": "sgd", "learning_rate": 1.0})
    before = [parameter.detach().clone() for parameter in task.model.parameters()]
    fit(task, 1, gradient_clip_val=1e-3, limit_train_batches=1)
    pairs = zip(before, task.model.parameters(), strict=True)
    moved = torch.cat([(own - other).flatten() for own, other in pairs]).norm()
    assert task.model.embedding.sparse
    assert moved.item() == pytest.approx(1e-3, rel=1e-2)


def test_the_schedule_of_the_study() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(1, 1))
    options = Optimizer(name="sgd", learning_rate=0.2, warmup_steps=500)
    made = options.scheduled(model, 128)
    scheduler = made["lr_scheduler"]["scheduler"]  # type: ignore[index, typeddict-item]
    rates = {}
    for step in range(1, 2001):
        rates[step] = scheduler.get_last_lr()[0]
        scheduler.optimizer.step()
        scheduler.step()
    for step in (1, 250, 500, 2000):
        factor = min(step**-0.5, step * 500**-1.5) / 128**0.5
        assert rates[step] == pytest.approx(0.2 * factor)
    assert max(rates, key=rates.__getitem__) == 500
    with pytest.raises(InputError, match="needs the hidden_size"):
        options.scheduled(model, None)


@EACH
def test_frozen_embeddings_have_no_gradient_and_are_not_optimised(make: Make) -> None:
    task = make(vectors={"freeze": True})
    frozen = task.model.embedding.weight
    assert [one is frozen for one in task.model.parameters() if not one.requires_grad] == [True]
    groups = task.configure_optimizers().param_groups
    assert all(one is not frozen for group in groups for one in group["params"])
