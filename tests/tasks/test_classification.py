"""Corpora that a task cannot learn are refused."""

from dataclasses import replace

import pytest
import torch

from attnlight.errors import InputError
from attnlight.tasks import ChunkTagger
from tests.bases import SMALL, Planted, classifier, spec
from tests.tasks.tagged import SMALL as SMALL_TAGGER


@pytest.mark.parametrize(("labels", "has"), [(None, "no labels"), ((2, 9), "each token")])
def test_a_corpus_without_a_label_for_each_text(labels: tuple[int, ...] | None, has: str) -> None:
    data = Planted()
    given = None if labels is None else torch.zeros(labels, dtype=torch.long)
    batch = replace(data.dataset("train")[[0, 1]], labels=given)
    with pytest.raises(InputError, match=has):
        classifier(data.spec, **SMALL).validation_step(batch, 0)


def test_a_corpus_without_tags() -> None:
    data = Planted()
    with pytest.raises(InputError, match="'negative' is not of the BIO scheme"):
        ChunkTagger(spec(data.vocab_size, ["negative", "positive"]))
    task = ChunkTagger(spec(data.vocab_size, ["O", "B-NP", "I-NP"]), SMALL_TAGGER)
    batch = data.dataset("train")[[0, 1]]
    with pytest.raises(InputError, match="no label for each token"):
        task._losses(batch, task.model(batch))
