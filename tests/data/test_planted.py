"""Planted texts against a naive reading of their words."""

import re
from collections import Counter
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer

from attnlight.batch import SPECIAL_TOKENS
from attnlight.data.planted import CHUNK, PlantedSpec

SPECS = {
    "plain": PlantedSpec(),
    "negation": PlantedSpec(negation=0.4),
    "four classes": PlantedSpec(num_classes=4, distractors=2, negation=0.5),
    "tight": PlantedSpec(negation=0.5, min_tokens=12, max_tokens=12),
    "no distractors": PlantedSpec(distractors=0, redundancy=1, min_tokens=3, negation=0.3),
}
EACH = pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS.keys())


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


@EACH
def test_labels_and_evidence_agree_with_a_naive_reading(spec: PlantedSpec) -> None:
    seen_negated = 0
    for text in draw(spec):
        votes, signs, negated = recount(spec, text)
        assert votes.total() == spec.redundancy + spec.distractors
        assert votes.most_common(1)[0] == (text.label, spec.redundancy)
        assert text.evidence == signs
        assert spec.min_tokens <= len(text.words) <= spec.max_tokens
        seen_negated += negated
        # Without order it is one of the class before, and negated throughout or not at all.
        spoken = Counter(keyword_class(spec, word) for word in text.words)
        assert spoken[(text.label - negated) % spec.num_classes] == spec.redundancy
        negators = [n for n, word in enumerate(text.words) if word.startswith("not")]  # never last
        assert len(negators) == spec.pairs
        assert {keyword_class(spec, text.words[n + 1]) is not None for n in negators} <= {negated}
    assert abs(seen_negated / 600 - spec.negation) < 0.07


@pytest.mark.parametrize("zipf", [0.0, 1.5])
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
    assert hits.mean(0).max() < 1.2 * hits.mean(0).min()


def test_splits_and_chunks_are_separate_draws() -> None:
    texts = [tuple(text.words) for text in draw(PlantedSpec(), CHUNK + 500)]
    texts += [tuple(text.words) for split in (1, 2) for text in draw(PlantedSpec(), 500, split)]
    assert len(texts) == len(set(texts)) == CHUNK + 1500


@EACH
def test_raw_text_is_read_as_the_corpus_was(spec: PlantedSpec) -> None:
    tokenizer = Tokenizer.from_str(spec.tokenizer_json())
    assert tokenizer.get_vocab_size() == len(spec.words) == len(set(spec.words))
    assert [tokenizer.id_to_token(number) for number in range(4)] == list(SPECIAL_TOKENS)
    chunk = next(spec.draw(0, 1))
    raw = "  ".join(spec.words[number] for number in chunk.tokens).title()
    assert tokenizer.encode(raw).ids == chunk.tokens.tolist()
    assert tokenizer.encode("filler0 elsewhere").ids == [4, 1]


def bag_of_words_hits(spec: PlantedSpec) -> tuple[torch.Tensor, torch.Tensor]:
    """Which of 500 test texts a logistic regression on word counts labels rightly, and negated ones."""
    counts, labels = {}, {}
    for split, size in ((0, 2000), (2, 500)):
        texts = draw(spec, size, split)
        counts[split] = torch.zeros(size, len(spec.words))
        for row, text in enumerate(texts):
            for word, n in Counter(text.words).items():
                counts[split][row, spec.words.index(word)] = n
        labels[split] = torch.tensor([text.label for text in texts])
    model = torch.nn.Linear(len(spec.words), spec.num_classes)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.03, weight_decay=1e-4)
    for _ in range(150):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(counts[0]), labels[0]).backward()
        optimizer.step()
    negated = torch.tensor([recount(spec, text)[2] for text in texts])
    return (model(counts[2]).argmax(1) == labels[2]).float(), negated


def test_word_counts_suffice_without_negation_and_fail_on_negated_texts() -> None:
    hits, _ = bag_of_words_hits(PlantedSpec(vocabulary=100))
    assert hits.mean() >= 0.98
    hits, negated = bag_of_words_hits(PlantedSpec(vocabulary=100, negation=0.4))
    assert hits[negated].mean() <= 0.6 <= hits[~negated].mean()
