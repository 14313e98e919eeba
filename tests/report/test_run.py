"""What a run folder holds, and what is said of one that holds too little."""

from pathlib import Path

import pytest

from attnlight.errors import InputError
from attnlight.report.run import load_run, stored_records
from tests.report.fake import write_run


def test_records_in_order(tmp_path: Path) -> None:
    for stage, names in {
        "test": ["predictions", "attention_permutation", ".predictions.parquet.x1"],
        "val": ["predictions-10", "predictions-9", "attention_permutation-0003", "predictions"],
        "predict": ["predictions"],
    }.items():
        (tmp_path / stage).mkdir()
        for name in names:
            (tmp_path / stage / f"{name}.parquet").touch()
    (tmp_path / "test" / "notes.txt").touch()
    found = [(r.stage, r.test, r.epoch) for r in stored_records(tmp_path)]
    assert found == [
        ("test", "predictions", None),
        ("test", "attention_permutation", None),
        ("val", "predictions", None),
        ("val", "predictions", 9),
        ("val", "predictions", 10),
        ("val", "attention_permutation", 3),
    ]


def test_a_whole_run(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "sst" / "seed7", epochs=(0, 1))
    (folder / "test.yaml").write_text("seed_everything: 8\n")
    run = load_run(folder)
    assert run.name == "sst/seed7"
    assert [record.test for record in run.records] == ["predictions", "attention_permutation"]
    assert [record.epoch for record in run.epochs] == [0, 1, 0, 1]
    assert run.config["seed_everything"] == 7
    assert run.configs.keys() == {"fit", "test"}
    assert run.config_text == (folder / "fit.yaml").read_text()
    assert run.metrics.test == {"accuracy": 0.625}


def test_a_run_of_somebody_elses_program_has_no_configuration(tmp_path: Path) -> None:
    folder = write_run(tmp_path)
    (folder / "fit.yaml").unlink()
    run = load_run(folder)
    assert run.config == {}
    assert run.config_text == ""


def test_no_such_folder(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"there is no run folder .*missing"):
        load_run(tmp_path / "missing")
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match=r"there is no run folder .*file"):
        load_run(tmp_path / "file")


def test_a_folder_without_records(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="holds no records: run `attnlight test`"):
        load_run(tmp_path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [1, 2", r"fit\.yaml is no readable YAML: .*line 1"),
        ("!!python/object/apply:os.getcwd []", r"fit\.yaml is no readable YAML"),
        ("- 1\n- 2\n", r"fit\.yaml holds a list; expected a mapping"),
    ],
)
def test_a_damaged_configuration(tmp_path: Path, text: str, message: str) -> None:
    folder = write_run(tmp_path)
    (folder / "fit.yaml").write_text(text)
    with pytest.raises(InputError, match=message) as caught:
        load_run(folder)
    assert "\n" not in str(caught.value)
