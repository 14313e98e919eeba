"""The cost of methods, by a clock that counts forward passes."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from attnlight.attribution import Attribution
from attnlight.attribution.base import Explanation
from attnlight.batch import AttentionModel, AttentionOutput, TextBatch
from attnlight.callbacks import AttributionCost
from attnlight.callbacks.hooks.display import interval_scalars
from attnlight.report.run import StoredRecord
from attnlight.report.summary import summarise
from attnlight.statistics.bootstrap import bootstrap_means
from tests.callbacks.test_base import recorded
from tests.outside import OutsideTask, Texts
from tests.report.fake import write_record


class Passes(Attribution):
    """Three forward passes, and one more for each text of a batch."""

    name = "passes"
    signed = False

    def attribute(
        self, model: AttentionModel, batch: TextBatch, output: AttentionOutput, target: torch.Tensor
    ) -> Explanation:
        for _ in range(3 + len(batch)):
            model(batch)
        return torch.zeros(output.mask.shape), {}


@pytest.fixture
def task(monkeypatch: pytest.MonkeyPatch) -> OutsideTask:
    """A task on whose clock each forward pass takes 2 seconds, and nothing else takes time."""
    torch.manual_seed(0)
    task, now = OutsideTask(), [100.0]

    def tick(*_: Any) -> None:
        now[0] += 2

    task.model.register_forward_pre_hook(tick)
    monkeypatch.setattr("attnlight.callbacks.attribution_cost.perf_counter", lambda: now[0])
    return task


def test_cost_is_the_number_of_forward_passes(tmp_path: Path, task: OutsideTask) -> None:
    methods: list[Any] = ["attention", "passes", {"name": "passes", "label": "again"}, "gradient"]
    record = recorded(tmp_path, AttributionCost(methods), task=task, texts=Texts(23))
    found = record.columns
    assert found["index"].tolist() == list(range(23))
    assert found["batch"].tolist() == [4 * (row // 4) for row in range(23)]  # batches of 4, 3 left
    expected = [7.0] * 20 + [6.0] * 3
    assert found["cost_passes"].tolist() == found["cost_again"].tolist() == expected
    assert found["cost_attention"].tolist() == [0.0] * 23
    assert found["cost_gradient"].tolist() == [1.0] * 23  # with gradients, of one block
    assert found["forward_seconds"].tolist() == [2.0] * 23
    assert record.metadata["device"] == "cpu"
    assert record.metadata["threads"] == torch.get_num_threads()
    assert record.metadata["methods"]["again"]["name"] == "passes"
    assert record.metadata["settings"]["repeats"] == 3


def test_the_median_of_the_repetitions_counts_and_the_warm_up_does_not(
    tmp_path: Path, task: OutsideTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A clock that gives each interval the next of some lengths."""
    now = 0.0
    seconds: list[float] = []
    calls: list[float] = []

    def clock() -> float:
        nonlocal now
        if len(calls) % 2:  # at the end of each interval
            taken = [90.0, 4.0, 3.0, 6.0, 1.0, 8.0][len(calls) // 2 % 6]
            seconds.append(taken)
            now += taken
        calls.append(now)
        return now

    monkeypatch.setattr("attnlight.callbacks.attribution_cost.perf_counter", clock)
    test = AttributionCost(["attention"], repeats=2)
    found = recorded(tmp_path, test, task=task, texts=Texts(4)).columns
    # Round 1: forward 90, method 4. Round 2, turned around: method 3, forward 6. Round 3: 1 and 8.
    assert found["cost_attention"].tolist() == [(3 / 6 + 8 / 1) / 2] * 4
    assert found["forward_seconds"].tolist() == [3.5] * 4
    assert len(seconds) == 6


def test_intervals_resample_batches(tmp_path: Path, task: OutsideTask) -> None:
    """Texts of a batch lie apart in the record, as batches are made by length."""
    test = AttributionCost(["passes"])
    texts = Texts(24, index=np.random.default_rng(0).permutation(24).tolist())
    texts.tokens.sort(key=len)
    rows = recorded(tmp_path, test, task=task, texts=texts, limit_test_batches=5).columns
    rows["cost_passes"] = rows["cost_passes"] + rows["batch"]  # batches that differ
    assert (np.diff(rows["batch"]) < 0).any()
    path = tmp_path / "records/test/attribution_cost.parquet"
    path.unlink()
    write_record(path, rows, measures=list(test.measures), clusters="batch", classes=["a", "b"])
    order = rows["batch"].argsort(kind="stable")
    (expected,) = bootstrap_means(rows["cost_passes"][order, None], rows["batch"][order])
    (naive,) = bootstrap_means(rows["cost_passes"][:, None], rows["index"])
    assert expected.high - expected.low > 1.2 * (naive.high - naive.low)
    scalars = interval_scalars(path, test.measures)
    found = summarise(StoredRecord(path, "test", "attribution_cost", None)).means
    for mean, low, high in (
        found["cost_passes", None][:3],
        [scalars[f"cost_passes{end}"] for end in ("", "_low", "_high")],
    ):
        assert (mean, low, high) == pytest.approx(tuple(expected[:3]))
