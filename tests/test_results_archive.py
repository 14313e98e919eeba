"""What is kept of run folders is enough for the page, and unfinished runs are left alone."""

import json
from dataclasses import replace
from itertools import combinations, product
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

importance, archive_runs, archive = map(page, ("importance", "archive_runs", "archive"))
claims, serrano, tables = map(page, ("claims", "serrano", "tables"))
NAME = "ag_news_han_rnn"


def correlations(n: int = 30, seed: int = 0, scores: bool = True) -> Rows:
    """Columns of `importance_correlation`, with the scores of texts of 1 to 9 items."""
    random = np.random.default_rng(seed)
    rows: Rows = {
        "index": np.arange(n),
        "position": np.zeros(n, dtype=np.int64),
        "prediction": np.zeros(n, dtype=np.int64),
    }
    rows |= {name: random.random(n, dtype=np.float32) for name in archive_runs.TAU[3:]}
    if scores:
        for name in ("attention", "input_gradient", "loo", "input_gradient_attached"):
            lists = [random.random(1 + place % 9).astype(np.float32) for place in range(n)]
            rows[f"scores_{name}"] = pa.array(lists, pa.list_(pa.float32()))
    return rows


def agreement(experiment: Any) -> dict[str, Any]:
    """What the page says of how far the seeds of an experiment agree."""
    (row,) = importance.reliability({"one": experiment}, {"one": {}})
    found: dict[str, Any] = row
    return found


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
            archive_runs.archive_run(run, tmp_path / "kept" / name / "seed0")
        published: dict[str, Any] = {"serrano_accuracy": {}}
        whole, small = (archive.Archive(tmp_path / x, published) for x in ("runs", "kept"))
        assert list(serrano.accuracy(whole)) == list(serrano.accuracy(small))
        found = [claims.serrano_tables(serrano.read_models(x), published) for x in (whole, small)]
        assert found[0] == found[1]

    def test_columns_that_the_page_does_not_need_are_left_out(self, tmp_path: Path) -> None:
        run = write_kept(tmp_path / "runs", NAME, serrano_records())
        archive_runs.archive_run(run, tmp_path / "kept")
        names = pq.read_schema(tmp_path / "kept/records/test/predictions.parquet").names
        assert names == ["index", "position", "prediction", "label"]
        names = pq.read_schema(tmp_path / "kept/records/test/decision_flip.parquet").names
        assert "removed_count_random_first" in names
        assert "removed_fraction_attention" not in names

    def test_path_of_the_machine_is_left_out(self, tmp_path: Path) -> None:
        run = write_kept(tmp_path / "runs", NAME, serrano_records())
        archive_runs.archive_run(run, tmp_path / "kept")
        assert "root: checkpoints" in (tmp_path / "kept/fit.yaml").read_text()

    @pytest.mark.parametrize("name", ["sst_bilstm", "imdb_cnn", "sst_average", "planted_none"])
    def test_what_an_experiment_needs(self, name: str) -> None:
        wanted = archive_runs.NEEDED[name]
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
        pq.write_table(pa.table(columns), run / serrano.WORST_CASE)
        assert archive_runs.archive_runs(tmp_path / "runs", tmp_path / "results") == []
        kept_run = tmp_path / "results" / NAME / "seed0"
        assert not (kept_run / "predictions.parquet").exists()
        (row,) = serrano.several_classes(archive.Archive(tmp_path / "results", {}))
        assert [*row.values()][:4] == ["AG News", "HANrnn", 2, "4"]
        means = [float(cell.split(" ")[0]) for cell in [*row.values()][4:]]
        assert means == [0.25, 0.375, 0.5, 0.5, 0.125, 0.5, 0.0, 3, 15]

    def test_every_experiment_needs_something(self) -> None:
        assert all(archive_runs.NEEDED.values())


class TestKeepAll:
    def test_unfinished_runs_are_left_alone_and_named(self, runs: Path, tmp_path: Path) -> None:
        one, two = (runs / f"sst_average_vectors/seed{seed}" for seed in (0, 1))
        (one / "status.json").write_text(json.dumps({"state": "running"}))
        (two / "records/test/importance_correlation.parquet").unlink()
        bare = runs / "sst_bilstm_scale_0.3/seed0"
        bare.mkdir(parents=True)
        lines = archive_runs.archive_runs(runs, tmp_path / "results")
        assert lines == [
            f"{one} is running: not archived.",
            f"{two} was not tested by importance_correlation: not archived.",
            f"{bare} has no status.json: not archived.",
        ]
        folder = tmp_path / "results/sst_average_vectors"
        assert [path.name for path in folder.iterdir()] == ["seed2"]  # one run agrees with nobody

    def test_agreement_is_kept_beside_the_runs(self, runs: Path, tmp_path: Path) -> None:
        assert archive_runs.archive_runs(runs, tmp_path / "results") == []
        folder = tmp_path / "results/sst_average_vectors"
        names = sorted(path.name for path in folder.iterdir())
        assert names == [importance.AGREEMENT, "seed0", "seed1", "seed2"]
        types = {
            pq.read_schema(folder / importance.AGREEMENT).field(x).type
            for x in importance.WITH_ITSELF
        }
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
        assert archive_runs.archive_runs(tmp_path / "runs", tmp_path / "results") == []
        found = sorted((tmp_path / "results").glob(f"*/{importance.AGREEMENT}"))
        assert [path.parent.name for path in found] == ["imdb_cnn"]


class TestReliability:
    @pytest.fixture
    def experiment(self, runs: Path, tmp_path: Path) -> Any:
        archive_runs.archive_runs(runs, tmp_path / "results")
        return archive.Experiment.read(tmp_path / "results", "sst_average_vectors")

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
        cell = agreement(experiment)[importance.WITH_ITSELF[f"tau_{score}"]]
        mean, least, most = (tables.number(x, 2) for x in (np.mean(pairs), min(pairs), max(pairs)))
        assert cell.startswith(f"{mean} [")
        assert cell.endswith(f"], pairs {least} to {most}")

    def test_other_runs_than_those_kept_are_refused(self, experiment: Any) -> None:
        for changed in ({"folders": experiment.folders[:2]}, {"name": "sst_bilstm"}):
            with pytest.raises(InputError, match="compares other runs"):
                agreement(replace(experiment, **changed))

    def test_nothing_kept_is_a_dash(self, tmp_path: Path) -> None:
        write_kept(tmp_path, "sst_bilstm", {"importance_correlation": correlations()})
        found = agreement(archive.Experiment.read(tmp_path, "sst_bilstm"))
        nothing = dict.fromkeys(["texts", *importance.WITH_ITSELF.values()])
        assert found == {"seeds": 1, **nothing}

    def test_arms_show_it_beside_tau(self, experiment: Any, tmp_path: Path) -> None:
        theirs = dict.fromkeys(("gradient", "loo", "gradient_loo"), "0.5")
        published = {"tau_overall": {"sst_bilstm": theirs, "sst_average": theirs}}
        experiments = archive.Archive(tmp_path / "none", published)
        for pair in importance.ARMS.values():
            experiments |= dict.fromkeys(pair, experiment)
        rows = list(importance.arms(experiments))
        found = agreement(experiment)
        for words in importance.WITH_ITSELF.values():
            cells = {"BiLSTM": found[words], "average encoder": found[words]}
            own = [row for row in rows if row["tau between"] == words]
            assert len(own) == 2
            assert all(
                row.items() >= (cells | {"seeds": 3, "difference": None}).items() for row in own
            )

    def test_rows_are_models_and_one_seed_is_a_dash(self, experiment: Any, tmp_path: Path) -> None:
        write_kept(tmp_path / "one", "sst_cnn", {"importance_correlation": correlations()})
        one = archive.Experiment.read(tmp_path / "one", "sst_cnn")
        experiments = dict.fromkeys(importance.MODELS, one) | {"sst_average": experiment}
        lines = tables.table(importance.reliability(experiments), 3).splitlines()[2:]
        cells = [agreement(experiment)[x] for x in importance.WITH_ITSELF.values()]
        assert lines[2] == f"| SST | average | additive | 3 | 30 | {' | '.join(cells)} |"
        assert all("| 1 | – | – | – | – | – |" in line for line in lines[:2] + lines[3:])  # noqa: RUF001


def test_tau_by_the_scale_of_the_vectors(tmp_path: Path) -> None:
    tau = [correlations(seed=seed, scores=False) for seed in range(2)]
    for name in importance.SCALED:
        for seed, end in product(range(2), ("", importance.WIDER)):
            write_kept(tmp_path, name + end, {"importance_correlation": tau[seed]}, seed=seed)
    rows = list(importance.by_scale(archive.Archive(tmp_path, {})))
    mean = np.mean([rows["tau_attention_loo"].mean() for rows in tau])
    assert [row["initial scale"] for row in rows] == ["0.1", "0.3"] * 3
    first = {"encoder": "BiLSTM", "initial scale": "0.1", "seeds": 2, "epochs chosen": "2 / 2"}
    assert rows[0].items() >= (first | {"validation accuracy": "0.600 ± 0.000"}).items()
    assert rows[1]["tau, attention, leave-one-out"].startswith(f"{mean:.2f} (")
