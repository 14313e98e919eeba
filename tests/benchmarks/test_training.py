from typing import cast

import lightning.pytorch as pl
import numpy as np
import pytest
import torch

from attnlight.datamodules import PlantedEvidence
from attnlight.tasks import AttentionClassifier
from tests.bases import classifier
from tests.benchmarks.permutation import addition
from tests.benchmarks.training import PlainLoop, shuffled

DECAY = {"embedding": 1e-5, "encoder": 1e-5, "decoder": 1e-5}


@pytest.fixture(scope="module")
def corpus() -> PlantedEvidence:
    corpus = PlantedEvidence(train_size=70, validation_size=8, test_size=9, batch_size=16)
    corpus.prepare()
    return corpus


@pytest.fixture
def task(corpus: PlantedEvidence) -> AttentionClassifier:
    return classifier(
        corpus.spec,
        embedding_size=6,
        hidden_size=4,
        amsgrad=True,
        weight_decay=DECAY,
        loss_reduction="sum",
    )


def plain_loop(corpus: PlantedEvidence, task: AttentionClassifier, *, fused: bool) -> PlainLoop:
    trainer = pl.Trainer(logger=False, enable_checkpointing=False, accelerator="cpu")
    trainer.datamodule = corpus  # type: ignore[attr-defined]
    return PlainLoop(trainer, task, fused=fused)


@pytest.mark.parametrize("fused", [False, True])
def test_the_optimizer_has_the_settings_of_the_task(
    corpus: PlantedEvidence, task: AttentionClassifier, fused: bool
) -> None:
    def settings(optimizer: torch.optim.Optimizer) -> list[dict[str, object]]:
        """Per group the number of parameters and everything but the implementation."""
        left_out = ("params", "fused")
        return [
            {"sizes": [p.shape for p in group["params"]]}
            | {key: value for key, value in group.items() if key not in left_out}
            for group in optimizer.param_groups
        ]

    ours, plain = task.configure_optimizers(), plain_loop(corpus, task, fused=fused).optimizer
    assert settings(plain) == settings(ours)
    assert [group["fused"] for group in plain.param_groups] == [True if fused else None] * 4


def test_the_plain_loop_learns_what_ours_does(
    corpus: PlantedEvidence, task: AttentionClassifier
) -> None:
    plain = plain_loop(corpus, task, fused=True)
    plain.model.load_state_dict(task.model.state_dict())
    trainer = pl.Trainer(
        max_epochs=2,
        limit_val_batches=0,
        logger=False,
        accelerator="cpu",
        devices=1,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(task, corpus)
    for _ in range(2):
        plain.epoch()
    expected = task.model.state_dict()
    for name, weights in plain.model.state_dict().items():
        torch.testing.assert_close(weights, expected[name], rtol=0, atol=1e-6)


def test_shuffled_batches_hold_every_text_once_whatever_its_length(corpus: PlantedEvidence) -> None:
    dataset = corpus.dataset("train")
    torch.manual_seed(0)
    first, second = ([batch.index for batch in shuffled(dataset, 16)] for _ in range(2))
    assert [len(index) for index in first] == [16, 16, 16, 16, 6]
    assert torch.cat(first).sort().values.tolist() == list(range(70))
    assert torch.cat(first).tolist() != torch.cat(second).tolist()
    spans = [np.ptp(dataset.lengths[cast("np.ndarray", index.numpy())]) for index in first[:-1]]
    assert min(spans) > 10  # of 20: sorted batches would span about 5


def test_the_permutation_benchmark_runs(corpus: PlantedEvidence) -> None:
    found = addition(1, repetitions=2, corpus=corpus)
    assert len(found.values) == 2
    assert found.details["texts"] == "9"
