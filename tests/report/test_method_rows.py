"""One row per attribution method, against loops over rows and pairs."""

import csv
import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from attnlight.cli.report import main
from attnlight.figures import describe
from attnlight.report.method_rows import MEASURES, TESTS, method_rows
from attnlight.report.verdict.card import verdict_of
from attnlight.statistics import holm
from attnlight.statistics.paired import paired_permutation_tests
from tests.report.fake import Rows, write_record, write_run

LABELS = ("occlusion", "attention", "my_shap")


def rows_of_methods(test: str, labels: tuple[str, ...] = LABELS, n: int = 60) -> Rows:
    """Rows in which each method is .3 better than the one after it, by every measure."""
    random = np.random.default_rng(sum(map(ord, test)))
    rows: Rows = {"index": np.arange(n) // 2, "position": np.arange(n) % 2}
    rows |= {"prediction": np.zeros(n, dtype=np.int64), "max_attention": random.random(n)}
    for measure in (measure for measure in MEASURES if measure.test == test):
        sign = -1 if measure.higher else 1
        for place, label in enumerate(labels):
            step = "_2" if test == "sanity" else ""
            rows[f"{measure.column}{step}_{label}"] = 0.3 * sign * place + 0.4 * random.random(n)
            if test == "faithfulness":
                own = measure.column.removeprefix("excess_")
                rows[f"{own}_random"] = random.random(n)
            if test == "sanity":
                rows[f"signed_seeds_{label}"] = 0.9 + 0.1 * random.random(n)
                for name in ("signed_1", "sizes_1", "sizes_2", "sizes_seeds"):
                    rows[f"{name}_{label}"] = random.random(n)
    if test == "attribution_cost":
        rows["batch"] = rows["index"] % 7
    return rows


def write(folder: Path, test: str, rows: Rows, **metadata: Any) -> Path:
    methods = [label for label in (*LABELS, "random") if any(n.endswith(label) for n in [*rows])]
    listed = [label for label in methods if (test, label) != ("faithfulness", "random")]
    about: dict[str, Any] = {"methods": {label: {"name": label} for label in listed}}
    own = {"sanity": {"parts": ["decoder", "encoder"], "against": "e/b"}}
    about |= (own | {"attribution_cost": {"clusters": "batch"}}).get(test, {}) | metadata
    path = folder / "records/test" / f"{test}.parquet"
    return write_record(path, rows, stage="test", measures=[], **about)


@pytest.fixture
def records(tmp_path: Path) -> dict[str, Path]:
    return {test: write(tmp_path, test, rows_of_methods(test)) for test in TESTS}


def test_sanity_has_its_verdict_and_the_correlation_that_it_is_of(tmp_path: Path) -> None:
    rows = rows_of_methods("sanity")
    for label, value in zip(LABELS, (0.1, 0.8, 0.3), strict=True):
        rows[f"signed_2_{label}"] = value + 0.1 * np.random.default_rng(0).random(60)
        rows[f"signed_1_{label}"] = np.ones(60)  # of the decoder alone
    rows["signed_seeds_my_shap"][:] = 0.1
    record = write(tmp_path, "sanity", rows)
    found = method_rows({"sanity": record})
    expected = {"occlusion": "passes", "attention": "fails", "my_shap": "undecidable"}
    assert found.verdicts == expected
    head, by_label = found.tables({})[0].head, {row[0]: row for row in found.tables({})[0].rows}
    for label, verdict in expected.items():
        mean = rows[f"signed_2_{label}"].mean()
        assert found.means["signed", label].mean == pytest.approx(mean)
        cell = by_label[label.replace("_", " ")][list(head).index("sanity ↓")]
        assert cell.startswith(f"{verdict} {mean:.3f} [")
    letters = [found.letters["signed", label] for label in ("occlusion", "my_shap", "attention")]
    assert letters == ["a", "b", "c"]


def test_means_and_random_at_no_excess(records: dict[str, Path]) -> None:
    found = method_rows(records)
    for measure in (measure for measure in MEASURES if measure.test != "sanity"):
        rows = rows_of_methods(measure.test)
        for label in LABELS:
            expected = rows[f"{measure.column}_{label}"].mean()
            assert found.means[measure.column, label].mean == pytest.approx(expected)
    assert tuple(found.means["excess_sufficiency", "random"]) == (0, 0, 0, 60)
    assert ("auprc", "random") not in found.means
    assert list(found.labels) == ["attention", "occlusion", "random", "my_shap"]
    assert found.labels["my_shap"] == "my shap"


def test_pairs_are_tested_on_the_instances_that_all_have(tmp_path: Path) -> None:
    rows = rows_of_methods("plausibility")
    rows["auprc_attention"][:9] = np.nan
    rows["auprc_my_shap"][5:14] = np.nan
    rows["auprc_occlusion"][:] = rows["auprc_attention"] + 0.001 * (np.arange(60) % 2)
    found = method_rows({"plausibility": write(tmp_path, "plausibility", rows)})
    pairs = [pair for pair in found.pairs if pair["measure"] == "auprc"]
    values = np.stack([rows[f"auprc_{label}"] for label in LABELS], axis=1)[14:]
    p = paired_permutation_tests(values, rows["index"][14:])
    assert len(pairs) == 3
    for pair, own in zip(pairs, holm([pair["p"] for pair in pairs]), strict=True):
        i, j = (LABELS.index(pair[place]) for place in ("first", "second"))
        difference = sum(row[i] - row[j] for row in values) / len(values)
        assert pair["difference"] == pytest.approx(difference)
        assert pair["difference"] > 0  # the better one comes first
        assert pair["low"] <= pair["difference"] <= pair["high"]
        assert (pair["p"], pair["p_holm"], pair["n"]) == (p[i, j], own, 46)
    assert found.means["auprc", "attention"].defined == 51


def test_letters_are_in_order_of_the_measure(records: dict[str, Path], tmp_path: Path) -> None:
    letters = method_rows(records).letters
    for column in ("excess_comprehensiveness", "excess_sufficiency", "auprc", "cost"):
        own = [letters[column, label] for label in LABELS]
        assert own == sorted(own)
        assert len(set("".join(own))) == 3  # all are told apart, random between some of them
    assert letters["auprc", "occlusion"] == letters["cost", "occlusion"] == "a"
    assert letters["excess_sufficiency", "random"] == "a"  # the lowest
    rows = rows_of_methods("plausibility")
    rows["iou_f1_attention"] = rows["iou_f1_occlusion"][np.random.default_rng(0).permutation(60)]
    letters = method_rows({"plausibility": write(tmp_path, "plausibility", rows)}).letters
    assert [letters["iou_f1", label] for label in LABELS] == ["a", "a", "b"], "two do not differ"


def test_undefined_and_single_methods_are_compared_with_none(tmp_path: Path) -> None:
    rows = rows_of_methods("plausibility", LABELS[:2])
    rows["auprc_attention"][:] = np.nan
    rows["token_f1_attention"][:30], rows["token_f1_occlusion"][30:] = np.nan, np.nan
    found = method_rows({"plausibility": write(tmp_path, "plausibility", rows)})
    assert {column for column, _ in found.letters} == {"iou_f1"}
    table = found.tables({})[0]  # of what is recorded alone
    assert list(table.head) == ["method", "AUPRC ↑", "token F1 ↑", "IoU F1 ↑"]
    assert table.rows[0][1] == "–"  # noqa: RUF001
    assert table.rows[0][2].startswith(f"{np.nanmean(rows['token_f1_attention']):.3f} [")
    empty = {name: values[:0] for name, values in rows.items()}
    found = method_rows({"plausibility": write(tmp_path, "plausibility", empty)})
    assert found.tables({}) == []


def test_the_page_and_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = write_run(tmp_path / "e" / "a run", epochs=())
    for test in ("faithfulness", "attribution_cost"):
        write(run, test, rows_of_methods(test))
    source = run / "records/test/faithfulness.parquet"
    for place in ("test-yelp", "val"):
        target = run / "records" / place / source.name
        target.parent.mkdir()
        target.write_bytes(source.read_bytes())
    main([str(run)])
    read = {path.name: path.read_text(encoding="utf-8") for path in run.glob("report/**/*.*")}
    own = read["test-methods-1.md"]  # names what is missing with the command that measures it
    commands = {"plausibility": f"test '{run}' --tests plausibility", "sanity": f"sanity '{run}'"}
    for test, command in commands.items():
        assert f"Not recorded: {test} (`attnlight {command}`)." in own
    assert "Not recorded: faithfulness" not in own
    assert "Instances: faithfulness 60, attribution cost 60." in own
    assert "| occlusion" in own
    command = f"`attnlight test -c '{run}/test-yelp.yaml' --tests plausibility`"
    assert command in read["test-yelp-methods-1.md"]
    assert "sanity (" not in read["test-yelp-methods-1.md"]
    assert f"`attnlight validate '{run}' --tests attribution_cost`" in read["val-methods-1.md"]
    page, title = read["index.html"], describe("faithfulness").question
    assert page.index("<h4>Attribution methods</h4>") < page.index(f">{title}</h3>")
    assert "Which methods are told apart" in page
    lines = list(csv.DictReader(io.StringIO(read["test-methods-pairs.csv"])))
    excess = {f"excess_{name}" for name in ("comprehensiveness", "sufficiency")}
    assert {line["measure"] for line in lines} == {*excess, "cost"}
    assert len(lines) == 2 * 6 + 3
    assert all(float(line["p"]) <= float(line["p_holm"]) <= 1 for line in lines)
    assert "test-methods-2.tex" in read
    printed = capsys.readouterr().out
    assert printed.endswith(f"{run}/report/index.html\n")
    assert printed.startswith(verdict_of(run).sentence[:70])
