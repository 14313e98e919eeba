"""Studies that remove words and retrain: their plan, their commands, and a small one of real runs."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest

from attnlight.__main__ import main
from attnlight.data.dataset import TokenDataset
from attnlight.records import read_record
from attnlight.studies import cli
from attnlight.studies.argv import evaluation_commands, fit_command
from attnlight.studies.plan import digests
from attnlight.studies.spec import Ranking
from tests.commands import CONFIGS
from tests.studies.conftest import MINIMAL, TAGGER, Lab
from tests.studies.fake import Here

ROAR: dict[str, Any] = {"methods": ["gradient"], "shares": [0.7, 0.3], "seeds": [0]}
STUDY: dict[str, Any] = MINIMAL | {
    "options": {"data": {"train_size": 90, "validation_size": 31, "test_size": 41}},
    "base": {"seeds": [0, 1], "options": {"model": {"net": {"hidden_size": 8}}}},
}
NAMES = (
    "base-s0 base-s1 roar-gradient-30-s0 roar-gradient-70-s0 roar-random-30-s0 roar-random-70-s0"
)
STEPS = [
    {"scores": "r/t/base-s0", "method": "gradient", "share": 0.3},
    {"scores": "r/t/roar-gradient-30-s0", "method": "gradient", "share": 0.7},
]


@pytest.mark.parametrize("recursive", [False, True])
def test_each_model_is_a_base_without_words(lab: Lab, recursive: bool) -> None:
    content = STUDY | {"roar": ROAR | {"recursive": recursive}}
    study, runs = lab.study(content), lab.runs(content)
    assert list(runs) == NAMES.split()
    first, last = runs["roar-gradient-30-s0"], runs["roar-gradient-70-s0"]
    assert first.needs == ("base-s0",)
    assert last.needs == (first.name if recursive else "base-s0",)
    assert first.options == last.options == runs["base-s0"].options
    removed = STEPS if recursive else [STEPS[0] | {"share": 0.7}]
    assert f"--data.removed_words={json.dumps(removed)}" in fit_command(
        study, last, Path("r/t"), None
    )
    assert '"name": "occlusion", "by_size": true, "replacement": "delete"' in " ".join(
        evaluation_commands(study, replace(first, scored=("occlusion_by_size",)), Path("r"))[0]
    )
    scoring = [name for name, run in runs.items() if run.scored]
    assert scoring == ["base-s0", *([first.name, "roar-random-30-s0"] if recursive else [])]
    for name, run in runs.items():
        commands = evaluation_commands(study, run, Path("r/t"))
        verbs = ["validate", "test", "predict"] if name in scoring else ["test"]
        assert [command[0] for command in commands] == verbs
        in_fit = any("Predictions" in word for word in fit_command(study, run, Path("r/t"), None))
        assert in_fit == (name not in scoring), "the best epoch alone"
    before, after = (
        digests(lab.study(STUDY), lab.runs(STUDY).values()),
        digests(study, runs.values()),
    )
    assert before.items() <= after.items(), "bases stay as they are"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"roar": {"shares": [0.5], "seeds": [2]}}, "roar needs seeds of `base`, which has [0, 1]"),
        ({"roar": ROAR | {"shares": [0.5, 1]}}, "roar: shares must be above 0 and below 1"),
        ({"roar": ROAR | {"shares": [0]}}, "roar: shares must be above 0 and below 1"),
        ({"roar": ROAR | {"methods": ["gradeint"]}}, "(did you mean 'gradient'?)"),
        (
            {"experiment": TAGGER["experiment"], "options": {}, "roar": ROAR},
            "roar needs a model that classifies texts",
        ),
    ],
)
def test_what_is_refused(
    lab: Lab, capsys: pytest.CaptureFixture[str], changes: dict[str, Any], said: str
) -> None:
    assert lab.run(STUDY | changes) == 2
    printed = capsys.readouterr().err
    assert said in printed
    assert printed.count("\n") == 1


@pytest.mark.slow
def test_whole_study(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Recursive; a method that is added later trains its own models alone."""
    lab = Lab(tmp_path, tmp_path / "calls")
    monkeypatch.setattr(cli, "ProcessExecutor", Here)
    monkeypatch.setenv("ATTNLIGHT_CACHE", str(tmp_path / "cache"))
    small = STUDY["options"] | {"trainer": {"max_epochs": 1, "accelerator": "cpu", "devices": 1}}
    content = STUDY | {"options": small, "roar": ROAR | {"recursive": True}}
    content["base"] = {"seeds": [0], "options": {"model": {"net": {"hidden_size": 8}}}}
    assert lab.run(content) == 0, capsys.readouterr().out
    runs = {run["name"]: run for run in lab.collected()["runs"]}
    assert {(run["role"], run.get("method"), run.get("share")) for run in runs.values()} == {
        ("base", None, None),
        *(("roar", method, share) for method in ("gradient", "random") for share in (0.3, 0.7)),
    }
    # What is left of a text is what the steps left one after the other.
    folders: dict[str, Any] = {}
    lengths: dict[str, Any] = {}
    for name in runs:
        record = read_record(lab.root / f"tiny/{name}/records/test/predictions.parquet")
        lengths[name] = record.columns["length"]
        (folder,) = (tmp_path / "cache").glob(f"*{record.metadata['corpus']}")
        folders[name] = TokenDataset(folder / "test").table["tokens"].to_pylist()
    for text, whole in enumerate(folders["base-s0"]):
        for method in ("gradient", "random"):
            first, last = (folders[f"roar-{method}-{share}-s0"][text] for share in (30, 70))
            counts = len(whole), len(first), len(last)
            assert counts == (len(whole), len(whole) * 7 // 10, len(whole) * 3 // 10)
            assert counts == tuple(
                lengths[name][text]
                for name in ("base-s0", f"roar-{method}-30-s0", f"roar-{method}-70-s0")
            )
            assert is_within(first, whole)
            assert is_within(last, first)
    page = (lab.root / "tiny/report/index.html").read_text()
    assert "Remove and retrain" in page
    assert "Hooker" in page
    before = {path: path.stat().st_mtime_ns for path in lab.root.rglob("best.ckpt")}
    more = content | {"roar": ROAR | {"methods": ["gradient", "attention"]}}
    more["roar"] |= {"shares": [0.3], "recursive": True}
    capsys.readouterr()
    assert main(["study", str(lab.write(more)), f"--root={lab.root}", "--dry-run"]) == 0
    states = [line.split()[2] for line in capsys.readouterr().out.splitlines()[1:5]]
    assert states == ["missing", "finished", "missing", "finished"], "of the base, its scores"
    assert lab.run(more) == 0
    assert all(path.stat().st_mtime_ns == time for path, time in before.items())


def is_within(words: list[int], text: list[int]) -> bool:
    """Whether words stand in a text in this order."""
    rest = iter(text)
    return all(word in rest for word in words)


def test_every_method_has_a_name_of_the_package() -> None:
    from attnlight.attribution.base import ATTRIBUTIONS
    from attnlight.figures.methods import METHODS

    names = {name.removesuffix("_by_size") for name in get_args(Ranking)}
    assert names <= ATTRIBUTIONS.keys() & METHODS.keys()
    assert (CONFIGS / "studies/roar.yaml").is_file()
