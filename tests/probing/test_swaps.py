"""Swapped class names against texts that are rewritten word by word and read one by one."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.functional import pad

from attnlight.batch import NOT_ALLOWED, AttentionOutput, TextBatch
from attnlight.probing.swaps import swap_flips, swap_logits
from tests.models import test_classifier as flat
from tests.models import test_pair as pair
from tests.models.oracles import padded

CLASSES = 5
NAMES = torch.tensor([17, 4, 21, 9, 12])  # token ids of the classes, in no order


class Reader(nn.Module):
    """A classifier whose logits depend on the order of words, and the batches that it read."""

    def __init__(self, query: bool = True) -> None:
        super().__init__()
        kind: Any = pair if query else flat
        self.network = kind.model("bigru", classes=CLASSES)
        with torch.no_grad():
            self.network.embedding.weight[NAMES] *= 3
        self.read: list[TextBatch] = []

    @torch.no_grad()
    def forward(self, batch: TextBatch) -> AttentionOutput:
        """Of texts in sentences as of the same words in a row."""
        self.read.append(batch)
        words = replace(batch, tokens=batch.tokens.flatten(1), mask=batch.mask.flatten(1))
        output: AttentionOutput = self.network(words)
        off = False if batch.allowed_classes is None else ~batch.allowed_classes
        return replace(output, logits=torch.where(torch.as_tensor(off), NOT_ALLOWED, output.logits))


def texts(seed: int, count: int = 80, query: bool = True, allowed: bool = True) -> TextBatch:
    """Texts of sentences of four words; half of the words name classes, one sentence is evidence."""
    random = torch.Generator().manual_seed(seed)

    def draw(high: int, size: int = 1) -> list[int]:
        return torch.randint(high, (size,), generator=random).tolist()

    tokens, evidence, queries = [], [], []
    for _ in range(count):
        sentences = 2 + draw(3)[0]
        words = [
            int(NAMES[draw(CLASSES)[0]]) if draw(2)[0] else 22 + draw(8)[0]
            for _ in range(4 * sentences)
        ]
        chosen = draw(sentences)[0]
        tokens.append(words)
        evidence.append([int(place // 4 == chosen) for place in range(4 * sentences)])
        queries.append([22 + word for word in draw(8, 2)] + [int(NAMES[draw(CLASSES)[0]])])
    # Some labels are named by the evidence, some not; some are absent.
    labels = torch.tensor([draw(CLASSES)[0] for _ in range(count)])
    labels[3] = -1
    batch = TextBatch(
        index=torch.arange(count),
        tokens=padded(tokens, 0),
        mask=padded(tokens, 0) > 0,
        labels=labels,
        extras={"evidence": padded(evidence, 0).to(torch.int8)},
    )
    if query:
        batch.query = padded(queries, 0)
        batch.query_mask = batch.query > 0
    if allowed:
        batch.allowed_classes = torch.rand(count, CLASSES, generator=random) < 0.8
        batch.allowed_classes[torch.arange(count), labels.clamp(min=0)] = True
        batch.allowed_classes[5] = torch.arange(CLASSES) == labels[5]  # a single answer
    return batch


def naive(model: Reader, batch: TextBatch, text: int) -> tuple[float, float] | None:
    """The shares of one text, from lists of words."""
    names, length = NAMES.tolist(), int(batch.mask[text].sum())
    words = batch.tokens[text, :length].tolist()
    inside = [value > 0 for value in batch.extras["evidence"][text, :length].tolist()]
    label, classes = int(batch.labels[text]), list(range(CLASSES))
    if batch.allowed_classes is not None:
        classes = [c for c in classes if batch.allowed_classes[text, c]]
    if batch.query is not None:
        classes = [c for c in classes if names[c] not in batch.query[text].tolist()]
    named = {word for word, within in zip(words, inside, strict=True) if within}
    if label not in classes or len(classes) < 2 or names[label] not in named:
        return None

    def predicted(changed: list[int]) -> int:
        alone = batch.select(torch.arange(len(batch)) == text)
        mask = torch.ones(1, length, dtype=torch.bool)
        one = replace(alone, tokens=torch.tensor([changed]), mask=mask, extras={})
        return int(model(one).logits.argmax())

    before, flips = predicted(words), [0, 0]
    for k in range(1, len(classes)):
        other = {names[c]: names[classes[(classes.index(c) + k) % len(classes)]] for c in classes}
        copies = [list(words), list(words)]
        for place, word in enumerate(words):
            if inside[place] and word == names[label]:
                copies[0][place] = other[word]
            if not inside[place]:
                copies[1][place] = other.get(word, word)
        for kind, copy in enumerate(copies):
            flips[kind] += predicted(copy) != before
    return flips[0] / (len(classes) - 1), flips[1] / (len(classes) - 1)


@pytest.mark.parametrize("query", [True, False])
@pytest.mark.parametrize("allowed", [True, False])
def test_equals_texts_rewritten_word_by_word(query: bool, allowed: bool) -> None:
    model, batch = Reader(query), texts(1, query=query, allowed=allowed)
    found = torch.stack(swap_flips(model, batch, batch.extras["evidence"] > 0, NAMES), dim=1)
    expected = [naive(model, batch, text) for text in range(len(batch))]
    assert [[row is None] * 2 for row in expected] == found.isnan().tolist()
    defined = [text for text, row in enumerate(expected) if row is not None]
    assert 12 < len(defined) < len(batch) - 9
    pairs = torch.tensor([row for row in expected if row is not None], dtype=torch.float64)
    torch.testing.assert_close(found[defined], pairs, rtol=0, atol=1e-12)
    # Swaps change some predictions and not all, within and outside.
    assert all(0.05 < float(column.mean()) < 0.95 for column in pairs.T)


def test_order_batches_and_padding_change_nothing() -> None:
    model, batch = Reader(), texts(2)
    whole = swap_flips(model, batch, batch.extras["evidence"] > 0, NAMES)
    order = torch.randperm(len(batch), generator=torch.Generator().manual_seed(0))
    for part in (order[:7], order[7:8], order[8:]):
        chosen = batch.select(part)
        chosen.tokens = pad(chosen.tokens, (0, 9))
        chosen.mask = chosen.tokens > 0
        evidence = pad(chosen.extras["evidence"], (0, 9)) > 0
        for values, expected in zip(swap_flips(model, chosen, evidence, NAMES), whole, strict=True):
            torch.testing.assert_close(values, expected[part], equal_nan=True)


def test_the_batch_stays_and_copies_are_never_more_than_its_texts() -> None:
    model, batch = Reader(), texts(3)
    kept = batch.apply(torch.clone)
    swap_flips(model, batch, batch.extras["evidence"] > 0, NAMES)
    torch.testing.assert_close(vars(batch), vars(kept), rtol=0, atol=0)
    assert len(model.read) > 3
    for copy in model.read:
        assert len(copy) <= len(batch)
        for name in ("query", "allowed_classes", "mask"):
            assert torch.equal(getattr(copy, name), getattr(batch, name)[copy.index])


def test_sentences_kept_apart_are_read_alike() -> None:
    batch = texts(4)
    nested = replace(
        batch,
        tokens=batch.tokens.unflatten(1, (-1, 4)),
        mask=batch.mask.unflatten(1, (-1, 4)),
        extras={"evidence": batch.extras["evidence"].unflatten(1, (-1, 4))},
    )
    model = Reader()
    flat = swap_flips(model, batch, batch.extras["evidence"] > 0, NAMES)
    apart = swap_flips(model, nested, nested.extras["evidence"] > 0, NAMES)
    for one, other in zip(flat, apart, strict=True):
        torch.testing.assert_close(one, other, equal_nan=True)


@pytest.mark.parametrize(("allowed", "undefined"), [([1], True), ([1, 0], True), ([1, 4], False)])
def test_a_text_with_one_answer_has_no_swaps(allowed: list[int], undefined: bool) -> None:
    batch = TextBatch(
        index=torch.tensor([0]),
        tokens=torch.tensor([[23, 4, 24, 12]]),
        mask=torch.ones(1, 4, dtype=torch.bool),
        labels=torch.tensor([1]),
        query=torch.tensor([[27, 17]]),  # asks for class 0
        query_mask=torch.ones(1, 2, dtype=torch.bool),
        allowed_classes=torch.isin(torch.arange(CLASSES), torch.tensor(allowed)).unsqueeze(0),
    )
    model = Reader()
    shares = swap_flips(model, batch, torch.tensor([[True, True, False, False]]), NAMES)
    assert [bool(values.isnan()) for values in shares] == [undefined, undefined]
    assert len(model.read) == (1 if undefined else 3)


def test_texts_without_alternatives_are_not_read() -> None:
    reader = Reader(query=False)
    batch = TextBatch(torch.arange(2), torch.full((2, 3), 5), torch.ones(2, 3).bool())
    found = swap_logits(reader, batch, torch.full((2, 3, 4), -1))  # type: ignore[arg-type]
    assert found.shape[:3] == (2, 3, 4)
    assert found.isnan().all()
    assert not reader.read
