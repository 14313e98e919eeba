"""How tasks of each kind are optimised."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch.callbacks import ModelCheckpoint

from attnlight.errors import InputError
from attnlight.tasks import AttentionTask, ChunkTagger
from attnlight.tasks.options import Optimizer
from tests.bases import SMALL, Planted, arguments, classifier, spec, trainer
from tests.tasks.tagged import SMALL as SMALL_TAGGER
from tests.tasks.test_learning_rates import Rates


def flat(**options: Any) -> AttentionTask:
    return classifier(spec(40, 2), **SMALL, **options)


def hierarchical(**options: Any) -> AttentionTask:
    return classifier(spec(40, 2), **SMALL, hierarchical=True, **options)


def tagger(**options: Any) -> AttentionTask:
    return ChunkTagger(spec(40, ["O", "B-NP"]), **arguments(SMALL_TAGGER | options))


Make = Callable[..., AttentionTask]
PARTS: dict[Make, list[str]] = {
    flat: ["embedding", "encoder", "attention", "decoder"],
    hierarchical: [
        *("embedding", "word_encoder", "word_attention"),
        *("sentence_encoder", "sentence_attention", "decoder"),
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


def planted(nested: bool, **options: Any) -> tuple[AttentionTask, Planted]:
    torch.manual_seed(0)
    data = Planted(nested)
    return classifier(data.spec, **SMALL, hierarchical=nested, **options), data


class TestPlateau:
    @pytest.mark.parametrize(
        ("options", "expected"),
        [(PLATEAU, [1e-6, 1e-6, 0.5e-6, 0.25e-6]), ({"learning_rate": 1e-6}, [1e-6] * 4)],
    )
    def test_rate_is_halved_after_each_epoch_without_a_new_best(
        self, options: dict[str, float], expected: list[float], tmp_path: Path
    ) -> None:
        """The rate is too small to change a prediction: the first epoch is the best."""
        rates = Rates()
        task, data = planted(True, optimizer=options)
        trainer(tmp_path, rates, max_epochs=4).fit(task, data)
        assert [rates.rates[step][0] for step in range(0, 32, 8)] == expected

    def test_a_resumed_run_is_as_an_undisturbed_one(self, tmp_path: Path) -> None:
        def run(epochs: int, folder: str, ckpt_path: Path | None = None) -> dict[str, Any]:
            task, data = planted(True, optimizer=PLATEAU)
            keep = ModelCheckpoint(
                tmp_path / folder,
                filename="last",
                save_on_train_epoch_end=True,
                enable_version_counter=False,
            )
            started = trainer(tmp_path, keep, max_epochs=epochs, enable_checkpointing=True)
            started.fit(task, data, ckpt_path=ckpt_path)
            held: dict[str, Any] = torch.load(tmp_path / folder / "last.ckpt", weights_only=True)
            return held

        whole = run(5, "whole")
        first = run(2, "parts")
        resumed = run(5, "parts", tmp_path / "parts" / "last.ckpt")
        rates = [
            part["optimizer_states"][0]["param_groups"][0]["lr"] for part in (first, resumed, whole)
        ]
        assert rates == [0.5e-6, 0.5**4 * 1e-6, 0.5**4 * 1e-6]
        assert resumed["lr_schedulers"] == whole["lr_schedulers"]
        assert whole["lr_schedulers"][0]["last_epoch"] == 5
        for name, tensor in whole["state_dict"].items():
            assert torch.equal(resumed["state_dict"][name], tensor), name


@pytest.mark.parametrize("nested", [False, True])
def test_gradients_of_embeddings_are_clipped_with_the_others(nested: bool, tmp_path: Path) -> None:
    """On a CPU these are sparse until just before the step."""
    options: dict[str, Any] = {"initialization": "xavier"}
    options["optimizer"] = {"name": "sgd", "learning_rate": 1.0}
    (task, data), (before, _) = (planted(nested, **options) for _ in range(2))
    clipped = trainer(tmp_path, max_epochs=1, gradient_clip_val=1e-3, limit_train_batches=1)
    clipped.fit(task, data)
    pairs = zip(before.model.parameters(), task.model.parameters(), strict=True)
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
