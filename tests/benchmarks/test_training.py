from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import numpy as np
import pytest
import torch

from attnlight.compatibility import arguments
from attnlight.datamodules import CorpusDataModule, PlantedEvidence
from attnlight.tasks import AttentionClassifier, AttentionTask, ChunkTagger
from tests.bases import trainer
from tests.benchmarks.training import PlainLoop
from tests.tasks import tagged

CLASSIFIER: dict[str, Any] = {
    "embedding_size": 6,
    "hidden_size": 4,
    "amsgrad": True,
    "weight_decay": {"embedding": 1e-5, "encoder": 1e-5, "decoder": 1e-5},
    "loss_reduction": "sum",
}
TAGGER: dict[str, Any] = {
    "embedding_size": 8,
    "feature_size": 4,
    "hidden_size": 16,
    "heads": 2,
    "filter_size": 8,
    "dropout": 0.0,
    "attention_dropout": 0.0,
    "relu_dropout": 0.0,
    "learning_rate": 0.2,
    "betas": (0.9, 0.98),
    "warmup_steps": 7,
}


@pytest.fixture(scope="module")
def planted() -> PlantedEvidence:
    corpus = PlantedEvidence(train_size=70, validation_size=8, test_size=9, batch_size=16)
    corpus.prepare()
    return corpus


@pytest.mark.parametrize("task", [AttentionClassifier, ChunkTagger])
def test_the_plain_loop_learns_what_ours_does(
    task: type[AttentionTask], planted: PlantedEvidence, tmp_path: Path
) -> None:
    corpus: CorpusDataModule = planted
    options = CLASSIFIER
    if task is ChunkTagger:
        written = tagged.written(tmp_path / "corpus")
        corpus, options = tagged.corpus(written, cache_dir=str(tmp_path / "cache")), TAGGER
    torch.manual_seed(0)
    ours = task(corpus.spec, **arguments(options))
    stand_in = pl.Trainer(logger=False, enable_checkpointing=False, accelerator="cpu")
    stand_in.datamodule = corpus  # type: ignore[attr-defined]
    plain = PlainLoop(stand_in, ours, fused=True)
    plain.model.load_state_dict(ours.model.state_dict())
    before = {name: weights.clone() for name, weights in ours.model.state_dict().items()}
    trainer(tmp_path, max_epochs=2, limit_val_batches=0).fit(ours, corpus)
    for _ in range(2):
        plain.epoch()
    expected = ours.model.state_dict()
    for name, weights in plain.model.state_dict().items():
        torch.testing.assert_close(weights, expected[name], rtol=0, atol=1e-5)
    assert any(not torch.equal(before[name], weights) for name, weights in expected.items())


def test_default_adam_reads_every_text_once_whatever_its_length(planted: PlantedEvidence) -> None:
    stand_in = pl.Trainer(logger=False, enable_checkpointing=False, accelerator="cpu")
    stand_in.datamodule = planted  # type: ignore[attr-defined]
    task = AttentionClassifier(planted.spec, **arguments(CLASSIFIER))
    plain = PlainLoop(stand_in, task, fused=False)
    torch.manual_seed(0)
    first, second = ([batch.index for batch in plain.loader] for _ in range(2))
    assert [len(index) for index in first] == [16, 16, 16, 16, 6]
    assert torch.cat(first).sort().values.tolist() == list(range(70))
    assert torch.cat(first).tolist() != torch.cat(second).tolist()
    lengths = planted.dataset("train").lengths
    assert min(np.ptp(lengths[index.numpy()]) for index in first[:-1]) > 10  # sorted: about 5
    plain.epoch()
