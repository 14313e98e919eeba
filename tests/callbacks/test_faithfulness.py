"""Comprehensiveness and sufficiency against loops over texts and sets, and known answers."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from attnlight.attribution import Attribution
from attnlight.attribution.base import Explanation
from attnlight.batch import AttentionModel, AttentionOutput, TextBatch
from attnlight.callbacks import Faithfulness
from attnlight.callbacks.faithfulness import MEASURES
from attnlight.records import read_record
from tests.callbacks.faithfulness_loops import faithfulness, one_text
from tests.callbacks.test_base import trainer
from tests.callbacks.token_loops import columns_of
from tests.models import test_classifier as flat
from tests.models import test_hierarchical as hierarchical
from tests.models import test_pair as pairs
from tests.models.taggers import sentences, tagger
from tests.outside import Texts, TwoHeads, collate

SHARES = [Fraction(1, 100), Fraction(1, 20), Fraction(1, 10), Fraction(1, 5), Fraction(1, 2)]
REPLACEMENTS = ("delete", "unk", "pad", "attention")
Scene = tuple[AttentionModel, TextBatch]


def outside(affine: bool) -> Scene:
    torch.manual_seed(0)
    model, texts = TwoHeads(affine).double(), Texts(12)
    with torch.no_grad():
        model.scores.weight.mul_(3)
        model.values.weight.mul_(4)
    model.decode = lambda context: TwoHeads.decode(model, context.double())  # type: ignore[method-assign]
    return model, collate([texts[number] for number in range(12)])


SCENES: dict[str, Callable[[], Scene]] = {
    "bilstm": lambda: (flat.model("bilstm"), flat.collate(flat.corpus()[:7])),
    "cnn": lambda: (flat.model("cnn", classes=3), flat.collate(flat.corpus(False)[:7], 2)),
    "sentences": lambda: (
        hierarchical.model("bilstm"),
        hierarchical.collate(hierarchical.corpus()[:6], sentences=1, words=2),
    ),
    "pairs": lambda: (pairs.model(), pairs.collate(pairs.corpus(), (2, 1))),
    "affine pairs": lambda: (pairs.model(decoder="affine"), pairs.collate(pairs.corpus())),
    "study tagger": lambda: (tagger("study").double(), sentences((6, 1, 4, 9))),
    "residual tagger": lambda: (tagger("residual").double(), sentences((2, 7, 5))),
    "two heads": lambda: outside(True),
    "opaque heads": lambda: outside(False),
}


def occlusion(replacement: str) -> list[str | dict[str, Any]]:
    """Of removal by itself, by which opposing items are told, with signs and by size."""
    method = {"name": "occlusion", "replacement": replacement}
    return [method | {"label": "signed"}, method | {"label": "size", "by_size": True}]


@pytest.mark.parametrize("replacement", REPLACEMENTS)
@pytest.mark.parametrize(
    ("scene", "keep_opposing"),
    [
        *((scene, False) for scene in SCENES),
        ("bilstm", True),
        ("cnn", True),
        ("study tagger", True),
    ],
)
def test_equals_a_loop_over_texts_and_sets(
    scene: str, keep_opposing: bool, replacement: Any
) -> None:
    model, batch = SCENES[scene]()
    methods: list[str | dict[str, Any]] = ["attention", "gradient", "input_gradient"]
    if keep_opposing and replacement != "attention":
        methods[1:2] = occlusion(replacement)
    test = Faithfulness(
        methods, replacement=replacement, normalized=True, draws=3, keep_opposing=keep_opposing
    )
    found, of_tokens = columns_of(test, model, batch), "tagger" in scene
    number, moved, fewer = 0, 0.0, 0
    for text in range(len(batch)):
        single = one_text(batch, text)
        with torch.no_grad():
            masks = model(single).mask
        for row, items in enumerate(masks):
            expected: dict[str, list[float]] = {}
            if not (of_tokens and len(masks) == 1):  # nothing but itself
                expected = faithfulness(
                    model, single, row, methods, SHARES, replacement, 3, of_tokens, keep_opposing
                )
            for name in (name for name in found if f"{name}_at" in found):
                at = expected.get(name, [math.nan] * len(SHARES))
                mean, kind = float(np.mean(at)), name.rpartition("_")[0]
                close = pytest.approx(at, abs=1e-8, nan_ok=True)
                assert found[f"{name}_at"][number].tolist() == close, name
                assert float(found[name][number]) == pytest.approx(mean, abs=1e-8, nan_ok=True)
                moved = max(moved, 0 if "normal" in name or math.isnan(mean) else abs(mean))
                if f"excess_{name}" in found:
                    measure = next(m for m in MEASURES if kind.startswith(m))
                    excess = mean - np.mean(expected.get(f"{measure}_random", math.nan))
                    column = found[f"excess_{name}"][number]
                    assert float(column) == pytest.approx(excess, abs=1e-8, nan_ok=True)
            fewer += int(found["length"][number]) < int(items.sum()) - of_tokens
            number += 1
    assert number == len(found["length"])
    assert moved > 0.02
    assert (fewer > 1) == keep_opposing


@dataclass
class Truth(Attribution):
    """The value of each word, which the bag of words sums."""

    name = "truth"
    signed = True
    sign: float = 1.0

    def attribute(
        self, model: AttentionModel, batch: TextBatch, output: AttentionOutput, target: Tensor
    ) -> Explanation:
        values = self.sign * model.embed(batch).squeeze(-1)
        return torch.where(target[:, None] == 1, values, -values), {}


class Bag(nn.Module):
    """The logit of the second class is the sum of the words' values."""

    values = torch.tensor([0, 0, 0, 0, 2.0, 1.0, -1.0, 0.25, -0.5, 0.0], dtype=torch.float64)

    def embed(self, batch: TextBatch) -> Tensor:
        return self.values[batch.tokens].unsqueeze(-1)

    def forward(
        self, batch: TextBatch, weights: Tensor | None = None, embeddings: Tensor | None = None
    ) -> AttentionOutput:
        states = self.embed(batch) if embeddings is None else embeddings
        total = (states.squeeze(-1) * batch.mask).sum(-1)
        uniform = (batch.mask / batch.mask.sum(-1, keepdim=True)).double().unsqueeze(1)
        return AttentionOutput(
            rows=torch.stack([batch.index, torch.zeros_like(batch.index)], dim=1),
            logits=torch.stack([torch.zeros_like(total), total], dim=-1),
            weights=uniform if weights is None else weights,
            item_logits=None,
            bias=torch.zeros(2, dtype=torch.float64),
            mask=batch.mask,
            states=states,
        )

    def readout(self, output: AttentionOutput, weights: Tensor) -> Tensor:
        raise AssertionError("deletion reads texts again")


def bag_of(*texts: list[int]) -> TextBatch:
    size = max(map(len, texts))
    tokens = torch.tensor([[*text, *[0] * (size - len(text))] for text in texts])
    return TextBatch(torch.arange(len(texts)), tokens, tokens != 0)


def sigmoid(value: float) -> float:
    return 1 / (1 + math.exp(-value))


@pytest.fixture
def truth() -> list[str | dict[str, Any]]:
    return ["truth", {"name": "truth", "sign": -1.0, "label": "wrong"}]


class TestBagOfWords:
    def test_by_hand(self, truth: list[str | dict[str, Any]]) -> None:
        """Words worth -1, 2, 0, 1 and 0: of five words a fifth is one, a half is three."""
        test = Faithfulness(truth, shares=[0.2, 0.5], normalized=True)
        found = columns_of(test, Bag(), bag_of([6, 4, 9, 5, 9]))
        full = sigmoid(2)
        expected = {
            "comprehensiveness_truth": [full - sigmoid(0), full - sigmoid(-1)],
            "sufficiency_truth": [full - sigmoid(2), full - sigmoid(3)],
            # The wrong way round: first -1, then the two zeros from left to right.
            "comprehensiveness_wrong": [full - sigmoid(3), full - sigmoid(3)],
            "sufficiency_wrong": [full - sigmoid(-1), full - sigmoid(-1)],
            "comprehensiveness_random": [
                np.mean([full - sigmoid(2 - value) for value in (-1, 2, 0, 1, 0)]),
                np.mean(
                    [
                        full - sigmoid(2 - sum(three))
                        for three in itertools.combinations((-1, 2, 0, 1, 0), 3)
                    ]
                ),
            ],
            "normalized_sufficiency_truth": [1, 1],
            "normalized_comprehensiveness_truth": [1, 1],
            "normalized_comprehensiveness_wrong": [0, 0],
            "normalized_sufficiency_wrong": [0, 0],
        }
        for name, at in expected.items():
            assert found[f"{name}_at"][0].tolist() == pytest.approx(at, abs=1e-12), name
            assert float(found[name]) == pytest.approx(float(np.mean(at)), abs=1e-12)

    def test_the_truth_is_best_of_all_orders_at_each_share(
        self, truth: list[str | dict[str, Any]]
    ) -> None:
        random = torch.Generator().manual_seed(1)
        texts = [torch.randint(4, 10, (n,), generator=random).tolist() for n in range(1, 8)]
        found = columns_of(Faithfulness(truth), Bag(), bag_of(*texts))
        for row, text in enumerate(texts):
            values = Bag.values[text].tolist()
            sign = 1 if sum(values) > 0 else -1  # of a tie the first class is predicted
            full = sigmoid(sign * sum(values))
            for place, share in enumerate(SHARES):
                count = max(1, math.ceil(share * len(text)))
                sets = [
                    [sign * values[n] for n in chosen]
                    for chosen in itertools.combinations(range(len(text)), count)
                ]
                rest = [full - sigmoid(sign * sum(values) - sum(chosen)) for chosen in sets]
                alone = [full - sigmoid(sum(chosen)) for chosen in sets]
                at = {name[:-3]: found[name][row, place] for name in found if name[-3:] == "_at"}
                assert float(at["comprehensiveness_truth"]) == pytest.approx(max(rest))
                assert float(at["sufficiency_truth"]) == pytest.approx(min(alone))
                assert float(at["comprehensiveness_wrong"]) == pytest.approx(min(rest))
                assert float(at["comprehensiveness_random"]) == pytest.approx(np.mean(rest))
                assert float(at["sufficiency_random"]) == pytest.approx(np.mean(alone))
        assert (found["excess_comprehensiveness_truth"] >= -1e-12).all()
        assert (found["excess_sufficiency_truth"] <= 1e-12).all()

    def test_a_text_of_one_word(self, truth: list[str | dict[str, Any]]) -> None:
        """Nothing is left without it: the empty context. It alone is the text."""
        found = columns_of(Faithfulness(truth), Bag(), bag_of([4], [9]))
        assert found["comprehensiveness_truth"].tolist() == pytest.approx([sigmoid(2) - 0.5, 0])
        assert found["sufficiency_truth"].tolist() == pytest.approx([0, 0])
        assert found["comprehensiveness_random"].tolist() == pytest.approx([sigmoid(2) - 0.5, 0])

    def test_normalised_is_undefined_where_the_empty_text_makes_no_difference(
        self, truth: list[str | dict[str, Any]]
    ) -> None:
        test = Faithfulness(truth, normalized=True)
        found = columns_of(test, Bag(), bag_of([4, 6, 6], [4, 6, 9]))
        for name in columns(found):
            assert bool(found[name][0].isnan()) == ("normalized" in name)
            assert not found[name][1].isnan()


def test_scores_that_are_not_known_rank_nothing() -> None:
    @dataclass
    class Holes(Truth):
        name = "truth_with_holes"

        def attribute(self, *arguments: Any) -> Explanation:
            scores, more = super().attribute(*arguments)
            return scores.masked_fill(scores == 1.0, torch.nan), more

    found = columns_of(Faithfulness(["truth_with_holes"]), Bag(), bag_of([4, 5], [5], [4, 9]))
    assert found["comprehensiveness_truth_with_holes"].isnan().tolist() == [True, False, False]
    assert found["excess_sufficiency_truth_with_holes"].isnan().tolist() == [True, False, False]
    assert not found["comprehensiveness_random"].isnan().any()


def columns(found: dict[str, Tensor]) -> list[str]:
    return [name for name in found if name != "length" and not name.endswith("_at")]


@pytest.mark.parametrize("scene", ["bilstm", "sentences", "residual tagger"])
@pytest.mark.parametrize("replacement", ["delete", "unk"])
def test_each_text_is_encoded_once_within_the_budget(scene: str, replacement: Any) -> None:
    """Words of a text are all different: with equal ones, different sets leave the same text."""
    model, batch = SCENES[scene]()
    if batch.tokens.ndim == 2:
        for row, mask in enumerate(batch.mask):
            random = torch.Generator().manual_seed(row)
            words = (torch.randperm(16, generator=random) + 4).repeat(2)[: len(mask)]
            batch.tokens[row] = torch.where(mask, words, 0)
        batch = batch.select(batch.mask.sum(-1) <= 16)
    else:
        batch = batch.select(torch.arange(len(batch)) != 1)  # of unknown words already
    read: list[TextBatch] = []
    output = model(batch)
    handle = model.register_forward_pre_hook(  # type: ignore[attr-defined]
        lambda _, arguments: read.append(arguments[0])
    )
    test = Faithfulness([{"name": "attention", "label": f"a{n}"} for n in range(5)], budget=100)
    test.replacement = replacement
    test.measure(batch, output, model)  # type: ignore[arg-type]
    handle.remove()
    texts = []
    for part in read:
        assert len(part) == 1 or part.tokens.numel() <= 100
        for row in range(len(part)):
            single = one_text(part, row)
            text = single.tokens.flatten().tolist(), single.mask.flatten().tolist()
            texts.append((int(part.index[row]), str(text)))
    assert len(set(texts)) == len(texts) > 2 * len(batch)


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

    class Tokens(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.model = tagger("text")

        def test_step(self, batch: TextBatch, batch_idx: int) -> dict[str, Any]:
            return {"loss": torch.zeros(()), "output": self.model(batch)}

    loader = DataLoader(
        Texts(5),
        batch_size=2,
        collate_fn=lambda texts: batch.select(torch.tensor([row for row, _ in texts])),
    )
    batch.index -= 10
    measured = {}
    for count in (2, 12, 1000):
        folder = tmp_path / str(count)
        trainer(folder, Faithfulness(max_instances=count)).test(Tokens(), loader, verbose=False)
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
