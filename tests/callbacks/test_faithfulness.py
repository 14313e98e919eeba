"""Comprehensiveness and sufficiency against loops over texts and sets, and known answers."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils.data import DataLoader

from attnlight.attribution import Attribution
from attnlight.attribution.base import Explanation
from attnlight.batch import AttentionModel, AttentionOutput, TextBatch
from attnlight.callbacks import Faithfulness
from attnlight.callbacks.faithfulness import MEASURES
from attnlight.callbacks.hooks.readouts import shared_readout
from attnlight.records import read_record
from tests.attribution.scenes import TOKENS, scene
from tests.bases import one_text
from tests.callbacks.faithfulness_loops import RESAMPLES, faithfulness
from tests.callbacks.test_base import trainer
from tests.callbacks.token_loops import columns_of
from tests.data.test_word_sampler import word_sampler
from tests.models import test_classifier as flat
from tests.models.taggers import sentences, tagger
from tests.outside import OutsideTask, Texts

SHARES = [Fraction(1, 100), Fraction(1, 20), Fraction(1, 10), Fraction(1, 5), Fraction(1, 2)]
REPLACEMENTS = ("delete", "unk", "pad", "attention", "resample")


SCENES = ("bilstm", "cnn", "han", "pair", "affine pair", "transformer", "heads", "two heads")
SCENES += ("opaque heads",)
# Of models that read texts as another does, the replacements that they add to: of one token for
# another `pad` is as `unk`, and where sentences are items, `resample` as both.
FEW = {"cnn": ("delete",), "affine pair": ("attention",), "two heads": ("delete", "attention")}
FEW |= {"han": ("delete", "attention", "resample"), "pair": ("delete", "unk", "attention")}
FEW |= {"transformer": ("delete", "unk")}
FEW |= {"opaque heads": ("unk", "attention"), "heads": ("pad", "attention", "resample")}


def occlusion(replacement: str) -> list[str | dict[str, Any]]:
    """Of removal by itself, with signs and by size."""
    method = {"name": "occlusion", "replacement": replacement}
    return [method | {"label": "signed"}, method | {"label": "size", "by_size": True}]


@pytest.mark.parametrize(
    ("name", "replacement"), [(name, x) for name in SCENES for x in FEW.get(name, REPLACEMENTS)]
)
def test_equals_a_loop_over_texts_and_sets(name: str, replacement: Any) -> None:
    model, batch = scene(name)
    methods: list[str | dict[str, Any]] = ["attention", "gradient", "input_gradient"]
    if name in ("bilstm", "transformer") and replacement == "delete":
        methods[1:2] = occlusion(replacement)  # whose single deletions are not read again
    test = Faithfulness(
        methods, replacement=replacement, normalized=True, draws=2, resamples=RESAMPLES
    )
    test.word_sampler = word_sampler() if replacement == "resample" else None
    found, of_tokens = columns_of(test, model, batch), name in TOKENS
    number, moved = 0, 0.0
    for text in range(len(batch)):
        single = one_text(batch, text)
        with torch.no_grad():
            masks = model(single).mask
        for row in range(len(masks)):
            expected: dict[str, list[float]] = {}
            if not (of_tokens and len(masks) == 1):  # nothing but itself
                expected = faithfulness(
                    model, single, row, methods, SHARES, replacement, 2, of_tokens
                )
            for key in (key for key in found if f"{key}_at" in found):
                at = expected.get(key, [math.nan] * len(SHARES))
                mean, kind = float(np.mean(at)), key.rpartition("_")[0]
                close = pytest.approx(at, abs=1e-8, nan_ok=True)
                assert found[f"{key}_at"][number].tolist() == close, key
                assert float(found[key][number]) == pytest.approx(mean, abs=1e-8, nan_ok=True)
                moved = max(moved, 0 if "normal" in key or math.isnan(mean) else abs(mean))
                if f"excess_{key}" in found:
                    measure = next(m for m in MEASURES if kind.startswith(m))
                    excess = mean - np.mean(expected.get(f"{measure}_random", math.nan))
                    column = found[f"excess_{key}"][number]
                    assert float(column) == pytest.approx(excess, abs=1e-8, nan_ok=True)
            number += 1
    assert number == len(found["length"])
    assert moved > 0.02


def test_scores_that_are_not_known_rank_nothing() -> None:
    @dataclass
    class Holes(Attribution):
        name = "holes"
        signed = True

        def attribute(
            self, model: AttentionModel, batch: TextBatch, output: AttentionOutput, target: Tensor
        ) -> Explanation:
            unknown = batch.mask & (batch.index == 3)[:, None]
            return batch.tokens.double().masked_fill(unknown, torch.nan), {}

    model, batch = flat.model("bilstm"), flat.collate(flat.corpus()[:7])
    found = columns_of(Faithfulness(["holes"]), model, batch)
    assert found["comprehensiveness_holes"].isnan().tolist() == (batch.index == 3).tolist()
    assert found["excess_sufficiency_holes"].isnan().tolist() == (batch.index == 3).tolist()
    assert not found["comprehensiveness_random"].isnan().any()


@pytest.mark.parametrize("name", ["bilstm", "han", "heads"])
@pytest.mark.parametrize("replacement", ["delete", "unk"])
def test_each_text_is_encoded_once_within_the_budget(name: str, replacement: Any) -> None:
    """Words of a text are all different: with equal ones, different sets leave the same text."""
    model, batch = scene(name)
    if batch.tokens.ndim == 2:
        for row, mask in enumerate(batch.mask):
            random = torch.Generator().manual_seed(row)
            words = (torch.randperm(16, generator=random) + 4).repeat(2)[: len(mask)]
            batch.tokens[row] = torch.where(mask, words, 0)
        batch = batch.select(batch.mask.sum(-1) <= 16)
    else:
        batch = batch.select(torch.arange(len(batch)) != 1)  # of unknown words already
    read: list[TextBatch] = []
    every = torch.ones_like(batch.index, dtype=torch.bool)
    readout, _ = shared_readout(batch, model(batch), model, every)
    handle = model.register_forward_pre_hook(  # type: ignore[attr-defined]
        lambda _, arguments: read.append(arguments[0])
    )
    methods: list[Any] = [{"name": "attention", "label": f"a{n}"} for n in range(5)]
    if replacement == "delete":
        methods.append({"name": "occlusion", "replacement": "delete", "budget": 100})
    test = Faithfulness(methods, replacement=replacement, budget=100)
    test.measure(batch, readout.output, readout)
    handle.remove()
    texts = []
    for part in read:
        assert len(part) == 1 or part.tokens.numel() <= 100 or part is readout.batch
        for row in range(len(part)):
            single = one_text(part, row)
            text = single.tokens.flatten().tolist(), single.mask.flatten().tolist()
            texts.append((int(part.index[row]), str(text)))
    assert len(set(texts)) == len(texts) > 2 * len(batch)


@pytest.mark.parametrize("side", ["comprehensiveness", "sufficiency"])
@pytest.mark.parametrize("replacement", ["delete", "attention"])
def test_one_of_the_measures_is_as_of_both(side: Any, replacement: Any) -> None:
    model, batch = scene("bilstm")
    methods: list[Any] = ["attention", {"name": "input_gradient", "by_size": True}]
    options: dict[str, Any] = {"replacement": replacement, "normalized": True}
    both, one = Faithfulness(methods, **options), Faithfulness(methods, measures=[side], **options)
    assert one.measures == tuple(name for name in both.measures if side in name)
    read: list[int] = []
    model.register_forward_hook(lambda _, args, __: read.append(len(args[0])))  # type: ignore[attr-defined]
    found, of_one = columns_of(one, model, batch), sum(read)
    expected, of_both = columns_of(both, model, batch), sum(read) - of_one
    assert of_one < of_both or replacement == "attention"
    assert found.keys() == {name for name in expected if side in name} | {"length"}
    for name, values in found.items():
        torch.testing.assert_close(values, expected[name], equal_nan=True, rtol=0, atol=1e-9)


def test_a_method_with_and_without_sign_is_computed_once() -> None:
    model, batch = scene("bilstm")
    signed: dict[str, Any] = {"name": "integrated_gradients", "label": "signed"}
    by_size = signed | {"by_size": True, "label": "size"}
    read: list[bool] = []
    model.register_forward_hook(  # type: ignore[attr-defined]
        lambda _, args, options, __: read.append("embeddings" in options), with_kwargs=True
    )
    counts, found = [], []
    for methods in ([signed], [by_size], [by_size, signed], [signed, by_size | {"steps": 3}]):
        read.clear()
        found.append(columns_of(Faithfulness(methods, replacement="attention"), model, batch))
        counts.append(sum(read))
    assert counts[0] == counts[1] == counts[2] < counts[3]
    for name, values in found[2].items():
        expected = found[name.removesuffix("_at").endswith("size")]
        torch.testing.assert_close(values, expected[name], equal_nan=True, rtol=0, atol=0)
    assert (found[2]["comprehensiveness_signed"] != found[2]["comprehensiveness_size"]).any()


def guided_to(weights: Tensor, index: Tensor) -> Callable[[TextBatch], Tensor]:
    def guide(batch: TextBatch) -> Tensor:
        assert batch.index.tolist() == index.tolist(), "a guide knows complete texts"
        return weights

    return guide


@pytest.mark.parametrize("tokens", [False, True])
def test_a_guide_renormalises_what_remains(tokens: bool) -> None:
    """Each word is encoded alone and attention is given: deletion is erasure from attention."""
    if tokens:
        options: dict[str, Any] = {"encoder": "tokens", "layers": 1, "uniform_heads": [0, 1]}
        model: Any = tagger("text", **options).double()
        batch = sentences()
    else:
        model, batch = flat.model("average", "uniform"), flat.collate(flat.corpus())
    text = batch.instances().nonzero()[:, 0] if tokens else torch.arange(len(batch))
    scores = torch.randn(len(text), 1 + tokens, batch.tokens.shape[1], dtype=torch.float64)
    items = (batch.mask if tokens else batch.attendable())[text].unsqueeze(1)
    model.guide = guided_to(scores.masked_fill(~items, -torch.inf).softmax(-1), batch.index)
    deleted, erased = (
        columns_of(Faithfulness(["attention"], replacement=kind), model, batch)
        for kind in ("delete", "attention")
    )
    for name, column in erased.items():
        torch.testing.assert_close(deleted[name], column, rtol=0, atol=1e-10, equal_nan=True)
    assert erased["comprehensiveness_attention"].nan_to_num().abs().max() > 0.05


def test_at_most_so_many_tokens(tmp_path: Path) -> None:
    batch = sentences((6, 1, 4, 9, 3))

    task = OutsideTask()
    task.model = tagger("text")  # type: ignore[assignment]
    loader = DataLoader(
        Texts(5),
        batch_size=2,
        collate_fn=lambda texts: batch.select(torch.tensor([row for row, _ in texts])),
    )
    batch.index -= 10
    measured = {}
    for count in (2, 12, 1000):
        folder = tmp_path / str(count)
        test = Faithfulness(["attention"], max_instances=count, figures=False)
        trainer(folder, test).test(task, loader, verbose=False)
        columns = read_record(folder / "records/test/faithfulness.parquet").columns
        defined = ~np.isnan(columns["comprehensiveness_attention"])
        measured[count] = {
            (int(index), int(position))
            for index, position in zip(
                columns["index"][defined], columns["position"][defined], strict=True
            )
        }
    assert 1 <= len(measured[2]) <= 2
    # Two each of five sentences, less one whose only token has no item.
    assert len(measured[12]) == 8
    assert measured[2] <= measured[12] <= measured[1000]
    assert len(measured[1000]) == 6 + 4 + 9 + 3


@pytest.mark.parametrize("replacement", ["delete", "attention"])
def test_resampled_measures_are_those_of_that_replacement(replacement: Any) -> None:
    model, batch = scene("bilstm")
    found = []
    for options in ({"replacement": replacement, "resampled": True}, {"replacement": "resample"}):
        test = Faithfulness(["attention", "gradient"], draws=3, resamples=RESAMPLES, **options)  # type: ignore[arg-type]
        test.word_sampler = word_sampler()
        found.append(columns_of(test, model, batch))
    plain = columns_of(
        Faithfulness(["attention", "gradient"], replacement=replacement, draws=3), model, batch
    )
    both, resampled = found
    for name, values in resampled.items():
        excess = name.startswith("excess_")
        other = f"{'excess_' * excess}resampled_{name.removeprefix('excess_')}"
        if other in both:
            torch.testing.assert_close(both[other], values, equal_nan=True, rtol=0, atol=1e-9)
            torch.testing.assert_close(both[name], plain[name], equal_nan=True, rtol=0, atol=1e-9)
    assert sum("resampled" in name for name in both) == 16
