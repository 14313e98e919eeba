"""Edited words and explanations against plain loops over pairs, and models that read them or not."""

import math
from math import nan
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.metrics import average_precision_score, roc_auc_score
from torch import Tensor

from attnlight.attribution import build_attribution
from attnlight.batch import AttentionModel, AttentionOutput, TextBatch
from attnlight.callbacks import CounterfactualUse
from attnlight.data.collate import collate_ids
from attnlight.datamodules import TextDataModule
from attnlight.errors import InputError
from attnlight.functional.alignment import align
from attnlight.functional.attribution.log_odds import log_odds
from attnlight.records import read_record
from tests.attribution.scenes import scene
from tests.bases import one_text
from tests.callbacks.every import FakeSplit
from tests.callbacks.handmade import output_of
from tests.callbacks.hooks.test_prediction_writer import task_of
from tests.callbacks.test_base import trainer
from tests.data.local import write_corpus

METHODS = ["attention", "input_gradient"]
USED = 0.9  # of the largest effect, which few other edits reach
SEEDS = {"bilstm": 1, "han": 0}  # with which some pairs turn the prediction, and others do not


def edited(name: str) -> tuple[Any, TextBatch]:
    """A model, and pairs whose edits replace, insert, delete and move items of texts."""
    model, batch = scene(name)
    random = torch.Generator().manual_seed(SEEDS[name])
    texts = []
    for number in range(len(batch)):
        real = batch.mask[number] if batch.mask.ndim == 2 else batch.mask[number].any(-1)
        items = [batch.tokens[number, place] for place in real.nonzero().flatten().tolist()]
        other = [
            torch.where(x > 3, torch.randint(4, 40, x.shape, generator=random), x) for x in items
        ]
        changed = [*items[:1], *other[1:3], *items[4:], other[0], *items[1:2]]
        texts += [torch.stack(items), torch.stack(changed)]
    size = max(len(x) for x in texts)
    tokens = torch.zeros(len(texts), size, *texts[0].shape[1:], dtype=torch.long)
    for row, items in zip(tokens, texts, strict=True):
        row[: len(items)] = items
    index = 10 + torch.arange(len(texts))
    pairs = TextBatch(index, tokens, tokens > 0, labels=index % 2)
    with torch.no_grad():  # no class is preferred
        model.decoder.bias -= model(pairs).logits[:, 1].median()
    return model, pairs


def items_of(batch: TextBatch, text: int) -> list[Any]:
    rows = batch.tokens[text]
    return [tuple(row.ravel().tolist()) for row in rows if (row > 0).any()]


def blocks_of(batch: TextBatch, text: int, other: int) -> tuple[list[int], list[int], list[bool]]:
    """Blocks of a text's items and of another's; an original is aligned with its edit."""
    first, second, edits = align(*(items_of(batch, x) for x in sorted((text, other))))
    return (first, second, edits) if text < other else (second, first, edits)


def with_one_edit(batch: TextBatch, text: int, other: int, block: int) -> TextBatch | None:
    """A text in which one block of the alignment with the other one is that of the other."""
    own, others = items_of(batch, text), items_of(batch, other)
    first, second, _ = blocks_of(batch, text, other)
    count = 1 + max(*first, *second)
    chosen: list[Any] = []
    for number in range(count):
        source, blocks = (others, second) if number == block else (own, first)
        chosen += [x for x, b in zip(source, blocks, strict=True) if b == number]
    if not chosen:
        return None
    tokens = torch.tensor(chosen).view(1, len(chosen), *batch.tokens.shape[2:])
    return TextBatch(torch.zeros(1).long(), tokens, tokens > 0)


def naive(model: AttentionModel, batch: TextBatch, text: int, other: int) -> dict[str, Any]:
    """The measures of one text of a pair."""
    own, others = items_of(batch, text), items_of(batch, other)
    first, second, edits = blocks_of(batch, text, other)
    one = one_text(batch, text)
    with torch.no_grad():
        output, of_other = model(one), model(one_text(batch, other))
    mask = output.mask[0, : len(own)]
    gold = torch.tensor([edits[block] for block in first])[mask]
    target = output.logits.argmax(-1)
    whole = log_odds(output.logits, target)
    effects, turned = {}, []
    for block, edit in enumerate(edits):
        copy = with_one_edit(batch, text, other, block) if edit else None
        if copy is not None:
            with torch.no_grad():
                logits = model(copy).logits
            effects[block] = float(whole - log_odds(logits, target))
            turned.append(float(logits.argmax(-1) != target))
    largest = max(effects.values())
    used = [
        effects.get(block, -1.0) >= USED * largest and effects[block] > 0 if edits[block] else False
        for block in first
    ]
    used_gold = torch.tensor(used)[mask]
    found: dict[str, Any] = {
        "edit_share": float(gold.double().mean()) if gold.any() else nan,
        "largest_effect": largest,
        "turning_edits": sum(turned) / len(turned),
        "edits": sum(edits),
    }
    if gold.any():
        order = np.arange(len(gold))
        found["auprc_first"] = average_precision_score(gold, -order)
        found["auprc_last"] = average_precision_score(gold, order)
    for name in METHODS if gold.any() else []:
        with torch.enable_grad():
            scores = build_attribution(name)(model, one, output, target)[0, : len(own)][mask]
        values = scores.numpy().round(12)
        found[f"auprc_{name}"] = average_precision_score(gold, values)
        found[f"rank_{name}"] = 1 - roc_auc_score(gold, values) if not gold.all() else nan
        found[f"mass_{name}"] = float(scores[gold].abs().sum() / scores.abs().sum())
        found[f"auprc_used_{name}"] = (
            average_precision_score(used_gold, values) if used_gold.any() else nan
        )
    weights = of_other.weights[0].double()[:, : len(others)]
    moved = torch.zeros_like(output.weights[0]).double()
    for place, block in enumerate(first):
        if output.mask[0, place]:
            sources = [k for k, b in enumerate(second) if b == block]
            size = sum(b == block and bool(output.mask[0, k]) for k, b in enumerate(first))
            moved[:, place] = weights[:, sources].sum(-1) / size
    moved /= moved.sum(-1, keepdim=True)
    after = model.readout(output, moved[None, :, None].to(output.weights)).argmax(-1)
    found["moved_attention_turns"] = float(after.flatten() != target)
    return found


def measured(
    model: Any, batch: TextBatch, output: AttentionOutput, methods: list[str] = METHODS
) -> dict[str, Tensor]:
    test = CounterfactualUse(methods, used=USED)
    test._split = FakeSplit(batch)
    return dict(test.measure(batch, output, model))


@pytest.mark.parametrize("name", SEEDS)
def test_measures_are_those_of_loops_over_pairs(name: str) -> None:
    model, batch = edited(name)
    with torch.no_grad():
        output = model(batch)
    found = {key: list(map(float, x)) for key, x in measured(model, batch, output).items()}
    classes = output.logits.argmax(-1)
    assert np.isnan(found["turns"][::2]).all()  # rows of originals
    turning = [row for row in range(1, len(batch), 2) if classes[row] != classes[row - 1]]
    assert 0 < len(turning) < len(batch) // 2, "the test shows nothing"
    for row in range(1, len(batch), 2):
        assert found["turns"][row] == (row in turning)
        assert found["original"][row] == batch.index[row - 1]
        for key, place in (("correct", row), ("correct_original", row - 1)):
            assert found[key][row] == float(classes[place] == batch.labels[place])  # type: ignore[index]
        sides = [naive(model, batch, row - 1, row), naive(model, batch, row, row - 1)]
        for key in sides[0] | sides[1]:
            values = [side[key] for side in sides if not np.isnan(side.get(key, nan))]
            expected = float(np.mean(values)) if row in turning and values else nan
            assert found[key][row] == pytest.approx(expected, abs=1e-6, nan_ok=True), key


class Lookup(torch.nn.Module):
    """A model of one head without context: attention and logits of the second class by token."""

    def __init__(self, scores: dict[int, float], logits: dict[int, float]) -> None:
        super().__init__()
        self.tables = torch.zeros(2, 60)
        for table, values in zip(self.tables, (scores, logits), strict=True):
            table[list(values)] = torch.tensor([*values.values()])

    def forward(self, batch: TextBatch, weights: Tensor | None = None) -> AttentionOutput:
        scores, value = self.tables[:, batch.tokens]
        own = scores.masked_fill(~batch.mask, -torch.inf).softmax(-1).unsqueeze(1)
        items = torch.stack([torch.zeros_like(value), value], dim=-1).unsqueeze(1)
        return output_of(own if weights is None else weights, items, torch.zeros(2), batch.mask)


# Token 10 is edited to 11, 12 to 13; attention by token, what tokens say of the label, and measures.
PAIRS: list[tuple[dict[int, float], dict[int, float], list[int], dict[str, float]]] = [
    # It reads the edited word alone, which is at the same place in both texts.
    ({10: 9.0, 11: 9.0}, {10: -3.0, 11: 3.0}, [20, 21, 10, 22],
     {"turns": 1, "auprc_attention": 1, "rank_attention": 0, "edit_share": 1 / 4, "turning_edits": 1,
      "moved_attention_turns": 0, "mass_attention": 1 / (1 + 3 * math.exp(-9))}),
    # It attends to others, and uses one of two edits: two of three others above both, one tied.
    ({20: 2.0, 21: 2.0}, {10: -3.0, 11: 3.0}, [20, 10, 21, 12, 22],
     {"turns": 1, "rank_attention": 5 / 6, "turning_edits": 1 / 2, "edit_share": 2 / 5,
      "auprc_attention": 2 / 5, "auprc_used_attention": 1 / 5}),
    # It attends to the edited word and predicts by another: the pair is counted, not averaged in.
    ({10: 3.0, 11: 3.0}, {20: 2.0}, [20, 10, 21],
     {"turns": 0, "auprc_attention": nan, "correct": 1, "correct_original": 0}),
]  # fmt: skip


@pytest.mark.parametrize(("scores", "logits", "text", "expected"), PAIRS)
def test_models_that_read_edited_words_or_others(
    scores: dict[int, float],
    logits: dict[int, float],
    text: list[int],
    expected: dict[str, float],
) -> None:
    batch = collate_ids([text, [{10: 11, 12: 13}.get(token, token) for token in text]])
    batch.labels = torch.tensor([0, 1])
    model = Lookup(scores, logits)
    found = measured(model, batch, model(batch), ["attention"])
    for name, value in expected.items():
        assert float(found[name][1]) == pytest.approx(value, abs=1e-6, nan_ok=True), name


def test_edits_of_queries_leave_what_is_of_edited_items_undefined() -> None:
    model, batch = scene("pair")
    batch = batch.select(torch.tensor([0, 0, 1, 1]))
    batch.index, batch.labels = torch.arange(4), torch.arange(4) % 2
    assert batch.query is not None
    batch.query[1::2] = batch.query[1::2].roll(1, dims=1)
    output = model(batch)
    output.logits[1::2] = output.logits[::2].flip(1)  # pairs turn
    found = measured(model, batch, output)
    assert (found["turns"][1::2] == 1).all()
    assert (found["edits"][1::2] == 0).all()
    for name in ("auprc_attention", "edit_share", "largest_effect", "turning_edits"):
        assert found[name].isnan().all(), name
    assert not found["moved_attention_turns"][1::2].isnan().any()


def test_a_whole_run_and_a_draw_of_pairs(tmp_path: Path) -> None:
    rows: dict[str, list[Any]] = {
        "text": [
            f"film {n} is {w}" for n in range(20) for w in ("bad", "good")[:: 1 - 2 * (n % 2)]
        ],
        "label": [(n + k) % 2 for n in range(20) for k in range(2)],
        "id": [n for n in range(20) for _ in range(2)],
    }
    train = rows | {"text": [f"{text} again" for text in rows["text"]]}
    path = write_corpus(tmp_path / "corpus", train=train, validation=rows, test=rows)
    data = TextDataModule(str(path), edit_of="id", cache_dir=str(tmp_path / "cache"))
    test = CounterfactualUse(METHODS, max_instances=11, figures=False)
    trainer(tmp_path, test).test(task_of(data), datamodule=data, verbose=False)
    record = read_record(tmp_path / "records" / "test" / "counterfactual_use.parquet")
    index = record.columns["index"].tolist()
    assert len(index) == 10
    assert {i + 1 - 2 * (i % 2) for i in index} == set(index)
    turns = record.columns["turns"]
    assert np.isnan(turns[::2]).all()
    assert not np.isnan(turns[1::2]).any()


def test_a_corpus_without_edits_is_refused(tmp_path: Path) -> None:
    rows: dict[str, list[Any]] = {"text": ["a film", "a cat"] * 4, "label": [0, 1] * 4}
    path = write_corpus(tmp_path / "corpus", train=rows, validation=rows, test=rows)
    data = TextDataModule(str(path), cache_dir=str(tmp_path / "cache"))
    with pytest.raises(InputError, match="set edit_of of TextDataModule"):
        trainer(tmp_path, CounterfactualUse()).test(task_of(data), datamodule=data)
