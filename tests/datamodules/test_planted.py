"""The planted corpus on disk: the drawn texts, their sentences, and its configurations."""

from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer

from attnlight.batch import BOS, EOS
from attnlight.data.raw_text import RawText
from attnlight.datamodules import PlantedEvidence
from attnlight.errors import InputError
from tests.commands import CONFIGS
from tests.datamodules.reading import SPLITS, negated, parsed

SIZES = {"train_size": 120, "validation_size": 30, "test_size": 31}


def test_the_prepared_corpus_is_the_drawn_one() -> None:
    data = PlantedEvidence(**SIZES, negation=0.4)
    for number, (split, size) in enumerate(zip(SPLITS, SIZES.values(), strict=True)):
        dataset: Any = data.dataset(split)
        drawn = next(data.planted.draw(number, size))
        assert dataset.index.tolist() == list(range(size))
        assert dataset.labels.tolist() == drawn.labels.tolist()
        batch = dataset[list(range(size))]
        assert batch.tokens[batch.mask].tolist() == drawn.tokens.tolist()
        assert batch.extras["evidence"][batch.mask].tolist() == drawn.evidence.tolist()
        assert not batch.extras["evidence"][~batch.mask].any()
        words = dataset.words(3)
        ids = Tokenizer.from_str(data.tokenizer_json).encode(" ".join(words)).ids
        assert ids == dataset[[3]].tokens[0].tolist()
    assert data.classes == ["bad", "good"]
    assert data.vocab_size == len(data.planted.words)
    labels = data.dataset("train").labels
    assert data.label_counts == np.bincount(labels).tolist()  # type: ignore[arg-type]


def test_boundary_tokens_enclose_each_text_and_are_no_evidence() -> None:
    bare, data = (PlantedEvidence(**SIZES, decoys=2, boundary_tokens=x) for x in (False, True))
    assert "boundary_tokens" not in bare.recipe(), "its fingerprint is that of before"
    tokenizer = Tokenizer.from_str(data.tokenizer_json)
    for split in SPLITS:
        dataset, texts = data.dataset(split), bare.dataset(split)
        assert dataset.labels.tolist() == texts.labels.tolist()  # type: ignore[union-attr]
        for position in range(len(texts)):
            one, text = dataset[[position]], texts[[position]]
            words = text.tokens[0].tolist()
            assert one.tokens[0].tolist() == [BOS, *words, EOS]
            assert one.attendable()[0].tolist() == [False, *[True] * len(words), False]
            for name, values in text.extras.items():
                assert one.extras[name][0].tolist() == [0, *values[0].tolist(), 0]
    shown = " ".join(bare.dataset("test").words(3))
    assert tokenizer.encode(shown).ids == data.dataset("test")[[3]].tokens[0].tolist()
    with pytest.raises(InputError, match="leave out it or sentence_length"):
        PlantedEvidence(sentence_length=4, boundary_tokens=True)


def test_a_corpus_of_several_chunks_is_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("attnlight.data.planted.CHUNK", 100)
    data = PlantedEvidence(train_size=251)
    dataset = data.dataset("train")
    assert dataset.index.tolist() == list(range(251))
    drawn = list(data.planted.draw(0, 251))
    assert [len(chunk.labels) for chunk in drawn] == [100, 100, 51]
    last = dataset[[250]]
    assert last.tokens[0].tolist() == drawn[-1].tokens[-int(drawn[-1].lengths[-1]) :].tolist()


@pytest.mark.parametrize("length", [1, 4, 40, 100])
def test_sentences_are_the_words_of_the_text_in_their_order(length: int) -> None:
    data = PlantedEvidence(sentence_length=length, negation=0.4, **SIZES)
    plain = PlantedEvidence(negation=0.4, **SIZES)
    for split in ("train", "test"):
        dataset, whole = data.dataset(split), plain.dataset(split)
        batch = dataset[list(range(len(dataset)))]
        assert batch.tokens.ndim == batch.extras["evidence"].ndim == 3
        assert batch.index.tolist() == dataset.index.tolist()
        for position in range(len(dataset)):
            text, mask = whole[[position]], batch.mask[position]
            starts = range(0, text.tokens.shape[1], length)
            for values, flat in (
                (batch.tokens[position], text.tokens[0].tolist()),
                (batch.extras["evidence"][position], text.extras["evidence"][0].tolist()),
            ):
                found = [v[m].tolist() for v, m in zip(values, mask, strict=True)]
                assert [row for row in found if row] == [flat[s : s + length] for s in starts]
                assert not values[~mask].any()
            assert mask.any(-1).sum() == len(starts)
        assert (negated(data, split) == negated(plain, split)).all()


def test_nothing_read_before_stays_once_the_corpus_is_encoded_as_another() -> None:
    data = PlantedEvidence(**SIZES, vocabulary=50)
    other = PlantedEvidence(**SIZES, vocabulary=20, corpus_seed=1)
    own = (data.fingerprint, data.prepare(), data.vocab_size, data.tokenizer_json)
    assert int(data.dataset("test")[range(31)].tokens.max()) >= other.vocab_size
    data.evaluate_as(RawText.of_corpus(other), "other")
    found = (data.fingerprint, data.prepare(), data.vocab_size, data.tokenizer_json)
    assert found[2:] == (other.vocab_size, other.tokenizer_json)
    assert set(found).isdisjoint(own)
    assert int(data.dataset("test")[range(31)].tokens.max()) < other.vocab_size


@pytest.mark.parametrize("name", [path.stem for path in CONFIGS.glob("data/planted*.yaml")])
def test_configs_build_a_corpus(name: str) -> None:
    data = parsed(name)
    assert isinstance(data, PlantedEvidence)
    assert len(data.label_counts) == len(data.classes)
    assert negated(data, "test").any() == (name == "planted_negation")
