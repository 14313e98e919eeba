"""docs/results.md says what its records say, and its statistics are what they are called."""

import csv
import importlib
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
import yaml
from numpy.typing import NDArray
from torchmetrics.functional.classification import (
    binary_auroc,
    binary_average_precision,
    binary_f1_score,
)

from attnlight.data.planted import PlantedSpec
from attnlight.datamodules import PlantedEvidence
from attnlight.errors import InputError
from attnlight.functional.statistics import bootstrap_means

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
RECORDS = DOCS / "results"
sys.path.insert(0, str(DOCS))  # the scripts of docs/ are no part of the package
build_results = importlib.import_module("build_results")
kept = importlib.import_module("results_page.kept")
arms = importlib.import_module("results_page.arms")
posthoc = importlib.import_module("results_page.posthoc")
minimal = importlib.import_module("results_page.minimal")
measures = importlib.import_module("results_page.measures")
planted = importlib.import_module("results_page.planted")
tables = importlib.import_module("results_page.tables")
RUNS = sorted(path.parent for path in RECORDS.glob("*/seed*/fit.yaml"))
WHOLE = [run for run in RUNS if (run / "records/test/attention_permutation.parquet").exists()]
PLANTED = [run for run in RUNS if run.parent.name in planted.NAMES]


def names(run: Path) -> str:
    return f"{run.parent.name}-{run.name}"


def logged_by_test(run: Path) -> dict[str, str]:
    """What `attnlight test` logged, of all times that it was called."""
    logged: dict[str, str] = {}
    for path in sorted(run.glob("logs/version_*/metrics.csv")):
        with path.open() as file:
            for row in csv.DictReader(file):
                if row.get("test/accuracy"):
                    logged |= {name: value for name, value in row.items() if value}
    assert logged, run
    return logged


def holds(saved: Any, given: Any) -> bool:
    """Whether a saved configuration says what was given; beside it, it names every default."""
    if isinstance(given, dict):
        return all(name in saved and holds(saved[name], part) for name, part in given.items())
    return bool(saved == given)


@pytest.fixture(scope="module")
def found() -> dict[str, str]:
    blocks: dict[str, str] = build_results.blocks(RECORDS)
    return blocks


@pytest.fixture
def page(found: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the page, built from tables that are computed once."""
    monkeypatch.setattr(build_results, "blocks", lambda records: found)
    monkeypatch.setattr(build_results, "PAGE", tmp_path / "results.md")
    copy = tmp_path / "results.md"
    shutil.copyfile(DOCS / "results.md", copy)
    return copy


@pytest.fixture
def experiment(tmp_path: Path) -> Path:
    """A copy of one experiment's runs."""
    copy = tmp_path / "planted_none"
    shutil.copytree(RECORDS / "planted_none", copy)
    return copy


class TestPage:
    def test_agrees_with_its_records(self, page: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert build_results.main(["--check"]) == 0, capsys.readouterr().out

    def test_a_changed_figure_fails_and_is_put_right(
        self, page: Path, found: dict[str, str], capsys: pytest.CaptureFixture[str]
    ) -> None:
        right = page.read_text()
        line = found["accuracy"].splitlines()[2]
        page.write_text(right.replace(line, line.replace("0.", "0.9", 1)))
        assert build_results.main(["--check"]) == 1
        assert f"+{line}" in capsys.readouterr().out
        assert build_results.main([]) == 0
        assert page.read_text() == right

    def test_a_place_without_a_table_is_refused(self, page: Path) -> None:
        text = page.read_text() + "<!-- more: begin -->\n<!-- more: end -->\n"
        with pytest.raises(InputError, match="more"):
            build_results.fill(text, build_results.blocks(RECORDS))

    def test_names_the_command_of_every_experiment(self) -> None:
        commands = (DOCS / "results.md").read_text().partition("## The commands")[2]
        for name in build_results.EXPERIMENTS:
            assert f"`{name}`" in commands
            assert (ROOT / f"configs/experiments/{name}.yaml").is_file()

    def test_records_are_small(self) -> None:
        assert sum(path.stat().st_size for path in RECORDS.rglob("*") if path.is_file()) < 8e6

    def test_changed_records_change_the_table(
        self, experiment: Path, found: dict[str, str]
    ) -> None:
        path = experiment / "seed0/records/test/predictions.parquet"
        record = pq.read_table(path)
        place = record.column_names.index("prediction")
        other = record.set_column(place, "prediction", record["prediction"].take([0] * len(record)))
        pq.write_table(other, path)
        changed = planted.accuracy_table(
            {experiment.name: kept.Experiment.read(experiment.parent, experiment.name)}
        )
        assert changed.splitlines()[2] not in found["planted"]


class TestKeptRuns:
    def test_every_experiment_has_its_seeds(self) -> None:
        seeds = {run.parent.name: [] for run in RUNS}
        for run in RUNS:
            seeds[run.parent.name].append(run.name)
        three = ["seed0", "seed1", "seed2"]
        wanted = dict.fromkeys((*tables.TEXT, *planted.NAMES, *minimal.NAMES), three)
        wanted |= {"imdb_bilstm": ["seed1"], "sst_average": three}
        for model in posthoc.MODELS:
            wanted.setdefault(model.experiment, ["seed1" if model.corpus == "imdb" else "seed0"])
        for name in arms.NAMES:
            wanted.setdefault(name, ["seed0", "seed1"])
        assert seeds == wanted

    @pytest.mark.parametrize("run", WHOLE, ids=names)
    def test_page_says_what_the_run_logged(self, run: Path) -> None:
        """The task's metrics are torchmetrics' and were computed while the run was tested."""
        logged = logged_by_test(run)
        found = kept.Experiment.read(run.parents[1], run.parent.name)
        seed = found.folders.index(run)
        columns = found.test("predictions")
        rows = np.arange(len(columns["index"]))
        several = "test/f1_positive" not in logged  # classes, of which none is the positive one
        for ours, theirs in (
            ("accuracy", "accuracy"),
            *(() if several else (("positive_f1", "f1_positive"), ("auroc", "auroc"))),
        ):
            value = tables._ON_ROWS[ours](columns, seed, rows)
            assert value == pytest.approx(float(logged[f"test/{theirs}"]), abs=1e-5)
        shuffled = found.test("attention_permutation")
        for name in ("median_tvd", "flip_rate"):
            theirs = float(logged[f"test/attention_permutation/{name}"])
            assert shuffled[name][seed].mean() == pytest.approx(theirs, abs=1e-5)

    @pytest.mark.parametrize("run", RUNS, ids=names)
    def test_configuration_is_that_of_the_experiment(self, run: Path) -> None:
        """Otherwise the commands on the page would no longer give these records."""
        saved = yaml.safe_load((run / "fit.yaml").read_text())
        path = ROOT / f"configs/experiments/{run.parent.name}.yaml"
        given = yaml.safe_load(path.read_text())
        for part in ("model", "data"):
            wanted = yaml.safe_load((path.parent / given[part]).read_text())
            assert holds(saved[part], wanted)
        assert holds(saved["trainer"], given["trainer"])

    @pytest.mark.parametrize("run", RUNS, ids=names)
    def test_no_path_of_one_machine(self, run: Path) -> None:
        assert yaml.safe_load((run / "fit.yaml").read_text())["root"] == "checkpoints"

    @pytest.mark.parametrize("run", PLANTED, ids=names)
    def test_planted_texts_are_those_of_the_configuration(self, run: Path) -> None:
        data = yaml.safe_load((run / "fit.yaml").read_text())["data"]["init_args"]
        fields = PlantedSpec.__dataclass_fields__
        spec = PlantedSpec(**{name: value for name, value in data.items() if name in fields})
        (texts,) = spec.draw(2, data["test_size"])
        stored = pq.read_table(run / "predictions.parquet")
        words = [word for text in stored["tokens"].to_pylist() for word in text]
        assert words == [spec.words[token] for token in texts.tokens]
        assert np.concatenate(stored["evidence"].to_pylist()).tolist() == texts.evidence.tolist()
        assert stored["label"].to_pylist() == texts.labels.tolist()

    def test_another_configuration_is_refused(self, experiment: Path) -> None:
        path = experiment / "seed1/fit.yaml"
        path.write_text(path.read_text().replace("max_epochs: 5", "max_epochs: 6"))
        with pytest.raises(InputError, match="differ in more than their seed"):
            kept.Experiment.read(experiment.parent, experiment.name)

    def test_another_seed_is_refused(self, experiment: Path) -> None:
        (experiment / "seed1").rename(experiment / "seed7")
        with pytest.raises(InputError, match="was trained with seed 1"):
            kept.Experiment.read(experiment.parent, experiment.name)

    def test_part_of_the_split_is_refused(self, experiment: Path) -> None:
        path = experiment / "seed0/records/test/predictions.parquet"
        record = pq.read_table(path)
        metadata = {
            b"attnlight": record.schema.metadata[b"attnlight"].replace(
                b'"partial": false', b'"partial": true'
            )
        }
        pq.write_table(record.replace_schema_metadata(metadata), path)
        with pytest.raises(InputError, match="whole test split"):
            kept.Experiment.read(experiment.parent, experiment.name).test("predictions")

    def test_no_run_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(InputError, match="holds no seed"):
            kept.Experiment.read(tmp_path, "sst_bilstm")

    def test_keeping_a_kept_run_changes_nothing_but_the_mark(self, tmp_path: Path) -> None:
        run = PLANTED[0]
        kept.keep(run, tmp_path / "again")
        for source in run.rglob("*.*"):
            copy = tmp_path / "again" / source.relative_to(run)
            if source.suffix == ".parquet":
                assert pq.read_table(copy).equals(pq.read_table(source), check_metadata=True)
            else:
                assert copy.read_text().endswith(source.read_text())


def naive_average_precision(score: NDArray[np.float64], relevant: NDArray[np.bool_]) -> float:
    """From the definition: over falling thresholds, recall gained times precision."""
    total, recall = 0.0, 0.0
    for threshold in sorted(set(score.tolist()), reverse=True):
        above = score >= threshold
        gained = (above & relevant).sum() / relevant.sum() - recall
        total += gained * (above & relevant).sum() / above.sum()
        recall += gained
    return total


class TestMeasures:
    @pytest.mark.parametrize("levels", [2, 5, 10_000])
    def test_average_precision(self, levels: int) -> None:
        rng = np.random.default_rng(levels)
        for size in (1, 2, 7, 40):
            score = rng.integers(1, levels + 1, size) / levels
            relevant = rng.random(size) < 0.3
            relevant[rng.integers(size)] = True
            value = measures.average_precision(score, relevant)
            assert value == pytest.approx(naive_average_precision(score, relevant))
            theirs = binary_average_precision(torch.tensor(score), torch.tensor(relevant).int())
            assert value == pytest.approx(float(theirs), abs=1e-6)

    def test_average_precision_by_hand(self) -> None:
        score, relevant = np.array([0.4, 0.3, 0.2, 0.1]), np.array([True, False, True, False])
        assert measures.average_precision(score, relevant) == pytest.approx((1 + 2 / 3) / 2)

    def test_ties_get_the_base_rate_in_any_order(self) -> None:
        relevant = np.array([True, False, False, True, False])
        assert measures.average_precision(np.full(5, 0.2), relevant) == pytest.approx(0.4)
        rounded = 0.2 + np.array([2e-8, 1e-8, 0, -1e-8, 1e-9])
        assert measures.average_precision(rounded, relevant) == pytest.approx(0.4)

    def test_average_precision_of_nothing_is_undefined(self) -> None:
        assert np.isnan(measures.average_precision(np.ones(3), np.zeros(3, bool)))

    def test_accuracy_f1_and_auroc(self) -> None:
        rng = np.random.default_rng(0)
        label, score = rng.integers(0, 2, 200), rng.integers(0, 20, 200) / 20
        prediction = (score > 0.4).astype(np.int64)
        tensors = torch.tensor(prediction), torch.tensor(label)
        hits = sum(int(a == b) for a, b in zip(label, prediction, strict=True))
        assert measures.accuracy(label, prediction) == hits / 200
        f1 = float(binary_f1_score(*tensors))
        assert measures.positive_f1(label, prediction) == pytest.approx(f1, abs=1e-6)
        auroc = float(binary_auroc(torch.tensor(score), torch.tensor(label)))
        assert measures.auroc(label, score) == pytest.approx(auroc, abs=1e-6)

    def test_interval_of_a_mean_is_the_package_s(self) -> None:
        """Also over seeds: a text is drawn with its rows of all seeds."""
        values = np.random.default_rng(1).random((3, 57))
        low, high = measures.interval(lambda rows: float(values[:, rows].mean()), 57)
        clusters = np.repeat(np.arange(57), 3)
        (theirs,) = bootstrap_means(values.T.reshape(-1, 1), clusters)
        assert (low, high) == pytest.approx((theirs.low, theirs.high))

    def test_bins_of_maximum_attention(self) -> None:
        heights = np.array([0.0, 0.2499, 0.25, 0.5, 0.74, 0.75, 1.0, 1.0000001])
        assert measures.attention_bin(heights).tolist() == [0, 0, 1, 2, 2, 3, 3, 3]


class TestTables:
    def test_a_summary_names_mean_spread_and_interval(self) -> None:
        values = np.array([[0.0, 1.0, 1.0, 1.0], [0.0, 0.0, 1.0, 1.0], [1.0, 0.0, 1.0, 1.0]])
        # means 0.75, 0.5, 0.75; deviation sqrt(((1/12)² + (1/6)² + (1/12)²) / 2)
        mean, sign, spread, low, high = tables.of_means(values).split()
        assert (mean, sign, spread) == ("0.667", "±", "0.144")
        low, high = measures.interval(lambda rows: float(values[:, rows].mean()), 4)
        assert tables.of_means(values).endswith(f"[{low:.3f}, {high:.3f}]")

    def test_one_seed_has_no_spread(self) -> None:
        assert tables.of_means(np.array([[1.0, 1.0]])) == "1.000 [1.000, 1.000]"

    def test_median_with_its_count(self) -> None:
        values = np.array([3.0, 1.0, 2.0, 9.0])
        assert tables._median(values, np.array([True, True, True, False])) == "2.000 (3)"
        assert tables._median(values, np.zeros(4, bool)) == tables.DASH


class TestPlanted:
    def test_negated_texts_are_those_of_the_corpus(self, tmp_path: Path) -> None:
        data = PlantedEvidence(
            negation=0.4, train_size=5, validation_size=5, test_size=300, cache_dir=str(tmp_path)
        )
        dataset = data.dataset("test")
        found = [planted.is_negated(dataset.words(place)) for place in range(300)]
        assert found == data.negated("test").tolist()
        assert 0 < sum(found) < 300

    def test_attention_against_evidence_by_hand(self) -> None:
        texts: list[dict[str, Any]] = [
            {"attention": [[0.7, 0.1, 0.2]], "evidence": [1, 0, -1]},
            {"attention": [[0.1, 0.1, 0.1, 0.7]], "evidence": [0, 1, 0, 0]},
        ]
        both = planted.plausibility([texts], "for or against the label")
        assert both.attention.tolist() == [[1.0, 0.25]]
        assert both.uniform.tolist() == pytest.approx([2 / 3, 1 / 4])
        assert both.base_rate.tolist() == pytest.approx([2 / 3, 1 / 4])
        one = planted.plausibility([texts], "for the label")
        assert one.attention.tolist() == [[1.0, 0.25]]
        assert one.base_rate.tolist() == pytest.approx([1 / 3, 1 / 4])


class TestMinimal:
    def text(self, **changed: Any) -> dict[str, Any]:
        """Two keywords for class 0, of which one has little attention, and a filler."""
        text: dict[str, Any] = {
            "label": 0,
            "probabilities": [0.6, 0.2, 0.2],
            "attention": [[0.4, 0.2, 0.4]],
            "item_logits": [[[4, 0, 0], [4, 0, 0], [0, 1, 0]]],
            "bias": [0.0, 1.0, 0.0],
            "evidence": [1, 1, 0],
        }
        return text | changed

    def test_by_hand(self) -> None:
        found = minimal.inside([self.text()])
        # Both keywords must go; attention's first two are a keyword and the filler.
        assert [part[0] for part in found] == [1, 2, 1, 0, pytest.approx(1 / 3)]

    def test_texts_classified_wrongly_do_not_count(self) -> None:
        assert np.isnan(np.array(minimal.inside([self.text(label=1)]))).all()

    def test_decisions_that_never_flip_have_no_set(self) -> None:
        items = [[[4, 0, 0], [4, 0, 0], [1, 0, 0]]]
        found = minimal.inside([self.text(item_logits=items, bias=[1.0, 0.0, 0.0])])
        assert found.flips[0] == 0
        assert np.isnan(np.array(found)[1:]).all()


class TestPosthoc:
    def test_share_significant_by_hand(self) -> None:
        # Benjamini & Hochberg: 0.03, 0.06, 0.5
        assert posthoc._significant(np.array([0.01, 0.04, 0.5, np.nan])) == "0.67 / 0.33"
        assert posthoc._significant(np.array([np.nan])) == posthoc.DASH

    def test_published_figures_of_every_model(self) -> None:
        published = yaml.safe_load((RECORDS / "published.yaml").read_text())
        for model in posthoc.MODELS:
            theirs = published["tau"][model.published][model.corpus]
            wanted = 2 if model.attention == "additive" else 1
            assert {len(values) for values in theirs.values()} == {wanted}

    @pytest.mark.parametrize("model", posthoc.MODELS, ids=lambda model: model.experiment)
    def test_page_says_what_the_model_s_run_logged(self, model: Any) -> None:
        run = next(run for run in RUNS if run.parent.name == model.experiment)
        logged = logged_by_test(run)
        record = pq.read_table(run / "records/test/importance_correlation.parquet")
        for name in ("tau_attention_input_gradient", "tau_attention_loo"):
            ours = np.nanmean(record[name].to_numpy().astype(np.float64))
            assert ours == pytest.approx(
                float(logged[f"test/importance_correlation/{name}"]), abs=1e-5
            )
        record = pq.read_table(run / "records/test/adversarial_attention.parquet")
        theirs = float(logged["test/adversarial_attention/worst_js"])
        assert record["worst_js"].to_numpy().mean() == pytest.approx(theirs, abs=1e-5)

    def test_one_seed_has_no_spread(self) -> None:
        assert arms._cell(np.array([[0.25, 0.25]])) == "0.25 [0.25, 0.25]"
        assert arms._cell(np.array([[0.2, 0.2], [0.3, 0.3]])).endswith("± 0.07")
