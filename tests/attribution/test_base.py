"""What all methods share: batches, padding, order, sentences, targets, classes, configurations."""

from dataclasses import replace
from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor

from attnlight.attribution import (
    ATTRIBUTIONS,
    DEFAULT_METHODS,
    Attribution,
    IntegratedGradients,
    Occlusion,
    build_attribution,
    build_attributions,
)
from attnlight.batch import TextBatch
from attnlight.errors import InputError
from tests.attribution.scenes import METHODS, OF_LAYERS, SCENES, rows, scene
from tests.models import test_classifier as flat
from tests.models import test_pair as pair

NAMES = [name for name in METHODS if name not in ("external", *OF_LAYERS)]
IG, OCCLUSION = "integrated_gradients", "occlusion"
FEW = [name for name in SCENES if name.startswith("sparse")]  # of scenes with other weights
CASES = [
    (method, name)
    for method, name in product(NAMES, SCENES)
    if method != "attention_contribution" or not name.endswith(("pair", "transformer"))
    if name not in FEW or name == FEW[NAMES.index(method) % 3]
]


def explained(method: Attribution, model: Any, batch: TextBatch, number: int = 0) -> list[Tensor]:
    """Scores of the items of each row, in order, and its columns; of the number-th likely class."""
    output = model(batch)
    target = output.logits.topk(number + 1).indices[:, number]
    scores, columns = method.explain(model, batch, output, target)
    assert scores.dtype == torch.float64
    assert scores.shape == output.mask.shape
    assert not scores.requires_grad
    assert (scores[~output.mask] == 0).all()
    more = torch.stack([*columns.values(), scores.new_zeros(len(scores))], dim=1)
    each = zip(scores, output.mask, more, strict=True)
    return [torch.cat([row[mask], own]) for row, mask, own in each]


@pytest.mark.parametrize(("method", "name"), CASES)
def test_batch_size_padding_and_order_change_nothing(method: str, name: str) -> None:
    options = {"steps": 4, "max_steps": 16} if method == IG else {}
    made = build_attribution({"name": method} | options)
    model, batch = scene(name)
    found = explained(made, model, batch, 1)
    texts = [text for text, _ in rows(batch, model(batch))]
    for order in (list(range(len(batch)))[::-1], [2], [0, 0, 1]):
        other = explained(made, model, scene(name, padding=3)[1].select(torch.tensor(order)), 1)
        expected = [found[row] for text in order for row in range(len(texts)) if texts[row] == text]
        assert len(other) == len(expected)
        for one, two in zip(other, expected, strict=True):
            torch.testing.assert_close(one, two, rtol=0, atol=1e-9, equal_nan=True)


@pytest.mark.parametrize("method", NAMES)
def test_a_class_that_is_not_allowed_counts_for_nothing(method: str) -> None:
    """A model without the class explains alike; so does another logit of the class."""
    model = pair.model("bigru", decoder="affine", classes=3)
    batch = pair.collate(pair.corpus(classes=3), classes=3)
    allowed = torch.tensor([[True, True, False]]).expand(len(batch), 3)
    batch = replace(batch, allowed_classes=allowed)
    smaller = pair.model("bigru", decoder="affine", classes=3)
    keep = torch.tensor([0, 1])
    with torch.no_grad():
        for layer in (smaller.decoder, smaller.query_decoder):
            layer.weight = torch.nn.Parameter(layer.weight[keep])
        smaller.decoder.bias = torch.nn.Parameter(smaller.decoder.bias[keep])
    narrow = replace(batch, allowed_classes=None)
    made, target = build_attribution(method), torch.arange(len(batch)) % 2
    found = made(model, batch, model(batch), target)
    expected = made(smaller, narrow, smaller(narrow), target)
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9, equal_nan=True)
    assert expected.nan_to_num().abs().max() > 1e-3


@pytest.mark.parametrize("method", NAMES)
def test_rows_without_a_choice_are_zero(method: str) -> None:
    model = pair.model(decoder="affine")
    batch = pair.collate(pair.corpus())
    output = model(batch)
    allowed = batch.allowed_classes
    single, made = allowed.sum(-1) == 1, build_attribution(method)
    assert single.any()
    found, columns = made.explain(model, batch, output, allowed.int().argmax(-1))
    assert (found[single] == 0).all()
    assert all(values[single].isnan().all() for values in columns.values())
    not_allowed = made(model, batch, output, (~allowed).int().argmax(-1))
    assert (not_allowed[~allowed.all(-1)] == 0).all()


@pytest.mark.parametrize("wrong", [-1, 4])
def test_a_target_that_is_no_class_is_refused(wrong: int) -> None:
    model, batch = flat.model("cnn", classes=4), flat.collate(flat.corpus()[:4])
    with pytest.raises(InputError, match=rf"^target is class {wrong}; the model's classes are 0"):
        build_attribution("gradient")(model, batch, model(batch), torch.tensor([0, 1, wrong, 3]))


def test_rows_must_be_texts_or_tokens() -> None:
    model, batch = scene("bilstm")
    output = model(batch).select(slice(None), torch.arange(1, len(batch)))
    for method in ("gradient", "integrated_gradients", "occlusion"):
        with pytest.raises(InputError, match="one row per text"):
            build_attribution(method)(model, batch, output, output.logits.argmax(-1))


def test_single_precision_gives_the_same_within_its_rounding() -> None:
    for method in NAMES:
        scores = []
        for dtype in (torch.float32, torch.float64):
            model, batch = flat.model("bilstm", dtype=dtype), flat.collate(flat.corpus()[:4])
            made, output = build_attribution(method), model(batch)
            scores.append(made(model, batch, output, torch.ones(4).long()))
        torch.testing.assert_close(*scores, rtol=1e-4, atol=1e-5, equal_nan=True)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("gradiant", {}, "unknown attribution method 'gradiant' (did you mean 'gradient'?); exp"),
        (None, {}, "unknown attribution method None; expected one of: alti, answer_attention, "),
        (IG, {"tolerence": 1.0}, f"{IG} has no option 'tolerence' (did you mean 'tolerance'?"),
        (IG, {"steps": 1.5}, f"{IG}: steps is 1.5; expected int."),
        (IG, {"tolerance": True}, f"{IG}: tolerance is True; expected float."),
        (IG, {"baseline": "zeros"}, f"{IG}: baseline is 'zeros' (did you mean 'zero'?); exp"),
        (OCCLUSION, {"replacement": "[UNK]"}, "occlusion: replacement is '[UNK]'; expected"),
        (OCCLUSION, {"budget": "1"}, "occlusion: budget is '1'; expected int or null."),
        (OCCLUSION, {"by_size": 1}, "occlusion: by_size is 1; expected bool"),
        (IG, {"tolerance": -1.0}, "tolerance is -1.0; it must be at least 0."),
        (IG, {"steps": 0}, "steps is 0; it must be at least 1."),
        (IG, {"steps": 64, "max_steps": 32}, "max_steps is 32; it must be at least 64."),
        ("lrp", {"epsilon": -1}, "epsilon is -1; it must be at least 0"),
        (OCCLUSION, {"budget": 0}, "budget is 0; it must be at least 1"),
        ("rollout", {"of": "norms"}, "rollout: of is 'norms'"),
    ],
)
def test_mistakes_in_configurations(name: Any, options: dict[str, Any], message: str) -> None:
    spec = {"name": name} | options if name else {"tolerance": 1.0}
    with pytest.raises(InputError) as error:
        build_attribution(spec)
    assert str(error.value).startswith(message)


def test_methods_by_name_and_with_options() -> None:
    for name in METHODS:
        kind = ATTRIBUTIONS[name]
        assert kind.name == name
        assert isinstance(kind.signed, bool)
        assert kind.explains
    method = build_attribution({"name": "integrated_gradients", "tolerance": 1, "label": "ig"})
    assert method == IntegratedGradients(tolerance=1, label="ig")
    expected = {
        "name": "integrated_gradients",
        "label": "ig",
        "signed": True,
        "explains": "log odds",
        "baseline": "zero",
        "tolerance": 1,
        "steps": 16,
        "max_steps": 256,
    }
    assert method.metadata == expected
    assert build_attribution({"name": "occlusion", "budget": None}) == Occlusion()
    assert build_attribution("occlusion").label == "occlusion"


@pytest.mark.parametrize("name", NAMES)
def test_by_size_scores_lose_their_sign(name: str) -> None:
    """Labels and metadata say so."""
    model, batch = scene("recurrent")
    signed, by_size = (build_attribution({"name": name, "by_size": x}) for x in (False, True))
    output = model(batch)
    one, two = (x(model, batch, output, output.logits.argmax(-1)) for x in (signed, by_size))
    assert torch.equal(two, one.abs())
    assert signed.signed == bool((one < 0).any())
    assert by_size.metadata == signed.metadata | {"label": f"{name}_by_size", "signed": False}


def test_several_methods_by_label() -> None:
    pad = {"name": "occlusion", "replacement": "pad", "label": "padded"}
    built = build_attributions(["random", "occlusion", pad], "a test")
    assert list(built.items()) == [
        ("random", build_attribution("random")),
        ("occlusion", Occlusion()),
        ("padded", Occlusion(label="padded", replacement="pad")),
    ]
    assert list(build_attributions(DEFAULT_METHODS, "a test")) == list(DEFAULT_METHODS)
    assert build_attributions([], "a test", least=0) == {}
