"""What holds for all interpretability tests, measured by hand on the same models."""

import inspect
import sys
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from torch import Tensor, nn

import attnlight
from attnlight.batch import AttentionModel, AttentionOutput, TextBatch
from attnlight.callbacks import (
    AdversarialAttention,
    AttentionPermutation,
    DecisionFlip,
    Faithfulness,
    GradientSearch,
    InterpretabilityTest,
    SingleErasure,
    StateTokenAgreement,
)
from tests.attribution.scenes import scene
from tests.callbacks.every import NEEDS, built, ready
from tests.callbacks.handmade import Hidden, batch_of, random_output

# Of each kind of model one; the sparse ones have weights of exactly 0.
SCENES = {"bilstm": "texts", "sparse han": "texts", "pair": "texts"}
SCENES |= {"sparse transformer": "", "heads": "", "translation": ""}
RESAMPLED = {"name": "occlusion", "replacement": "resample", "resamples": 2}
SEARCH = GradientSearch(starts=2, steps=3)
TESTS: list[InterpretabilityTest] = [
    *built(*NEEDS.keys() - {"time"}),
    AdversarialAttention(search=SEARCH, program_instances=0),
    Faithfulness(["attention"], replacement="attention", draws=2),
    Faithfulness(["attention", "occlusion"], replacement="unk", draws=2),
    StateTokenAgreement(),
    Faithfulness(["attention", RESAMPLED], replacement="resample", draws=2, resamples=2),
]
LAYERED = ("heads", "sparse transformer")
PACKAGE = str(Path(attnlight.__file__).parent)
MOST = 8  # frames of the package below `measure`
SEARCH_MOST = 12  # of an ascent, whose steps call the readout of a selection of rows
_UNNAMED = ("<listcomp>", "<genexpr>", "<dictcomp>", "<setcomp>")


def named(test: InterpretabilityTest) -> str:
    """The name of a test, and which of several it is."""
    alike = [other for other in TESTS if other.name == test.name]
    return f"{test.name}-{alike.index(test)}" if test in alike[1:] else test.name


def fits(test: InterpretabilityTest, name: str) -> bool:
    """Whether a scene has what a test needs."""
    of_texts = NEEDS["edits"] | NEEDS["partners"] | NEEDS["rows that are texts"]
    kind = type(test).__name__
    return (
        (kind not in NEEDS["layers"] or name in LAYERED)
        and (kind not in NEEDS["links"] or name == "translation")
        and (kind not in NEEDS["planted texts"] or name == "bilstm")
        and (kind not in of_texts or SCENES[name] == "texts")
    )


def on_scenes(*scenes: Sequence[str]) -> list[Any]:
    """Each test on one scene of each group that it fits, by turns."""
    cases = []
    for place, test in enumerate(TESTS):
        for group in scenes:
            names = [name for name in group if fits(test, name)]
            for name in names[place % len(names) :][:1] if names else []:
                cases.append(pytest.param(test, name, id=f"{named(test)}-{name}"))
    return cases


def marked(name: str, padding: int = 0) -> tuple[Any, TextBatch]:
    """A model and a batch of short texts with labels and marks that are a function of a token."""
    model, batch = scene(name, padding)
    if SCENES[name] == "texts":
        batch.labels = batch.index % 2
    batch.extras["evidence"] = ((batch.tokens % 3 == 0) & batch.mask).to(torch.int8)
    short = batch.mask.flatten(1).sum(-1).argsort(stable=True)[:3]
    return model, batch.select(short.sort().values)


def measured(
    test: InterpretabilityTest, model: AttentionModel, batch: TextBatch
) -> dict[str, list[Any]]:
    """Columns as lists of rows, by text and token, of a test that is ready."""
    with torch.no_grad():
        output = model(batch)
    columns = dict(test.measure(batch, output, model))  # type: ignore[arg-type]
    order = np.lexsort(output.rows.flip(1).T.numpy())
    lists = {n: x.to_pylist() if isinstance(x, pa.Array) else list(x) for n, x in columns.items()}
    return {name: [values[row] for row in order] for name, values in lists.items()}


def flat(values: Any) -> Any:
    """The numbers or strings of a row's value in one array."""
    if isinstance(values, list):
        return np.concatenate([flat(value) for value in values]) if values else np.zeros(0)
    return np.ravel(np.asarray(np.nan if values is None else values))


def require_equal(found: dict[str, list[Any]], expected: dict[str, list[Any]], atol: float) -> None:
    assert found.keys() == expected.keys()
    for name, rows in expected.items():
        left, right = ([flat(row) for row in values] for values in (found[name], rows))
        assert [row.size for row in left] == [row.size for row in right], name
        left, right = np.concatenate(left), np.concatenate(right)
        if right.dtype.kind in "US":
            assert left.tolist() == right.tolist(), name
        else:
            np.testing.assert_allclose(left, right, rtol=0, atol=atol, err_msg=name)


def rebuilt(test: InterpretabilityTest, **options: Any) -> InterpretabilityTest:
    """The same test with other options, of those that it has."""
    given = {name: value for name, value in test.hparams.items() if name != "search"}
    if isinstance(test, AdversarialAttention) and test.search:
        given["search"] = test.search
    known = dict(inspect.signature(type(test)).parameters)
    if "options" in known:  # else, as Texts, it has no others than its own
        known |= inspect.signature(InterpretabilityTest).parameters
    given = {name: x for name, x in (given | options).items() if name in known}
    return type(test)(**given)


def one_by_one(
    test: InterpretabilityTest, model: AttentionModel, batch: TextBatch
) -> dict[str, list[Any]]:
    """Columns of texts that are measured one at a time."""
    each = [measured(test, model, batch.select(torch.tensor([text]))) for text in range(len(batch))]
    return {name: list(chain.from_iterable(part[name] for part in each)) for name in each[0]}


@pytest.mark.parametrize(
    ("test", "name"),
    on_scenes(["sparse han", "bilstm", "pair"], ["heads", "sparse transformer", "translation"]),
)
def test_batches_padding_order_and_budget_change_nothing(
    test: InterpretabilityTest, name: str
) -> None:
    model, batch = marked(name)
    _, wide = marked(name, padding=3)
    other = rebuilt(test, budget=1)
    ready(test, model, batch)
    ready(other, model, batch)
    whole = measured(test, model, batch)
    require_equal(one_by_one(test, model, batch), whole, atol=1e-7)
    turned = wide.select(torch.arange(len(wide)).flip(0))
    require_equal(measured(other, model, turned), whole, atol=1e-7)


@pytest.mark.parametrize("test", TESTS, ids=named)
def test_batches_and_padding_change_nothing_in_single_precision(test: InterpretabilityTest) -> None:
    """Of methods whose scores here have no margins below its rounding."""
    of_links = type(test).__name__ in NEEDS["links"]
    layered = type(test).__name__ in NEEDS["layers"]
    name = "translation" if of_links else "heads" if layered else "bilstm"
    model, batch = marked(name)
    model, wide = model.float(), marked(name, padding=4)[1]
    test = rebuilt(test, methods=["attention", "gradient", "random"])
    ready(test, model, batch)
    require_equal(one_by_one(test, model, wide), measured(test, model, batch), atol=5e-6)


class Depth:
    """Counts the named functions of the package below `measure` that are no part of a network."""

    def __init__(self, test: InterpretabilityTest) -> None:
        self.measure = type(test).measure.__wrapped__.__code__  # type: ignore[attr-defined]
        self.deepest: list[str] = []

    def event(self, frame: FrameType, event: str, _: object) -> None:
        if event != "call" or not frame.f_code.co_filename.startswith(PACKAGE):
            return
        names: list[str] = []
        below: FrameType | None = frame
        while below is not None and below.f_code is not self.measure:
            code = below.f_code
            if isinstance(below.f_locals.get("self"), nn.Module):
                names.clear()  # the network, and what it calls, is not the test's
            elif code.co_filename.startswith(PACKAGE) and code.co_name not in _UNNAMED:
                names.append(code.co_name)
            below = below.f_back
        if below is not None and len(names) > len(self.deepest):
            self.deepest = names[::-1]


@pytest.mark.parametrize(
    ("test", "name"), on_scenes(["bilstm", "pair"], ["sparse transformer", "heads"])
)
def test_measures_by_hand_leave_no_gradients_and_are_few_frames_deep(
    test: InterpretabilityTest, name: str
) -> None:
    """As in a notebook that does not say `no_grad`; the caller's output is left as it is."""
    model, batch = marked(name)
    ready(test, model, batch)
    output: AttentionOutput = model(batch)
    assert output.logits.requires_grad
    depth = Depth(test)
    sys.setprofile(depth.event)
    try:
        columns = test.measure(batch, output, model)
    finally:
        sys.setprofile(None)
    searches = output.item_logits is None and test.name in ("adversarial_attention", "texts")
    assert len(depth.deepest) <= (SEARCH_MOST if searches else MOST), " > ".join(depth.deepest)
    assert set(test.measures) <= columns.keys() | {"max_attention"}
    assert not any(isinstance(x, Tensor) and x.requires_grad for x in columns.values())
    assert output.logits.requires_grad
    assert all(parameter.grad is None for parameter in model.parameters())


@pytest.mark.parametrize(
    ("test", "opaque"),
    [
        (SingleErasure(released=True), False),
        (DecisionFlip(), False),
        (AdversarialAttention(frontier=True, search=SEARCH), False),
        (AdversarialAttention(evaluations=300, search=SEARCH), True),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_logits_that_are_no_numbers_make_their_row_undefined_alone(
    test: InterpretabilityTest, opaque: bool
) -> None:
    output = random_output(classes=2, rows=10, zeros=0.0)

    def columns() -> dict[str, Tensor]:
        asked = replace(output, item_logits=None) if opaque else output
        return dict(test.measure(batch_of(output), asked, Hidden(output)))

    clean = columns()
    output.item_logits[5, 0, 2, 1] = torch.nan
    output.item_logits[6, 0, 2, 1] = torch.inf
    others = torch.tensor([row not in (5, 6) for row in range(10)])
    for name, column in columns().items():
        unknown = name == "length" or (opaque and name == "upper_js")
        assert unknown or column[~others].isnan().all(), name
        assert torch.equal(column[others].nan_to_num(-9), clean[name][others].nan_to_num(-9)), name


@pytest.mark.parametrize(("heads", "classes"), [(1, 2), (1, 4), (2, 3)])
@pytest.mark.parametrize(
    "test",
    [
        AttentionPermutation(draws=5),
        SingleErasure(released=True),
        DecisionFlip(),
        DecisionFlip(emptied="uniform"),
        Faithfulness(["attention"], replacement="attention", normalized=True),
        AdversarialAttention(evaluations=60, search=SEARCH),
    ],
    ids=named,
)
def test_a_readout_that_is_not_affine_is_asked(
    test: InterpretabilityTest, heads: int, classes: int
) -> None:
    """All columns but minima, then unknown, and worst cases, which models/test_readout bounds."""
    if getattr(test, "emptied", "") == "uniform" and heads > 1:
        return
    output = random_output(heads, classes, rows=10, zeros=0.0 if heads > 1 else 0.15)
    model = Hidden(output)
    closed = test.measure(batch_of(output), output, model)
    for inference in (False, True):
        with torch.inference_mode(inference), torch.no_grad():
            hidden = replace(model.output, weights=model.output.weights.clone())
            asked = test.measure(batch_of(hidden), hidden, model)  # type: ignore[arg-type]
        assert asked.keys() == closed.keys()
        for name, column in closed.items():
            if (
                name.startswith(("excess_a", "excess_g", "excess_r", "upper_js"))
                or "minimal" in name
            ):
                assert asked[name].isnan().all()
            elif not name.startswith(("worst", "joint", "search_gap")):
                torch.testing.assert_close(
                    asked[name], column, equal_nan=True, rtol=1e-6, atol=1e-9
                )


def test_the_readout_alone_knows_whether_it_is_affine() -> None:
    """Item logits are only written, for programs outside."""
    modules = Path(PACKAGE, "callbacks").rglob("*.py")
    reading = [path.stem for path in modules if ".item_logits" in path.read_text(encoding="utf-8")]
    assert reading == ["text_columns"]
