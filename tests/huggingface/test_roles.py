"""Roles of heads of transformers against loops over the attention that eager models return."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from attnlight.batch import TextBatch
from attnlight.callbacks import HeadRoles
from attnlight.models.readout import readout_of
from tests.bases import one_text
from tests.callbacks.every import ready
from tests.callbacks.test_head_roles import MARKS, masses, repeated_by_hand, role_tokens
from tests.huggingface.models import HEADS
from tests.huggingface.test_classifier import built, classifier, texts


def few_words(padding: str = "right") -> TextBatch:
    """Texts whose words repeat, between special tokens."""
    batch = texts(padding)
    words = batch.attendable()
    batch.tokens[words] = 4 + batch.tokens[words] % 9
    return batch


def measured(test: HeadRoles, model: Any, batch: TextBatch) -> dict[str, Any]:
    with torch.no_grad():
        columns = test.measure(batch, model(batch), model)
    return {name: values.numpy() for name, values in columns.items()}


def prepared(model: Any, batch: TextBatch) -> HeadRoles:
    test = HeadRoles()
    test._marks = MARKS
    ready(test, model, batch)
    return test


@pytest.mark.parametrize("name", ["bert", "gpt2", "gemma3"])
def test_means_over_tokens_of_eager_attention(name: str) -> None:
    model, batch = classifier(name, special_tokens="attended"), few_words()
    eager = built(name, num_labels=3)
    eager.set_attn_implementation("eager")
    test = prepared(model, batch)
    found = measured(test, model, batch)
    assert test.word_sampler is not None
    drawn = test.word_sampler.draw(batch, 1, test.seed)[0]
    known: dict[str, int] = {}
    for text in range(len(batch)):
        alone = one_text(batch, text)
        tokens = alone.tokens[0].tolist()
        repeated = repeated_by_hand(tokens, drawn[text].tolist())
        for read, start in ((tokens, ""), (repeated, "repeated_")):
            with torch.no_grad():
                layers = eager(torch.tensor([read]), output_attentions=True).attentions
            weights = np.stack([layer[0].double().numpy() for layer in layers])
            spread = (weights > 0) / (weights > 0).sum(-1, keepdims=True)
            by_role: dict[str, list[Any]] = {}
            for query in range(len(read)):
                targets = role_tokens(read, query)
                uniform = masses(spread[:, :1], targets, query)
                for role, values in masses(weights, targets, query).items():
                    by_role.setdefault(role, []).append((values, np.mean(uniform[role])))
            for role in role_tokens(read, 0):
                if start and role not in ("duplicate", "induction"):
                    continue
                column = f"mass_{start}{role}"
                rows = by_role.get(role, [])
                known[column] = known.get(column, 0) + bool(rows)
                expected = np.mean([values for values, _ in rows], axis=0) if rows else np.nan
                chance = np.mean([value for _, value in rows]) if rows else np.nan
                heads = found[f"{column}_by_head"][text]
                np.testing.assert_allclose(heads, np.broadcast_to(expected, heads.shape), atol=1e-6)
                np.testing.assert_allclose(found[f"chance_{start}{role}"][text], chance, atol=1e-6)
                layer = heads.reshape(-1, HEADS).mean(1)
                np.testing.assert_allclose(found[f"{column}_by_layer"][text], layer, atol=1e-9)
                np.testing.assert_allclose(found[column][text], heads.mean(), atol=1e-9)
    assert min(known.values()) > 0


@pytest.mark.parametrize("name", ["bert", "llama"])
def test_padding_order_and_batches_change_nothing(name: str) -> None:
    model, batch = classifier(name), few_words()
    test = prepared(model, batch)
    whole = measured(test, model, batch)
    left = few_words("left")
    left.tokens[left.mask] = batch.tokens[batch.mask]
    order = torch.tensor([3, 1, 4, 0, 2])
    found = measured(test, model, left.select(order))
    single = [measured(test, model, one_text(batch, text)) for text in range(len(batch))]
    for column, values in whole.items():
        np.testing.assert_allclose(found[column], values[order.numpy()], atol=1e-5, err_msg=column)
        alone = np.concatenate([columns[column] for columns in single])
        np.testing.assert_allclose(alone, values, atol=1e-5, err_msg=column)


def test_words_of_several_pieces_are_their_pieces() -> None:
    batch = few_words().trim(8).select(torch.tensor([0, 4]))
    batch.mask[:] = True
    model, of_words = classifier("bert"), classifier("bert", items="words")
    words = replace(batch, tokens=batch.tokens.view(2, 4, 2), mask=batch.mask.view(2, 4, 2))
    test = prepared(model, batch)
    for name, values in measured(test, model, batch).items():
        np.testing.assert_allclose(measured(test, of_words, words)[name], values, atol=1e-6)


@torch.no_grad()
def test_few_long_texts_are_measured_at_once() -> None:
    """As many as have the pairs of tokens that a test names: memory of all layers is bounded."""
    model, batch = classifier("bert", special_tokens="attended"), few_words()
    readout, test = readout_of(batch, model(batch), model), prepared(model, batch)
    size = batch.mask.shape[1]
    whole = test.measure(batch, readout.output, readout)
    for pairs, expected in ((None, [len(batch)]), (1, [1] * len(batch)), (2 * size**2 + 1, None)):
        parts = [*readout.by_texts(pairs)]
        counts = [len(part.batch) for part in parts]
        assert counts == (expected or [2] * (len(batch) // 2) + [1] * (len(batch) % 2))
        assert torch.cat([part.output.rows for part in parts]).equal(readout.output.rows)
        found = [test.measure(part.batch, part.output, part) for part in parts]
        for name, values in whole.items():
            joined = torch.cat([one[name] for one in found])
            torch.testing.assert_close(joined, values, rtol=0, atol=1e-6, equal_nan=True)
