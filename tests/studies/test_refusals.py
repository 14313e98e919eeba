"""What a study refuses, in one sentence; the runs are stand-ins."""

import os
import threading
import time
from typing import Any

import pytest

from attnlight.__main__ import main
from attnlight.errors import InputError
from attnlight.studies import cli, job
from attnlight.studies.state import exclusive, join_plan, require_same_plan
from tests.commands import in_forks
from tests.damage import files_of_at_most
from tests.studies import fake
from tests.studies.conftest import MINIMAL, Lab

PAIR: dict[str, Any] = MINIMAL | {"uniform": {"seeds": [0]}}


def refused(lab: Lab, *options: str, **changes: Any) -> str:
    assert lab.run(PAIR | changes, *options) == 2
    printed = lab.capsys.readouterr().err
    assert printed.count("\n") == 1
    return printed


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("--jobs=0", "--jobs is 0"),
        ("--shard=3/2", "--shard is '3/2'; expected I/N"),
        ("--shard=0/2", "expected I/N"),
        ("--shard=half", "expected I/N"),
        ("--only=seeds", "--only has 'seeds'; expected one of: base, uniform, seed"),
        ("--name=2019", "'2019' is not a valid study name"),
        ("--name=a/b", "not a valid study name"),
    ],
)
def test_wrong_option(lab: Lab, option: str, said: str) -> None:
    assert said in refused(lab, option)
    assert not lab.root.exists()
    lab.root.write_text("a file")
    assert "cannot be written" in refused(lab)


class TestPlan:
    def test_what_killed_ones_left_half_written_goes(self, lab: Lab) -> None:
        """Each with the lock under which it is written: another study may be writing the plan."""
        lab.root.mkdir()
        plan = ".plan.json.ab_cdefg"
        for name in (".study.json.ab_cdefg", ".study.parquet.01234567", plan):
            (lab.root / name).write_text("half")
        with exclusive(lab.root / ".lock-collect", leftovers="study.*"):
            assert {path.name for path in lab.root.iterdir()} == {plan, ".lock-collect"}
        join_plan(lab.root, {})
        assert not (lab.root / plan).exists()

    def test_studies_keep_each_others_runs(self, lab: Lab) -> None:
        join_plan(lab.root, {"a": "1"})
        join_plan(lab.root, {"a": "1", "b": "2"})
        join_plan(lab.root, {"a": "1"})
        assert require_same_plan(lab.root, {}) == {"a": "1", "b": "2"}
        with pytest.raises(InputError, match="a differs"):
            join_plan(lab.root, {"a": "3"})

    def test_lock_is_waited_for(self, lab: Lab) -> None:
        order = []

        def second() -> None:
            with exclusive(lab.root / "lock"):
                order.append("second")

        thread = threading.Thread(target=second)
        with exclusive(lab.root / "lock"):
            thread.start()
            thread.join(0.3)
            order.append("first")
        thread.join()
        assert order == ["first", "second"]


class TestFolderOfAnotherStudy:
    def test_is_refused(self, lab: Lab) -> None:
        assert lab.run(PAIR) == 0
        lab.capsys.readouterr()
        epochs = {"trainer": {"max_epochs": 1}}
        assert "contains another study" in refused(lab, options=epochs)
        said = refused(lab, "--dry-run", base={"seeds": [1]}, uniform=None)
        assert "they have no run in common" in said
        assert lab.run(PAIR | {"options": epochs}, "--name=other") == 0

    def test_one_that_grew_is_not(self, lab: Lab) -> None:
        assert lab.run(PAIR) == 0
        grown = lab.starts(PAIR | {"uniform": {"seeds": [0, 1]}})
        assert {name for _, name in grown} == {"uniform-s1"}
        assert lab.starts(PAIR) == [], "and it may shrink"

    def test_damaged_plan(self, lab: Lab) -> None:
        (lab.root / "tiny").mkdir(parents=True)
        (lab.root / "tiny/plan.json").write_text("{")
        assert "plan.json is not readable JSON" in refused(lab)


def study_with_fakes(arguments: list[str]) -> int:
    """A study whose runs take a moment, in a process of its own."""

    def main_in_a_moment() -> int:
        time.sleep(0.3)
        return fake.main()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cli, "ProcessExecutor", fake.Here)
        patch.setattr(job, "main", main_in_a_moment)
        patch.setattr("attnlight.studies.job.gc.collect", lambda: 0)
        patch.setattr("attnlight.report.study.write_study", lambda folder: [])
        return main(["study", os.environ["STUDY"], *arguments])


@pytest.mark.parametrize(
    ("other", "statuses"), [({}, [0, 0]), ({"trainer": {"max_epochs": 1}}, [0, 2])]
)
def test_two_at_once(lab: Lab, other: dict[str, Any], statuses: list[int]) -> None:
    """Two of the same study share its runs; of two different ones a folder has the first alone."""
    files = [lab.write(PAIR), lab.write(PAIR | {"options": other}, "other")]
    given = [f"--root={lab.root}", "--name=tiny"]
    places = [os.environ | {"STUDY": str(file)} for file in files]
    found, printed = in_forks(study_with_fakes, given, cwd=lab.folder, environments=places)
    assert sorted(str(status) for status in found) == [str(status) for status in statuses], printed
    assert ("contains another study" in printed) == bool(other)
    started = lab.started()
    assert len(set(started)) == len(started) == 2 * len(lab.runs(PAIR))
    assert {run["name"] for run in lab.collected()["runs"]} == lab.runs(PAIR).keys()


def test_damaged_base(lab: Lab) -> None:
    assert lab.run(PAIR) == 0
    lab.capsys.readouterr()
    best = lab.root / "tiny/base-s0/best.ckpt"
    content = bytearray(best.read_bytes())
    content[len(content) // 2] ^= 255
    best.write_bytes(content)
    said = refused(lab)
    assert f"{best} is not the checkpoint that was tested" in said
    assert "delete" in said
    best.unlink()
    assert "is not the checkpoint that was tested" in refused(lab)


def test_no_space_left(lab: Lab) -> None:
    assert lab.run(PAIR, "--only=base") == 0
    (lab.root / "tiny/study.parquet").unlink()
    (lab.root / "tiny/study.json").unlink()
    lab.capsys.readouterr()
    with files_of_at_most(300):
        assert lab.run(PAIR) in (1, 2)
    folder, uniform = lab.root / "tiny", lab.runs(PAIR)["uniform-s0"]
    assert "too large" in lab.capsys.readouterr().err
    assert not (folder / "study.parquet").exists()
    assert lab.study_folder(PAIR).state(uniform) != "finished", "half-written is not done"
    assert lab.run(PAIR) == 0
    assert lab.study_folder(PAIR).state(uniform) == "finished"
