"""What is archived of run folders is enough for the pages, small, and unpacked as it was."""

import importlib
import json
import shutil
from collections.abc import Callable
from itertools import combinations
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy.stats import kendalltau

from attnlight.errors import InputError
from attnlight.records import read_metadata
from tests.kept import DOCS, page, serrano_records, write_kept
from tests.report.fake import Rows
from tests.report.study.fake import conditions

build_results = importlib.import_module("build_results")
importance, archive_runs, archive = map(page, ("importance", "archive_runs", "archive"))
packed, pairs, studies = map(page, ("packed", "pairs", "studies"))
NAME, VECTORS = "ag_news_han_rnn", "sst_average_vectors"
TAU = "records/test/importance_correlation.parquet"


def correlations(seed: int = 0) -> dict[str, Rows]:
    """A record of taus with the scores of 30 texts of 1 to 9 items."""
    random, n = np.random.default_rng(seed), 30
    rows: Rows = {"index": np.arange(n)}
    rows |= {name: np.zeros(n, dtype=np.int64) for name in ("position", "prediction")}
    taus = (column for column, _ in importance.PAIRS.values())
    rows |= {name: random.random(n, dtype=np.float32) for name in taus}
    for name in ("attention", "input_gradient", "loo", "input_gradient_attached"):
        lists = [random.random(1 + place % 9).astype(np.float32) for place in range(n)]
        rows[f"scores_{name}"] = pa.array(lists, pa.list_(pa.float32()))
    return {"importance_correlation": rows}


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """Three seeds of an arm of SST."""
    for seed in range(3):
        write_kept(tmp_path / "checkpoints", VECTORS, correlations(seed), seed=seed)
    return tmp_path / "checkpoints"


def assert_same_folders(*roots: Path) -> None:
    """Both have the same files, and records with the same columns, values and metadata."""
    files, others = ({x.relative_to(y) for x in y.rglob("*.*") if x.is_file()} for y in roots)
    assert files == others
    for place in files:
        if place.suffix != ".parquet":
            assert len({(root / place).read_text() for root in roots}) == 1
            continue
        ours, theirs = (pq.read_table(root / place) for root in roots)
        assert ours.schema.metadata == theirs.schema.metadata
        pd.testing.assert_frame_equal(ours.to_pandas(), theirs.to_pandas())


class TestPacked:
    def test_folders_are_unpacked_as_they_were(self, runs: Path, tmp_path: Path) -> None:
        """Records of other texts than those predicted, a study, and a file of several seeds."""
        rows = {x: y[::3] for x, y in serrano_records()["single_erasure"].items()}
        write_kept(runs, NAME, serrano_records() | {"single_erasure": rows})
        conditions(runs, sentences=8)
        root, records, again = (tmp_path / x for x in ("root", "records", "again"))
        records.mkdir()
        (records / "planted.parquet").write_bytes(b"of a page without runs")
        assert archive_runs.archive_runs(runs, root) == []
        packed.pack(root, records)
        names = [f"{x}.parquet" for x in ("jain_wallace", "serrano_smith", "wiegreffe_pinter")]
        found = {path.name: path.read_bytes() for path in records.iterdir()}
        assert sorted(found) == names
        packed.unpack(records, again)
        assert_same_folders(root, again)
        packed.pack(again, records)
        assert {path.name: path.read_bytes() for path in records.iterdir()} == found

    def test_each_key_is_there_once_and_lost_rows_are_refused(self, tmp_path: Path) -> None:
        run = write_kept(tmp_path / "root", NAME, serrano_records(n=12))
        packed.pack(tmp_path / "root", tmp_path)
        table = pq.read_table(path := tmp_path / "serrano_smith.parquet")
        assert table["index"].to_pylist() == [*range(12)]
        assert table["files"].null_count == 11
        pq.write_table(table.slice(0, 9), path)
        with pytest.raises(InputError, match="has 9 of 12 rows"):
            packed.unpack(tmp_path, tmp_path / "again")
        place = run / "records/test/decision_flip.parquet"
        pq.write_table(pq.read_table(place).take([0, 0, 1]), place)
        with pytest.raises(InputError, match="has a key twice"):
            packed.pack(tmp_path / "root", tmp_path)

    def test_archived_results_are_small_and_few(self) -> None:
        files = [path for path in (DOCS / "results").rglob("*") if path.is_file()]
        assert len(files) <= 120
        assert sum(path.stat().st_size for path in files) < 20e6


class TestArchivedRuns:
    def test_the_page_is_the_same_without_what_no_page_reads(self, tmp_path: Path) -> None:
        run = write_kept(tmp_path / "runs", NAME, serrano_records())
        log = run / "logs/version_0/metrics.csv"
        log.write_text("epoch,step,train/loss,val/loss,val/accuracy\n0,9,0.5,,\n0,19,,0.4,0.5\n")
        archive_runs.archive_run(run, kept := tmp_path / "kept" / NAME / "seed0")
        logged = (kept / "logs/version_0/metrics.csv").read_text()
        assert logged == "epoch,val/loss,val/accuracy\n0,0.4,0.5\n"
        names = pq.read_schema(kept / "records/test/predictions.parquet").names
        assert names == ["index", "position", "prediction", "label"]
        names = pq.read_schema(kept / "records/test/decision_flip.parquet").names
        assert "removed_count_random_first" in names
        assert "removed_fraction_attention" not in names
        assert "root: checkpoints" in (kept / "fit.yaml").read_text()
        whole, small = (
            archive.Archive(tmp_path / x, {"serrano_accuracy": {}}) for x in ("runs", "kept")
        )
        first, second = (build_results.build_table(x, "serrano_accuracy") for x in (whole, small))
        assert first == second
        assert "HAN" in first

    @pytest.mark.parametrize(
        ("name", "record", "bits"),
        [
            ("sst_bilstm", "importance_correlation", 10),
            ("sst_bilstm", "predictions", 12),
            ("saliency-sst_bilstm", "faithfulness", 12),
            (next(iter(pairs.BABI)), "importance_correlation", 12),
        ],
    )
    def test_values_have_few_bits(self, name: str, record: str, bits: int) -> None:
        assert archive_runs.significant_bits(name, record) == bits
        values = np.random.default_rng(0).normal(size=(300, 2)).astype(np.float32)
        values[3, 1] = np.nan
        columns = [pa.array(values[:, 0]), pa.FixedSizeListArray.from_arrays(values.ravel(), 2)]
        single, listed = (archive_runs.rounded(column, bits) for column in columns)
        found = np.stack(listed.to_pylist())
        np.testing.assert_allclose(found, values, rtol=2.0**-bits)
        mantissa, _ = np.frexp(found[:, 0])
        assert (mantissa * 2**bits % 1 == 0).all()
        assert single.to_pylist() == found[:, 0].tolist()
        few = pa.array(values[:200, 0])
        assert archive_runs.rounded(few, bits).equals(few)  # as often in shares of a length

    def test_p_values_are_on_a_side(self) -> None:
        values = pa.array([0.01, np.float32(0.05), 0.06, None], pa.float32())
        found = archive_runs.rounded(values, 12, level=0.05).to_pylist()
        np.testing.assert_array_equal(found, [0, 1, 1, np.nan])

    def test_unfinished_runs_are_left_alone_and_named(self, runs: Path, tmp_path: Path) -> None:
        one, two = (runs / VECTORS / f"seed{seed}" for seed in (0, 1))
        (one / "status.json").write_text(json.dumps({"state": "running"}))
        (two / TAU).unlink()
        bare = runs / "sst_bilstm_scale_0.3/seed0"
        bare.mkdir(parents=True)
        lines = archive_runs.archive_runs(runs, tmp_path / "results")
        assert lines == [
            f"{one} is running: not archived.",
            f"{two} was not tested by importance_correlation: not archived.",
            f"{bare} has no status.json: not archived.",
        ]
        folder = tmp_path / "results" / VECTORS
        assert [path.name for path in folder.iterdir()] == ["seed2"]  # one run agrees with nobody

    def test_runs_replace_those_of_their_name_and_seed(self, runs: Path, tmp_path: Path) -> None:
        root = tmp_path / "results"
        archive_runs.archive_runs(runs, root)
        (rows,) = (new := correlations(seed=9)).values()
        other = write_kept(tmp_path / "new", VECTORS, new)
        assert archive_runs.archive_runs(tmp_path / "new", root) == []
        kept = root / VECTORS / "seed0" / TAU
        assert read_metadata(kept) == read_metadata(other / TAU)
        tau = pq.read_table(kept)["tau_attention_loo"].to_numpy()
        np.testing.assert_allclose(tau, rows["tau_attention_loo"], rtol=2.0**-10)
        assert (root / VECTORS / "seed2").is_dir()

    def test_of_studies_what_their_tables_need_is_kept(self, tmp_path: Path) -> None:
        conditions(tmp_path / "runs", sentences=20)
        assert archive_runs.archive_runs(tmp_path / "runs", tmp_path / "kept") == []
        for place in (tmp_path / "runs").glob("*/study.parquet"):
            kept = tmp_path / "kept" / studies.FOLDER / place.parent.name / place.name
            assert {*pq.read_schema(kept).names} <= {*studies.CURVES}
        whole, small = (
            studies.study_blocks(root, {"wiegreffe_pinter": {}})
            for root in (tmp_path / "runs", tmp_path / "kept" / studies.FOLDER)
        )
        assert whole.keys() == small.keys()


class TestAgreement:
    def test_of_seeds_against_a_loop(self, runs: Path, tmp_path: Path) -> None:
        archive_runs.archive_runs(runs, tmp_path / "results")
        experiment = archive.Experiment.read(tmp_path / "results", VECTORS)
        (row,) = importance.reliability({"one": experiment}, {"one": {}})
        paths = [runs / VECTORS / f"seed{seed}" / TAU for seed in range(3)]
        lists = [pq.read_table(path)["scores_loo"] for path in paths]
        means = []
        for first, second in combinations([values.to_pylist() for values in lists], 2):
            both = [pair for pair in zip(first, second, strict=True) if len(pair[0]) > 1]
            means.append(np.mean([kendalltau(a, b).statistic for a, b in both]))
        cell = row[importance.WITH_ITSELF["tau_loo"]]
        assert cell.startswith(f"{np.mean(means):.2f} [")
        assert cell.endswith(f"], pairs {min(means):.2f} to {max(means):.2f}")


def part_of_the_split(folder: Path) -> None:
    record = pq.read_table(path := folder / "seed0/records/test/predictions.parquet")
    text = record.schema.metadata[b"attnlight"].replace(b'"partial": false', b'"partial": true')
    pq.write_table(record.replace_schema_metadata({b"attnlight": text}), path)


class TestExperiment:
    @pytest.mark.parametrize(
        ("damage", "said"),
        [
            (lambda folder: (folder / "seed1").rename(folder / "seed7"), "trained with seed 1"),
            (
                lambda folder: (folder / "seed1/fit.yaml").write_text("seed_everything: 1\nx: 2"),
                "differ in more than their seed",
            ),
            (part_of_the_split, "whole test split"),
            (shutil.rmtree, "holds no seed"),
        ],
    )
    def test_other_runs_are_refused(
        self, damage: Callable[[Path], None], said: str, tmp_path: Path
    ) -> None:
        for seed in range(2):
            write_kept(tmp_path, NAME, serrano_records(seed=seed), seed=seed)
        damage(tmp_path / NAME)
        with pytest.raises(InputError, match=said):
            archive.Experiment.read(tmp_path, NAME).test("predictions")
