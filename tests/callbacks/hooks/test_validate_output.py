"""Bad input of tests: what is not finite, what has no attention, texts of one word."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from attnlight.batch import TextBatch
from attnlight.callbacks import AttentionPermutation, Predictions
from attnlight.errors import InputError
from attnlight.records import read_record
from attnlight.report.page import write_report
from tests.callbacks.test_base import Gradient, run_test, trainer
from tests.outside import OutsideTask, Texts, loader


class Broken(OutsideTask):
    """Texts whose number is among `bad` get logits, or attention, that are not finite."""

    def __init__(self, *bad: int, field: str = "logits", value: float = float("nan")) -> None:
        super().__init__()
        self.bad, self.field, self.value = torch.tensor(bad), field, value

    def validation_step(self, batch: TextBatch, batch_idx: int) -> dict[str, Any]:
        step = super().validation_step(batch, batch_idx)
        held = getattr(step["output"], self.field).clone()
        held[torch.isin(batch.index, self.bad), ..., 0] = self.value
        setattr(step["output"], self.field, held)
        return step

    test_step = validation_step


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What this package logged."""
    return [r.getMessage() for r in caplog.records if r.name.startswith("attnlight")]


def broken(*bad: int, **how: Any) -> OutsideTask:
    torch.manual_seed(0)
    return Broken(*bad, **how)


class TestNotFinite:
    @pytest.mark.parametrize(
        ("field", "value"), [("logits", np.nan), ("logits", np.inf), ("weights", np.nan)]
    )
    def test_the_rest_is_as_without(self, tmp_path: Path, field: str, value: float) -> None:
        tests = (Predictions(figures=False), AttentionPermutation(5, figures=False), Gradient())
        run_test(tmp_path / "whole", *tests, task=broken())
        # A batch that is broken as a whole, and parts of others.
        bad = [4, 5, 6, 7, 9, 22]
        found = run_test(tmp_path, *tests, task=broken(*bad, field=field, value=value))
        for test in tests:
            whole = read_record(tmp_path / f"whole/records/test/{test.name}.parquet")
            record = read_record(tmp_path / f"records/test/{test.name}.parquet")
            assert record.metadata["non_finite"] == 6
            assert whole.metadata["non_finite"] == 0
            assert record.columns["index"].tolist() == list(range(23))
            assert (record.columns["prediction"][bad] == -1).all()
            assert found.callback_metrics[f"test/{test.name}/non_finite"] == 6
            assert record.columns.keys() == whole.columns.keys()
            for name in record.columns.keys() - {"index", "position", "prediction"}:
                assert np.isnan(record.columns[name][bad]).all()
            kept = np.setdiff1d(np.arange(23), bad)
            for name, values in record.columns.items():
                np.testing.assert_allclose(values[kept], whole.columns[name][kept], atol=2e-6)
            for name in test.measures:
                mean = float(np.nanmean(record.columns[name]))
                assert float(found.callback_metrics[f"test/{test.name}/{name}"]) == pytest.approx(
                    mean, rel=1e-5
                )

    def test_is_told_once_for_all_tests(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        tests = (Predictions(figures=False), AttentionPermutation(5, figures=False))
        expected = (
            "test: not measured, because their logits or attention are not finite: 7 instances "
            "(dataset index 3, 4, 5, 6, 7, ...)."
        )
        for _ in range(2):
            run_test(tmp_path, *tests, task=broken(3, 4, 5, 6, 7, 9, 22))
            assert told(caplog) == [expected]
            caplog.clear()

    def test_each_epoch_is_told(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        started = trainer(tmp_path, Predictions(), max_epochs=2)
        started.fit(broken(8), loader(Texts()), loader(Texts()))
        assert [line.partition(":")[0] for line in told(caplog)] == ["val, epoch 0", "val, epoch 1"]
        assert told(caplog)[0].endswith(": 1 instances (dataset index 8).")

    def test_nothing_is_finite(self, tmp_path: Path) -> None:
        """As after a training that diverged: NaN scalars, no figure, and a report all the same."""
        tests = (Predictions(), AttentionPermutation(5))
        found = run_test(tmp_path, *tests, figures=True, task=broken(*range(23)))
        assert np.isnan(float(found.callback_metrics["test/attention_permutation/flip_rate"]))
        assert found.callback_metrics["test/predictions/non_finite"] == 23
        assert not (tmp_path / "figures").exists()
        page = write_report(tmp_path)
        assert "not finite: 23 instances." in page.read_text()

    def test_figures_and_report_leave_them_out(self, tmp_path: Path) -> None:
        run_test(tmp_path, AttentionPermutation(5, figures=False), task=broken(2, 3))
        page = write_report(tmp_path)
        text = page.read_text()
        assert text.count("not finite: 2 instances.") == 1
        assert "class -1" not in text
        assert text.count("n = 21") == 4


@pytest.mark.filterwarnings("error::RuntimeWarning", "error::UserWarning:attnlight")
def test_texts_of_one_item(tmp_path: Path) -> None:
    tests = (Predictions(figures=False), AttentionPermutation(5, figures=False))
    texts = Texts()
    texts.tokens = [tokens[:1] for tokens in texts.tokens]
    found = run_test(tmp_path, *tests, texts=texts).callback_metrics
    assert found["test/predictions/max_attention"] == 1
    assert found["test/predictions/attention_entropy"] == 0
    assert float(found["test/attention_permutation/median_tvd"]) == pytest.approx(0, abs=1e-6)
    assert found["test/attention_permutation/flip_rate"] == 0
    write_report(tmp_path)


class WithoutItems(OutsideTask):
    def test_step(self, batch: TextBatch, batch_idx: int) -> dict[str, Any]:
        step = self.validation_step(batch, batch_idx)
        step["output"].weights = step["output"].weights[:, :, :0]
        return step


class WithoutOutput(OutsideTask):
    def test_step(self, batch: TextBatch, batch_idx: int) -> Tensor:
        return self.model(batch).logits.sum()


@pytest.mark.parametrize(
    ("task", "message"),
    [
        (WithoutItems, r"that of WithoutItems has weights of shape \(4, 2, 0\), over no items"),
        (WithoutOutput, "with an AttentionOutput; those of WithoutOutput do not"),
    ],
)
def test_without_attention(tmp_path: Path, task: type[OutsideTask], message: str) -> None:
    with pytest.raises(InputError, match=message):
        run_test(tmp_path, Predictions(), task=task())
    assert not list(tmp_path.rglob("*.parquet"))
