"""Every test measures a text as if the classes that it does not allow did not exist."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from attnlight.batch import NOT_ALLOWED, AttentionModel, AttentionOutput, TextBatch
from attnlight.callbacks import (
    AdversarialAttention,
    BaseDivergence,
    ContextAblation,
    DecisionFlip,
    ErasedAccuracy,
    GradientSearch,
    InterpretabilityTest,
    LeaveOneOutAgreement,
)
from attnlight.models import FlatClassifier
from tests.callbacks.every import FakeBase, built
from tests.callbacks.handmade import Hidden, batch_of, random_output
from tests.callbacks.test_every import measured, named, require_equal
from tests.functional.test_allowed_classes import (
    CLASSES,
    SETS,
    allowed_of,
    chosen,
    removed,
    restricted,
)
from tests.probing.oracles import Hiding

TEXTS = 2 * len(SETS)
TESTS: list[InterpretabilityTest] = [
    *built("base"),
    DecisionFlip(emptied="uniform"),
    AdversarialAttention(0.02, search=GradientSearch(steps=5), program_instances=0),
]
# What attention and item logits alone decide, for several heads too.
OF_READOUTS = {
    "AdversarialAttention",
    "AttentionPermutation",
    "DecisionFlip",
    "Predictions",
    "SingleErasure",
}
ASKING = OF_READOUTS | {"StateTokenAgreement"}  # of a readout that is not affine, more than it gave


def answers(dtype: torch.dtype, affine: bool, classes: list[int] | None = None) -> Any:
    """A classifier that gives each text its allowed classes, or all texts the same `classes`."""
    torch.manual_seed(1)
    sizes: Any = {"embedding_size": 8, "hidden_size": 6, "embedding_scale": 1.0}
    network = FlatClassifier(30, CLASSES, encoder="bilstm", **sizes)
    for part in (network.attention, network.decoder):
        for parameter in part.parameters():
            nn.init.normal_(parameter, std=1.5)

    def answered(logits: Tensor, allowed: Tensor) -> Tensor:
        """Logits of the classes from logits (B, ..., C) of all."""
        if classes is not None:
            return chosen(logits, classes)
        allowed = allowed.view(len(allowed), *(1,) * (logits.ndim - 2), CLASSES)
        return logits.masked_fill(~allowed, NOT_ALLOWED)

    def change(batch: TextBatch, output: AttentionOutput) -> AttentionOutput:
        allowed: Any = batch.allowed_classes
        logits, bias = (
            answered(x, allowed) for x in (output.logits, output.bias.expand(len(allowed), -1))
        )
        items = answered(output.item_logits, allowed) if affine else None
        memory = {"allowed_classes": allowed}
        return replace(output, logits=logits, bias=bias, item_logits=items, memory=memory)

    model: Any = Hiding(network.to(dtype).eval(), change)
    model.classes, readout = classes, model.readout
    model.readout = lambda output, weights: answered(
        readout(output, weights), output.memory["allowed_classes"]
    )
    return model


class Base(FakeBase):
    """Outputs of a base of which each row allows the classes of its set, or the same `classes`."""

    def __init__(self, classes: list[int] | None = None) -> None:
        super().__init__(1, CLASSES if classes is None else max(2, len(classes)))
        self.kept = classes

    def logits(self, rows: Tensor, batch: TextBatch) -> Tensor:
        logits = FakeBase(1, CLASSES).logits(rows, batch)
        if self.kept is not None:
            return chosen(logits, self.kept)
        return logits.masked_fill(~allowed_of(len(rows)), NOT_ALLOWED)


def texts() -> TextBatch:
    random = torch.Generator().manual_seed(2)
    tokens = torch.randint(4, 30, (TEXTS, 7), generator=random)
    lengths = torch.randint(1, 8, (TEXTS, 1), generator=random)
    lengths[:2] = 5
    tokens = tokens.masked_fill(torch.arange(7) >= lengths, 0)
    labels = torch.tensor([SETS[row % len(SETS)][0] for row in range(TEXTS)])
    index, allowed = torch.arange(TEXTS) + 7, allowed_of(TEXTS)
    return TextBatch(index, tokens, tokens != 0, labels, allowed_classes=allowed)


def columns_of(
    test: InterpretabilityTest, batch: TextBatch, model: AttentionModel
) -> dict[str, list[Any]]:
    if isinstance(test, BaseDivergence):
        test._outputs = Base(getattr(model, "classes", None))  # type: ignore[assignment]
    if isinstance(test, ErasedAccuracy) and getattr(model, "classes", None) is not None:
        batch = replace(batch, labels=torch.zeros(TEXTS, dtype=torch.long))  # the first of each set
    return measured(test, model, batch)


def require_set(
    mixed: dict[str, list[Any]], alone: dict[str, list[Any]], number: int, atol: float
) -> None:
    """The rows of a set, measured among others and with the classes of this set alone."""
    classes, rows = SETS[number], slice(number, None, len(SETS))
    names = alone.keys() - {"frontier_js"}  # of two classes
    found, expected = ({name: x[name][rows] for name in names} for x in (mixed, alone))
    if "probabilities" in alone:
        found["probabilities"] = [row[classes] for row in found["probabilities"]]
        expected["probabilities"] = [row[: len(classes)] for row in expected["probabilities"]]
    if "base_prediction" in alone:
        expected["base_prediction"] = [classes[int(one)] for one in expected["base_prediction"]]
    require_equal(found, expected, atol)


@pytest.mark.parametrize(
    ("affine", "dtype", "test"),
    [
        *((True, (torch.float32, torch.float64)[n % 2], test) for n, test in enumerate(TESTS)),
        *((False, torch.float64, x) for x in TESTS if type(x).__name__ in ASKING),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_texts_are_measured_without_the_other_classes(
    affine: bool, dtype: torch.dtype, test: InterpretabilityTest
) -> None:
    batch = texts()
    mixed = columns_of(test, batch, answers(dtype, affine))
    for number, classes in enumerate(SETS):
        if test.needs_gradients and len(classes) == 1:  # an impossible rival still has a gradient
            continue
        alone = columns_of(test, batch, answers(dtype, affine, classes))
        # A search rounds otherwise with fewer classes, and takes other steps.
        require_set(mixed, alone, number, 2e-6)


@pytest.mark.parametrize("affine", [True, False])
def test_texts_without_another_class_have_no_odds(affine: bool) -> None:
    """The odds against an impossible rival are some 10,000, and mean nothing."""
    batch, model = texts(), answers(torch.float64, affine)
    only = torch.tensor([len(SETS[row % len(SETS)]) == 1 for row in range(TEXTS)])
    several = batch.mask.sum(-1) > 1
    assert 0 < int((only & several).sum()) < int(several.sum())
    for test in (LeaveOneOutAgreement(), ContextAblation(methods=["attention"], subsets=4)):
        found = test.measure(batch, model(batch), model)
        assert found["log_odds"][only].isnan().all()
        assert found["log_odds"][~only & several].abs().max() < 100
        assert found["somers_d_attention"][only].isnan().all()
        assert not found["largest_effect"][only].nan_to_num().any()
        assert (found["largest_effect"][~only & several] > 0).all()


@pytest.mark.parametrize(
    "test", [test for test in TESTS if type(test).__name__ in OF_READOUTS], ids=named
)
@pytest.mark.parametrize("affine", [True, False])
def test_several_heads_are_measured_without_the_other_classes(
    affine: bool, test: InterpretabilityTest
) -> None:
    if getattr(test, "emptied", "") == "uniform":  # for one head
        return
    output = random_output(3, CLASSES, rows=len(SETS))

    def columns(of: AttentionOutput) -> dict[str, list[Any]]:
        given = of if affine else replace(of, item_logits=None)
        found = test.measure(batch_of(of), given, Hidden(of))  # type: ignore[arg-type]
        return {name: list(values) for name, values in found.items()}

    mixed = columns(restricted(output))
    for number, reduced in enumerate(removed(output)):
        require_set(mixed, columns(reduced), number, 2e-6)
