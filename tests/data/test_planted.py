import json
import re
from collections import Counter
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer

from attnlight.batch import SPECIAL_TOKENS
from attnlight.data.planted import CHUNK, PlantedSpec
from attnlight.errors import InputError

SPECS = {
    "plain": PlantedSpec(),
    "negation": PlantedSpec(negation=0.4),
    "four classes": PlantedSpec(num_classes=4, distractors=2, negation=0.5),
    "tight": PlantedSpec(negation=0.5, min_tokens=12, max_tokens=12),
    "no distractors": PlantedSpec(distractors=0, redundancy=1, min_tokens=3, negation=0.3),
}


@dataclass
class Text:
    label: int
    words: list[str]
    evidence: list[int]


def draw(spec: PlantedSpec, size: int = 600, split: int = 0) -> list[Text]:
    found = []
    for chunk in spec.draw(split, size):
        ends = np.cumsum(chunk.lengths)
        for label, start, end in zip(chunk.labels, ends - chunk.lengths, ends, strict=True):
            words = [spec.words[number] for number in chunk.tokens[start:end]]
            found.append(Text(int(label), words, chunk.evidence[start:end].tolist()))
    return found


def keyword_class(spec: PlantedSpec, word: str) -> int | None:
    """Class of a keyword by its spelling, None for any other word."""
    if spec.num_classes == 2:
        found = re.fullmatch(r"(bad|good)\d+", word)
        return None if found is None else ("bad", "good").index(found[1])
    found = re.fullmatch(r"topic(\d+)word\d+", word)
    return None if found is None else int(found[1])


def recount(spec: PlantedSpec, text: Text) -> tuple[Counter[int], list[int], bool]:
    """Read a text word by word: what its keywords count for, the signs, whether it is negated."""
    votes: Counter[int] = Counter()
    signs = []
    negated = False
    for position, word in enumerate(text.words):
        kind = keyword_class(spec, word)
        after = text.words[position + 1] if position + 1 < len(text.words) else ""
        turned = position > 0 and text.words[position - 1].startswith("not")
        if kind is not None and turned:
            negated = True
            votes[(kind + 1) % spec.num_classes] += 1
            signs.append(-1)
        elif kind is not None:
            votes[kind] += 1
            signs.append(1 if kind == text.label else -1)
        elif word.startswith("not") and (turns := keyword_class(spec, after)) is not None:
            signs.append(1 if (turns + 1) % spec.num_classes == text.label else -1)
        else:
            signs.append(0)
    return votes, signs, negated


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS.keys())
def test_labels_and_evidence_agree_with_a_naive_reading(spec: PlantedSpec) -> None:
    seen_negated = 0
    for text in draw(spec):
        votes, signs, negated = recount(spec, text)
        assert votes[text.label] == spec.redundancy
        assert votes.total() == spec.redundancy + spec.distractors
        assert votes.most_common(1)[0] == (text.label, spec.redundancy)
        assert text.evidence == signs
        assert spec.min_tokens <= len(text.words) <= spec.max_tokens
        seen_negated += negated
    assert abs(seen_negated / 600 - spec.negation) < 0.07


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS.keys())
def test_a_text_is_negated_throughout_or_not_at_all(spec: PlantedSpec) -> None:
    for text in draw(spec):
        after = Counter(
            keyword_class(spec, text.words[position + 1]) is not None
            for position, word in enumerate(text.words)
            if word.startswith("not")  # never the last word
        )
        assert len(after) <= 1
        assert after.total() == (spec.redundancy + spec.distractors) * (spec.negation > 0)


@pytest.mark.parametrize("name", ["negation", "four classes"])
def test_without_order_a_negated_text_is_one_of_the_class_before(name: str) -> None:
    spec = SPECS[name]
    for text in draw(spec):
        _, _, negated = recount(spec, text)
        spoken = Counter(keyword_class(spec, word) for word in text.words)
        by_itself = (text.label - negated) % spec.num_classes
        assert spoken[by_itself] == spec.redundancy
        assert sum(word.startswith("not") for word in text.words) == spec.pairs


def test_every_word_is_used_and_keywords_are_even() -> None:
    spec = SPECS["negation"]
    counts = Counter(word for text in draw(spec, 3000) for word in text.words)
    keywords = {word: n for word, n in counts.items() if word.startswith(("good", "bad"))}
    assert len(keywords) == 20
    assert max(keywords.values()) < 1.25 * min(keywords.values())
    assert {word for word in counts if word.startswith("not")} == {"not0", "not1", "not2"}


@pytest.mark.parametrize("zipf", [0.0, 1.0, 1.5])
def test_fillers_follow_zipfs_law(zipf: float) -> None:
    spec = PlantedSpec(vocabulary=50, zipf=zipf)
    counts = Counter(word for text in draw(spec, 4000) for word in text.words)
    total = sum(n for word, n in counts.items() if word.startswith("filler"))
    mass = [1 / rank**zipf for rank in range(1, 51)]
    for rank in (0, 1, 4, 20, 49):
        share = counts[f"filler{rank}"] / total
        assert share == pytest.approx(mass[rank] / sum(mass), rel=0.15)


def test_evidence_lies_anywhere() -> None:
    spec = PlantedSpec(min_tokens=20, max_tokens=20, negation=0.4)
    hits = np.array([[sign != 0 for sign in text.evidence] for text in draw(spec, 6000)])
    keyword = hits.mean(0)
    assert keyword.max() < 1.2 * keyword.min()


def test_labels_and_lengths_are_even() -> None:
    spec = PlantedSpec(num_classes=3, min_tokens=20, max_tokens=24)
    texts = draw(spec, 6000)
    assert [n / 6000 for _, n in sorted(Counter(t.label for t in texts).items())] == pytest.approx(
        [1 / 3] * 3, abs=0.03
    )
    assert sorted(Counter(len(t.words) for t in texts)) == [20, 21, 22, 23, 24]


def test_the_seed_decides() -> None:
    assert draw(SPECS["negation"]) == draw(PlantedSpec(negation=0.4))
    assert draw(SPECS["negation"]) != draw(PlantedSpec(negation=0.4, corpus_seed=1))


def test_splits_and_chunks_are_separate_draws() -> None:
    texts = [tuple(text.words) for text in draw(PlantedSpec(), CHUNK + 500)]
    texts += [tuple(text.words) for split in (1, 2) for text in draw(PlantedSpec(), 500, split)]
    assert len(texts) == CHUNK + 1500
    assert len(set(texts)) == len(texts)


@pytest.mark.parametrize("name", ["negation", "four classes"])
def test_raw_text_is_read_as_the_corpus_was(name: str) -> None:
    spec = SPECS[name]
    tokenizer = Tokenizer.from_str(spec.tokenizer_json())
    assert tokenizer.get_vocab_size() == len(spec.words) == len(set(spec.words))
    assert [tokenizer.id_to_token(number) for number in range(4)] == list(SPECIAL_TOKENS)
    chunk = next(spec.draw(0, 1))
    raw = "  ".join(spec.words[number] for number in chunk.tokens).title()
    assert tokenizer.encode(raw).ids == chunk.tokens.tolist()
    assert tokenizer.encode("filler0 elsewhere").ids == [4, 1]
    assert json.loads(spec.tokenizer_json())["model"]["type"] == "WordLevel"


def word_counts(spec: PlantedSpec, size: int, split: int) -> tuple[torch.Tensor, torch.Tensor]:
    counts = torch.zeros(size, len(spec.words))
    labels = []
    for row, text in enumerate(draw(spec, size, split)):
        labels.append(text.label)
        for word, n in Counter(text.words).items():
            counts[row, spec.words.index(word)] = n
    return counts, torch.tensor(labels)


def bag_of_words_hits(spec: PlantedSpec) -> torch.Tensor:
    """Which of 500 test texts a logistic regression on word counts labels rightly."""
    counts, labels = word_counts(spec, 2000, 0)
    model = torch.nn.Linear(counts.shape[1], spec.num_classes)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.03, weight_decay=1e-4)
    for _ in range(150):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(counts), labels).backward()
        optimizer.step()
    counts, labels = word_counts(spec, 500, 2)
    return model(counts).argmax(1) == labels


def test_word_counts_suffice_without_negation() -> None:
    assert bag_of_words_hits(PlantedSpec(vocabulary=100)).float().mean() >= 0.98


def test_word_counts_fail_on_negated_texts() -> None:
    spec = PlantedSpec(vocabulary=100, negation=0.4)
    hits = bag_of_words_hits(spec)
    negated = torch.tensor([recount(spec, text)[2] for text in draw(spec, 500, 2)])
    assert hits[negated].float().mean() <= 0.6
    assert hits[~negated].float().mean() >= 0.6


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_classes": 1}, "num_classes is 1; it must be at least 2"),
        ({"vocabulary": 0}, "vocabulary is 0"),
        ({"keywords": 0}, "keywords is 0"),
        ({"negators": 0}, "negators is 0"),
        ({"redundancy": 0}, "redundancy is 0"),
        ({"distractors": -1}, "distractors is -1"),
        ({"zipf": -0.1}, "zipf is -0.1"),
        ({"corpus_seed": -1}, "corpus_seed is -1"),
        ({"negation": 1.0}, r"negation is 1.0; it must be in \[0, 1\)"),
        ({"redundancy": 2, "distractors": 2}, "more keywords of its class than distractors"),
        ({"min_tokens": 3}, "need 4 <= min_tokens"),
        ({"min_tokens": 11, "negation": 0.1}, "need 12 <= min_tokens"),
        ({"min_tokens": 50}, "min_tokens is 50 and max_tokens 40"),
    ],
)
def test_impossible_corpora_are_refused(options: dict[str, float], message: str) -> None:
    with pytest.raises(InputError, match=message):
        PlantedSpec(**options)  # type: ignore[arg-type]
