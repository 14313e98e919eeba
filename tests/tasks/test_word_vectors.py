"""Embeddings that start from word vectors, as a fit leaves them before its first step."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from attnlight.data.raw_text import RawText
from attnlight.data.word2vec import Word2VecSettings
from attnlight.datamodules import PlantedEvidence
from attnlight.errors import InputError
from attnlight.models import WordVectors, read_vectors
from tests.bases import classifier, trainer
from tests.data.local import needs_gensim


@pytest.fixture
def data(tmp_path: Path) -> PlantedEvidence:
    return PlantedEvidence(
        train_size=120, validation_size=30, test_size=30, cache_dir=str(tmp_path)
    )


def started(data: PlantedEvidence, **vectors: Any) -> Tensor:
    """The embeddings of a fit of no epoch, (V, 8)."""
    torch.manual_seed(0)
    task = classifier(data.spec, encoder="none", embedding_size=8, vectors=vectors)
    trainer(Path(), max_epochs=0).fit(task, datamodule=data)
    assert task.model.embedding.weight.requires_grad
    return task.model.embedding.weight.detach()


def given(data: PlantedEvidence) -> WordVectors:
    """The vectors of the corpus's own text, found without the task."""
    path = data.word_vectors(Word2VecSettings(size=8))
    vocabulary = classifier(data.spec)
    vocabulary.raw = RawText.of_corpus(data)
    return read_vectors(path, vocabulary.tokenizer.get_vocab())


@needs_gensim
def test_corpus_gives_vectors_of_its_own_text(data: PlantedEvidence) -> None:
    vectors = given(data)
    weight, drawn = started(data, path="corpus"), started(data)
    known = vectors.covered
    assert 0 < int(known.sum()) < len(known) - 4, "some words are too rare"
    assert torch.equal(weight[known], vectors.matrix[known])
    assert torch.equal(weight[~known], drawn[~known])
    assert not weight[0].any()
    path = data.word_vectors(Word2VecSettings(size=8))
    assert torch.equal(started(data, path=str(path)), weight)


@needs_gensim
def test_vectors_are_normalised_before_use(data: PlantedEvidence) -> None:
    vectors = given(data)
    weight = started(data, path="corpus", normalize=True, unknown="zero")
    known = vectors.covered
    norms = weight.double().norm(dim=-1)
    torch.testing.assert_close(norms, known.double(), atol=1e-6, rtol=0)
    directions = vectors.matrix[known] / vectors.matrix[known].square().sum(-1, True).sqrt()
    torch.testing.assert_close(weight[known], directions)


def test_corpus_without_a_datamodule_is_refused(data: PlantedEvidence, tmp_path: Path) -> None:
    task = classifier(data.spec, embedding_size=8, vectors={"path": "corpus"})
    with pytest.raises(InputError, match="no tokenizer yet"):
        trainer(tmp_path, max_epochs=0).fit(task, data.train_dataloader())


def test_normalising_leaves_zero_vectors(tmp_path: Path) -> None:
    file, vocabulary = tmp_path / "vectors.txt", {"none": 0, "some": 1, "nothing": 2}
    file.write_text("some 3 -4\nnothing 0 0\n")
    expected = [[0, 0], [0.6000000238418579, -0.800000011920929], [0, 0]]
    assert read_vectors(file, vocabulary, normalized=True).matrix.tolist() == expected
    assert read_vectors(file, vocabulary).matrix[1].tolist() == [3, -4]
