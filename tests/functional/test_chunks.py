"""Chunks against seqeval and cases worked out by hand."""

import random
from collections.abc import Sequence

import pytest
import torch
from seqeval.metrics import f1_score, precision_score, recall_score
from seqeval.metrics.sequence_labeling import get_entities
from torch import Tensor

from attnlight.data.bio import tag_scheme
from attnlight.functional.chunks import TagScheme, count_chunks, find_chunks

TAGS = ["O", "B-NP", "I-NP", "B-VP", "I-VP", "B-PP", "I-PP"]
SCHEME = TagScheme(
    torch.tensor([-1, 0, 0, 1, 1, 2, 2]),
    torch.tensor([False, False, True, False, True, False, True]),
    torch.tensor([False] * 7),
)


def flat(sentences: Sequence[Sequence[str]]) -> tuple[Tensor, Tensor]:
    numbers = [TAGS.index(tag) for tags in sentences for tag in tags]
    begins = [place == 0 for tags in sentences for place, _ in enumerate(tags)]
    return torch.tensor(numbers, dtype=torch.long), torch.tensor(begins, dtype=torch.bool)


def counted(predicted: Sequence[Sequence[str]], target: Sequence[Sequence[str]]) -> list[int]:
    tags, begins = flat(predicted)
    return count_chunks(tags, flat(target)[0], begins, SCHEME).tolist()


def drawn(sentences: int, seed: int) -> tuple[list[list[str]], list[list[str]]]:
    """Random labels, of which any order is possible, and others that agree with many of them."""
    rng = random.Random(seed)
    target = [rng.choices(TAGS, k=rng.randint(1, 9)) for _ in range(sentences)]
    predicted = [
        [tag if rng.random() < 0.7 else rng.choice(TAGS) for tag in tags] for tags in target
    ]
    return predicted, target


@pytest.mark.parametrize(
    ("tags", "chunks"),
    [
        ("O O O", []),
        ("I-NP I-NP O", [(0, 0, 1)]),  # I without B
        ("O I-VP O", [(1, 1, 1)]),
        ("B-NP I-VP I-VP", [(0, 0, 0), (1, 1, 2)]),  # the label changes inside
        ("B-NP I-NP I-PP", [(0, 0, 1), (2, 2, 2)]),
        ("B-NP B-NP I-NP", [(0, 0, 0), (0, 1, 2)]),  # B ends what stands before it
        ("I-NP B-NP", [(0, 0, 0), (0, 1, 1)]),
        ("B-NP O I-NP", [(0, 0, 0), (0, 2, 2)]),  # no chunk runs across O
        ("O B-NP O", [(0, 1, 1)]),  # O at both ends
        ("B-NP I-NP B-VP", [(0, 0, 1), (1, 2, 2)]),  # a chunk at the very end
    ],
)
def test_edge_cases_of_conlleval(tags: str, chunks: list[tuple[int, int, int]]) -> None:
    numbers, begins = flat([tags.split()])
    kinds, ends = find_chunks(numbers, begins, SCHEME)
    starts = (kinds >= 0).nonzero().squeeze(1).tolist()
    assert [(int(kinds[n]), n, int(ends[n])) for n in starts] == chunks
    assert (ends[kinds < 0] == -1).all()


def test_ten_thousand_random_sequences_as_seqeval_finds_and_counts_them() -> None:
    predicted, target = drawn(10_000, seed=0)
    kinds, ends = find_chunks(*flat(predicted), SCHEME)
    start = 0
    for labels in predicted:
        own, last = kinds[start : start + len(labels)].tolist(), ends[start : start + len(labels)]
        found = [
            (("NP", "VP", "PP")[kind], place, int(last[place]) - start)
            for place, kind in enumerate(own)
            if kind >= 0
        ]
        assert found == get_entities(labels)
        start += len(labels)
    right, called, there = counted(predicted, target)
    assert right / called == pytest.approx(precision_score(target, predicted), abs=1e-12)
    assert right / there == pytest.approx(recall_score(target, predicted), abs=1e-12)
    assert 2 * right / (called + there) == pytest.approx(f1_score(target, predicted), abs=1e-12)


def test_tags_of_ends_and_of_single_tokens_as_seqeval_finds_them() -> None:
    """BIOES in any order; BILOU is the same with other letters."""
    tags = ["O", *(f"{prefix}-{kind}" for kind in ("NP", "VP") for prefix in "BIES")]
    scheme = tag_scheme(tags)
    renamed = [tag.replace("E-", "L-").replace("S-", "U-") for tag in tags]
    assert all(map(torch.equal, scheme, tag_scheme(renamed)))
    rng = random.Random(1)
    sentences = [rng.choices(range(9), k=rng.randint(1, 9)) for _ in range(3000)]
    for sentence in sentences:
        begins = torch.arange(len(sentence)) == 0
        kinds, ends = find_chunks(torch.tensor(sentence), begins, scheme)
        starts = (kinds >= 0).nonzero().flatten().tolist()
        found = [(("NP", "VP")[int(kinds[n])], n, int(ends[n])) for n in starts]
        assert found == get_entities([tags[number] for number in sentence])


def test_nothing_at_all() -> None:
    empty = torch.zeros(0, dtype=torch.long)
    assert count_chunks(empty, empty, empty.bool(), SCHEME).tolist() == [0, 0, 0]
