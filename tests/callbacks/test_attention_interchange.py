"""Attention of other texts and models against loops over texts, where one layer is tested; partners."""

import copy
from math import nan
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from attnlight.callbacks import AttentionInterchange
from attnlight.callbacks.attention_interchange import partners
from attnlight.datamodules import TextDataModule
from attnlight.errors import InputError
from attnlight.functional.alignment import align
from attnlight.probing.patches import move
from attnlight.records import read_record
from tests.attribution.scenes import scene
from tests.bases import Planted, one_text, save_base, trainer
from tests.callbacks.every import randomised, ready
from tests.callbacks.hooks.test_prediction_writer import task_of
from tests.callbacks.test_counterfactual_use import edited, items_of
from tests.data.local import write_corpus
from tests.tasks.tagged import corpus as chunks
from tests.tasks.tagged import task_of as tagger_of
from tests.tasks.tagged import written

LEAST = 0.02


def moved_row(row: Tensor, source: list[int], target: list[int]) -> Tensor:
    """A row of weights moved from items of blocks to items of blocks, -1 for those left out, by loops."""
    new = torch.zeros(len(target), dtype=torch.float64)
    for place, block in enumerate(target):
        if block >= 0:
            mass = sum(float(w) for w, other in zip(row, source, strict=True) if other == block)
            new[place] = mass / target.count(block)
    return new


def judged(logits: Tensor, own: Tensor, theirs: Tensor, least: float) -> tuple[float, float]:
    """Share of the distance covered and whether the class turns, of logits (C,)."""

    def distance(one: Tensor, other: Tensor) -> float:
        change = one.detach().double().softmax(-1) - other.detach().double().softmax(-1)
        return float(change.abs().sum()) / 2

    whole = distance(own, theirs)
    if whole < least:
        return nan, nan
    same = int(own.argmax()) == int(theirs.argmax())
    turns = nan if same else float(logits.argmax() == theirs.argmax())
    return 1 - distance(logits, theirs) / whole, turns


@pytest.mark.parametrize("name", ["bilstm", "han"])
def test_one_layer_with_the_attention_of_an_edit(name: str) -> None:
    model, batch = edited(name)
    test = AttentionInterchange("head", least=LEAST)
    ready(test, model, batch)
    with torch.no_grad():
        output = model(batch)
    found = test.measure(batch, output, model)
    turns = []
    for text in range(len(batch)):
        other = text + 1 - 2 * (text % 2)
        first, second, _ = align(items_of(batch, text), items_of(batch, other))
        with torch.no_grad():
            own, theirs = (model(one_text(batch, x)) for x in (text, other))
        first = [x if real else -1 for x, real in zip(first, own.mask[0], strict=True)]
        second = [x if real else -1 for x, real in zip(second, theirs.mask[0], strict=True)]
        row = moved_row(theirs.weights[0, 0], second, first)
        equal = own.mask[0].double() / own.mask[0].sum()
        for part, weights in (("all", row / row.sum()), ("all_uniform", equal)):
            logits = model.readout(own, weights.to(own.weights).view(1, 1, 1, -1))[0, 0]
            covered, turn = judged(logits, own.logits[0], theirs.logits[0], LEAST)
            turns += [turn]
            for column in ("all", "layer", "head") if part == "all" else (part,):
                assert float(found[f"covered_{column}"][text]) == pytest.approx(
                    covered, abs=1e-9, nan_ok=True
                )
                assert float(found[f"turns_{column}"][text]) == pytest.approx(turn, nan_ok=True)
        assert float(found["pair"][text]) == batch.index[text // 2 * 2]
    assert {0.0, 1.0} <= {*turns, *([1.0] if name == "han" else [])}
    assert torch.equal(
        found["covered_layer_by_layer"].nan_to_num(), found["covered_all"].nan_to_num()[:, None]
    )
    assert set(test.measures) <= found.keys()


def test_another_model_of_one_layer_and_one_with_the_same_weights() -> None:
    model, batch = scene("bilstm")
    test = AttentionInterchange(least=LEAST, other="a model")
    test._model = randomised(model, 3)
    with torch.no_grad():
        own, theirs = model(batch), test._model(batch)
        logits = model.readout(own, theirs.weights.unsqueeze(2))[:, 0]
    found = test.measure(batch, own, model)
    for text in range(len(batch)):
        covered, turn = judged(logits[text], own.logits[text], theirs.logits[text], LEAST)
        assert float(found["covered_all"][text]) == pytest.approx(covered, abs=1e-9, nan_ok=True)
        assert float(found["turns_all"][text]) == pytest.approx(turn, nan_ok=True)
    assert (found["distance"] > LEAST).any()
    test._model = copy.deepcopy(model)
    same = test.measure(batch, own, model)
    torch.testing.assert_close(same["distance"], torch.zeros_like(same["distance"]))
    assert same["covered_all"].isnan().all()


def test_rows_and_columns_move_by_blocks_within_what_may_be_reached() -> None:
    random = torch.Generator().manual_seed(0)
    source = torch.rand(1, 2, 5, 5, generator=random).tril().double()
    source = 0.9 * source / source.sum(-1, keepdim=True)  # a sink that is no item has the rest
    own = torch.rand(1, 2, 4, 4, generator=random)
    allowed = torch.ones(1, 2, 4, 4, dtype=torch.bool).tril()
    blocks, target = [0, 1, 1, 3, -1], [0, 1, 2, 3]
    found = move(source, torch.tensor([blocks]), torch.tensor([target]), own, allowed)
    for head in range(2):
        for query, block in enumerate(target):
            rows = [place for place, other in enumerate(blocks) if other == block]
            expected = own[0, head, query].double()
            if rows:
                moved = [moved_row(source[0, head, place], blocks, target) for place in rows]
                row = sum(x / x.sum() for x in moved) * allowed[0, head, query]  # type: ignore[operator]
                expected = 0.9 * row / row.sum()
            torch.testing.assert_close(found[0, head, query], expected)


def split_of(sizes: list[int], index: list[int] | None = None) -> Any:
    places = np.arange(len(sizes)) if index is None else np.array(index)
    return SimpleNamespace(index=places, edit_of=None, shapes=np.array(sizes))


def test_partners_have_the_same_size_and_are_drawn_uniformly() -> None:
    sizes = [4, 9, 4, 4, 7, 7, 4]
    counts = np.zeros((7, 7))
    for seed in range(3_000):
        counts[np.arange(7), partners(split_of(sizes), seed)] += 1
    for text, size in enumerate(sizes):
        others = [other for other in range(7) if sizes[other] == size and other != text]
        for other in range(7):
            share = counts[text, other] / 3_000
            expected = 1 / len(others) if other in others else float(other == text and not others)
            assert share == pytest.approx(expected, abs=0.04 if len(others) > 1 else 0)
    shapes = np.array([[4, 1], [4, 8], [5, 8]])  # of sentences, and of the longest one
    assert partners(
        SimpleNamespace(index=np.arange(3), edit_of=None, shapes=shapes), 0
    ).tolist() == [1, 0, 2]


def test_partners_of_originals_and_edits() -> None:
    split = SimpleNamespace(index=np.array([3, 5, 6, 8, 9]), edit_of=np.array([-1, 3, -1, -1, 3]))
    assert partners(split, 0).tolist() == [1, 0, 2, 3, 0]


def test_a_run_draws_partners_and_leaves_texts_without_one_undefined(tmp_path: Path) -> None:
    words = ["a film is bad", "a film is good", "this cat is bad", "one film is very good"]
    rows: dict[str, list[Any]] = {"text": words * 3 + ["bad"], "label": [0, 1, 0, 1] * 3 + [0]}
    train = rows | {"text": [f"{text} again" for text in rows["text"]]}
    path = write_corpus(tmp_path / "corpus", train=train, validation=rows, test=rows)
    data = TextDataModule(str(path), cache_dir=str(tmp_path / "cache"))
    test = AttentionInterchange(least=1e-6, figures=True)
    trainer(tmp_path, test).test(task_of(data), datamodule=data, verbose=False)
    record = read_record(tmp_path / "records" / "test" / "attention_interchange.parquet")
    assert record.metadata["clusters"] == "pair"
    distance = record.columns["distance"]
    assert np.isnan(distance[-1])
    assert not np.isnan(distance[:-1]).any()
    assert (record.columns["pair"] == record.columns["index"]).all()
    assert np.isfinite(record.columns["covered_all"]).any()


def test_what_it_cannot_compare_is_refused_in_a_sentence(tmp_path: Path) -> None:
    data = Planted(cache_dir=str(tmp_path / "cache"))
    base = save_base(tmp_path / "base.ckpt", data)

    def refused(sentence: str, task: Any, corpus: Any, **options: Any) -> None:
        with pytest.raises(InputError, match=sentence) as caught:
            trainer(tmp_path, AttentionInterchange(**options)).test(task, corpus, verbose=False)
        assert str(caught.value).count(". ") == 0

    tagged = chunks(written(tmp_path / "chunks", train=6, test=3))
    refused("needs a model with one row for each text", tagger_of(tagged), tagged)
    rows: dict[str, list[Any]] = {"text": ["a film", "a cat"] * 4, "label": [0, 1] * 4}
    path = write_corpus(tmp_path / "corpus", train=rows, validation=rows, test=rows)
    texts = TextDataModule(str(path), cache_dir=str(tmp_path / "cache"))
    refused("base.ckpt, reads other tokens than the model", task_of(texts), texts, other=str(base))
