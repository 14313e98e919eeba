"""Half precision: every test records, in single precision, what it does of a model in that."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import numpy as np
import pyarrow.parquet as pq
import pytest
import torch

from attnlight.api.recording import build_tests
from attnlight.callbacks import InterpretabilityTest
from attnlight.callbacks.hooks.prediction_writer import PredictionWriter
from attnlight.datamodules import BabiStories
from attnlight.datamodules.base import CorpusDataModule
from attnlight.records import read_record
from attnlight.tasks import AttentionTask
from tests.bases import Planted, classifier, save_base, trainer
from tests.callbacks.every import OPTIONS, every
from tests.models.precision import require_bfloat16
from tests.pairs import pair_task
from tests.tasks.tagged import corpus, task_of, written

pytestmark = pytest.mark.usefixtures("few_steps")

# Lightning makes 16-mixed bf16-mixed on CPUs.
PRECISIONS = {"bf16-true": 2**-7, "16-true": 2**-9, "bf16-mixed": 2**-7}
Tests = dict[str, dict[str, Any]]
METHODS = ["attention", "occlusion", {"name": "integrated_gradients", "max_steps": 16}]
COMPARED = ("SaliencyAgreement", "Faithfulness", "Sanity")
FEW: Tests = OPTIONS | {name: {"methods": METHODS} for name in COMPARED}
COMMON: Tests = {name: FEW.get(name, {}) for name in every("random networks", "words", "time")}
PLANTED: Tests = {name: FEW.get(name, {}) for name in every("marks") if name not in COMMON}
SIZES: dict[str, Any] = {"train_size": 8, "validation_size": 4, "test_size": 6}
Built = tuple[AttentionTask, CorpusDataModule, Tests]


def text(folder: Path) -> Built:
    require_bfloat16("bilstm")
    data = Planted(**SIZES, min_tokens=4, max_tokens=6)
    base = save_base(folder / "base.ckpt", data)
    content = torch.load(base, weights_only=True)
    content["state_dict"] = {name: x.bfloat16() for name, x in content["state_dict"].items()}
    torch.save(content, base)
    task = classifier(data.spec, encoder="bilstm", embedding_size=8, hidden_size=4)
    return task, data, COMMON | PLANTED | {"MeasuredUse": {}, "BaseDivergence": {"base": str(base)}}


def pairs(folder: Path) -> Built:
    data = BabiStories(**SIZES, cache_dir=str(folder / "cache"))
    return pair_task(data.spec, encoder="cnn"), data, COMMON | PLANTED


def tagging(folder: Path) -> Built:
    data = corpus(written(folder / "chunks", train=6, test=3))
    return (
        task_of(data),
        data,
        COMMON | {"AttentionSinks": {}, "HeadAblation": {}, "HeadRoles": {"prune": True}},
    )


def callbacks_of(tests: Tests) -> list[InterpretabilityTest]:
    undrawn = {name: {"figures": False} for name in tests if name != "Texts"}
    chosen = [{"class_path": x, "init_args": tests[x] | undrawn.get(x, {})} for x in tests]
    return build_tests(chosen)


@pytest.mark.parametrize(
    ("problem", "precision"),
    [
        *((text, "bf16-true"), (tagging, "bf16-mixed")),
        *(
            pytest.param(*case, marks=pytest.mark.slow)
            for case in ((text, "16-true"), (pairs, "bf16-true"), (tagging, "bf16-true"))
        ),
    ],
)
def test_all_tests_record(tmp_path: Path, problem: Callable[[Path], Built], precision: Any) -> None:
    task, data, tests = problem(tmp_path)

    def started(*callbacks: pl.Callback, precision: Any = precision) -> pl.Trainer:
        return trainer(tmp_path, *callbacks, max_epochs=1, precision=precision)

    started(*callbacks_of(tests)).fit(task, data)
    started(*callbacks_of(tests)).test(task, data, verbose=False)
    started(PredictionWriter()).predict(task, data)
    records = sorted(tmp_path.glob("records/*/*.parquet"))
    assert len(records) == 2 * len(tests) - 1, "Texts has none of validation epochs"
    for path in [*records, tmp_path / "predictions.parquet"]:
        assert "halffloat" not in str(pq.read_schema(path)), path
    found = read_record(tmp_path / "records/test/predictions.parquet").columns["probabilities"]
    single = started(*build_tests(["Predictions"]), precision="32-true")
    single.test(task.float(), data, verbose=False)
    full = read_record(tmp_path / "records/test/predictions.parquet").columns["probabilities"]
    assert np.abs(found - full).max() < 4 * PRECISIONS[precision]
