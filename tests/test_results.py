"""docs/results.md and the pages behind it say what their records say."""

import csv
import importlib
import re
import shutil
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
import yaml
from scipy.stats import t

from attnlight.data.planted import PlantedSpec
from attnlight.datamodules import PlantedEvidence
from attnlight.errors import InputError
from attnlight.records.parquet import read_table
from attnlight.storage.compatibility import section
from tests.kept import BLOCKS, DOCS, FRONT, PAGES, archived, page

ROOT = DOCS.parent
RECORDS = archived()
build_results = importlib.import_module("build_results")
importance, archive_runs, archive = map(page, ("importance", "archive_runs", "archive"))
planted, predictions, serrano = map(page, ("planted", "predictions", "serrano"))
pairs, saliency = map(page, ("pairs", "saliency"))
findings, tables = map(page, ("findings", "tables"))
KEPT = sorted(path.parent for path in RECORDS.glob("*/seed*/fit.yaml"))
RUNS = [run for run in KEPT if run.parent.name not in archive_runs.STUDIED]
WHOLE = [run for run in RUNS if (run / "records/test/attention_permutation.parquet").exists()]
PLANTED = [run for run in RUNS if run.parent.name in planted.NAMES]
ARMS = [name for pair in importance.ARMS.values() for name in pair]
SCALED = {f"{name}{importance.WIDER}": name for name in importance.SCALED}
SEVERAL = sorted({*ARMS, *importance.MODELS})
SIX = [run for run in RUNS if run.parent.name in serrano.MODELS]
# What the runs of Serrano & Smith's models were given beside their files in configs/experiments.
LEARNING_RATE = 1e-3
EPOCHS = {"rnn": 8, "conv": 8, "none": 15}
OTHER_EPOCHS = {"yelp_flan_conv": 15, "20_newsgroups_flan_rnn": 5, "20_newsgroups_han_rnn": 5}


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


def cells_of(table: str, *words: str) -> list[str]:
    """The cells of the row that begins with some words."""
    (line,) = (x for x in table.splitlines() if x.startswith(f"| {' | '.join(words)} |"))
    return [cell.strip() for cell in line.strip("|").split("|")]


def configuration(name: str) -> Path:
    """The file that an experiment was run with."""
    return ROOT / f"configs/experiments/{SCALED.get(name, name)}.yaml"


def holds(saved: Any, given: Any) -> bool:
    """Whether a saved configuration says what was given; beside it, it names every default."""
    if isinstance(given, dict):
        return all(
            all(any(holds(one, part) for one in saved[name[:-1]]) for part in parts)
            if name.endswith("+")  # appended to what other files give
            else name in saved and holds(saved[name], parts)
            for name, parts in given.items()
        )
    return bool(saved == given)


@pytest.fixture(scope="module")
def found() -> dict[str, str]:
    blocks: dict[str, str] = build_results.blocks(DOCS / "results", RECORDS)
    return blocks


@pytest.fixture
def results_page(found: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a copy of the pages, built from tables that are computed once."""
    copies = [tmp_path / path.name for path in build_results.PAGES]
    for path, copy in zip(build_results.PAGES, copies, strict=True):
        shutil.copyfile(path, copy)
    monkeypatch.setattr(build_results, "blocks", lambda records, runs: found)
    monkeypatch.setattr(build_results, "unpacked", lambda records: nullcontext(RECORDS))
    monkeypatch.setattr(build_results, "draw_tables", lambda tables, folder: None)
    monkeypatch.setattr(build_results, "PAGES", copies)
    return tmp_path


@pytest.fixture
def experiment(tmp_path: Path) -> Path:
    """A copy of one experiment's runs."""
    copy = tmp_path / "planted_none"
    shutil.copytree(RECORDS / "planted_none", copy)
    return copy


class TestPage:
    def test_agrees_with_its_records(
        self, results_page: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert build_results.main(["--check"]) == 0, capsys.readouterr().out

    def test_a_changed_figure_fails_and_is_put_right(
        self, results_page: Path, found: dict[str, str], capsys: pytest.CaptureFixture[str]
    ) -> None:
        changed = results_page / "jain_wallace.md"
        right = changed.read_text()
        line = found["accuracy"].splitlines()[2]
        changed.write_text(right.replace(line, line.replace("0.", "0.9", 1)))
        assert build_results.main(["--check"]) == 1
        assert f"+{line}" in capsys.readouterr().out
        assert build_results.main([]) == 0
        assert changed.read_text() == right

    def test_medians_stand_under_their_seeds(self, found: dict[str, str]) -> None:
        head, _, *rows = (
            [x.strip() for x in line.split("|")] for line in found["bins"].splitlines()
        )
        for name in ("sst_bilstm", "imdb_bilstm"):
            seeds = archive.Experiment.read(RECORDS, name).seeds
            own = [row for row in rows if row[1] == predictions.TEXT[name]]
            assert len(own) == 2
            for title, *cells in zip(head, *own, strict=True):
                if title.startswith("here, seed "):
                    there = int(title.removeprefix("here, seed ")) in seeds
                    assert all(bool(cell) == there for cell in cells)

    @pytest.mark.parametrize("name", ["more", "accuracy"])  # without a table, and of two pages
    def test_a_place_that_is_not_one_table_s_is_refused(
        self, name: str, found: dict[str, str]
    ) -> None:
        pages = [path.read_text("utf-8") for path in build_results.PAGES]
        with pytest.raises(InputError, match=f"places for .*'{name}'"):
            build_results.fill([*pages, f"<!-- {name}: begin -->\n<!-- {name}: end -->\n"], found)

    def test_every_page_is_built_and_linked_from_the_front_page(self) -> None:
        assert sorted(build_results.PAGES) == sorted(PAGES)
        links = re.findall(r"\(results/(\w+)\.md\)", FRONT.read_text("utf-8"))
        assert sorted(set(links)) == sorted(build_results.NAMES)

    def test_names_the_command_of_every_experiment(self) -> None:
        commands = (DOCS / "results/commands.md").read_text()
        for study in (pairs.STUDY, saliency.STUDY):
            assert f"configs/studies/{study}.yaml" in commands
        for name in archive_runs.NEEDED.keys() - archive_runs.STUDIED.keys():
            assert f"`{name}`" in commands
            assert configuration(name).is_file()

    def test_models_are_accurate_enough_to_be_tested(self, found: dict[str, str]) -> None:
        rows = findings.Tables(found)
        for table, column, name, least in (
            ("accuracy", "accuracy", "SST, sentences", 0.76),
            ("accuracy", "accuracy", "SST, with phrases", 0.83),
            ("accuracy", "F1 of the positive class", "IMDb, 7 to 399 words", 0.87),
            ("planted", "all", "planted, no encoder", 0.98),
            ("planted", "all", "planted with negation, BiLSTM", 0.95),
            ("chunking", "F1, test", "`study`: the released encoder", 0.9),
            ("chunking", "F1, test", "BiLSTM below `residual`", 0.925),
        ):
            assert rows.cell(table, column, name).value >= least, name
        # Whoever cannot read the order of words is wrong on negated texts.
        assert rows.cell("planted", "negated", "planted with negation, no encoder").value <= 0.6

    def test_records_are_small(self) -> None:
        files = [path for path in (DOCS / "results").rglob("*") if path.is_file()]
        assert len(files) <= 120
        assert sum(path.stat().st_size for path in files) < 20e6

    def test_changed_records_change_the_table(
        self, experiment: Path, found: dict[str, str]
    ) -> None:
        path = experiment / "seed0/records/test/predictions.parquet"
        record = pq.read_table(path)
        place = record.column_names.index("prediction")
        other = record.set_column(place, "prediction", record["prediction"].take([0] * len(record)))
        pq.write_table(other, path)
        (runs,) = archive.Archive(experiment.parent, {}).values()
        changed = tables.table(planted.accuracy(dict.fromkeys(planted.NAMES, runs)))
        line = cells_of(changed, "planted, no encoder")
        assert line != cells_of(found["planted"], "planted, no encoder")


class TestKeptRuns:
    def test_every_experiment_has_its_seeds(self) -> None:
        seeds = {run.parent.name: [] for run in RUNS}
        for run in RUNS:
            seeds[run.parent.name].append(run.name)
        five = [f"seed{seed}" for seed in range(5)]
        wanted = dict.fromkeys((*predictions.TEXT, *planted.NAMES, *planted.MINIMAL), five[:3])
        wanted |= dict.fromkeys(ARMS, five) | dict.fromkeys(SCALED, five[:3])
        wanted |= dict.fromkeys(predictions.TAGGERS, five[:3])
        wanted |= {"imdb_bilstm": ["seed1", "seed2"]}
        for name in importance.MODELS:
            imdb = name.startswith("imdb")
            wanted.setdefault(name, ["seed1", "seed2"] if imdb else ["seed0", "seed1"])
        wanted |= {name: ["seed0"] for name in serrano.MODELS}
        assert seeds == wanted

    @pytest.mark.parametrize("name", SEVERAL)
    def test_agreement_of_seeds_is_kept(self, name: str) -> None:
        experiment = archive.Experiment.read(RECORDS, name)
        index = experiment.test("importance_correlation", partial=True)["index"].tolist()
        seeds = len(experiment.seeds)
        found = pq.read_table(RECORDS / name / importance.AGREEMENT)["index"].to_pylist()
        assert found == index * (seeds * (seeds - 1) // 2)
        (row,) = importance.reliability({name: experiment}, {name: {}})
        assert row["texts"] == len(index)

    @pytest.mark.parametrize("run", SIX, ids=names)
    def test_page_says_what_a_model_of_serrano_and_smith_logged(
        self, run: Path, found: dict[str, str]
    ) -> None:
        logged = logged_by_test(run)
        name = run.parent.name
        experiment = archive.Experiment.read(RECORDS, name)
        rows = experiment.test("single_erasure") | experiment.test("decision_flip")
        rows["removed_fraction_gradient"] = rows["removed_count_gradient"] / rows["length"]
        row = cells_of(found["serrano_accuracy"], *serrano.MODELS[name].values())
        said = {"accuracy": row[4], "f1_macro": row[6]}
        for name, cell in said.items():
            assert float(cell.split()[0]) == pytest.approx(float(logged[f"test/{name}"]), abs=5e-4)
        ours = {}
        for name in ("flip_top_attention", "flip_top_gradient_x_attention"):
            ours[f"single_erasure/{name}"] = np.nanmean(rows[name])
        for name in ("removed_fraction_gradient", "removed_mass_attention", "minimal_count"):
            ours[f"decision_flip/{name}"] = np.nanmean(rows[name])
        for name, value in ours.items():
            assert value == pytest.approx(float(logged[f"test/{name}"]), abs=1e-5, rel=1e-5)

    @pytest.mark.parametrize("run", WHOLE, ids=names)
    def test_page_says_what_the_run_logged(self, run: Path) -> None:
        """The task's metrics are torchmetrics' and were computed while the run was tested."""
        logged = logged_by_test(run)
        found = archive.Experiment.read(run.parents[1], run.parent.name)
        seed = found.folders.index(run)
        several = "test/f1_positive" not in logged  # classes, of which none is the positive one
        for ours, theirs in (
            ("accuracy", "accuracy"),
            *(() if several else (("f1", "f1_positive"), ("auroc", "auroc"))),
        ):
            value = predictions.measured(found, ours)[0][seed]
            assert value == pytest.approx(float(logged[f"test/{theirs}"]), abs=1e-5)
        shuffled = found.test("attention_permutation")
        for name in ("median_tvd", "flip_rate"):
            theirs = float(logged[f"test/attention_permutation/{name}"])
            assert shuffled[name][seed].mean() == pytest.approx(theirs, abs=1e-5)

    @pytest.mark.parametrize("run", RUNS, ids=names)
    def test_configuration_is_that_of_the_experiment(self, run: Path) -> None:
        """Otherwise the commands on the page would no longer give these records."""
        saved = yaml.safe_load((run / "fit.yaml").read_text())
        name = run.parent.name
        path = configuration(name)
        given = yaml.safe_load(path.read_text())
        model, data = (
            yaml.safe_load((path.parent / given[part]).read_text()) for part in ("model", "data")
        )
        if name in SCALED:
            model["init_args"]["net"]["embedding_scale"] = 0.3
        if name in serrano.MODELS:
            model["init_args"]["optimizer"]["learning_rate"] = LEARNING_RATE
            epochs = OTHER_EPOCHS.get(name, EPOCHS[name.rpartition("_")[2]])
            given["trainer"]["max_epochs"] = epochs
        assert holds(section(saved["model"]), model)
        assert holds(saved["data"], data)
        assert holds(saved["trainer"], given["trainer"])

    @pytest.mark.parametrize("run", KEPT, ids=names)
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
            archive.Experiment.read(experiment.parent, experiment.name)

    def test_another_seed_is_refused(self, experiment: Path) -> None:
        (experiment / "seed1").rename(experiment / "seed7")
        with pytest.raises(InputError, match="was trained with seed 1"):
            archive.Experiment.read(experiment.parent, experiment.name)

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
            archive.Experiment.read(experiment.parent, experiment.name).test("predictions")

    def test_no_run_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(InputError, match="holds no seed"):
            archive.Archive(tmp_path, {})["sst_bilstm"]

    def test_keeping_a_kept_run_changes_nothing_but_the_mark(self, tmp_path: Path) -> None:
        run = PLANTED[0]
        archive_runs.archive_run(run, tmp_path / "again")
        for source in run.rglob("*.*"):
            copy = tmp_path / "again" / source.relative_to(run)
            if source.suffix == ".parquet":
                assert read_table(copy).equals(read_table(source), check_metadata=True)
            else:
                assert copy.read_text().endswith(source.read_text())


class TestPlanted:
    def test_negated_texts_are_those_of_the_corpus(self, tmp_path: Path) -> None:
        data = PlantedEvidence(
            negation=0.4, train_size=5, validation_size=5, test_size=300, cache_dir=str(tmp_path)
        )
        dataset = data.dataset("test")
        texts = pd.Series([dataset.words(place) for place in range(300)])
        found = planted.groups(texts)["negated"].tolist()
        assert found == data.negated("test").tolist()
        assert 0 < sum(found) < 300

    def test_attention_against_evidence_by_hand(self) -> None:
        texts = pd.DataFrame(
            {
                "attention": [[[0.7, 0.1, 0.2]], [[0.1, 0.1, 0.1, 0.7]]],
                "evidence": [[1, 0, -1], [0, 1, 0, 0]],
                "tokens": [["good1", "w1", "bad2"], ["w1", "good2", "w2", "not3"]],
            }
        )
        experiment = SimpleNamespace(seeds=[0], predicted=lambda: texts)
        either, own, *_ = planted.evidence(dict.fromkeys(planted.NAMES, experiment))
        assert [either["evidence"], own["evidence"]] == [*planted.EVIDENCE]
        for row, base_rate in ((either, [2 / 3, 1 / 4]), (own, [1 / 3, 1 / 4])):
            assert row["n"] == 2
            for column in ("base rate", "AUPRC of uniform attention"):
                assert row[column] == pytest.approx(np.mean(base_rate))
            assert row["AUPRC of the model's attention"].startswith("0.625 [")

    def test_predictions_of_other_texts_are_refused(self, experiment: Path) -> None:
        path = experiment / "seed1/predictions.parquet"
        pq.write_table(pq.read_table(path).slice(1), path)
        with pytest.raises(InputError, match="different texts"):
            archive.Experiment.read(experiment.parent, experiment.name).predicted()


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
        # Both keywords must go; attention's first two are a keyword and the filler.
        assert planted.minimal_set_in_evidence(self.text()) == (1, 2, 1, 0, pytest.approx(1 / 3))

    def test_texts_classified_wrongly_do_not_count(self) -> None:
        assert np.isnan(planted.minimal_set_in_evidence(self.text(label=1))).all()

    def test_decisions_that_never_flip_have_no_set(self) -> None:
        items = [[[4, 0, 0], [4, 0, 0], [1, 0, 0]]]
        flips, *rest = planted.minimal_set_in_evidence(
            self.text(item_logits=items, bias=[1.0, 0.0, 0.0])
        )
        assert flips == 0
        assert np.isnan(rest).all()


class TestImportance:
    def test_share_significant_by_hand(self) -> None:
        # Benjamini & Hochberg: 0.03, 0.06, 0.5
        assert importance.significant(np.array([[0.01, 0.04, 0.5, np.nan]])) == "0.67 / 0.33"
        assert importance.significant(np.array([[np.nan]])) is None

    def test_published_figures_of_every_model(self) -> None:
        published = yaml.safe_load((DOCS / "results/published.yaml").read_text())
        for name in importance.MODELS:
            wanted = 1 if name.endswith("scaled_dot") else 2
            assert {len(values) for values in published["tau"][name].values()} == {wanted}

    @pytest.mark.parametrize("name", importance.MODELS)
    def test_page_says_what_the_model_s_run_logged(self, name: str) -> None:
        run = next(run for run in RUNS if run.parent.name == name)
        logged = logged_by_test(run)
        for test, measure in (
            ("importance_correlation", "tau_attention_input_gradient"),
            ("importance_correlation", "tau_attention_loo"),
            ("adversarial_attention", "worst_js"),
        ):
            record = pq.read_table(run / f"records/test/{test}.parquet")
            ours = np.nanmean(record[measure].to_numpy().astype(np.float64))
            assert ours == pytest.approx(float(logged[f"test/{test}/{measure}"]), abs=1e-5)

    def test_a_row_of_taus_is_over_all_seeds(self, found: dict[str, str]) -> None:
        lines = found["tau"].splitlines()[2:]
        for (name, words), line in zip(importance.MODELS.items(), lines, strict=True):
            cells = [cell.strip() for cell in line[1:-2].split(" | ")]
            runs = archive.Experiment.read(RECORDS, name).folders
            column = "tau_attention_input_gradient"
            means = []
            for run in runs:
                record = pq.read_table(run / "records/test/importance_correlation.parquet")
                means.append(np.nanmean(record[column].to_numpy().astype(np.float64)))
            assert cells[:4] == [*words.values(), str(len(runs))]
            mean, *ends = map(float, re.findall(r"-?\d\.\d+", cells[5]))
            assert mean == pytest.approx(np.mean(means), abs=0.0051)
            assert [float(x) for x in cells[6].split(" / ")] == pytest.approx(means, abs=0.0051)
            if len(runs) == 2:
                assert cells[5].endswith(" by seed)")
                assert ends == pytest.approx(means, abs=0.0051)
            elif len(runs) > 2:  # at least Student's t over the seeds' means
                half = t.ppf(0.975, len(runs) - 1) * np.std(means, ddof=1) / np.sqrt(len(runs))
                assert ends[0] <= np.mean(means) - half + 0.0051
                assert ends[1] >= np.mean(means) + half - 0.0051

    def test_one_seed_has_no_spread(self) -> None:
        assert importance.tau_over_seeds(np.array([[0.25, 0.25]])) == "0.25 [0.25, 0.25]"
        found = importance.tau_over_seeds(np.array([[0.2, 0.2], [0.3, 0.3], [0.4, 0.4]]))
        assert found == "0.30 ± 0.10 [0.05, 0.55]"  # t(.975, 2) = 4.303, and 0.1 / sqrt(3)


def test_adversaries_of_all_texts_are_those_of_the_records() -> None:
    """What the search misses on SST is of all texts searched, not of one predicted class."""
    runs = archive.Experiment.read(RECORDS, "sst_bilstm")
    columns = runs.test("adversarial_attention", partial=True)
    missed = columns["worst_js"] - columns["search_js"]
    row = findings.Tables(BLOCKS).rows("adversary", "SST", "BiLSTM", "additive", "all")[0]
    mean = np.mean([run[~np.isnan(run)].mean() for run in missed])
    assert row["exact less search"].startswith(f"{mean:.2f} [")
    assert row["texts"] == f"{missed.shape[1]:,}"
