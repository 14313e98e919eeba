"""A CUDA device against the CPU: the same records of every test, trained models, attributions."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import attnlight
from attnlight.records import read_record
from attnlight.tasks import AttentionTask
from tests.bases import trainer
from tests.huggingface.test_classifier import classifier, texts
from tests.test_precision import Built, Tests, callbacks_of, pairs, tagging, text

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]
PROBLEMS = [text, pairs, tagging]
TIMES = {"attribution_cost"}  # seconds, another number in every run


@pytest.fixture(autouse=True)
def _every_core() -> None:
    torch.set_num_threads(4)


def recorded(
    folder: Path, task: AttentionTask, data: Any, tests: Tests, **options: Any
) -> dict[str, dict[str, np.ndarray]]:
    """The columns of each record of the test split, by the test's name."""
    trainer(folder, *callbacks_of(tests), **options).test(task, data, verbose=False)
    files = sorted((folder / "records/test").glob("*.parquet"))
    return {path.stem: read_record(path).columns for path in files}


@pytest.mark.parametrize("problem", PROBLEMS)
def test_records_are_those_of_the_cpu(tmp_path: Path, problem: Callable[[Path], Built]) -> None:
    """In double precision, where no rounding turns a decision or an order."""
    task, data, tests = problem(tmp_path)
    task.float()  # built in half precision where the test of that asks for it
    found = {}
    for device in ("cpu", "gpu"):
        options = {"accelerator": device, "precision": "64-true"}
        found[device] = recorded(tmp_path / device, task, data, tests, **options)
    assert found["cpu"].keys() == found["gpu"].keys()
    for name in found["cpu"].keys() - TIMES:
        for column, values in found["cpu"][name].items():
            here, there = flat(values), flat(found["gpu"][name][column])
            same = here == there
            if here.dtype != object:
                numbers = here.astype(float), there.astype(float)
                same = np.isclose(*numbers, atol=1e-6, equal_nan=True)
            assert same.all(), (name, column, (~same).sum())


def flat(values: np.ndarray) -> np.ndarray:
    """The numbers or texts of a column whose rows may be lists, of lists even."""
    while values.dtype == object and isinstance(next(iter(values), None), (np.ndarray, list)):
        values = np.concatenate([np.asarray(row) for row in values])
    return values


@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed", "16-mixed", "bf16-true"])
@pytest.mark.parametrize("problem", PROBLEMS)
def test_every_test_runs_on_validation_epochs(
    tmp_path: Path, problem: Callable[[Path], Built], precision: Any
) -> None:
    task, data, tests = problem(tmp_path)
    options: dict[str, Any] = {"accelerator": "gpu", "precision": precision}
    trainer(tmp_path, *callbacks_of(tests), max_epochs=1, **options).fit(task, data)
    assert len(recorded(tmp_path, task, data, tests, **options)) == len(tests)


@pytest.mark.parametrize("name", ["bert", "gpt2", "gemma3"])
def test_models_of_transformers(name: str) -> None:
    """`attnlight.run` takes a model that the user has moved to the device, and batches as they are."""
    batch = texts()
    batch.labels = torch.tensor([0, 1, 2, 0, 1])
    tables = [
        attnlight.run(classifier(name).double().to(device), [batch], tests="all").table()
        for device in ("cpu", "cuda")
    ]
    here, there = (table[table["test"] != "attribution_cost"] for table in tables)
    np.testing.assert_allclose(here["mean"], there["mean"], atol=1e-6)
