"""The statistics of the results page are what they are called."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torchmetrics.functional.classification import binary_auroc, binary_average_precision

from attnlight.statistics.bootstrap import MeanInterval
from tests.kept import page, write_kept
from tests.report.fake import write_record
from tests.statistics.naive_seeds import half_width

archive, measures = map(page, ("archive", "measures"))
predictions, tables = map(page, ("predictions", "tables"))


def resampled_rows(n: int) -> list[NDArray[np.intp]]:
    """The instances of each resample, as `attnlight.statistics` draws them."""
    random = np.random.default_rng(0)
    return [random.integers(0, n, size=n) for _ in range(1_000)]


class TestMeasures:
    @pytest.mark.parametrize(
        ("name", "theirs_of"),
        [("auroc", binary_auroc), ("average_precision", binary_average_precision)],
    )
    def test_scores_as_they_are_and_resampled(self, name: str, theirs_of: Any) -> None:
        random = np.random.default_rng(0)
        label, scores = random.integers(0, 2, 60), random.integers(0, 20, (2, 60)) / 20
        values, drawn = getattr(measures, f"resampled_{name}")(label, scores)
        targets = torch.tensor(label)
        theirs = [float(theirs_of(torch.tensor(score), targets)) for score in scores]
        assert values == pytest.approx(theirs, abs=1e-6)
        for resample, rows in zip(drawn[:20], resampled_rows(60), strict=False):
            theirs = [float(theirs_of(torch.tensor(s[rows]), targets[rows])) for s in scores]
            assert resample == pytest.approx(theirs, abs=1e-6)

    @pytest.mark.parametrize("level", [0.25, 0.5, 0.75])
    @pytest.mark.parametrize("n", [1, 4, 57])
    def test_quantiles_of_resamples_are_numpy_s(self, n: int, level: float) -> None:
        values = np.random.default_rng(1).integers(0, 9, (2, n)) / 9
        held, drawn = measures.resampled_quantile(values, level)
        assert held == pytest.approx(np.quantile(values, level, axis=1))
        theirs = [np.quantile(values[:, rows], level, axis=1) for rows in resampled_rows(n)]
        np.testing.assert_allclose(drawn, theirs, atol=1e-12)

    @pytest.mark.parametrize("n", [1, 5, 200])
    def test_interval_of_a_median_is_the_bootstrap_s(self, n: int) -> None:
        rng = np.random.default_rng(n)
        values = rng.permutation(np.arange(n)).astype(float)
        medians = np.median(values[rng.integers(0, n, (20_000, n))], axis=1)
        drawn = np.quantile(medians, [0.025, 0.975])
        assert measures.median_interval(values) == pytest.approx(drawn, abs=1.0)
        low, high = measures.median_interval(values)
        assert (medians < low).mean() < 0.025 < (medians <= low + 0.5).mean() + 0.002
        assert (medians > high).mean() < 0.026


class TestTables:
    def test_a_summary_names_mean_spread_and_interval(self) -> None:
        values = np.array([[0.0, 1.0, 1.0, 1.0], [0.0, 0.0, 1.0, 1.0], [1.0, 0.0, 1.0, 1.0]])
        # means 0.75, 0.5, 0.75; deviation sqrt(((1/12)² + (1/6)² + (1/12)²) / 2)
        mean, sign, spread, *_ = tables.mean_over_seeds(values).split()
        assert (mean, sign, spread) == ("0.667", "±", "0.144")
        resamples = [values[:, rows].mean(axis=1).tolist() for rows in resampled_rows(4)]
        half = half_width((values.mean(axis=1).tolist(), resamples))
        low, high = max(0, values.mean() - half), min(1, values.mean() + half)
        assert tables.mean_over_seeds(values).endswith(f"[{low:.3f}, {high:.3f}]")
        wide = tables.mean_over_seeds(values, (-9, 9))
        assert wide.endswith(f"[{values.mean() - half:.3f}, {values.mean() + half:.3f}]")

    def test_one_seed_has_no_spread_and_two_their_values(self) -> None:
        assert tables.mean_over_seeds(np.array([[1.0, 1.0]])) == "1.000 [1.000, 1.000]"
        two = np.array([[1.0, 1.0], [0.0, 1.0]])
        assert tables.mean_over_seeds(two) == "0.750 (1.000, 0.500 by seed)"
        found = tables.column_mean({"tau": np.array([[1.0], [0.0], [-1.0]])}, "tau")
        assert found[:3] == (0, -1, 1)
        assert tables.interval(found) == "0.00 [-1.00, 1.00]"

    def test_cells_by_type(self) -> None:
        row = {"a": "x", "b": 1234, "c": np.int64(5), "d": 0.12345, "e": np.nan, "f": None}
        last = {"a": "", "g": MeanInterval(-0.001, -np.inf, 0.256, 9), "f#2": 0.5}
        head, _, first, second = tables.table([row, last]).splitlines()
        assert head == "| a | b | c | d | e | f | g | f |"
        assert first == "| x | 1,234 | 5 | 0.123 | – | – |  |  |"  # noqa: RUF001
        assert second == "|  |  |  |  |  |  | 0.00 [-∞, 0.26] | 0.500 |"


class TestPredictions:
    def test_bins_hold_their_lower_ends_and_medians_their_count(self, tmp_path: Path) -> None:
        heights = np.array([0.0, 0.2499, 0.25, 0.5, 0.74, 0.75, 1.0, 1.0000001])
        rows: dict[str, Any] = {name: np.arange(8) for name in ("index", "position")}
        rows |= {"prediction": np.zeros(8, np.int64), "max_attention": heights}
        rows["median_tvd"] = np.arange(8) / 8
        write_kept(tmp_path, "sst_bilstm", {"attention_permutation": rows})
        theirs = {"sst_bilstm": [["0.1", None, "0.2", "0.3"], ["0.1"] * 4]}
        found = list(predictions.bins(archive.Archive(tmp_path, {"median_tvd": theirs})))
        cells = [(row["Jain & Wallace"], row["here, seed 0"]) for row in found]
        medians = ["0.062 (2)", "0.250 (1)", "0.438 (2)", "0.750 (3)"]
        assert cells == [*zip(theirs["sst_bilstm"][0], medians, strict=True), *[("0.1", None)] * 4]

    def test_chunk_f1_by_hand(self, tmp_path: Path) -> None:
        """[NP NP] VP O | NP NP, of which [NP NP] O VP | [NP NP] is found: right 1 of 2 + 2, 0 of 3."""
        rows = {
            "index": np.array([4, 4, 4, 4, 9, 9]),
            "position": np.array([0, 1, 2, 3, 0, 1]),
            "label": np.array([1, 2, 3, 0, 1, 1]),
            "prediction": np.array([1, 2, 0, 3, 1, 2]),
        }
        run = write_kept(tmp_path, "conll2000_text", {"predictions": rows})
        path = run / "records/test/predictions.parquet"
        known = {"test": "predictions", "stage": "test", "partial": False, "measures": []}
        write_record(path, rows, **known, classes=["O", "B-NP", "I-NP", "B-VP"])
        (held,), drawn = predictions.chunk_f1(archive.Experiment.read(tmp_path, "conll2000_text"))
        assert held == pytest.approx(2 / 7)
        assert sorted(set(drawn[:, 0])) == pytest.approx([0, 2 / 7, 2 / 4])
