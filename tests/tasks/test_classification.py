"""Classifiers learn what decides, and corpora that a task cannot learn are refused."""

import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import pytest
import torch
from torch.utils.data import DataLoader

from attnlight.batch import TextBatch
from attnlight.datamodules import PlantedEvidence
from attnlight.errors import InputError
from attnlight.models import HierarchicalClassifier
from attnlight.tasks import AttentionTask, ChunkTagger
from tests.bases import classifier, spec, trainer
from tests.tasks.tagged import SMALL as SMALL_TAGGER

FLAG = 7  # the word that decides the label
SMALL: dict[str, Any] = {"embedding_size": 8, "hidden_size": 4, "encoder": "bigru"}
HAN = SMALL | {"hierarchical": True}


def batches(sentences: bool = True, count: int = 4) -> list[TextBatch]:
    """Texts of 1 to 4 sentences of 5 words; label 1 has `FLAG` somewhere."""
    random = torch.Generator().manual_seed(0)
    made = []
    for number in range(count):
        tokens = torch.randint(8, 30, (16, 4, 5), generator=random)
        sizes = torch.randint(1, 5, (16, 1), generator=random)
        tokens[torch.arange(4) >= sizes] = 0
        labels = torch.arange(16) % 2
        tokens[labels == 1, 0, 2] = FLAG
        if not sentences:
            tokens = tokens.flatten(1)
        index = torch.arange(16) + 16 * number
        made.append(TextBatch(index=index, tokens=tokens, mask=tokens != 0, labels=labels))
    return made


def fit(task: AttentionTask, epochs: int, *callbacks: pl.Callback, **options: Any) -> pl.Trainer:
    made = batches(bool(task.hparams["net"]["hierarchical"]))
    data = DataLoader(made, batch_size=None, shuffle=False)  # type: ignore[arg-type]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*(workers|logging interval)")
        started = trainer(Path(), *callbacks, max_epochs=epochs, **options)
        started.fit(task, data, data)
    return started


def test_a_hierarchical_model_learns_which_word_decides() -> None:
    """Without an encoder, whose states of other words may know of it."""
    torch.manual_seed(0)
    task = classifier(spec(40, 2), **HAN | {"encoder": "none"}, optimizer={"learning_rate": 0.03})
    assert isinstance(task.model, HierarchicalClassifier)
    assert fit(task, 12).callback_metrics["val/accuracy"] == 1.0
    task.eval()
    with torch.no_grad():
        output = task.validation_step(batches()[0], 0)["output"]
    flagged = output.layers[0][1::2, 0]  # the first sentence of each text of label 1
    assert (flagged.argmax(-1) == 2).double().mean() > 0.9


class TestMistakes:
    @pytest.mark.parametrize(("labels", "has"), [(None, "no labels"), ((16, 20), "each token")])
    def test_a_corpus_without_a_label_for_each_text(
        self, labels: tuple[int, ...] | None, has: str
    ) -> None:
        (batch,) = batches(sentences=False, count=1)
        given = None if labels is None else torch.zeros(labels, dtype=torch.long)
        with pytest.raises(InputError, match=has):
            classifier(spec(40, 2), **SMALL).validation_step(replace(batch, labels=given), 0)

    def test_a_corpus_without_tags(self) -> None:
        data = PlantedEvidence(train_size=20, validation_size=5, test_size=5)
        with pytest.raises(InputError, match="'negative' is not of the BIO scheme"):
            ChunkTagger(spec(data.vocab_size, ["negative", "positive"]))
        task = ChunkTagger(spec(data.vocab_size, ["O", "B-NP", "I-NP"]), SMALL_TAGGER)
        batch = data.dataset("train")[[0, 1]]
        with pytest.raises(InputError, match="no label for each token"):
            task._losses(batch, task.model(batch))
