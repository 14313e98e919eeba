"""The objective of a tagger's adversary, by hand, token by token and head by head."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.spatial.distance import jensenshannon
from torch import Tensor
from torch.nn.functional import pad

from attnlight.batch import AttentionOutput, TextBatch
from attnlight.datamodules import ChunkingDataModule
from attnlight.errors import InputError
from attnlight.reference import Reference, read_base
from attnlight.tasks import AdversarialVariant
from attnlight.tasks.adversarial import attention_term
from tests.bases import batch_of, running
from tests.tasks.tagged import corpus, save_tagger, trainer, written


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> ChunkingDataModule:
    return corpus(written(tmp_path_factory.mktemp("chunks")))


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory, data: ChunkingDataModule) -> Path:
    return save_tagger(tmp_path_factory.mktemp("base") / "base.ckpt", data)


def adversary(
    data: ChunkingDataModule, base: Path, lambda_: float = 0.1, **options: Any
) -> AdversarialVariant:
    """One without dropout, so that its loss in training is a function of the batch."""
    torch.manual_seed(1)
    task = AdversarialVariant(data.spec, str(base), lambda_, **options)
    for module in task.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    return task


def alone(batch: TextBatch, text: int) -> TextBatch:
    """One sentence of a batch, without padding."""
    length = int(batch.mask[text].sum())
    return batch.apply(lambda v: v[text : text + 1] if v.ndim == 1 else v[text : text + 1, :length])


def by_loop(task: AdversarialVariant, base: Any, batch: TextBatch, strength: float) -> list[float]:
    """The objective of each token, its sentence read alone, head by head in plain numpy."""
    found = []
    for text in range(len(batch)):
        with torch.no_grad():
            new, old = task.model(alone(batch, text)), base(alone(batch, text))
        for row in range(len(new.rows)):
            one, two = (o.logits[row].double().softmax(-1).numpy() for o in (new, old))
            prediction = {
                "nll": -np.log(one[two.argmax()]),
                "tvd": np.abs(one - two).sum() / 2,
            }[task.hparams["prediction_term"]]
            heads = []
            for head in range(new.weights.shape[1]):
                p, q = (o.weights[row, head].double().numpy() for o in (new, old))
                heads.append(
                    {
                        "kl": (p * np.log(p / q)).sum(),
                        "js": jensenshannon(p, q) ** 2,
                        "tvd": np.abs(p - q).sum() / 2,
                    }[task.hparams["attention_term"]]
                )
            share = 1 / len(new.rows) if task.hparams["compat"] else 1.0
            found.append(prediction - strength * share * np.mean(heads))
    return found


class TestObjective:
    @pytest.mark.parametrize("attention", ["kl", "js", "tvd"])
    @pytest.mark.parametrize("prediction", ["nll", "tvd"])
    def test_equals_a_loop_over_tokens_and_heads(
        self, prediction: Any, attention: Any, data: ChunkingDataModule, base: Path
    ) -> None:
        terms = {"prediction_term": prediction, "attention_term": attention}
        task = adversary(data, base, 0.7, **terms)
        batch = batch_of(data)
        expected = by_loop(task.eval(), read_base(base).model, batch, 0.7)
        running(task, data)
        task.on_train_epoch_start()
        losses = task._losses(batch, task.model(batch))
        np.testing.assert_allclose(losses.detach(), expected, atol=3e-6)
        loss = task.training_step(batch, 0)
        assert loss.item() == pytest.approx(np.mean(expected), abs=2e-6)

    def test_padding_and_queries_outside_have_no_part(
        self, data: ChunkingDataModule, base: Path
    ) -> None:
        task = adversary(data, base, 0.7).double()
        running(task, data)
        batch = batch_of(data)
        wider = batch.apply(lambda v: v if v.ndim == 1 else pad(v, (0, 5)))
        losses = task._losses(batch, task.model(batch))
        assert len(losses) == int(batch.mask.sum())
        torch.testing.assert_close(
            task._losses(wider, task.model(wider)), losses, atol=1e-10, rtol=0
        )
        # What stands on padding is neither read nor moved.
        embeddings = task.model.embed(wider).detach()
        embeddings[~wider.mask] = 3.0
        embeddings.requires_grad_()
        task._losses(wider, task.model(wider, embeddings=embeddings)).sum().backward()
        assert embeddings.grad is not None
        assert not embeddings.grad[~wider.mask].any()
        assert (embeddings.grad[wider.mask] != 0).any(-1).all()
        filled = task._losses(wider, task.model(wider, embeddings=embeddings))
        torch.testing.assert_close(filled, losses, atol=1e-10, rtol=0)

    def test_rows_sum_to_1_over_real_tokens(self, data: ChunkingDataModule, base: Path) -> None:
        running(adversary(data, base), data)
        batch = batch_of(data)
        output = read_base(base).model(batch)
        weights, _ = Reference(base).outputs(data, "train").read(output.rows, output.mask)
        assert len(weights) == int(batch.mask.sum())
        torch.testing.assert_close(weights.sum(-1), torch.ones(weights.shape[:2]))
        assert not weights.transpose(1, 2)[~output.mask].any()

    def test_gold_labels_have_no_part_in_it(self, data: ChunkingDataModule, base: Path) -> None:
        task = adversary(data, base)
        running(task, data)
        task.on_train_epoch_start()
        batch = batch_of(data)
        losses = []
        for labels in (batch.labels, torch.zeros_like(batch.tokens), None):
            batch.labels = labels
            losses.append(task.training_step(batch, 0).item())
        assert losses[0] == losses[1] == losses[2]

    def test_heads_are_compared_in_their_order(self, data: ChunkingDataModule, base: Path) -> None:
        """The study's weakness, kept and said: exchanged heads alone are a gain."""
        task = adversary(data, base, 1.0)
        task.model.load_state_dict(exchanged(read_base(base).model.state_dict()))
        same = adversary(data, base, 0.0)
        same.model.load_state_dict(read_base(base).model.state_dict())
        found = []
        for one in (task, same):
            running(one, data, "validation")
            batch = batch_of(data, "validation", 5)
            output = one.model(batch)
            weights, _ = one._outputs().read(output.rows, output.mask)
            found.append(attention_term(output.weights, weights, "kl"))
        torch.testing.assert_close(
            task.model(batch).logits, same.model(batch).logits, atol=1e-5, rtol=1e-5
        )
        assert found[0].mean() > 0.05
        assert found[1].abs().max() < 1e-6

    def test_repeats_of_a_padded_sampler_are_finite_and_not_counted(
        self, data: ChunkingDataModule, base: Path
    ) -> None:
        task = adversary(data, base)
        running(task, data, "validation")
        batch = batch_of(data, "validation", 5)
        own = task._losses(batch, task.model(batch))
        batch.index[2] = -1
        output = task.model(batch)
        losses = task._losses(batch, output)
        assert losses.isfinite().all()
        real = output.rows[:, 0] >= 0
        assert torch.equal(losses[real], own[real])
        task.validation_step(batch, 0)
        assert task.val_loss.compute().item() == pytest.approx(own[real].mean().item(), rel=1e-6)

    def test_lambda_rises_in_steps_and_is_whole_in_validation(
        self, data: ChunkingDataModule, base: Path, tmp_path: Path
    ) -> None:
        task = adversary(data, base, 0.8, lambda_warmup_epochs=2)
        strengths: dict[bool, list[float]] = {True: [], False: []}
        losses = task._losses

        def spy(batch: TextBatch, output: AttentionOutput) -> Tensor:
            strengths[task.training].append(task._lambda)
            return losses(batch, output)  # type: ignore[no-any-return]

        task._losses = spy
        trainer(tmp_path, max_epochs=3, limit_train_batches=2).fit(task, datamodule=data)
        assert strengths[True] == pytest.approx([0, 0.2, 0.4, 0.6, 0.8, 0.8])


def exchanged(state: dict[str, Tensor], heads: int = 2) -> dict[str, Tensor]:
    """The parameters of a tagger with its heads in the reverse order: the same model."""
    moved = dict(state)
    for name in ("query", "key", "value"):
        values = state[f"attention.{name}.weight"]
        moved[f"attention.{name}.weight"] = values.unflatten(0, (heads, -1)).flip(0).flatten(0, 1)
    name = next(n for n in ("decoder.after.output.weight", "decoder.decoder.weight") if n in state)
    moved[name] = state[name].unflatten(1, (heads, -1)).flip(1).flatten(1, 2)
    return moved


class TestReleasedScale:
    """Yang's code: NLL of the base's tags, less lambda times KL over the elements of the batch."""

    def restated(self, task: Any, base: Any, batch: TextBatch) -> float:
        """On the padded arrays (B, H, N, N), where nothing is outside the sentences."""
        with torch.no_grad():
            new, old = task.model(batch), base(batch)
        texts, items, heads = *batch.tokens.shape, new.weights.shape[1]
        grids = [np.zeros((texts, heads, items, items)) for _ in range(2)]
        likelihood, row = [], 0
        for text in range(texts):
            for place in range(items):
                if not batch.mask[text, place]:
                    continue
                for grid, output in zip(grids, (new, old), strict=True):
                    grid[text, :, place] = output.weights[row].double().numpy()
                z = new.logits[row].double().numpy()
                likelihood.append(np.log(np.exp(z).sum()) - z[int(old.logits[row].argmax())])
                row += 1
        adversary, original = grids
        there = adversary > 0
        elements = np.zeros_like(adversary)
        elements[there] = adversary[there] * np.log(adversary[there] / original[there])
        return float(np.mean(likelihood) - task.hparams["lambda_"] * elements.mean())

    def test_equals_its_restatement(self, data: ChunkingDataModule, base: Path) -> None:
        task = adversary(data, base, 3.1, compat=True)
        running(task, data)
        task.on_train_epoch_start()
        frozen = read_base(base).model
        for count, wider in ((8, 0), (13, 3), (1, 0)):
            batch = batch_of(data, count=count)
            batch = batch.apply(lambda v, n=wider: v if v.ndim == 1 else pad(v, (0, n)))
            expected = self.restated(task, frozen, batch)
            assert task.training_step(batch, 0).item() == pytest.approx(
                expected, rel=1e-6, abs=1e-6
            )

    def test_evaluation_knows_no_batches(self, data: ChunkingDataModule, base: Path) -> None:
        task = adversary(data, base, 3.1, compat=True)
        running(task, data, "validation")
        batch = batch_of(data, "validation", 5)
        losses = task._losses(batch, task.model(batch)).detach()
        expected = by_loop(task, read_base(base).model, batch, 3.1)
        np.testing.assert_allclose(losses, expected, atol=3e-6)

    def test_is_of_nll_and_kl(self, data: ChunkingDataModule, base: Path) -> None:
        for terms in ({"prediction_term": "tvd"}, {"attention_term": "js"}):
            with pytest.raises(InputError, match="compat is the released loss"):
                adversary(data, base, compat=True, **terms)


@pytest.mark.parametrize("value", [-1e-9, math.nan, math.inf])
@pytest.mark.parametrize("name", ["lambda_", "lambda_warmup_epochs"])
def test_numbers_out_of_range(
    data: ChunkingDataModule, base: Path, name: str, value: float
) -> None:
    with pytest.raises(InputError, match=f"{name} is .*; it must be a number of at least 0"):
        adversary(data, base, **({"lambda_": 0.1} | {name: value}))
