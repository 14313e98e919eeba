from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from attnlight.datamodules import CorpusDataModule, PlantedEvidence
from attnlight.tasks import AttentionClassifier, AttentionTask, ChunkTagger, Translator
from tests.bases import SMALL, arguments, trainer
from tests.benchmarks.training import PlainLoop
from tests.tasks import tagged
from tests.tasks.symbols import Symbols
from tests.trainings import NO_DROPOUT, SUM

CLASSIFIER: dict[str, Any] = SMALL | SUM | {"optimizer": {"amsgrad": True, "weight_decay": 1e-5}}
TAGGER: dict[str, Any] = (
    tagged.SMALL | NO_DROPOUT | {"optimizer": {"learning_rate": 0.2, "warmup_steps": 7}}
)
TRANSLATOR: dict[str, Any] = {"embedding_size": 8, "hidden_size": 6, "dropout": 0.0}
TRANSLATOR |= {"teacher_forcing": 1.0, "optimizer": {"name": "adam", "learning_rate": 1e-2}}


@pytest.fixture(scope="module")
def planted() -> PlantedEvidence:
    corpus = PlantedEvidence(train_size=70, validation_size=8, test_size=9, batch_size=16)
    corpus.prepare()
    return corpus


@pytest.mark.parametrize(
    ("task", "options"),
    [(AttentionClassifier, CLASSIFIER), (ChunkTagger, TAGGER), (Translator, TRANSLATOR)],
)
def test_the_plain_loop_learns_what_ours_does(
    task: type[AttentionTask], options: dict[str, Any], planted: PlantedEvidence, tmp_path: Path
) -> None:
    corpus: CorpusDataModule = planted
    if task is ChunkTagger:
        written = tagged.written(tmp_path / "corpus")
        corpus = tagged.corpus(written, cache_dir=str(tmp_path / "cache"))
    clip = 0.1 if task is Translator else None
    if task is Translator:
        corpus = Symbols(cache_dir=str(tmp_path / "cache"))
    torch.manual_seed(0)
    ours = task(corpus.spec, **arguments(options))
    plain = PlainLoop(corpus, ours, fused=True, clip=clip)
    plain.model.load_state_dict(ours.model.state_dict())
    before = {name: weights.clone() for name, weights in ours.model.state_dict().items()}
    options = {"max_epochs": 2, "limit_val_batches": 0, "gradient_clip_val": clip}
    trainer(tmp_path, **options).fit(ours, corpus)
    for _ in range(2):
        plain.epoch()
    expected = ours.model.state_dict()
    for name, weights in plain.model.state_dict().items():
        torch.testing.assert_close(weights, expected[name], rtol=0, atol=1e-5)
    assert any(not torch.equal(before[name], weights) for name, weights in expected.items())


def test_default_adam_reads_every_text_once_whatever_its_length(planted: PlantedEvidence) -> None:
    task = AttentionClassifier(planted.spec, **arguments(CLASSIFIER))
    plain = PlainLoop(planted, task, fused=False)
    torch.manual_seed(0)
    first, second = ([batch.index for batch in plain.loader] for _ in range(2))
    assert [len(index) for index in first] == [16, 16, 16, 16, 6]
    assert torch.cat(first).sort().values.tolist() == list(range(70))
    assert torch.cat(first).tolist() != torch.cat(second).tolist()
    lengths = planted.dataset("train").lengths
    assert min(np.ptp(lengths[index.numpy()]) for index in first[:-1]) > 10  # sorted: about 5
    plain.epoch()
