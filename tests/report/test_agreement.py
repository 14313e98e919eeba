"""`attnlight reliability` on records made by hand."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from numpy.typing import NDArray
from scipy.stats import kendalltau

from attnlight.__main__ import main
from attnlight.report.agreement import agreement, read_scores
from tests.commands import Refused
from tests.report.fake import write_record

RECORD = Path("records/test/importance_correlation.parquet")
LENGTHS = np.random.default_rng(0).integers(5, 30, 40)
Lists = list[NDArray[np.float64] | None]


def scores(seed: int, noise: float) -> Lists:
    """A shared order of the items, and how far a run strays from it."""
    shared, own = np.random.default_rng(1), np.random.default_rng(seed)
    return [np.round(shared.normal(size=n) + noise * own.normal(size=n), 3) for n in LENGTHS]


def write(
    folder: Path,
    columns: dict[str, Lists],
    corpus: str | None = "abc",
    index: Sequence[int] = range(40),
) -> Path:
    lists = {n: pa.array(values, pa.list_(pa.float64())) for n, values in columns.items()}
    zeros = np.zeros(len(index), np.int64)
    rows: dict[str, Any] = {"index": np.array(index), **lists}
    rows |= {"tau_attention_loo": zeros / 1, "prediction": zeros}
    write_record(folder / RECORD, rows, test="importance_correlation", corpus=corpus)
    return folder


def run(folder: Path, seed: int, **options: object) -> Path:
    columns = {"scores_attention": scores(seed, 2.0), "scores_loo": scores(seed + 50, 0.3)}
    return write(folder / f"seed{seed}", columns, **options)  # type: ignore[arg-type]


def test_prints_and_writes_what_the_runs_agree_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = [run(tmp_path / "sst", seed) for seed in range(3)]
    target = tmp_path / "out" / "tau.parquet"
    assert main(["reliability", *map(str, runs), "--output", str(target)]) == 0
    written = pq.read_table(target).to_pydict()
    assert written["first"][::40] == ["sst/seed0", "sst/seed0", "sst/seed1"]
    assert written["second"][::40] == ["sst/seed1", "sst/seed2", "sst/seed2"]
    means = {}
    for name, offset, noise in (("attention", 0, 2.0), ("loo", 50, 0.3)):
        expected = []
        for a, b in ((0, 1), (0, 2), (1, 2)):
            pairs = zip(scores(a + offset, noise), scores(b + offset, noise), strict=True)
            expected += [kendalltau(one, other).statistic for one, other in pairs]
        np.testing.assert_allclose(written[f"tau_{name}"], expected, rtol=1e-12)
        means[name] = np.mean(expected)
    assert means["loo"] > 0.7
    assert 0 < means["attention"] < 0.3
    assert abs(np.mean(written["tau_shuffled_attention"])) < 0.06
    lines = capsys.readouterr().out.splitlines()
    assert "3 runs (3 pairs, 40 instances)" in lines[0]
    assert lines[-1] == str(target)
    shown = {cells[1].strip(): cells for line in lines if len(cells := line.split("|")) == 8}
    assert shown["attention"][2].strip() == f"{means['attention']:.3f}"
    assert shown["leave-one-out"][2].strip() == f"{means['loo']:.3f}"
    low, high = shown["attention"][3].strip(" []").split(", ")
    assert float(low) < means["attention"] < float(high)
    assert shown["attention"][6].strip() == "120"
    assert "shuffled attention" in shown


def test_rows_and_scores_that_one_run_did_not_measure_are_left_out(tmp_path: Path) -> None:
    broken = scores(0, 1.0)
    broken[7] = None
    both = {"scores_attention": scores(0, 1.0), "scores_loo": scores(3, 1.0)}
    runs = [write(tmp_path / "a", both), write(tmp_path / "b", {"scores_loo": broken})]
    found = agreement(read_scores(runs))
    assert list(found.columns[4:]) == ["tau_loo"], "scores that all have"
    assert found["index"].tolist() == [i for i in range(40) if i != 7]
    assert found["tau_loo"].notna().all()


def test_runs_that_cannot_be_compared(tmp_path: Path, refused: Refused) -> None:
    first, longer = run(tmp_path / "sst", 0), scores(1, 1.0)
    longer[4] = np.zeros(99)
    own = {"scores_input_gradient": scores(1, 1.0)}
    bare, nothing, untested = (tmp_path / name for name in ("bare", "nothing", "untested"))
    write(bare, {})
    untested.mkdir()
    (untested / "fit.yaml").touch()
    command = "--tests importance_correlation --trainer.callbacks.keep_scores=true"
    for others, said in (
        ([], "two or more different runs"),
        ([first], "two or more different runs"),
        ([run(tmp_path / "imdb", 1, corpus="def")], "come from different corpora"),
        ([run(tmp_path / "some", 2, index=range(1, 41))], "instances: 2 are in one alone"),
        (
            [write(tmp_path / "longer", {"scores_attention": longer}, corpus=None)],
            f"read instance 4 as {LENGTHS[4]} and as 99 items",
        ),
        ([write(tmp_path / "less", own)], "no scores in common"),
        ([bare], f"attnlight test {bare} {command} --overwrite`"),
        ([untested], f"attnlight test {untested} {command}`"),
        ([nothing], f"there is no trained run {nothing}: there is no such folder"),
    ):
        refused("reliability", *map(str, [first, *others]), names=[said], alone=True)
