"""Words of several pieces as items, against full passes and loops over texts."""

from dataclasses import replace
from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor

import attnlight
from attnlight.attribution import build_attribution
from attnlight.batch import BOS, EOS, TextBatch
from attnlight.data.collate import collate_ids
from attnlight.errors import InputError
from attnlight.functional.readout.instances import empty_logits
from attnlight.probing.flat_texts import FlatTexts
from tests.huggingface.models import HEADS, MODELS, assert_near
from tests.huggingface.test_classifier import classifier, full_pass, random_weights, texts
from tests.turns import by_turns

SPECIAL = ("fixed", "attended")
# Pieces of each word of each text, special tokens included.
SIZES = ((1, 3, 1, 2, 1), (1, 2, 1), (1, 1, 4, 1), (1, 1, 1), (1, 2, 2, 1, 1, 1))


def words(sizes: Any = SIZES) -> TextBatch:
    """Texts of words, with a token before and one after each."""
    generator = torch.Generator().manual_seed(1)
    ids = [torch.randint(4, 50, (sum(row),), generator=generator).tolist() for row in sizes]
    batch = collate_ids([[BOS, *row[1:-1], EOS] for row in ids], sizes)
    return replace(batch, index=batch.index + 3, labels=torch.tensor([0, 1, 2, 0, 1])[: len(ids)])


def by_loop(values: Tensor, sizes: Any = SIZES) -> list[Tensor]:
    """Values of tokens (B, ..., N) by word, as a tensor (..., P) of each word of each text."""
    return [
        part
        for row, text in zip(values, sizes, strict=True)
        for part in torch.split(row[..., : sum(text)], text, dim=-1)
    ]


class TestLastLayer:
    @pytest.mark.parametrize(("name", "special_tokens"), by_turns(zip(MODELS), SPECIAL))
    def test_weights_are_sums_over_pieces(self, name: str, special_tokens: Any) -> None:
        model = classifier(name, special_tokens=special_tokens, items="words")
        pieces = classifier(name, special_tokens=special_tokens)
        batch = words()
        output, expected = model(batch), pieces(FlatTexts.of(batch).batch)
        assert_near(output.logits, expected.logits)
        assert_near(empty_logits(model, output), empty_logits(pieces, expected))
        parts = iter(by_loop(expected.weights))
        states = iter(by_loop(expected.states.mT))
        for text, row in enumerate(SIZES):
            for word in range(len(row)):
                torch.testing.assert_close(output.weights[text, :, word], next(parts).sum(-1))
                torch.testing.assert_close(output.states[text, word], next(states).mean(-1))
            assert not output.weights[text, :, len(row) :].any()
        reached = [bool(part.any()) for part in by_loop(expected.mask)]
        assert output.mask[batch.mask.any(-1)].tolist() == reached

    def test_readout_is_full_passes_with_shared_weights(
        self, name: str, special_tokens: Any
    ) -> None:
        model = classifier(name, special_tokens=special_tokens, items="words")
        batch = words()
        flat, output = FlatTexts.of(batch).batch, model(batch)
        own = classifier(name, special_tokens=special_tokens)(flat).weights
        candidates = random_weights(output, 3)
        logits = model.readout(output, candidates)
        _, row = full_pass(model, flat)
        for number in range(3):
            rows = row.clone()
            for text, head in product(range(len(SIZES)), range(HEADS)):
                total = float(row[text, head][own[text, head] > 0].sum())
                for word, at in enumerate(torch.arange(sum(SIZES[text])).split(SIZES[text])):
                    pieces = own[text, head, at]
                    if pieces.any():
                        new = float(candidates[text, head, number, word]) * total
                        rows[text, head, at] = new * pieces / pieces.sum()
            expected, _ = full_pass(model, flat, rows)
            assert_near(logits[:, number], expected)
        own = model.substituted(output, output.weights)
        torch.testing.assert_close(own, row, atol=1e-6, rtol=0)

    @pytest.mark.parametrize(
        ("name", "items", "special_tokens"),
        by_turns(product(MODELS, ["words", "pieces"]), SPECIAL),
    )
    def test_keeps_all_promises(self, name: str, special_tokens: Any, items: Any) -> None:
        model = classifier(name, special_tokens=special_tokens, items=items)
        assert attnlight.check(model, words() if items == "words" else texts()) == []

    def test_a_word_without_weight_is_shared_equally(self) -> None:
        batch = words(((1, 3, 2, 1),))
        flat = FlatTexts.of(batch)
        reached = torch.tensor([[False, True, True, False, True, True, False]])
        weights = torch.tensor([[[0.0, 0.0, 0.0, 0.0, 0.3, 0.1, 0.0]]])
        expected = [[[0, 0.5, 0.5, 0, 0.75, 0.25, 0]]]
        torch.testing.assert_close(flat.shares(weights, reached), torch.tensor(expected))


SUMMED: list[str | dict[str, Any]] = [
    *("attention", "attention_value_norm", "rollout"),
    *("alti", "attention_flow", "gradient_rollout", "value_zeroing"),
    {"name": "rollout", "of": "value_norm"},
    {"name": "integrated_gradients", "max_steps": 512},
]


class TestExplanations:
    def test_leave_one_out_deletes_all_pieces(self) -> None:
        model, pieces, batch = classifier("bert", items="words"), classifier("bert"), words()
        output = model(batch)
        scores = build_attribution({"name": "occlusion", "replacement": "delete"})
        found = scores(model, batch, output, output.logits.argmax(-1))
        ids = FlatTexts.of(batch).batch
        for text, sizes in enumerate(SIZES):
            starts = [sum(sizes[:n]) for n in range(len(sizes))]
            tokens = ids.tokens[text, : sum(sizes)].tolist()
            target = int(output.logits[text].argmax())
            for word in range(1, len(sizes) - 1) if len(sizes) > 3 else ():
                rest = tokens[: starts[word]] + tokens[starts[word] + sizes[word] :]
                logits = pieces(collate_ids([rest])).logits[0].double()
                odds = logits[target] - logits[torch.arange(3) != target].logsumexp(0)
                full = output.logits[text].double()
                change = full[target] - full[torch.arange(3) != target].logsumexp(0) - odds
                assert_near(found[text, word], change)

    @pytest.mark.parametrize(("method", "special_tokens"), by_turns(zip(SUMMED), SPECIAL))
    def test_scores_are_sums_over_pieces(self, special_tokens: Any, method: Any) -> None:
        model = classifier("bert", items="words", special_tokens=special_tokens)
        pieces, batch = classifier("bert", special_tokens=special_tokens), words()
        flat = FlatTexts.of(batch).batch
        output, expected = model(batch), pieces(flat)
        target = output.logits.argmax(-1)
        found = build_attribution(method)(model, batch, output, target)
        values = build_attribution(method)(pieces, flat, expected, target)
        sums = torch.stack([part.sum() for part in by_loop(values)])
        torch.testing.assert_close(found[batch.mask.any(-1)], sums, atol=1e-5, rtol=1e-4)


def test_batches_of_tokens_and_words_that_are_too_long() -> None:
    refused = {"reads words .items: words., but the batch has": FlatTexts.of(words()).batch}
    refused["70 tokens, but the model reads 64 at most"] = collate_ids([[5] * 70], [[7] * 10])
    for said, batch in refused.items():
        with pytest.raises(InputError, match=said):
            classifier("bert", items="words")(batch)
