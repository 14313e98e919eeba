import itertools
import subprocess
import sys
from pathlib import Path

import jsonargparse
import pytest
import torch
import yaml
from tokenizers import Tokenizer

from attnlight.data.encoding import Encoding
from attnlight.datamodules import CorpusDataModule, PlantedEvidence
from attnlight.errors import InputError

REPOSITORY = Path(__file__).parents[2]
CONFIGS = sorted((REPOSITORY / "configs" / "data").glob("planted*.yaml"))
MEMORY = """
import sys, threading, time
from attnlight.datamodules import PlantedEvidence

def anonymous():
    lines = open("/proc/self/status").read().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon"))

peak = [0]
def watch():
    while True:
        peak[0] = max(peak[0], anonymous())
        time.sleep(0.002)

import datasets
PlantedEvidence(train_size=100, cache_dir=sys.argv[2]).prepare()
before = anonymous()
threading.Thread(target=watch, daemon=True).start()
data = PlantedEvidence(train_size=int(sys.argv[1]), min_tokens=30, max_tokens=60, batch_size=512,
                       cache_dir=sys.argv[2])
for batch in data.train_dataloader():
    pass
print((peak[0] - before) / 1024)
"""


def test_the_prepared_corpus_is_the_drawn_one() -> None:
    data = PlantedEvidence(train_size=300, validation_size=40, test_size=41, negation=0.4)
    for number, (split, size) in enumerate({"train": 300, "validation": 40, "test": 41}.items()):
        dataset = data.dataset(split)
        drawn = next(data.planted.draw(number, size))
        assert len(dataset) == size
        assert dataset.index.tolist() == list(range(size))
        assert dataset.labels is not None
        assert dataset.labels.tolist() == drawn.labels.tolist()
        batch = dataset[list(range(size))]
        assert batch.tokens[batch.mask].tolist() == drawn.tokens.tolist()
        assert batch.extras["evidence"][batch.mask].tolist() == drawn.evidence.tolist()
        assert not batch.extras["evidence"][~batch.mask].any()
    assert data.classes == ["bad", "good"]
    assert data.vocab_size == len(data.planted.words)
    drawn = next(data.planted.draw(0, 300))
    assert data.label_counts == [int((drawn.labels == label).sum()) for label in (0, 1)]


def test_a_corpus_of_several_chunks_is_in_order() -> None:
    data = PlantedEvidence(train_size=25_001)
    dataset = data.dataset("train")
    assert dataset.index.tolist() == list(range(25_001))
    drawn = list(data.planted.draw(0, 25_001))
    assert [len(chunk.labels) for chunk in drawn] == [10_000, 10_000, 5_001]
    last = dataset[[25_000]]
    assert last.tokens[0].tolist() == drawn[-1].tokens[-int(drawn[-1].lengths[-1]) :].tolist()


def test_words_are_read_back_as_they_stand() -> None:
    data = PlantedEvidence(negation=0.4)
    dataset = data.dataset("test")
    words = dataset.words(3)
    assert Tokenizer.from_str(data.tokenizer_json).encode(" ".join(words)).ids == (
        dataset[[3]].tokens[0].tolist()
    )


def test_negated_texts_are_those_with_a_keyword_after_a_negator() -> None:
    data = PlantedEvidence(negation=0.4, test_size=2100)
    dataset, negated = data.dataset("test"), data.negated("test")
    for position in range(0, 2100, 7):
        words = dataset.words(position)
        pairs = itertools.pairwise(words)
        expected = any(a.startswith("not") and b.startswith(("good", "bad")) for a, b in pairs)
        assert negated[position] == expected
    assert abs(negated.mean() - 0.4) < 0.05
    assert not PlantedEvidence().negated("test").any()


SIZES = {"train_size": 120, "validation_size": 30, "test_size": 31}


@pytest.mark.parametrize("length", [1, 4, 5, 40, 100])
def test_sentences_are_the_words_of_the_text_in_their_order(length: int) -> None:
    data = PlantedEvidence(sentence_length=length, negation=0.4, **SIZES)
    plain = PlantedEvidence(negation=0.4, **SIZES)
    for split in ("train", "test"):
        dataset, whole = data.dataset(split), plain.dataset(split)
        batch = dataset[list(range(len(dataset)))]
        assert batch.tokens.ndim == batch.extras["evidence"].ndim == 3
        assert batch.index.tolist() == dataset.index.tolist()
        for position in range(len(dataset)):
            text = whole[[position]]
            words, evidence = text.tokens[0].tolist(), text.extras["evidence"][0].tolist()
            starts = range(0, len(words), length)
            mask = batch.mask[position]
            pairs = ((batch.tokens, words), (batch.extras["evidence"], evidence))
            for values, expected in pairs:
                found = [v[m].tolist() for v, m in zip(values[position], mask, strict=True)]
                assert [row for row in found if row] == [expected[s : s + length] for s in starts]
                assert not values[position][~mask].any()
            assert mask.any(-1).sum() == len(starts)
        assert (data.negated(split) == plain.negated(split)).all()


def test_evidence_of_a_known_text_in_sentences() -> None:
    data = PlantedEvidence(sentence_length=7, **SIZES)
    batch = data.dataset("test")[[2]]
    words = data.dataset("test").words(2)
    flat = batch.extras["evidence"][0][batch.mask[0]].tolist()
    signs = [0 if word.startswith("filler") else 1 if "good" in word else -1 for word in words]
    assert batch.labels is not None
    assert flat == [sign if batch.labels[0] == 1 else -sign for sign in signs]
    assert any(flat)


def test_texts_without_sentences_keep_their_fingerprint() -> None:
    assert "sentence_length" not in PlantedEvidence().recipe()
    fingerprints = {PlantedEvidence(sentence_length=n).fingerprint for n in (None, 4, 5)}
    assert len(fingerprints) == 3


def test_sentences_have_words() -> None:
    with pytest.raises(InputError, match="sentence_length is 0; it must be at least 1"):
        PlantedEvidence(sentence_length=0)


def test_seeds_of_corpus_and_training_are_apart() -> None:
    def first_batch(**seeds: int) -> torch.Tensor:
        return next(iter(PlantedEvidence(**seeds).train_dataloader())).index

    assert PlantedEvidence(seed=0).fingerprint == PlantedEvidence(seed=1).fingerprint
    assert PlantedEvidence(corpus_seed=1).fingerprint != PlantedEvidence().fingerprint
    assert first_batch(seed=0).tolist() != first_batch(seed=1).tolist()


def test_nothing_read_before_stays_once_the_corpus_is_encoded_as_another() -> None:
    data, other = PlantedEvidence(vocabulary=50), PlantedEvidence(vocabulary=20, corpus_seed=1)
    own = (data.fingerprint, data.prepare(), data.vocab_size, data.tokenizer_json)
    assert int(data.dataset("test")[range(501)].tokens.max()) >= other.vocab_size
    encoding = Encoding(other.fingerprint, other.tokenizer_json, tuple(other.classes))
    data.evaluate_as(encoding, "other")
    found = (data.fingerprint, data.prepare(), data.vocab_size, data.tokenizer_json)
    assert found[2:] == (other.vocab_size, other.tokenizer_json)
    assert set(found).isdisjoint(own)
    assert int(data.dataset("test")[range(501)].tokens.max()) < other.vocab_size


@pytest.mark.parametrize("option", ["train_size", "validation_size", "test_size"])
def test_splits_have_texts(option: str) -> None:
    with pytest.raises(InputError, match=f"{option} is 0; it must be at least 1"):
        PlantedEvidence(**{option: 0})


def test_a_training_split_of_one_text_has_one_class() -> None:
    with pytest.raises(InputError, match="train split of PlantedEvidence has only one class"):
        PlantedEvidence(train_size=1).prepare()


@pytest.mark.parametrize("config", CONFIGS, ids=lambda path: path.stem)
def test_configs_build_a_corpus(config: Path) -> None:
    parser = jsonargparse.ArgumentParser()
    parser.add_subclass_arguments(CorpusDataModule, "data")
    parsed = parser.parse_object({"data": yaml.safe_load(config.read_text())})
    data = parser.instantiate_classes(parsed).data
    assert isinstance(data, PlantedEvidence)
    assert len(data.label_counts) == len(data.classes)
    assert data.negated("test").any() == (config.stem == "planted_negation")


def test_every_argument_shows_its_meaning() -> None:
    parser = jsonargparse.ArgumentParser()
    parser.add_class_arguments(PlantedEvidence, "data")
    shown = parser.format_help()
    for option in ("negation", "redundancy", "corpus_seed", "batch_size", "cache_dir"):
        assert f"--data.{option}" in shown
    assert "Probability that a text is negated" in shown
    assert "Texts per training batch" in shown


@pytest.mark.slow
def test_memory_does_not_grow_with_the_corpus(tmp_path: Path) -> None:
    def peak(size: int) -> float:
        command = [sys.executable, "-c", MEMORY, str(size), str(tmp_path)]
        done = subprocess.run(command, capture_output=True, text=True, cwd=REPOSITORY, check=True)
        return float(done.stdout)

    # 180,000 texts more: 3.6 MB of index, label and length, as much again to order them, where
    # the tokens alone take 32 MB and Python integers 20.
    assert peak(200_000) - peak(20_000) < 20
