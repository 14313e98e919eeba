"""The readout of a batch: algebra and the model's own readout answer each question alike."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from attnlight.batch import AttentionModel, AttentionOutput, TextBatch
from attnlight.functional import js_divergence, random_rankings, total_variation
from attnlight.functional.readout.heads import CandidateReadout
from attnlight.models import FlatClassifier, HierarchicalClassifier
from attnlight.models.readout import OpaqueReadout, Readout, readout_of
from tests.callbacks.handmade import Hidden, batch_of, random_output
from tests.models import test_classifier as flat
from tests.models import test_hierarchical as hierarchical
from tests.models.taggers import sentences, tagger

Scene = tuple[TextBatch, AttentionOutput, AttentionModel]
Both = tuple[Readout, Readout]  # an affine one, and an opaque one of the same batch


def handmade(heads: int, classes: int) -> Scene:
    output = random_output(heads, classes, zeros=0.0)
    return batch_of(output), output, Hidden(output)


def texts(nested: bool = False) -> TextBatch:
    """Nine texts of up to six words, or of up to three sentences of two."""
    if nested:
        some = [[words[1:3] for words in text[:3]] for text in hierarchical.corpus()]
        return hierarchical.collate(some)
    return flat.collate([text[:6] for text in flat.corpus(boundaries=False)[:9]])


def classifier(classes: int, nested: bool = False) -> FlatClassifier | HierarchicalClassifier:
    return hierarchical.model(classes=classes) if nested else flat.model(classes=classes)


def of_model(model: AttentionModel, batch: TextBatch) -> Scene:
    with torch.no_grad():
        return batch, model(batch), model


SCENES: dict[str, Callable[[], Scene]] = {
    "one head, two classes": lambda: handmade(1, 2),
    "one head, four classes": lambda: handmade(1, 4),
    "three heads": lambda: handmade(3, 3),
    "flat": lambda: of_model(classifier(2), texts()),
    "hierarchical": lambda: of_model(classifier(3, nested=True), texts(nested=True)),
    "tagger": lambda: of_model(tagger("residual").double(), sentences()),
}


@pytest.fixture(params=SCENES)
def both(request: pytest.FixtureRequest) -> Both:
    """The affine readout of a batch, and an opaque one that is not told so."""
    batch, output, model = SCENES[request.param]()
    affine = readout_of(batch, output, model)
    opaque = readout_of(batch, replace(output, item_logits=None), model)
    assert type(affine) is Readout
    assert isinstance(opaque, OpaqueReadout)
    return affine, opaque


def agree(one: Tensor, other: Tensor) -> None:
    torch.testing.assert_close(one, other, rtol=0, atol=1e-6)


def attentions(readout: Readout, count: int = 4) -> Tensor:
    mask = readout.output.mask[:, None, None]
    shape = (*readout.output.weights.shape[:2], count, mask.shape[-1])
    drawn = torch.rand(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    drawn = drawn * mask
    return drawn / drawn.sum(-1, keepdim=True)


@pytest.fixture(params=["all heads", "each alone"])
def asked(both: Both, request: pytest.FixtureRequest) -> Both:
    if request.param == "all heads":
        return both
    return both[0].by_head(), both[1].by_head()


def test_candidates_erasures_and_gradients(asked: Both) -> None:
    affine, opaque = asked
    agree(affine.candidates(attentions(affine)), opaque.candidates(attentions(affine)))
    for target in (None, "runner_up", 1):
        agree(affine.gradient(target), opaque.gradient(target))
        rankings = (readout.rankings("signed", target) for readout in asked)
        assert torch.equal(*rankings)
    mask = affine.output.mask
    agree(affine.erase()[mask], opaque.erase()[mask])
    orders = random_rankings(mask, affine.output.rows, 3, 0)
    flips = affine.first_flips(orders)
    assert torch.equal(flips, opaque.first_flips(orders))
    assert flips.max() > 0


def test_heads_that_are_replaced_one_at_a_time(both: Both) -> None:
    for readout in both:
        output, attention = readout.output, attentions(readout, 1).squeeze(2)
        before, ones = readout.logits.softmax(-1), torch.ones(attention.shape[:2]).double()
        found, joint = readout.tvd_by_head(attention), readout.joint_js(attention, ones, 2)
        for head in range(attention.shape[1]):
            changed = output.weights.double().clone()
            changed[:, head] = attention[:, head]
            after = readout.candidates(changed.unsqueeze(2))[:, 0].softmax(-1)
            agree(found[:, head], (after - before).abs().sum(-1) / 2)
        agree(joint, torch.ones_like(joint))
        largest = torch.full_like(found, torch.nan)
        for row, mask in enumerate(output.mask):
            if mask.sum() > 1:  # all weight on the lightest item, since JS is convex
                for head, weights in enumerate(output.weights.double()[row, :, mask]):
                    ends = torch.eye(len(weights), dtype=torch.float64)
                    largest[row, head] = js_divergence(weights.expand_as(ends), ends).max()
        torch.testing.assert_close(readout.max_js_by_head(), largest, equal_nan=True)


def test_permutations_and_searches(both: Both) -> None:
    (affine, by_algebra), (opaque, by_model) = (one.permute(9, 4, 3) for one in both)
    agree(affine, opaque)
    alone = [*by_algebra], [*by_model]
    assert len(alone[0]) == len(alone[1]) == len([*by_algebra])
    options = {"starts": 2, "steps": 15, "learning_rate": 0.1, "seed": 2}
    found = (readout.search(0.05, **options) for readout in both)
    for one, other in (*zip(*alone, strict=True), *zip(*found, strict=True)):
        agree(one, other)


def test_worst_cases(both: Both) -> None:
    """The search of one is bounded by the answer of the other, and both keep the prediction."""
    places = torch.arange(len(both[0].logits))
    affine, opaque = (one.select((places % 3 == 0) & (places < 24)) for one in both)
    exact, known = affine.worst_case(0.05), opaque.worst_case(0.05)
    assert (known[1] <= exact[2] + 1e-6).all()
    assert known[1].mean() > 0.7 * exact[1].mean()
    assert known[2].isnan().all()
    for adversary in (exact[0], known[0]):
        for head in range(adversary.shape[1]):
            held = affine.output.weights.double().clone()
            held[:, head] = adversary[:, head]
            pair = torch.stack([affine.output.weights.double(), held], dim=2)
            before, after = opaque.candidates(pair).softmax(-1).unbind(1)
            assert (total_variation(before, after) <= 0.05 + 1e-6).all()


def test_what_only_algebra_knows(both: Both) -> None:
    affine, opaque = both
    assert affine.minimal_flips() is not None
    assert opaque.minimal_flips() is opaque.worst_case_curve([0.1]) is None
    single_and_binary = affine.output.weights.shape[1] == 1 and affine.logits.shape[-1] == 2
    assert (affine.worst_case_curve([0.1]) is None) == (not single_and_binary)
    assert affine.by_programs == (affine.logits.shape[-1] > 2)
    assert opaque.by_programs
    classifiers = FlatClassifier, HierarchicalClassifier
    assert opaque.cheap == isinstance(opaque.model, classifiers)


def test_rows_are_read_alone_and_in_blocks(both: Both) -> None:
    for readout in both:
        candidates = attentions(readout)
        whole = readout.candidates(candidates)
        chosen = torch.arange(len(whole)) % 3 != 1
        agree(readout.select(chosen).candidates(candidates[chosen]), whole[chosen])
        parts = [*readout.blocks(3 * readout.output.weights[0].numel())]
        assert len(parts) == -(-len(whole) // 3)
        read = [p.candidates(c) for p, c in zip(parts, candidates.split(3), strict=True)]
        agree(torch.cat(read), whole)


def test_columns_of_rows_of_like_length(both: Both, monkeypatch: pytest.MonkeyPatch) -> None:
    def measure(readout: Readout) -> dict[str, Tensor]:
        return {"moved": readout.erase()[..., 0].masked_fill(~readout.output.mask, 0.0).sum(-1)}

    whole, asked = (readout.columns(measure, measure) for readout in both)
    monkeypatch.setattr("attnlight.models.readout.base._UNSPLIT_ROWS", 0)
    monkeypatch.setattr("attnlight.models.readout.base._ROWS", 7)
    parts = both[0].columns(measure, measure)
    heads = both[0].output.weights.shape[1]
    assert parts.keys() == whole.keys() == {"moved", *(["moved_by_head"] if heads > 1 else [])}
    for name, column in whole.items():
        agree(parts[name], column)
        agree(asked[name], column)


def test_erasures_of_an_opaque_readout_are_read_in_pieces(
    both: Both, monkeypatch: pytest.MonkeyPatch
) -> None:
    readout, sizes = both[1], []
    orders = random_rankings(readout.output.mask, readout.output.rows, 3, 0)
    whole, flips = readout.erase(), readout.first_flips(orders)
    own = CandidateReadout.read

    def counted(self: CandidateReadout, rows: Tensor, attentions: Tensor) -> Tensor:
        sizes.append(len(rows))
        return own(self, rows, attentions)

    monkeypatch.setattr(CandidateReadout, "read", counted)
    size = readout.output.weights[0].numel()
    monkeypatch.setattr("attnlight.functional.readout.opaque._ELEMENTS", 2 * size + 1)
    agree(readout.erase(), whole)
    assert max(sizes) == 2
    assert torch.equal(readout.first_flips(orders), flips)


@pytest.mark.parametrize("kind", ["flat", "nested", "study", "text", "residual"])
@torch.no_grad()
def test_nothing_is_left_on_a_model_between_batches(kind: str) -> None:
    if kind in ("flat", "nested"):
        first = texts(kind == "nested")
        model, second = classifier(3, kind == "nested"), first.select(torch.arange(9) > 3)
    else:
        model, first, second = tagger(kind).double(), sentences(), sentences((3, 7), seed=1)
    output = model(first)
    candidates = attentions(readout_of(first, output, model)).to(output.weights.dtype)
    before = model.readout(output, candidates)
    model(second)
    assert torch.equal(model.readout(output, candidates), before)
