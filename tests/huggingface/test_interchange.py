"""Attention of other texts and models in the layers of transformers, against eager passes by hand."""

from __future__ import annotations

import copy
import shutil
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from math import isnan
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import attnlight
from attnlight.batch import TextBatch
from attnlight.callbacks import AttentionInterchange
from attnlight.errors import InputError
from attnlight.functional.alignment import align
from attnlight.huggingface import HuggingFaceClassifier
from attnlight.probing.flat_texts import FlatTexts
from attnlight.probing.layers import layer_attention
from attnlight.probing.replay import Replay
from attnlight.probing.swaps import item_blocks
from tests.bases import one_text
from tests.callbacks.every import ready
from tests.callbacks.test_attention_interchange import judged, moved_row
from tests.huggingface.folders import TEXTS, write_model
from tests.huggingface.models import HEADS
from tests.huggingface.test_classifier import built, classifier

Change = Callable[[int, Tensor], Tensor]  # from the weights (H, N, N) of a layer to those used
LEAST = 0.01


def pairs(padding: int = 0, left: bool = False) -> TextBatch:
    """Texts and edits of them, which replace, insert, delete and move tokens."""
    random = torch.Generator().manual_seed(5)
    texts: list[list[int]] = []
    for length in (6, 9, 4):
        text = torch.randint(4, 50, (length,), generator=random).tolist()
        new = torch.randint(4, 50, (2,), generator=random).tolist()
        texts += [[2, *text, 3], [2, *text[1:2], *new, *text[3:], text[0], 3]]
    size = max(map(len, texts)) + padding
    tokens = torch.zeros(len(texts), size, dtype=torch.long)
    for row, text in zip(tokens, texts, strict=True):
        row[(slice(-len(text), None) if left else slice(len(text)))] = torch.tensor(text)
    return TextBatch(10 + torch.arange(len(texts)), tokens, tokens > 0)


@torch.no_grad()
def eager_pass(
    name: str, model: Any, text: TextBatch, change: Change
) -> tuple[Tensor, list[Tensor]]:
    """Logits (C,) of a model of transformers and what its eager attention computed, by layer."""
    module = import_module(type(model).__module__)
    original, found = module.eager_attention_forward, []

    def attend(
        own: Any, query: Tensor, key: Tensor, value: Tensor, *args: Any, **options: Any
    ) -> Any:
        _, weights = original(own, query, key, value, *args, **options)
        found.append(weights[0])
        values = value.repeat_interleave(weights.shape[1] // value.shape[1], dim=1)
        used = change(len(found) - 1, weights[0]).to(values)
        return (used @ values).transpose(1, 2).contiguous(), weights

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "eager_attention_forward", attend)
        logits = model(input_ids=text.tokens, attention_mask=text.mask.long()).logits
    return logits[0], found


def moved_by_hand(own: Tensor, other: Tensor, first: list[int], second: list[int]) -> Tensor:
    """Weights (H, M, M) of another text moved to the blocks of a text, by loops."""
    new = own.double().clone()
    for head in range(len(own)):
        for query, block in enumerate(first):
            rows = [place for place, x in enumerate(second) if x == block]
            moved = [moved_row(other[head, place], second, first) for place in rows]
            moved = [row / row.sum() if float(row.sum()) > 0 else row for row in moved]
            row = sum(moved) * (own[head, query] > 0) if rows else torch.zeros(1)  # type: ignore[operator]
            if float(row.sum()) > 0:
                new[head, query] = row / row.sum()
    return new


def same(_: int, weights: Tensor) -> Tensor:
    return weights


@pytest.mark.parametrize(
    ("name", "left"),
    [("bert", False), ("gpt2", True), ("llama", True), ("gemma3", False), ("gemma3", True)],
)
def test_every_part_by_eager_passes_with_the_attention_replaced(name: str, left: bool) -> None:
    model, batch = classifier(name, classes=2, special_tokens="attended"), pairs(2, left)
    eager = built(name, num_labels=2)
    eager.set_attn_implementation("eager")
    test = AttentionInterchange("head", least=LEAST)
    ready(test, model, batch)  # type: ignore[arg-type]
    found = test.measure(batch, model(batch), model)  # type: ignore[arg-type]
    trimmed, layers = pairs(), len(model.attention_layers)
    single = [(layer, head) for layer in range(layers) for head in range(HEADS)]
    whole = [{(layer, head) for head in range(HEADS)} for layer in range(layers)]
    parts = {"all": [set(single)], "layer": whole, "head": [{one} for one in single]}
    known = 0
    for text in (0, 3):  # of a pair one way
        one, two = (one_text(trimmed, x) for x in (text, text + 1 - 2 * (text % 2)))
        first, second, _ = align(one.tokens[0].tolist(), two.tokens[0].tolist())
        own, _ = eager_pass(name, eager, one, same)
        theirs, attention = eager_pass(name, eager, two, same)

        def changed(chosen: set[tuple[int, int]], layer: int, weights: Tensor) -> Tensor:
            moved = moved_by_hand(weights, attention[layer], first, second)  # noqa: B023
            heads = torch.tensor([(layer, head) in chosen for head in range(HEADS)])
            return torch.where(heads[:, None, None], moved, weights.double())

        for part, sets in parts.items():
            for place, chosen in enumerate(sets):
                logits, _ = eager_pass(name, eager, one, lambda *x, c=chosen: changed(c, *x))  # type: ignore[misc]
                expected = judged(logits, own, theirs, LEAST)
                column = "" if part == "all" else f"_by_{part}"
                for measure, value in zip(("covered", "turns"), expected, strict=True):
                    values = found[f"{measure}_{part}{column}"][text]
                    values = values if part == "all" else values[place]
                    assert float(values) == pytest.approx(value, abs=2e-4, nan_ok=True)
                known += not isnan(expected[0])
    assert known > len(batch)
    for part in ("layer", "head"):
        mean = found[f"covered_{part}_by_{part}"].mean(1)
        torch.testing.assert_close(found[f"covered_{part}"], mean, equal_nan=True)


@pytest.mark.parametrize("items", ["pieces", "words"])
def test_its_own_attention_changes_nothing(name: str, items: Any) -> None:
    """Of an identical copy, by pieces or words of several pieces."""
    model, batch = classifier(name, items=items), pairs()
    if items == "words":
        batch = replace(
            batch,
            tokens=batch.tokens[:, :12].view(6, -1, 2),
            mask=batch.mask[:, :12].view(6, -1, 2),
        )
    test = AttentionInterchange("head", other="a copy")
    test._model = copy.deepcopy(model)
    replay = Replay(model, batch, "the test")
    own, weights = replay.output.logits, layer_attention(test._model, batch)  # type: ignore[arg-type]
    flat = FlatTexts.of(batch).batch
    blocks = item_blocks(flat, flat, edits=False)
    logits = test._of_layers(replay, [one.weights for one in weights], blocks)
    for part in ("all", "layer", "head"):
        expected = own.unsqueeze(1).expand_as(logits[part])
        torch.testing.assert_close(logits[part], expected, atol=1e-5, rtol=1e-5)
    assert float((logits["all_uniform"][:, 0] - own).abs().max()) > 1e-3


def test_another_model_by_eager_passes() -> None:
    """All attention of another model: of equal other parameters its prediction follows."""
    model, batch = classifier("bert", classes=2), pairs()
    other = copy.deepcopy(model)
    with torch.no_grad():
        for part, parameter in other.transformer.named_parameters():
            if ".query." in part or ".key." in part:
                parameter.copy_(parameter.flip(0))
    test = AttentionInterchange(least=1e-4, other="another")
    test._model = other  # type: ignore[assignment]
    found = test.measure(batch, model(batch), model)  # type: ignore[arg-type]
    # Nothing but attention differs between the two: with all of it the prediction is the other's.
    defined = ~found["covered_all"].isnan()
    assert int(defined.sum()) > 3
    torch.testing.assert_close(
        found["covered_all"][defined],
        torch.ones_like(found["covered_all"][defined]),
        atol=1e-2,
        rtol=0,
    )
    assert float((found["covered_layer_by_layer"][defined] - 1).abs().max()) > 0.05


def test_batches_padding_and_order_change_nothing() -> None:
    model = classifier("gpt2", classes=2)
    test = AttentionInterchange(least=LEAST)
    ready(test, model, pairs())  # type: ignore[arg-type]
    found = test.measure(pairs(), model(pairs()), model)  # type: ignore[arg-type]
    for batch, test.budget in ((pairs(5), None), (pairs(3, left=True), 1)):
        order = torch.tensor([4, 1, 0, 5, 2, 3])
        part = batch.select(order)
        again = test.measure(part, model(part), model)  # type: ignore[arg-type]
        for name, values in found.items():
            torch.testing.assert_close(
                again[name], values[order], equal_nan=True, atol=1e-4, rtol=0
            )
        alone = [
            test.measure(one, model(one), model)
            for one in map(part.select, torch.arange(6)[:, None])
        ]  # type: ignore[arg-type]
        for name, values in found.items():
            each = torch.cat([columns[name] for columns in alone])
            torch.testing.assert_close(each, values[order], equal_nan=True, atol=1e-4, rtol=0)


def test_other_models_are_refused_or_compared(tmp_path: Path) -> None:
    rows = list(TEXTS)
    for number, layers in enumerate((2, 2, 3)):
        write_model(tmp_path / str(number), num_hidden_layers=layers, num_labels=2)
    two = {"id2label": {0: "LABEL_1", 1: "LABEL_0"}, "label2id": {"LABEL_1": 0, "LABEL_0": 1}}
    turned = write_model(tmp_path / "turned", **two)
    other = write_model(tmp_path / "words", texts=["quite other words"] * 3, num_labels=2)
    heads = write_model(tmp_path / "heads", num_attention_heads=2, num_labels=2)
    for folder in (tmp_path / "1", tmp_path / "2", heads, turned):  # a tokenizer is trained anew
        shutil.copy(tmp_path / "0" / "tokenizer.json", folder)
    model = HuggingFaceClassifier(str(tmp_path / "0"))

    def run(given: Path) -> Any:
        return attnlight.run(model, rows, [AttentionInterchange(other=str(given))])

    table = run(tmp_path / "1").table("attention_interchange")
    assert (table["distance"] < 1e-6).all()
    for given, sentence in (
        (other, "has .* token ids|reads other tokens than the model"),
        (
            tmp_path / "2",
            r"2, has \[4, 4, 4\] heads in its layers of attention, the model \[4, 4\]",
        ),
        (heads, r"has \[2, 2\] heads in its layers of attention, the model \[4, 4\]"),
        (turned, "has the classes in another order, LABEL_1, LABEL_0"),
        (tmp_path / "none", "there is no run or checkpoint"),
    ):
        with pytest.raises(InputError, match=sentence) as caught:
            run(given)
        assert "\n" not in str(caught.value)
