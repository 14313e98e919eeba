"""Headlines, the texts chosen of a test, and runs beside each other."""

import io
from pathlib import Path

import numpy as np
import pytest
import yaml
from rich.console import Console

from attnlight.report.compare import group_runs, measure_groups, write_comparison
from attnlight.report.headlines import headline, headline_table
from attnlight.report.run import StoredRecord
from attnlight.report.run_description import corpus_name
from attnlight.report.summary import summarise
from attnlight.report.texts import choose_texts
from attnlight.storage.shipped import shipped_configs
from tests.cli.test_report import Page
from tests.report.fake import MEASURES, Rows, rows_of, write_record, write_run
from tests.report.test_texts import row, write


def recorded(folder: Path, test: str, rows: Rows | None = None, **about: object) -> StoredRecord:
    known = {"test": test, "measures": MEASURES[test], "stage": "test"} | about
    path = write_record(folder / f"{test}.parquet", rows or rows_of(test), **known)
    return StoredRecord(path, "test", test, None)


@pytest.mark.parametrize("test", sorted(set(MEASURES) - {"saliency_agreement"}))
def test_each_test_has_a_headline_that_says_its_mean(tmp_path: Path, test: str) -> None:
    record = recorded(tmp_path, test)
    found = headline(summarise(record, by_class=False))
    assert found is not None
    assert found.measure not in ("index", "position")
    if found.measure != "accuracy":
        assert found.mean.mean == pytest.approx(np.nanmean(rows_of(test)[found.measure]))
    shares = [f"{found.mean.mean:.{n}f}" for n in (1, 2)] + [f"{found.mean.mean:.0%}"[:-1]]
    assert any(share in found.says for share in shares)
    assert found.read


def test_extreme_and_typical_texts_by_sorting(tmp_path: Path) -> None:
    rows = rows_of("attention_permutation", n=60)
    rows["median_tvd"][7] = np.nan
    record = write_record(tmp_path / "a.parquet", rows)
    kept = [index for index in range(60) if index % 3]
    texts = write(tmp_path / "texts.parquet", [row(index) for index in kept])
    chosen = choose_texts(record, "median_tvd", texts)
    assert chosen is not None
    values = {i: float(rows["median_tvd"][i]) for i in kept if i != 7}
    order = sorted(values, key=values.__getitem__)
    assert [key[0] for key, _ in chosen.lowest] == order[:5]
    assert [key[0] for key, _ in chosen.highest] == order[:-6:-1]
    median = np.median(list(values.values()))
    middle = sorted(order[5:-5], key=lambda i: abs(values[i] - median))[:10]
    assert [key[0] for key, _ in chosen.typical] == middle
    assert all(value == values[key[0]] for part in chosen[1:] for key, value in part)
    assert choose_texts(record, "absent", texts) is None


def test_of_one_text_one_row_is_chosen(tmp_path: Path) -> None:
    rows = rows_of("attention_permutation", n=12)
    rows["index"], rows["position"] = np.repeat(np.arange(4), 3), np.tile(np.arange(3), 4)
    record = write_record(tmp_path / "a.parquet", rows)
    keys = zip(rows["index"].tolist(), rows["position"].tolist(), strict=True)
    texts = write(tmp_path / "t.parquet", [row(i, position=place) for i, place in keys])
    chosen = choose_texts(record, "median_tvd", texts)
    assert chosen is not None
    assert sorted(index for index, _ in chosen.rows) == [0, 1, 2, 3]


def test_a_corpus_without_a_path_is_called_by_its_data_file() -> None:
    planted = yaml.safe_load(shipped_configs()["data/planted"].read_text())
    planted["init_args"] |= {"train_size": 17, "seed": 4}
    assert corpus_name(planted) == "planted"
    planted["init_args"] |= {"num_classes": 4, "train_size": 6000, "redundancy": 2}
    assert corpus_name(planted) == "planted_4class"
    planted["init_args"] = {"redundancy": 40}
    assert corpus_name(planted) == "PlantedEvidence"
    assert corpus_name(None) == ""


def write_seed(folder: Path, seed: int, shift: float = 0.0, encoder: str = "bilstm") -> Path:
    write_run(folder, epochs=())
    config = yaml.safe_load((folder / "fit.yaml").read_text())
    config["seed_everything"] = seed
    config["model"]["init_args"]["encoder"] = encoder
    (folder / "fit.yaml").write_text(yaml.safe_dump(config))
    rows = rows_of("attention_permutation", seed=seed)
    rows["median_tvd"] = rows["median_tvd"] + shift
    recorded(folder / "records/test", "attention_permutation", rows)
    return folder


def test_seeds_of_one_configuration_are_pooled_and_others_compared(tmp_path: Path) -> None:
    folders = [write_seed(tmp_path / "sst" / f"s{seed}", seed) for seed in (0, 1)]
    folders.append(write_seed(tmp_path / "cnn" / "s0", 2, shift=0.5, encoder="cnn"))
    groups = group_runs(folders)
    assert [group.name for group in groups] == ["sst/s0 and 1 more", "cnn/s0"]
    found = measure_groups(groups)["attention_permutation", "median_tvd"]
    seeds = [rows_of("attention_permutation", seed=seed)["median_tvd"] for seed in (0, 1, 2)]
    assert found[0].mean.values == pytest.approx([seed.mean() for seed in seeds[:2]])
    assert found[1].mean.mean == pytest.approx(np.mean(seeds[2]) + 0.5)
    page = write_comparison(folders, tmp_path / "out")
    assert page is not None
    text = Page(page).text
    difference = np.mean(seeds[:2]) - np.mean(seeds[2]) - 0.5
    assert f"{difference:.3f} (no interval)" in text
    assert " by seed)" in text
    assert "< 0.001" in text
    table = (tmp_path / "out/tables/differences.csv").read_text().splitlines()
    line = next(line for line in table if "median_tvd" in line)
    assert line.endswith(",60")


def test_seeds_on_two_corpora_are_not_pooled(tmp_path: Path) -> None:
    folders = [write_seed(tmp_path / "sst" / f"s{seed}", seed) for seed in range(3)]
    for folder, corpus in zip(folders, ("v2-a", "v2-a", "v2-b"), strict=True):
        recorded(folder / "records/test", "predictions", corpus=corpus)
    assert [group.name for group in group_runs(folders)] == ["sst/s0 and 1 more", "sst/s2"]


def test_runs_on_other_instances_are_not_paired(tmp_path: Path) -> None:
    folders = [write_seed(tmp_path / name / "s0", 0, encoder=name) for name in ("cnn", "bilstm")]
    for test in ("attention_permutation", "predictions"):
        moved = rows_of(test) | {"index": np.arange(60) + 1000}
        recorded(folders[1] / "records/test", test, moved)
    assert write_comparison(folders, tmp_path / "out")
    assert len((tmp_path / "out/tables/differences.csv").read_text().splitlines()) == 1
    untested = [write_run(tmp_path / "a" / name, stages=()) for name in ("s0", "s1")]
    assert write_comparison(untested, tmp_path / "none") is None


def printed(folder: Path, width: int) -> str:
    console = Console(file=io.StringIO(), width=width, record=True)
    console.print(headline_table(folder))
    return console.export_text()


def test_one_headline_with_its_interval_for_each_record_of_the_test_split(tmp_path: Path) -> None:
    folder = write_run(tmp_path, stages=("test", "val"), partial=True) / "records"
    tests = sorted(path.stem for path in (folder / "test").glob("*.parquet"))
    lines = printed(folder, 300).splitlines()
    assert sorted(line.split()[0] for line in lines) == tests
    assert all(line.split()[1] == "(partial)" for line in lines)
    (shown,) = (line for line in lines if line.startswith("attention_permutation"))
    values = rows_of("attention_permutation")["median_tvd"]
    assert f"moves the prediction by {np.mean(values):.2f} (total" in shown
    low, high = map(float, shown.strip()[:-1].rpartition("[")[2].split(", "))
    assert low < np.mean(values) < high


@pytest.mark.parametrize("width", [80, 44])
def test_nothing_is_cut_and_markup_is_text(tmp_path: Path, width: int) -> None:
    rows = rows_of("attention_permutation")
    rows["[bold]x[/bold]"] = rows["median_tvd"]
    write_record(tmp_path / "test" / "of_mine.parquet", rows, measures=["[bold]x[/bold]"])
    shown = printed(tmp_path, width)
    assert "…" not in shown
    assert max(map(len, shown.splitlines())) <= width
    assert shown.split()[:2] == ["of_mine", "[bold]x[/bold]"]
