"""What is kept of run folders is enough for the page, and unfinished runs are left alone."""

import json
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy.stats import kendalltau

from attnlight.errors import InputError
from tests.kept import page, serrano_records, write_kept
from tests.report.fake import Rows

arms, keeping, kept = map(page, ("arms", "keeping", "kept"))
claims, posthoc, several_classes = map(page, ("claims", "posthoc", "several_classes"))
reliability, serrano, tables = map(page, ("reliability", "serrano", "tables"))
NAME = "ag_news_han_rnn"


def correlations(n: int = 30, seed: int = 0, scores: bool = True) -> Rows:
    """Columns of `importance_correlation`, with the scores of texts of 1 to 9 items."""
    random = np.random.default_rng(seed)
    rows: Rows = {
        "index": np.arange(n),
        "position": np.zeros(n, dtype=np.int64),
        "prediction": np.zeros(n, dtype=np.int64),
    }
    rows |= {name: random.random(n, dtype=np.float32) for name in keeping.TAU[3:]}
    if scores:
        for name in ("attention", "input_gradient", "loo", "input_gradient_attached"):
            lists = [random.random(1 + place % 9).astype(np.float32) for place in range(n)]
            rows[f"scores_{name}"] = pa.array(lists, pa.list_(pa.float32()))
    return rows


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """Three seeds of an arm of SST."""
    for seed in range(3):
        records = {"importance_correlation": correlations(seed=seed)}
        write_kept(tmp_path / "checkpoints", "sst_average_vectors", records, seed=seed)
    return tmp_path / "checkpoints"


class TestKeep:
    def test_the_page_is_the_same_from_what_is_kept(self, tmp_path: Path) -> None:
        for encoder in ("rnn", "conv"):
            name = f"ag_news_han_{encoder}"
            run = write_kept(tmp_path / "runs", name, serrano_records(seed=len(encoder)))
            keeping.keep(run, tmp_path / "kept" / name / "seed0", keeping.wanted(name))
        whole, kept_ones = (serrano.read_models(tmp_path / x) for x in ("runs", "kept"))
        published: dict[str, Any] = {"serrano_accuracy": {}, "serrano_contingency": {}}
        for tables_of in (serrano.accuracy_table, claims.serrano_tables):
            assert tables_of(whole, published) == tables_of(kept_ones, published)

    def test_columns_that_the_page_does_not_need_are_left_out(self, tmp_path: Path) -> None:
        run = write_kept(tmp_path / "runs", NAME, serrano_records())
        keeping.keep(run, tmp_path / "kept", keeping.wanted(NAME))
        names = pq.read_schema(tmp_path / "kept/records/test/predictions.parquet").names
        assert names == ["index", "position", "prediction", "label"]
        names = pq.read_schema(tmp_path / "kept/records/test/decision_flip.parquet").names
        assert "removed_count_random_first" in names
        assert "removed_fraction_attention" not in names

    def test_path_of_the_machine_is_left_out(self, tmp_path: Path) -> None:
        run = write_kept(tmp_path / "runs", NAME, serrano_records())
        keeping.keep(run, tmp_path / "kept", {})
        assert "root: checkpoints" in (tmp_path / "kept/fit.yaml").read_text()

    @pytest.mark.parametrize("name", ["sst_bilstm", "imdb_cnn", "sst_average", "planted_none"])
    def test_what_an_experiment_needs(self, name: str) -> None:
        wanted = keeping.wanted(name)
        assert ("attention_permutation" in wanted) == (name in ("sst_bilstm", "planted_none"))
        assert ("adversarial_attention" in wanted) == (name != "planted_none")

    def test_worst_cases_are_kept_without_the_predictions(self, tmp_path: Path) -> None:
        """Two texts of two items and one of one, which is left out of the table."""
        run = write_kept(tmp_path / "runs", NAME, serrano_records())
        (run / "status.json").write_text(json.dumps({"state": "finished"}))
        pq.write_table(pa.table({"index": [0], "tokens": [["a"]]}), run / "predictions.parquet")
        columns = {
            "index": [0, 1, 2],
            "items": [2, 5, 1],
            "before": [0.0, 0.5, 0.0],
            "now": [0.25, 0.5, 0.0],
            "upper": [0.5, 0.5, 0.0],
            "before_ms": [2.0, 4.0, 1.0],
            "now_ms": [20.0, 10.0, 1.0],
        }
        pq.write_table(pa.table(columns), run / several_classes.FILE)
        assert keeping.keep_all(tmp_path / "runs", tmp_path / "results") == []
        kept_run = tmp_path / "results" / NAME / "seed0"
        assert not (kept_run / "predictions.parquet").exists()
        row = several_classes.several_classes_table(tmp_path / "results").splitlines()[2]
        cells = [cell.strip() for cell in row.strip("|").split("|")]
        assert cells[:4] == ["AG News", "HANrnn", "2", "4"]
        means = [float(cell.split(" ")[0]) for cell in cells[4:]]
        assert means == [0.25, 0.375, 0.5, 0.5, 0.125, 0.5, 0.0, 3, 15]

    def test_every_experiment_needs_something(self) -> None:
        assert all(keeping.wanted(name) for name in keeping.EXPERIMENTS)


class TestKeepAll:
    def test_unfinished_runs_are_left_alone_and_named(self, runs: Path, tmp_path: Path) -> None:
        one, two = (runs / f"sst_average_vectors/seed{seed}" for seed in (0, 1))
        (one / "status.json").write_text(json.dumps({"state": "running"}))
        (two / "records/test/importance_correlation.parquet").unlink()
        bare = runs / "sst_bilstm_scale_0.3/seed0"
        bare.mkdir(parents=True)
        lines = keeping.keep_all(runs, tmp_path / "results")
        assert lines == [
            f"{one} is running: not taken over.",
            f"{two} was not tested by importance_correlation: not taken over.",
            f"{bare} has no status.json: not taken over.",
        ]
        folder = tmp_path / "results/sst_average_vectors"
        assert [path.name for path in folder.iterdir()] == ["seed2"]  # one run agrees with nobody

    def test_agreement_is_kept_beside_the_runs(self, runs: Path, tmp_path: Path) -> None:
        assert keeping.keep_all(runs, tmp_path / "results") == []
        folder = tmp_path / "results/sst_average_vectors"
        names = sorted(path.name for path in folder.iterdir())
        assert names == [reliability.FILE, "seed0", "seed1", "seed2"]
        types = {pq.read_schema(folder / reliability.FILE).field(x).type for x in reliability.ROWS}
        assert types == {pa.float32()}
        record = pq.read_schema(folder / "seed0/records/test/importance_correlation.parquet")
        assert not any(name.startswith("scores") for name in record.names)

    def test_agreement_is_kept_of_every_model_with_two_scored_seeds(self, tmp_path: Path) -> None:
        for name, seeds in (("imdb_cnn", (1, 2)), ("imdb_average", (1,)), (f"{NAME}", (0, 1))):
            for seed in seeds:
                records = (
                    serrano_records(seed=seed)
                    if name == NAME
                    else {
                        "importance_correlation": correlations(seed=seed),
                        "adversarial_attention": correlations(seed=seed, scores=False),
                    }
                )
                write_kept(tmp_path / "runs", name, records, seed=seed)
        assert keeping.keep_all(tmp_path / "runs", tmp_path / "results") == []
        found = sorted((tmp_path / "results").glob(f"*/{reliability.FILE}"))
        assert [path.parent.name for path in found] == ["imdb_cnn"]


class TestReliability:
    @pytest.fixture
    def experiment(self, runs: Path, tmp_path: Path) -> Any:
        keeping.keep_all(runs, tmp_path / "results")
        return kept.Experiment.read(tmp_path / "results", "sst_average_vectors")

    @pytest.mark.parametrize("score", ["attention", "input_gradient", "loo"])
    def test_cell_against_a_loop(self, runs: Path, experiment: Any, score: str) -> None:
        place = "records/test/importance_correlation.parquet"
        lists = [
            pq.read_table(runs / f"sst_average_vectors/seed{seed}" / place)[f"scores_{score}"]
            for seed in range(3)
        ]
        pairs = []
        for first, second in combinations([values.to_pylist() for values in lists], 2):
            both = [pair for pair in zip(first, second, strict=True) if len(pair[0]) > 1]
            pairs.append(np.mean([kendalltau(a, b).statistic for a, b in both]))
        cell = reliability.cell(reliability.read_agreement(experiment), f"tau_{score}")
        mean, least, most = map(tables.rounded, (np.mean(pairs), min(pairs), max(pairs)))
        assert cell.startswith(f"{mean} [")
        assert cell.endswith(f"], pairs {least} to {most}")

    def test_other_runs_than_those_kept_are_refused(self, experiment: Any) -> None:
        fewer = kept.Experiment(experiment.name, experiment.folders[:2])
        with pytest.raises(InputError, match="compares other runs"):
            reliability.read_agreement(fewer)
        renamed = kept.Experiment("sst_bilstm", experiment.folders)
        with pytest.raises(InputError, match="compares other runs"):
            reliability.read_agreement(renamed)

    def test_nought_has_no_sign(self) -> None:
        assert [tables.rounded(x) for x in (-0.001, -0.006, 0.004)] == ["0.00", "-0.01", "0.00"]

    def test_nothing_kept_is_a_dash(self, tmp_path: Path) -> None:
        write_kept(tmp_path, "sst_bilstm", {"importance_correlation": correlations()})
        experiment = kept.Experiment.read(tmp_path, "sst_bilstm")
        found = reliability.read_agreement(experiment)
        assert reliability.cell(found, "tau_loo") == "–"  # noqa: RUF001

    def test_arms_show_it_beside_tau(self, experiment: Any) -> None:
        theirs = dict.fromkeys(("gradient", "loo", "gradient_loo"), "0.5")
        published = {"tau_overall": {"bilstm": theirs, "average": theirs}}
        table = arms.arms_table(dict.fromkeys(arms.NAMES, experiment), published)
        found = reliability.read_agreement(experiment)
        for name, words in reliability.ROWS.items():
            cell = reliability.cell(found, name)
            assert table.count(f"|  | {words} | 3 | {cell} | {cell} | – | – | – |") == 2  # noqa: RUF001

    def test_rows_are_models_and_one_seed_is_a_dash(self, experiment: Any, tmp_path: Path) -> None:
        records = {"importance_correlation": correlations()}
        write_kept(tmp_path / "one", "sst_cnn", records)
        one = kept.Experiment.read(tmp_path / "one", "sst_cnn")
        experiments = {model.experiment: one for model in posthoc.MODELS}
        experiments["sst_average"] = experiment
        lines = reliability.reliability_table(experiments).splitlines()[2:]
        found = reliability.read_agreement(experiment)
        cells = [reliability.cell(found, name) for name in reliability.ROWS]
        assert lines[2] == f"| SST | average | additive | 3 | 30 | {' | '.join(cells)} |"
        assert all("| 1 | – | – | – | – | – |" in line for line in lines[:2] + lines[3:])  # noqa: RUF001


class TestScale:
    def test_rows_are_scales_and_missing_ones_are_named(self, tmp_path: Path) -> None:
        tau = [correlations(seed=seed, scores=False) for seed in range(2)]
        for name in ("sst_bilstm", "sst_bilstm_scale_0.3"):
            for seed in range(2):
                write_kept(tmp_path, name, {"importance_correlation": tau[seed]}, seed=seed)
        lines = arms.scale_table(arms.read_scales(tmp_path)).splitlines()[2:]
        mean = np.mean([rows["tau_attention_loo"].mean() for rows in tau])
        assert [line.split("|")[2].strip() for line in lines] == ["0.1", "0.3"] * 3
        assert lines[0].startswith("| BiLSTM | 0.1 | 2 | 2 / 2 | 0.600 ± 0.000 | ")
        assert lines[1].split("|")[7].strip().startswith(f"{mean:.2f} [")
        assert sum("| not run |" in line for line in lines) == 4

    def test_experiments_are_named_by_their_scale(self) -> None:
        assert arms.SCALES["sst_average_scale_0.3"] == 0.3
        assert set(arms.BASES.values()) == set(arms.ENCODERS)
