"""The tables of attribution methods on docs/results.md, and what is kept of their runs."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from scipy.stats import kendalltau, permutation_test, spearmanr

from attnlight.statistics.bootstrap import bootstrap_means
from attnlight.studies.spec import read_studies
from tests.kept import BLOCKS, archived, page, write_kept
from tests.report.fake import Rows, write_record

saliency, pairs, archive, archive_runs = map(page, ("saliency", "pairs", "archive", "archive_runs"))
findings, tables = map(page, ("findings", "tables"))
RECORDS = archived()
RUNS = sorted(path.parent for path in RECORDS.glob(f"{saliency.STUDY}-*/seed*/fit.yaml"))
PLANTED = f"{saliency.STUDY}-planted_bilstm"
SST = f"{saliency.STUDY}-sst_bilstm"
MOVIES = f"{saliency.STUDY}-movie_rationales_bilstm"
NEWS = f"{saliency.STUDY}-ag_news_bilstm"
NAMES = {
    "saliency_runs": (pairs.spent, 2),
    "saliency_faithfulness": (saliency.faithfulness, 2),
    "saliency_truth": (saliency.truth, 1),
    "saliency_right": (saliency.right_and_faithful, 3),
    "saliency_plausibility": (saliency.plausibility, 2),
    "saliency_states": (saliency.states, 2),
    "saliency_cost": (saliency.cost, 1),
    "saliency_complete": (saliency.completeness, 2),
    "saliency_sanity": (saliency.sanity, 3),
}


def records(name: str, seed: int, n: int = 12) -> dict[str, Rows]:
    """Records of every test that the page needs of a condition.

    The faithfulness of a method grows with its AUPRC. The texts of a batch are every fourth one.
    """
    random = np.random.default_rng(seed)
    keys: Rows = {x: np.zeros(n, np.int64) for x in ("position", "prediction")}
    keys["index"] = np.arange(n)
    tests: dict[str, Rows] = {}
    for test, columns in saliency.MODELS[name].tests.items():
        tests[test] = keys | {x: random.random(n) for x in (*columns, "extra")}
    quality = dict(zip(saliency.METHODS, random.permutation(len(saliency.METHODS)), strict=True))
    for label, level in quality.items():
        for test, column, sign in (
            ("plausibility", f"auprc_{label}", 1),
            ("faithfulness", f"excess_comprehensiveness_{label}", 1),
            ("faithfulness", f"excess_sufficiency_{label}", -1),
        ):
            if test in tests:
                tests[test][column] = (sign * (level + random.random(n) / 2)).astype(
                    np.float32
                ) / 16
    if name == MOVIES:  # without occlusion, and with a text that nobody marked
        for columns in tests.values():
            for column in [x for x in columns if x.endswith("occlusion")]:
                del columns[column]
        for column in saliency.COLUMNS["plausibility"]:
            if column in tests["plausibility"]:
                tests["plausibility"][column][2] = np.nan
    if "faithfulness" in tests:
        tests["faithfulness"]["incomplete_integrated_gradients"] = np.arange(n) == 5
        tests["faithfulness"] = {
            x: y.astype(np.float32) if y.dtype == bool else y
            for x, y in tests["faithfulness"].items()
        }
    if "attribution_cost" in tests:
        batch = np.arange(n) % 4
        costs = {x: y[batch] for x, y in tests["attribution_cost"].items() if x.startswith("cost")}
        tests["attribution_cost"] |= costs | {"batch": batch}
    tests["predictions"]["label"] = np.arange(n) % 2
    return tests


def write_base(root: Path, name: str, seed: int) -> Path:
    """Write a run of a condition as the study leaves it."""
    found = write_kept(root, name, records(name, hash_of(name) + seed), seed=seed)
    run = found.rename(root / name / f"base-s{seed}")
    end = {"state": "finished", "seconds": 60.0, "epochs": 2}
    (run / "status.json").write_text(json.dumps(end))
    return run


def hash_of(name: str) -> int:
    return sum(map(ord, name))


def write_sanity(run: Path) -> None:
    """A record of two methods over three steps: `gradient` stays alike, `lrp` does not."""
    n, random = 40, np.random.default_rng(0)
    rows: Rows = {x: np.zeros(n, np.int64) for x in ("position", "prediction")}
    rows["index"] = np.arange(n)
    means = {"1_lrp": 0.9, "3_lrp": 0.0, "seeds_lrp": 0.75}
    means |= {"1_gradient": 0.9, "3_gradient": 0.9, "seeds_gradient": 0.75}
    for kind in ("signed", "sizes"):
        for name, mean in means.items():
            noise = random.normal(size=n)
            rows[f"{kind}_{name}"] = (mean + (noise - noise.mean()) / 64).astype(np.float32)
    rows["sizes_seeds_gradient"] = np.zeros(n, np.float32)
    metadata = {"parts": ["a", "b", "c"], "methods": {"gradient": {}, "lrp": {}}, "against": "s1"}
    write_record(run / saliency.SANITY, rows, stage="test", partial=True, measures=[], **metadata)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The archive with every planned run."""
    folder = tmp_path_factory.mktemp("whole")
    for name, model in saliency.MODELS.items():
        for seed in range(model.seeds):
            write_base(folder / "runs", name, seed)
    write_sanity(folder / "runs" / SST / "base-s0")
    assert archive_runs.archive_runs(folder / "runs", folder / "results") == []
    return archive.Archive(folder / "results", {})


def blocks(found: Any) -> dict[str, str]:
    """The tables of an archive, in place of the page's."""
    return BLOCKS | {
        name: tables.table(
            rows(found, saliency.MODELS) if name == "saliency_runs" else rows(found), left
        )
        for name, (rows, left) in NAMES.items()
    }


def text(place: str, content: dict[str, str]) -> str:
    return re.sub(r"\s+", " ", findings.findings(content)[place])


def of_runs(name: str, test: str, column: str) -> Any:
    """A column of the simulated records of all seeds."""
    seeds = range(saliency.MODELS[name].seeds)
    return np.stack([records(name, hash_of(name) + seed)[test][column] for seed in seeds])


def row_of(rows: Any, archived: Any, *words: str) -> dict[str, Any]:
    found = [row for row in rows(archived) if set(words) <= set(map(str, row.values()))]
    (row,) = found
    return dict(row)


class TestPlan:
    def test_conditions_are_those_of_the_study(self) -> None:
        studies = {
            f"{saliency.STUDY}-{study.condition}": study for study in read_studies(saliency.PLAN)
        }
        assert studies.keys() == saliency.MODELS.keys()
        for name, study in studies.items():
            model = saliency.MODELS[name]
            assert model.seeds == len(study.base.seeds)
            options = dict(x.removeprefix("--").split("=", 1) for x in study.base.options)
            named = options.get("data.train_size") or options.get("data.subset.train", "all")
            given = yaml.safe_load(options.get("data.subset", "{}")).get("train", named)
            assert str(model.size) == str(given)
            attached = {
                callback["class_path"].rpartition(".")[2].lower()
                for path in study.base.tests
                for callback in yaml.safe_load(path.read_text())["trainer"]["callbacks+"]
            }
            kept = {test.replace("_", "") for test in model.tests}
            assert kept == attached - {"saliencyagreement"} | {"predictions"}

    def test_three_encoders_and_three_seeds_are_planted(self) -> None:
        planned = [saliency.MODELS[name] for name in saliency.PLANTED]
        assert len({model.words["encoder"] for model in planned}) >= 3
        assert {model.seeds for model in planned} == {3}


class TestKeep:
    def test_columns_of_the_page_in_12_bits(self, whole: Any) -> None:
        for test, columns in saliency.MODELS[PLANTED].tests.items():
            table = pq.read_table(whole.root / PLANTED / f"seed1/records/test/{test}.parquet")
            keys = [x for x in archive_runs.KEYS if x in table.column_names]
            assert table.column_names == [*keys, *columns]
            for name in columns:
                assert not pa.types.is_float64(table.schema.field(name).type)
                theirs = of_runs(PLANTED, test, name)[1]
                np.testing.assert_allclose(table[name].to_numpy(), theirs, rtol=2.0**-12, atol=0)


class TestTables:
    def test_faithfulness_against_scipy(self, whole: Any) -> None:
        columns = {
            label: of_runs(SST, "faithfulness", f"excess_sufficiency_{label}")
            for label in saliency.METHODS
        }
        means = {label: values.mean(axis=0) for label, values in columns.items()}
        best = min(means, key=lambda label: means[label].mean())
        p_values = {
            label: permutation_test(
                (values, means[best]),
                lambda x, y, axis: np.mean(x - y, axis=axis),
                permutation_type="samples",
                n_resamples=np.inf,
            ).pvalue
            for label, values in means.items()
            if label != best
        }
        adjusted, least = {}, 0.0
        for rank, label in enumerate(sorted(p_values, key=lambda x: p_values[x])):
            least = max(least, min(1, p_values[label] * (len(p_values) - rank)))
            adjusted[label] = least
        for label, values in columns.items():
            row = row_of(saliency.faithfulness, whole, "SST", "BiLSTM", saliency.METHODS[label])
            assert findings.Cell(row["sufficiency"]).value == pytest.approx(values.mean(), abs=6e-4)
            if label == best:
                assert row["p#sufficiency"] == "best"
            else:
                assert float(row["p#sufficiency"]) == pytest.approx(adjusted[label], abs=6e-4)
            if label != "attention":
                less = findings.Cell(row["less attention's#sufficiency"])
                wanted = (values - columns["attention"]).mean()
                assert less.value == pytest.approx(wanted, abs=6e-4)

    def test_the_best_method_is_by_the_direction_of_its_measure(self) -> None:
        values = [np.full((1, 4), x) + np.arange(4) / 100 for x in (0.1, 0.5, 0.3)]
        for sign, best in ((1, 1), (-1, 0)):
            found = saliency.against_best(values, np.arange(4), sign)
            assert np.flatnonzero(np.isnan(found)).tolist() == [best]

    def test_auprc_of_each_method_against_the_evidence(self, whole: Any) -> None:
        rows = {row["method"]: row for row in saliency.truth(whole)}
        heading = "planted, BiLSTM; 3 of 3 seeds"
        for label, words in saliency.METHODS.items():
            wanted = of_runs(PLANTED, "plausibility", f"auprc_{label}").mean()
            assert rows[words][heading].mean == pytest.approx(wanted, abs=1e-3)
        assert any("bAbI 1" in column for column in rows["chance"])
        assert not any("SST" in column for column in rows["chance"])

    def test_correlation_with_the_truth_over_runs(self, whole: Any) -> None:
        labels = [x for x in saliency.METHODS if x not in ("random", "attention_contribution")]
        for measure, sign in (("comprehensiveness", 1), ("sufficiency", -1)):
            taus, hits = [], 0
            for name in saliency.PLANTED:
                auprc = [of_runs(name, "plausibility", f"auprc_{x}").mean(axis=1) for x in labels]
                faith = [
                    sign * of_runs(name, "faithfulness", f"excess_{measure}_{x}").mean(axis=1)
                    for x in labels
                ]
                for run in range(3):
                    right, found = ([x[run] for x in values] for values in (auprc, faith))
                    taus.append(kendalltau(right, found).statistic)
                    hits += int(np.argmax(right) == np.argmax(found))
            row = row_of(saliency.right_and_faithful, whole, measure, "all")
            assert row["runs"] == len(taus) == 15
            assert row["encoder"] == "4 encoders"
            assert row["Kendall's tau"].mean == pytest.approx(np.mean(taus))
            assert row["the most faithful is the most right"] == f"{hits} of 15"

    @pytest.mark.parametrize(
        ("faith", "hit", "lost"),
        [
            ([0.1, 0.2, 0.4, 0.3], 0.0, 0.1),
            ([0.1, 0.2, 0.3, 0.4], 1.0, 0.0),
            ([3, 2, 1, 0], 0, 0.6),
        ],
    )
    def test_a_run_by_hand(self, faith: list[float], hit: float, lost: float) -> None:
        auprc = np.array([0.3, 0.5, 0.8, 0.9])
        found = saliency.agreement_of_run(auprc, np.array(faith))
        wanted = [kendalltau(auprc, faith).statistic, spearmanr(auprc, faith).statistic, hit, lost]
        np.testing.assert_allclose(found, wanted)

    def test_plausibility_beside_chance_and_people(self, whole: Any) -> None:
        attention = of_runs(MOVIES, "plausibility", "auprc_attention")
        rows = [row for row in saliency.plausibility(whole) if row["corpus"] == "movie reviews"]
        explanations = [row["explanation"] for row in rows]
        assert "occlusion" not in explanations
        assert explanations[-2:] == ["chance", "another person"]
        for row, column in (
            (rows[0], "auprc_attention"),
            (rows[-2], "chance_auprc"),
            (rows[-1], "human_auprc"),
        ):
            values = of_runs(MOVIES, "plausibility", column)
            assert row["texts"] == 11
            assert row["AUPRC"].mean == pytest.approx(np.nanmean(values), abs=1e-3)
            if row is not rows[0]:
                wanted = np.nanmean(values - attention)
                assert row["AUPRC less attention's"].mean == pytest.approx(wanted, abs=1e-3)
        corpora = {row["corpus"] for row in saliency.plausibility(whole)}
        assert corpora == {"SST", "HateXplain", "Yelp", "movie reviews"}

    def test_states_by_encoder(self, whole: Any) -> None:
        rows = list(saliency.states(whole))
        encoders = {row["encoder"] for row in rows if row["corpus"] in ("SST", "20 Newsgroups")}
        assert encoders == {"BiLSTM", "average", "CNN", "HAN"}
        assert "CoNLL-2000" in {row["corpus"] for row in rows}
        row = row_of(saliency.states, whole, "SST", "BiLSTM")
        wanted = of_runs(SST, "state_token_agreement", "tau_erasure_deletion").mean()
        assert row["tau of erasure and deletion"].mean == pytest.approx(wanted, abs=1e-3)

    def test_cost_counts_each_batch_once(self, whole: Any) -> None:
        rows = {row["method"]: row for row in saliency.cost(whole)}
        (batches,) = of_runs(NEWS, "attribution_cost", "cost_lrp")[:, :4]
        (wanted,) = bootstrap_means(batches[:, None], np.arange(4))
        cell = rows["LRP"]["AG News, BiLSTM; 1 of 1 seeds"]
        assert cell[:3] == pytest.approx(wanted[:3], abs=1e-3)

    def test_completeness_counts_flagged_rows(self, whole: Any) -> None:
        row = row_of(saliency.completeness, whole, "SST", "BiLSTM")
        assert (row["rows"], row["flagged"]) == (24, 2)
        assert row["complete"] == "0.9167 (0.9167, 0.9167 by seed)"

    def test_sanity_by_the_last_step(self, whole: Any) -> None:
        rows = {row["method"]: row for row in saliency.sanity(whole)}
        assert {name: row["verdict"] for name, row in rows.items()} == {
            "gradient": "fails",
            "LRP": "passes",
        }
        assert rows["gradient"]["verdict, sizes"] == "undecidable"
        assert rows["LRP"]["all parameters random"].mean == pytest.approx(0, abs=1e-3)
        assert rows["LRP"]["two seeds"].mean == pytest.approx(0.75, abs=1e-3)
        kept = pq.read_schema(whole.root / SST / "seed0" / saliency.SANITY).names
        assert not any("_1_" in name for name in kept)

    def test_nothing_kept_is_said(self, tmp_path: Path) -> None:
        content = blocks(archive.Archive(tmp_path, {}))
        for name in NAMES.keys() - {"saliency_runs"}:
            assert content[name].splitlines()[2:] == ["| not shown: no run yet |"]
        said = text("saliency_findings", content)
        assert said.count("not shown") == 8
        assert "0 of the 29 planned runs" in text("saliency_open_finding", content)


class TestSentences:
    def test_every_run_is_there(self, whole: Any) -> None:
        content = blocks(whole)
        assert text("saliency_open_finding", content).startswith(
            "29 of the 29 planned runs are arch"
        )
        said = text("saliency_findings", content)
        assert not findings.refused(said)
        assert "Does comprehensiveness find the method that is right? Yes: over 15 runs" in said
        assert "complete on a share of 0.9167 [" in said
        assert said.count("complete on a share of") == 4
        assert "Sanity on SST, BiLSTM: fails: gradient; passes: LRP." in said

    @pytest.mark.parametrize(
        ("cell", "answer"),
        [
            ("0.30 [0.10, 0.50]", "Yes: over 15"),
            ("0.10 [-0.10, 0.30]", "No: over 15"),
            ("-0.30 [-0.50, -0.10]", "No: over 15"),
        ],
    )
    def test_answer_is_no_unless_both_intervals_are_above_0(
        self, whole: Any, cell: str, answer: str
    ) -> None:
        content = blocks(whole)
        lines = content["saliency_right"].splitlines(keepends=True)
        cells = lines[2].split("|")
        place = [x.strip() for x in lines[0].split("|")].index("Spearman")
        lines[2] = "|".join([*cells[:place], f" {cell} ", *cells[place + 1 :]])
        said = text("saliency_findings", content | {"saliency_right": "".join(lines)})
        assert f"Does comprehensiveness find the method that is right? {answer}" in said

    def test_few_runs_answer_nothing(self, tmp_path: Path) -> None:
        for seed in range(3):
            write_base(tmp_path / "runs", PLANTED, seed)
        archive_runs.archive_runs(tmp_path / "runs", tmp_path / "results")
        said = text("saliency_findings", blocks(archive.Archive(tmp_path / "results", {})))
        assert "Not shown before there are three encoders and nine runs: over 3 runs" in said


def test_page_counts_the_runs_that_are_kept() -> None:
    planned = sum(model.seeds for model in saliency.MODELS.values())
    said = BLOCKS["saliency_open_finding"].replace("\n", " ")
    assert f"{len(RUNS)} of the {planned} planned runs" in said
