"""The tables of pairs on docs/results.md, and what is kept of the runs that they are built from."""

import json
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from numpy.typing import NDArray
from scipy.stats import kendalltau, rankdata, spearmanr

from attnlight.records import read_metadata
from attnlight.statistics.seed_bootstrap import seed_interval
from attnlight.storage.compatibility import section
from attnlight.studies.spec import read_studies
from tests.kept import BLOCKS, DOCS, archived, page, write_kept
from tests.report.fake import Rows
from tests.test_results import holds, logged_by_test, names
from tests.test_results_measures import resampled_rows

pairs, archive, archive_runs = map(page, ("pairs", "archive", "archive_runs"))
findings, measures, tables = map(page, ("findings", "measures", "tables"))
predictions = page("predictions")
RECORDS = archived()
CONFIGS = DOCS.parent / "configs"
RUNS = sorted(path.parent for path in RECORDS.glob(f"{pairs.STUDY}-*/seed*/fit.yaml"))
TEXTS = sorted(path.parent for path in RECORDS.glob("jain_wallace_texts-*/seed*/fit.yaml"))
PUBLISHED = yaml.safe_load((DOCS / "results/published.yaml").read_text())
MODEL = f"{pairs.STUDY}-babi_1_bilstm_additive"
OTHERS = [MODEL.replace("bilstm", encoder) for encoder in ("cnn", "average")]
OTHERS.append(OTHERS[1].replace("additive", "scaled_dot"))
AFFINE = f"{MODEL}_affine"
SNLI = [f"{pairs.STUDY}-snli_bilstm_additive{size}" for size in ("", "_5400", "_10800")]


def records(seed: int, n: int = 40, minimal: bool = False) -> dict[str, Rows]:
    """Records of every test that the page needs of a condition on bAbI; texts of 8 to 15 tokens."""
    random = np.random.default_rng(seed)
    label, keys = np.arange(n) % 6, {"index": np.arange(n), "position": np.zeros(n, np.int64)}
    keys |= {"prediction": np.where(random.random(n) < 0.8, label, (label + 1) % 6)}
    length, undefined = random.integers(8, 16, n), np.full(n, np.nan, np.float32)
    drawn = {name: random.random(n) for name in (*archive_runs.TAU[3:], *pairs.P_VALUES)}
    js = {"worst_js": random.random(n), "upper_js": undefined, "search_js": undefined.copy()}
    js["search_js"][::4] = js["worst_js"][::4] / 2
    attended = {name: random.random(n) for name in pairs.EVIDENCE.values()}
    attended |= {"chance": 4 / length, "proven": (random.random(n) < 0.7).astype(np.float32)}
    attended["proven"][0] = np.nan
    removed = random.integers(1, 8, n) / length
    removed[3] = np.nan
    flips = {"removed_fraction_attention": removed}
    flips["removed_fraction_minimal"] = np.minimum(removed, 2 / length) if minimal else undefined
    return {
        "predictions": keys | {"label": label},
        "importance_correlation": keys | drawn | {"extra": random.random(n)},
        "adversarial_attention": keys | js,
        "attention_permutation": keys | {"median_tvd": random.random(n)},
        "evidence_mass": keys | attended,
        "decision_flip": keys | flips,
    }


def write_base(root: Path, name: str, seed: int, tests: Mapping[str, Rows]) -> Path:
    """Write a base of a condition as a study leaves it: trained, tested and, beside it, collected."""
    run = write_kept(root, name, tests, seed=seed).rename(root / name / f"base-s{seed}")
    end = {"state": "finished", "seconds": 90.0 + 6 * seed, "epochs": 7 + seed}
    (run / "status.json").write_text(json.dumps(end))
    (root / name / "study.json").write_text("{}")
    return run


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """Two seeds of a model, one of three others and of the affine one, and three sizes of SNLI."""
    for seed in range(2):
        write_base(tmp_path / "runs", MODEL, seed, records(seed))
    for place, name in enumerate((*OTHERS, AFFINE)):
        write_base(tmp_path / "runs", name, 0, records(7 + place, minimal=name == AFFINE))
    for place, name in enumerate(SNLI):
        read = {x: y for x, y in records(20 + place).items() if x in archive_runs.NEEDED[name]}
        write_base(tmp_path / "runs", name, 0, read)
    return tmp_path / "runs"


@pytest.fixture
def kept(runs: Path, tmp_path: Path) -> Any:
    assert archive_runs.archive_runs(runs, tmp_path / "results") == []
    return archive.Archive(tmp_path / "results", PUBLISHED)


def cell(text: object) -> Any:
    return findings.Cell(str(tables.table([{"x": text}]).splitlines()[2]))


def spearman(x: NDArray[Any], y: NDArray[Any], given: NDArray[Any] | None = None) -> float:
    """By scipy; the partial one correlates what linear regression on the other ranks leaves over."""
    if given is None:
        return float(spearmanr(x, y).statistic)
    design = np.stack([np.ones(len(x)), rankdata(given)], axis=1)
    left = [rankdata(v) - design @ np.linalg.lstsq(design, rankdata(v))[0] for v in (x, y)]
    return float(np.corrcoef(*left)[0, 1])


class TestRankCorrelation:
    @pytest.mark.parametrize("levels", [4, 1_000])
    def test_every_resample_against_scipy(self, levels: int) -> None:
        random = np.random.default_rng(levels)
        x, y, other, given = random.integers(0, levels, (4, 2, 30)) / levels
        y += x
        given -= x / 2
        y[0, 3], y[1, 5:8], given[1, 0] = np.nan, np.nan, np.nan
        found = measures.resampled_rank_correlations(x, [y, other], given)
        for values, kinds in zip((y, other), found, strict=True):
            for fixed, (observed, resampled) in zip((None, given), kinds, strict=True):
                assert resampled.shape == (1_000, 2)
                for run in range(2):
                    mask = ~np.isnan([x[run], values[run], given[run]]).any(axis=0)
                    for place, drawn in enumerate([np.arange(30), *resampled_rows(30)[:25]]):
                        texts = drawn[mask[drawn]]
                        third = fixed if fixed is None else fixed[run][texts]
                        wanted = spearman(x[run][texts], values[run][texts], third)
                        value = resampled[place - 1, run] if place else observed[run]
                        assert value == pytest.approx(wanted, abs=1e-9)

    def test_constant_or_missing_values_are_undefined(self) -> None:
        x = np.arange(5.0)[None]
        others = [np.ones((1, 5)), np.full((1, 5), np.nan), x**2]
        constant, missing, same = measures.resampled_rank_correlations(x, others, x[:, ::-1] % 2)
        assert np.isnan([constant[0][0], missing[0][0], missing[1][0]]).all()
        assert seed_interval(same[0]).mean == pytest.approx(1)
        assert tables.interval(seed_interval(missing[0])) == tables.DASH


class TestPlan:
    def test_is_that_of_the_study(self) -> None:
        """Seeds and options as attnlight itself reads them from the study's file."""
        studies = {f"{pairs.STUDY}-{study.condition}": study for study in read_studies(pairs.PLAN)}
        plan = yaml.safe_load(pairs.PLAN.read_text())["conditions"]
        assert studies.keys() == pairs.MODELS.keys()
        for name, study in studies.items():
            words, seeds, size, _ = pairs.MODELS[name]
            assert seeds == len(study.base.seeds)
            options = plan[study.condition].get("options", {})
            subset = options.get("data", {}).get("subset", {})
            available = 21_601 if words["corpus"] == "SNLI" else 10_000
            assert size == subset.get("train", available)
            net = options.get("model", {}).get("net", {})
            assert words["encoder"].lower() == net.get("encoder", "bilstm")
            assert words["attention"].replace(" ", "_") == net.get("attention", "additive")
            assert words["decoder"] == net.get("decoder", "tanh")
            compat = "compat" in plan[study.condition].get("experiment", "")
            assert words["corpus"].endswith(pairs.AS_RELEASED) == compat

    def test_published_cells_of_every_model_that_has_them(self) -> None:
        published = dict(PUBLISHED["pairs"])
        for name, (words, _, size, _) in pairs.MODELS.items():
            if name.endswith(("_affine", "_compat")):
                continue
            if size in (10_000, 21_601):
                cells = published.pop(name.removeprefix(f"{pairs.STUDY}-"))
                assert ("search" in cells) == (words["corpus"] != "SNLI")
                for key in ("gradient", "loo", "gradient_loo"):
                    assert re.fullmatch(r"-?0\.\d{3} \([01]\.\d\d\)", cells[key])
        assert {re.sub(r"_(additive|scaled_dot)", "", name) for name in published} == {
            f"babi_{task}_{encoder}" for task in (2, 3) for encoder in ("cnn", "average")
        }  # not in the study


class TestKeep:
    def test_values_are_kept_in_12_bits(self, runs: Path, kept: Any) -> None:
        for test, columns in archive_runs.NEEDED[MODEL].items():
            place = f"records/test/{test}.parquet"
            source = pq.read_table(runs / MODEL / "base-s1" / place)
            path = kept.root / MODEL / "seed1" / place
            table = pq.read_table(path)
            assert table.column_names == [x for x in columns if x in source.column_names]
            assert read_metadata(path) == read_metadata(runs / MODEL / "base-s1" / place)
            for name in table.column_names:
                ours, theirs = table[name].to_numpy(), source[name].to_numpy()
                assert not pa.types.is_float64(table.schema.field(name).type)
                np.testing.assert_allclose(ours, theirs, rtol=2.0**-12, atol=0)

    def test_a_study_of_bases_is_kept_as_runs_alone(self, runs: Path, kept: Any) -> None:
        assert not (kept.root / "studies").exists()
        assert [x.name for x in kept[MODEL].folders] == ["seed0", "seed1"]
        assert (kept.root / MODEL / "seed1/status.json").is_file()

    def test_runs_that_finish_later_are_added(self, runs: Path, kept: Any) -> None:
        before = {path: path.read_bytes() for path in kept.root.rglob("*.*")}
        write_base(runs, MODEL, 2, records(2))
        running = write_base(runs, OTHERS[0], 1, records(3))
        (running / "records/test/evidence_mass.parquet").unlink()
        lines = archive_runs.archive_runs(runs, kept.root)
        assert lines == [f"{running} was not tested by evidence_mass: not archived."]
        assert [*archive.Archive(kept.root, PUBLISHED)[MODEL].seeds] == [0, 1, 2]
        after = {path: path.read_bytes() for path in kept.root.rglob("*.*")}
        assert before.items() <= after.items()


class TestTables:
    def test_planned_conditions_with_what_they_took(self, kept: Any) -> None:
        rows = {tuple(row.values())[:5]: row for row in pairs.spent(kept)}
        assert len(rows) == len(pairs.MODELS)
        done = rows["bAbI 1", "BiLSTM", "additive", "tanh", 10_000]
        right = [
            f"{(x['predictions']['prediction'] == x['predictions']['label']).mean():.3f}"
            for x in map(records, range(2))
        ]
        wanted = ["2 of 3", "7 / 8", "2 / 2", "1.5 / 1.6", " / ".join(right)]
        assert [*done.values()][5:] == wanted
        missing = rows["bAbI 2", "BiLSTM", "scaled dot", "tanh", 10_000]
        assert [*missing.values()][5:] == ["0 of 3", None, None, None, None]

    def test_readings_beside_the_published_cells(self, kept: Any) -> None:
        rows = list(pairs.readings(kept))
        assert [(row["corpus"], row["encoder"], row["decoder"]) for row in rows] == [
            *(("bAbI 1", "BiLSTM", decoder) for decoder in ("tanh", "affine")),
            *(("bAbI 1", encoder, "tanh") for encoder in ("CNN", "average", "average")),
            ("SNLI", "BiLSTM", "tanh"),
        ]
        both = [records(seed) for seed in range(2)]
        tau = [run["importance_correlation"] for run in both]
        share = np.mean([x["p_input_gradient_loo"] <= 0.05 for x in tau])
        found = cell(rows[0]["tau gradient-LOO"])
        wanted = np.mean([x["tau_input_gradient_loo"] for x in tau])
        assert found.value == pytest.approx(wanted, abs=0.0051)
        assert str(rows[0]["tau gradient-LOO"]).endswith(f"({share:.2f})")
        right = np.mean([x["predictions"]["prediction"] == x["predictions"]["label"] for x in both])
        assert cell(rows[0]["accuracy"]).value == pytest.approx(right, abs=6e-4)
        js = [run["adversarial_attention"] for run in both]
        worst = np.mean([x["worst_js"][::4] for x in js])
        assert cell(rows[0]["worst JS"]).value == pytest.approx(worst, abs=0.0051)
        missed = np.nanmean([x["worst_js"] - x["search_js"] for x in js])
        assert cell(rows[0]["worst less search"]).value == pytest.approx(missed, abs=0.0051)
        assert rows[0]["upper bound"].values == ()
        published = PUBLISHED["pairs"]["babi_1_bilstm_additive"]
        assert rows[0]["published#gradient"] == published["gradient"]
        assert rows[0]["search, published"] == published["search"]
        assert rows[1]["published#accuracy"] is None

    def test_shuffled_attention_beside_the_published_medians(self, kept: Any) -> None:
        rows = list(pairs.shuffled(kept))
        assert [(row["corpus"], row["predicted"]) for row in rows] == [
            ("bAbI 1", "all"),
            *(("SNLI", f"class {place}") for place in range(3)),
        ]
        medians = [np.median(records(s)["attention_permutation"]["median_tvd"]) for s in range(2)]
        low, high = (f"{median:.3f}" for median in medians)
        assert rows[0]["here, all texts"] == f"{np.mean(medians):.3f} ({low}, {high} by seed)"
        assert [rows[0][name] for name in predictions.BINS] == ["–", "0.779", "0.945", "0.899"]  # noqa: RUF001
        assert rows[2]["[0.75, 1]"] == "0.911"
        assert rows[2]["accuracy"] == ""

    def test_evidence_of_all_and_of_proven_questions(self, kept: Any) -> None:
        rows = [row for row in pairs.evidence(kept) if row["decoder"] == "affine"]
        run = records(10, minimal=True)["evidence_mass"]
        proven = run["proven"] == 1
        for row, members in zip(rows, (np.full(40, True), proven), strict=True):
            assert row["n"] == f"{members.sum()}"
            assert cell(row["AUPRC"]).value == pytest.approx(run["auprc"][members].mean(), abs=6e-4)
            assert float(row["chance"]) == pytest.approx(run["chance"][members].mean(), abs=6e-4)
        defined = ~np.isnan(run["proven"])
        share = proven.sum() / defined.sum()
        assert cell(rows[0]["share proven"]).value == pytest.approx(share, abs=6e-4)

    def test_sentences_are_shown_once_a_record_has_them(self, runs: Path, kept: Any) -> None:
        assert not any(
            heading in row for row in pairs.evidence(kept) for heading in pairs.SENTENCES
        )
        found = records(10, minimal=True)
        attended, random = found["evidence_mass"], np.random.default_rng(1)
        attended |= {column: random.random(40) for column in pairs.SENTENCES.values()}
        shutil.rmtree(runs / AFFINE)
        write_base(runs, AFFINE, 0, found)
        archive_runs.archive_runs(runs, kept.root)
        rows = list(pairs.evidence(archive.Archive(kept.root, PUBLISHED)))
        both = [row for row in rows if row["decoder"] == "affine"]
        for row, members in zip(both, (np.full(40, True), attended["proven"] == 1), strict=True):
            top, chance = (attended[x][members].mean() for x in pairs.SENTENCES.values())
            assert cell(row["top sentence in evidence"]).value == pytest.approx(top, abs=6e-4)
            assert float(row["chance, sentences"]) == pytest.approx(chance, abs=6e-4)
        others = [row for row in rows if row["decoder"] == "tanh"]
        assert {row[heading] for row in others for heading in pairs.SENTENCES} == {tables.DASH}

    def test_reasons_against_scipy(self, kept: Any) -> None:
        rows = list(pairs.reasons(kept))
        assert [row["held fixed"] for row in rows[:-1]] == ["nothing", "chance"] * 5
        plain = next(row for row in rows if row["decoder"] == "affine")
        fixed = rows[rows.index(plain) + 1]
        run = records(10, minimal=True)
        attended = run["evidence_mass"]
        for heading, (test, column) in pairs.READINGS.items():
            reading = run[test][column]
            mask = (attended["proven"] == 1) & ~np.isnan(reading)
            if column == "worst_js":
                mask[np.arange(40) % 4 != 0] = False
            values = attended["mass"][mask], reading[mask]
            wanted = spearman(*values)
            assert cell(plain[heading]).value == pytest.approx(wanted, abs=0.01)
            wanted = spearman(*values, attended["chance"][mask])
            assert cell(fixed[heading]).value == pytest.approx(wanted, abs=0.01)
        assert plain["proven questions"] == f"{(attended['proven'] == 1).sum()}"

    def test_over_the_models_of_a_corpus(self, kept: Any) -> None:
        *_, over = pairs.reasons(kept)
        assert over["encoder"] == "over 5 models"
        seeds = [
            [records(0), records(1)],
            [records(7)],
            [records(8)],
            [records(9)],
            [records(10, minimal=True)],
        ]
        means = []
        for group in seeds:
            proven = [run["evidence_mass"]["proven"] == 1 for run in group]
            of_proven = [
                [
                    run["evidence_mass"]["mass"][x].mean(),
                    run["attention_permutation"]["median_tvd"][x].mean(),
                ]
                for run, x in zip(group, proven, strict=True)
            ]
            means.append(np.mean(of_proven, axis=0))
        tau, p = kendalltau(*np.transpose(means), method="exact")
        assert over["median TVD"] == f"{tables.number(tau, 2)} (p = {p:.2f})"
        assert over["minimal flip set"] is None

    def test_snli_by_size_with_the_whole_corpus_last(self, kept: Any) -> None:
        rows = list(pairs.sizes(kept))
        sizes = [5_400, 10_800, 21_601, "549,367, published"]
        assert [row["training pairs"] for row in rows] == sizes
        run = records(20)["predictions"]
        right = (run["prediction"] == run["label"]).mean()
        assert cell(rows[2]["accuracy"]).value == pytest.approx(right, abs=6e-4)

    def test_nothing_kept_is_nothing_shown(self, tmp_path: Path) -> None:
        empty = archive.Archive(tmp_path, PUBLISHED)
        for rows in (pairs.readings, pairs.evidence, pairs.reasons):
            assert list(rows(empty)) == []
        assert {row["seeds"][:4] for row in pairs.spent(empty)} == {"0 of"}


def test_page_of_the_whole_study(tmp_path: Path) -> None:
    """With every planned run archived the tables have a row for each condition."""
    for place, (name, model) in enumerate(pairs.MODELS.items()):
        for seed in range(model.seeds):
            tests = records(100 * place + seed, minimal=name == AFFINE)
            read = {test: tests[test] for test in archive_runs.NEEDED[name]}
            write_base(tmp_path / "runs", name, seed, read)
    assert archive_runs.archive_runs(tmp_path / "runs", tmp_path / "results") == []
    whole = archive.Archive(tmp_path / "results", PUBLISHED)
    blocks = {
        name: tables.table(*made)
        for name, made in {
            "pairs_runs": (pairs.spent(whole), 4),
            "pairs": (pairs.readings(whole), 4),
            "pairs_evidence": (pairs.evidence(whole), 4),
            "pairs_reasons": (pairs.reasons(whole), 4),
            "snli_size": (pairs.sizes(whole), 1),
        }.items()
    }
    lengths = {name: len(text.splitlines()) - 2 for name, text in blocks.items()}
    babi = len(pairs.BABI)
    assert lengths == {
        "pairs_runs": 21,
        "pairs": 18,
        "pairs_evidence": 2 * babi,
        "pairs_reasons": 2 * babi + 1,
        "snli_size": 5,
    }
    said = findings.findings(BLOCKS | blocks)
    assert said["pairs_open_finding"].strip() == "43 of the 43 planned runs are archived."
    text = re.sub(r"\s+", " ", said["pairs_findings"])
    assert "with additive attention; by 0." in text
    assert "Over 7 models of bAbI 1 the mean mass on the facts" in text


@pytest.mark.parametrize("run", [*RUNS, *TEXTS], ids=names)
class TestKeptRuns:
    def test_page_says_what_the_run_logged(self, run: Path) -> None:
        logged = logged_by_test(run)
        found = archive.Experiment.read(RECORDS, run.parent.name)
        seed = found.folders.index(run)
        columns = found.test("predictions")
        right = (columns["prediction"][seed] == columns["label"]).mean()
        assert right == pytest.approx(float(logged["test/accuracy"]), abs=1e-5)
        compared = {name for name in logged if name.startswith("test/")}
        for test in archive_runs.NEEDED[run.parent.name]:
            for name, values in found.test(test).items():
                theirs = float(logged.get(f"test/{test}/{name}", "nan"))
                if not np.isnan(theirs):
                    compared.remove(f"test/{test}/{name}")
                    assert np.nanmean(values[seed]) == pytest.approx(theirs, abs=2e-4), name
        means = ("importance_correlation/tau_attention_loo", "adversarial_attention/worst_js")
        assert not compared & {f"test/{name}" for name in means}

    def test_configuration_is_that_of_the_condition(self, run: Path) -> None:
        saved = yaml.safe_load((run / "fit.yaml").read_text())
        study, _, name = run.parent.name.partition("-")
        plan = yaml.safe_load((CONFIGS / f"studies/{study}.yaml").read_text())
        condition = plan["conditions"][name]
        path = pairs.PLAN.parent / condition.get("experiment", plan["experiment"])
        given = yaml.safe_load(path.read_text())
        options = condition.get("options", {})
        model, data = (
            yaml.safe_load((path.parent / given[part]).read_text()) for part in ("model", "data")
        )
        model["init_args"]["net"] |= options.get("model", {}).get("net", {})
        data["init_args"] |= options.get("data", {})
        assert holds(section(saved["model"]), model)
        assert holds(saved["data"], data)
        assert holds(saved["trainer"], given["trainer"])


def test_page_counts_the_runs_that_are_kept() -> None:
    planned = sum(model.seeds for model in pairs.MODELS.values())
    said = BLOCKS["pairs_open_finding"].replace("\n", " ")
    assert f"{len(RUNS)} of the {planned} planned runs" in said


@pytest.mark.parametrize(
    ("table", "column", "other", "lost"),
    [
        ("pairs", "accuracy", "0.900 ± 0.001 [0.899, 0.901]", "On bAbI 1 the BiLSTM answers"),
        ("pairs_evidence", "top item in evidence", "0.500 [0.400, 0.600]", "only the degree"),
    ],
)
def test_a_changed_row_refuses_its_sentence(table: str, column: str, other: str, lost: str) -> None:
    lines = BLOCKS[table].splitlines(keepends=True)
    place = [x.strip() for x in lines[0].split("|")].index(column)
    cells = lines[2].split("|")
    lines[2] = "|".join([*cells[:place], f" {other} ", *cells[place + 1 :]])
    said = findings.findings(BLOCKS | {table: "".join(lines)})["pairs_findings"]
    assert not findings.refused(BLOCKS["pairs_findings"])
    assert any(lost in sentence for sentence in findings.refused(said))


def test_sizes_of_snli_are_said_once_there_is_one() -> None:
    head, ruler, *_, whole = BLOCKS["snli_size"].splitlines(keepends=True)
    sizes = "| 2,700 | 1 of 1 | 0.512 | 0.5 |\n| 5,400 | 1 of 1 | 0.601 | 0.6 |\n"
    for rows, said in (
        (sizes, "0.512 from 2,700 training pairs, 0.601 from 5,400"),
        ("", "On SNLI"),
    ):
        found = findings.findings(BLOCKS | {"snli_size": head + ruler + rows + whole})
        text = re.sub(r"\s+", " ", found["pairs_findings"])
        assert (said in text) == bool(rows)


def test_a_changed_correlation_changes_its_count() -> None:
    frame = pd.DataFrame(findings.Tables(BLOCKS).rows("pairs_reasons")).to_dict("records")
    for row in frame:
        if row["held fixed"] == "chance":
            row["worst JS"] = "-0.50 [-0.60, -0.40]"
    said = findings.findings(BLOCKS | {"pairs_reasons": tables.table(frame, 4)})["pairs_findings"]
    models = sum(row["held fixed"] == "chance" for row in frame)
    text = re.sub(r"\s+", " ", said)
    assert f"A low worst JS goes with attention on the facts in {models} of {models} models" in text
    assert "So a low worst JS goes with attention on the facts in every model" in text
