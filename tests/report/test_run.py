"""What a run folder holds, what the task logged, and which records belong together."""

import math
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from attnlight.cli.report import main
from attnlight.errors import InputError
from attnlight.report.page import describe_run
from attnlight.report.run import (
    VERBS,
    load_run,
    read_metrics,
    require_one_run,
    require_same_instances,
    stored_records,
)
from attnlight.report.verdict.card import verdict_of
from tests.report.fake import rows_of, write_metrics, write_record, write_run


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
    assert [record.test for record in run.records] == ["predictions", "attention_permutation"]
    assert [record.epoch for record in run.epoch_records] == [0, 1, 0, 1]
    assert run.configs["fit"]["seed_everything"] == 7
    assert run.configs.keys() == {"fit", "test"}
    assert run.config_text == (folder / "fit.yaml").read_text()
    assert run.test_metrics == {"": {"accuracy": 0.625}}


def test_a_run_of_somebody_elses_program_has_no_configuration(tmp_path: Path) -> None:
    folder = write_run(tmp_path)
    (folder / "fit.yaml").unlink()
    run = load_run(folder)
    assert (run.configs, run.config_text) == ({"fit": {}}, "")


def test_no_such_folder_and_one_without_records(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for name in ("missing", "file"):
        with pytest.raises(InputError, match=rf"there is no run folder .*{name}"):
            load_run(tmp_path / name)
    with pytest.raises(InputError, match=r"no records: run `attnlight test .* --tests card`"):
        load_run(tmp_path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [1, 2", r"fit\.yaml is not readable YAML: .*line 1"),
        ("!!python/object/apply:os.getcwd []", r"fit\.yaml is not readable YAML"),
        ("- 1\n- 2\n", r"fit\.yaml holds a list; expected a mapping"),
    ],
)
def test_a_damaged_configuration(tmp_path: Path, text: str, message: str) -> None:
    folder = write_run(tmp_path)
    (folder / "fit.yaml").write_text(text)
    with pytest.raises(InputError, match=message) as caught:
        load_run(folder)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("part", [3, "x", [1], {"init_args": 3}, {"init_args": {"net": [1]}}])
def test_a_section_that_is_no_mapping_says_nothing(tmp_path: Path, part: object) -> None:
    folder = write_run(tmp_path, stages=("test",), epochs=())
    (folder / "fit.yaml").write_text(yaml.safe_dump({"model": part, "data": part, "trainer": part}))
    assert describe_run(load_run(folder), [])[0]
    assert verdict_of(folder).lines


HEAD = "epoch,train/loss,val/loss\n"
# Files of versions, and the loss on validation and the accuracy on the test split that they hold.
LOGGED: list[tuple[dict[int, str], dict[int, float], float | None]] = [
    (
        {9: f"{HEAD}0,1,0.9\n1,1,0.8\n", 10: f"{HEAD}2,1,0.6\n1,1,0.7\n"},
        {0: 0.9, 1: 0.7, 2: 0.6},
        None,
    ),
    ({11: "epoch,test/accuracy\n0,0.5\n", 2: "epoch,test/accuracy\n0,0.4\n"}, {}, 0.5),
    ({0: f"{HEAD}0,1,0.9\n", 1: "epoch,val/loss\n0,0.1\n"}, {0: 0.9}, None),  # validate is no fit
    ({0: ""}, {}, None),
    ({}, {}, None),
]


@pytest.mark.parametrize(("versions", "loss", "accuracy"), LOGGED)
def test_later_versions_go_first_by_number(
    tmp_path: Path, versions: dict[int, str], loss: dict[int, float], accuracy: float | None
) -> None:
    for version, text in versions.items():
        write_metrics(tmp_path / f"version_{version}", text)
    curves, tested = read_metrics(tmp_path)
    assert list(curves.get("loss", {}).items()) == list(loss.items())
    assert tested.get("accuracy") == accuracy


def test_curves_and_test_metrics(tmp_path: Path) -> None:
    write_metrics(
        tmp_path / "version_0",
        "epoch,step,train/loss,val/loss,val/accuracy,val/attention_permutation/median_tvd\n"
        "0,9,,0.6,0.7,0.11\n0,9,0.65,,,\n1,19,,0.5,0.8,0.12\n1,19,0.55,,,\n",
    )
    names = "epoch,step,test/accuracy,test/f1_positive,test/predictions/max_attention"
    write_metrics(tmp_path / "version_1", f"{names}\n0,0,.75,nan,.3\n")
    curves, tested = read_metrics(tmp_path)
    assert curves == {"loss": {0: 0.6, 1: 0.5}, "accuracy": {0: 0.7, 1: 0.8}}
    assert tested.keys() == {"accuracy", "f1_positive"}
    assert tested["accuracy"] == 0.75
    assert math.isnan(tested["f1_positive"])


@pytest.mark.parametrize("row", ["0,one", "0,1,2", "\x00,\xff"])
def test_a_damaged_file_is_named(tmp_path: Path, row: str) -> None:
    write_metrics(tmp_path / "version_0", f"epoch,val/loss\n{row}\n")
    with pytest.raises(InputError, match=r"version_0/metrics\.csv is not a readable file"):
        read_metrics(tmp_path)


def stored(path: Path, index: int = 0, n: int = 20, position: Any = 0, **about: object) -> Path:
    rows = rows_of("attention_permutation", n=n)
    moved = {"index": rows["index"] + index, "position": rows["position"] + position}
    return write_record(path, rows | moved, **about)


class TestOneRun:
    OF_RUN = {"corpus": "c", "classes": ["a", "b"], "checkpoint": "best.ckpt"}  # noqa: RUF012

    @pytest.mark.parametrize(
        ("other", "message"),
        [
            ({"corpus": "d"}, "come from different corpora: one is of another run"),
            ({"classes": ["a", "c"]}, "name different classes: one is of another run"),
            ({"checkpoint_hash": "2"}, "come from different versions of best.ckpt: test it again"),
            (
                {"checkpoint_hash": "2", "checkpoint": "last.ckpt"},
                "are of two checkpoints, best.ckpt and last.ckpt",
            ),
        ],
    )
    def test_records_of_two_runs(
        self, tmp_path: Path, other: dict[str, object], message: str
    ) -> None:
        about = self.OF_RUN | {"checkpoint_hash": "1"}
        paths = [
            stored(tmp_path / "a.parquet", **about),
            stored(tmp_path / "b.parquet", **(about | other)),
        ]
        with pytest.raises(InputError, match=rf"a\.parquet and .*b\.parquet {message}"):
            require_one_run(paths)
        require_one_run(paths[:1])

    def test_what_may_differ_in_one_run(self, tmp_path: Path) -> None:
        abouts = [self.OF_RUN | {"checkpoint_hash": "1", "stage": stage} for stage in VERBS]
        abouts += [self.OF_RUN | {"checkpoint": None, "epoch": 3}, self.OF_RUN, {}]
        paths = [tmp_path / f"{k}.parquet" for k in range(len(abouts))]
        require_one_run([stored(p, **about) for p, about in zip(paths, abouts, strict=True)])

    def test_the_report_refuses(self, tmp_path: Path) -> None:
        folder = write_run(tmp_path / "a" / "b", epochs=())
        other = write_run(tmp_path / "a" / "c", epochs=(), classes=["good", "bad"])
        name = "records/test/predictions.parquet"
        (folder / name).write_bytes((other / name).read_bytes())
        with pytest.raises(InputError, match="one is of another run"):
            main([str(folder)])
        assert not (folder / "report").exists()


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({}, ""),
        ({"stage": "val"}, "are of different splits"),
        ({"corpus": "d"}, "come from different corpora"),
        ({"index": 3}, r"6 are in one alone, the first is index 0 \(position 0\)"),
        ({"n": 24}, r"4 are in one alone, the first is index 20 \(position 0\)"),
        ({"position": np.ones(20, dtype=np.int64)}, "40 are in one alone"),
    ],
)
def test_same_instances(tmp_path: Path, other: dict[str, Any], message: str) -> None:
    about = {"stage": "test", "corpus": "c"}
    first = stored(tmp_path / "a.parquet", **about)
    second = stored(tmp_path / "b.parquet", **(about | other))
    with pytest.raises(InputError, match=message) if message else nullcontext():
        require_same_instances(first, second)
