"""What would make an accelerator wait, counted on a CPU that says it is none, and the results there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

import attnlight
from attnlight import callbacks
from attnlight.callbacks import InterpretabilityTest
from attnlight.callbacks.hooks.epoch_recorder import EpochRecorder
from attnlight.data.collate import collate_ids
from attnlight.models import FlatClassifier

_ATEN = torch.ops.aten
# Operators whose result, or its shape, is known on the host only once the device has computed it.
WAITING = {
    _ATEN._local_scalar_dense.default,  # item, int, float, bool
    _ATEN.nonzero.default,
    _ATEN.masked_select.default,
    _ATEN.equal.default,
    _ATEN.bincount.default,
    _ATEN._unique2.default,
    _ATEN.unique_dim.default,
    _ATEN.unique_consecutive.default,
    _ATEN.repeat_interleave.Tensor,
}
INDEXING = {_ATEN.index.Tensor, _ATEN.index_put.default, _ATEN.index_put_.default}
LEAVING = ("cpu", "numpy", "tolist", "__array__")  # methods that no dispatch sees
METHODS = ["attention", "input_gradient", "integrated_gradients", "occlusion"]
# Tests with the most waits in one batch, those of their linear programs excepted. Faithfulness has six
# for each method, the random one included; ImportanceCorrelation is leave-one-out, then the gradients.
BOUNDS: list[tuple[InterpretabilityTest, int]] = [
    (callbacks.Predictions(), 0),
    (callbacks.AttentionPermutation(draws=20), 2),
    (callbacks.AdversarialAttention(), 2),
    (callbacks.AdversarialAttention(frontier=True), 4),
    (callbacks.SingleErasure(), 2),
    (callbacks.DecisionFlip(draws=2), 2),
    (callbacks.Faithfulness(METHODS[:1], draws=1), 2 * 6),
    (callbacks.Faithfulness(METHODS, draws=1), 5 * 6),
    (callbacks.ImportanceCorrelation(gradients=[]), 4),
    (callbacks.ImportanceCorrelation(leave_one_out=False), 4),
]
NAMES = [f"{test.name}-{bound}" for test, bound in BOUNDS]


class Waits(TorchDispatchMode):
    """Counts operators that would wait for the device, and methods that take values from it."""

    def __init__(self) -> None:
        super().__init__()
        self.found: Counter[str] = Counter()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        masks = func in INDEXING and any(x is not None and x.dtype == torch.bool for x in args[1])
        self.found[str(func)] += func in WAITING or masks
        return func(*args, **(kwargs or {}))


@contextmanager
def elsewhere(patch: pytest.MonkeyPatch) -> Iterator[Waits]:
    """Within it no tensor says that it is on the CPU."""
    waits = Waits()
    with patch.context() as changed:
        changed.setattr(Tensor, "is_cpu", property(lambda _: False), raising=False)
        for name in LEAVING:
            changed.setattr(Tensor, name, counted(getattr(Tensor, name), waits.found))
        with waits:
            yield waits


def counted(method: Callable[..., Any], found: Counter[str]) -> Callable[..., Any]:
    def call(*args: Any, **options: Any) -> Any:
        found[method.__name__] += 1
        return method(*args, **options)

    return call


@pytest.fixture(scope="module")
def scene() -> tuple[FlatClassifier, Any]:
    """A BiLSTM and eight texts of 3 to 12 words, in no order."""
    torch.manual_seed(0)
    options: Any = {"encoder": "bilstm", "attention": "additive", "hidden_size": 6}
    model = FlatClassifier(num_classes=2, vocab_size=60, embedding_size=8, **options)
    random = torch.Generator().manual_seed(1)
    lengths = (5, 3, 9, 7, 12, 6, 4, 8)
    batch = collate_ids([torch.randint(4, 60, (n,), generator=random).tolist() for n in lengths])
    batch.labels = torch.randint(0, 2, (8,), generator=random)
    return model.double().eval(), batch


@pytest.mark.parametrize(("test", "most"), BOUNDS, ids=NAMES)
def test_few_waits_and_equal_results(
    test: InterpretabilityTest, most: int, scene: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, batch = scene
    with torch.no_grad():
        output = model(batch)
    expected = test.measure(batch, output, model)
    with torch.no_grad():
        output = model(batch)  # tests of one output share results
    with elsewhere(monkeypatch) as waits:
        found = test.measure(batch, output, model)
    assert sum(waits.found.values()) <= most, waits.found
    assert found.keys() == expected.keys()
    for name, values in expected.items():
        torch.testing.assert_close(found[name], values, atol=1e-9, rtol=1e-9, equal_nan=True)


def test_a_forward_pass_waits_for_nothing(scene: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    model, batch = scene
    with elsewhere(monkeypatch) as waits, torch.no_grad():
        model(batch)
        assert not sum(waits.found.values())
        assert int(batch.labels.sum()) >= 0
        assert batch.mask[batch.labels == 1].tolist()
        batch.mask.nonzero()
    assert sorted(waits.found.elements()) == [
        "aten._local_scalar_dense.default",
        "aten.index.Tensor",
        "aten.nonzero.default",
        "tolist",
    ]


@pytest.mark.parametrize("held", [1, 5, 100])
def test_columns_leave_the_device_together(
    held: int, scene: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows of several batches, of columns of every kind, are recorded as they come from a CPU."""
    monkeypatch.setattr("attnlight.callbacks.hooks.epoch_recorder._HELD", held)
    monkeypatch.setattr("attnlight.callbacks.hooks.readouts.WEIGHTS", 1)  # no batch waits
    model, batch = scene
    batches = [batch.select(torch.tensor(part)) for part in ([0, 1, 2], [3, 4], [5], [6, 7])]
    for part, first in zip(batches, (0, 3, 5, 6), strict=True):
        part.index = torch.arange(len(part)) + first
    tests = [callbacks.Predictions(), callbacks.AttentionPermutation(draws=3)]
    tests += [callbacks.DecisionFlip(draws=2)]
    expected = attnlight.run(model, batches, tests)
    writes: Counter[str] = Counter()
    monkeypatch.setattr(EpochRecorder, "_flush", counted(EpochRecorder._flush, writes))
    with elsewhere(monkeypatch):
        found = attnlight.run(model, batches, tests)
    assert writes["_flush"] == 3 * {1: 5, 5: 2, 100: 1}[held]
    for name in ("predictions", "attention_permutation", "decision_flip"):
        pd.testing.assert_frame_equal(found.table(name), expected.table(name))


def test_leave_one_out_calls_whole_recurrences(scene: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """An accelerator is not given single steps: one call a direction for all shortened texts."""
    calls: Counter[str] = Counter()

    class Recurrences(TorchFunctionMode):
        def __torch_function__(
            self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None
        ) -> Any:
            calls[getattr(func, "__name__", "")] += 1
            return func(*args, **(kwargs or {}))

    model, batch = scene
    with torch.no_grad():
        output = model(batch)
        with elsewhere(monkeypatch), Recurrences():
            model.leave_one_out(batch, output, 1 << 14)
    assert calls["lstm"] == 2
    assert not calls["addmm_"]
