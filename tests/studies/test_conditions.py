"""Studies under several conditions, each in a folder of its own; the runs are stand-ins."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.studies.conftest import MARKED, MINIMAL, Lab

CONDITIONS: dict[str, Any] = MARKED | {
    "options": None,
    "conditions": {
        "tokens": {},
        "marked": {"options": {"data": {"target": "marked", "pos": False}}},
        "text": {"base": {"options": {"model": {"net": {"readout": "text"}}}}},
    },
}


class TestConditions:
    @pytest.fixture(autouse=True)
    def compared(self, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Path]]:
        """What was compared, and where that went."""
        calls: list[dict[str, Path]] = []

        def write(folders: dict[str, Path], output: Path) -> list[Path]:
            calls.append({**folders, "": output})
            return [output / "exclusivity.md"]

        monkeypatch.setattr("attnlight.report.study.conditions.write_exclusivity", write)
        return calls

    def test_each_has_a_folder(self, lab: Lab, compared: list[dict[str, Path]]) -> None:
        names, started = list(CONDITIONS["conditions"]), lab.starts(CONDITIONS)
        assert [name for _, name in started].count("base-s0") == 3 * len(names)
        assert compared == [{n: lab.root / f"tiny-{n}" for n in names} | {"": lab.root / "tiny"}]
        told = {"tokens": ("tokens", "study", True), "marked": ("marked", "study", False)}
        for name, expected in (told | {"text": ("tokens", "text", True)}).items():
            held = json.loads((lab.root / f"tiny-{name}/study.json").read_text())
            assert (held["study"], held["options"]) == (f"tiny-{name}", name)
            assert (held["target"], held["readout"], held["pos"]) == expected
        assert lab.run(CONDITIONS, "--name=other", "--only=base") == 0
        assert len(compared) == 1, "no adversary is there"
        assert (lab.root / "other-text/study.json").is_file()

    def test_the_worst_status_counts(self, lab: Lab, compared: list[dict[str, Path]]) -> None:
        lab.monkeypatch.setenv("FAKE_FAILS", "adversary-kl-l0.05-s0")
        lab.monkeypatch.setenv("FAKE_FAILS_IN", "tiny-marked")
        assert lab.run(CONDITIONS) == 1
        assert [set(call) for call in compared] == [{"tokens", "text", ""}]
        assert lab.run(CONDITIONS, "--shard=2/2") == 1
        lab.monkeypatch.delenv("FAKE_FAILS")
        assert lab.run(CONDITIONS) == 0
        assert len(compared[-1]) == 4

    def test_dry_run_lists_all(self, lab: Lab) -> None:
        assert lab.run(CONDITIONS, "--dry-run") == 0
        printed = lab.capsys.readouterr().out
        folders = [f"{lab.root}/tiny-{name}" for name in CONDITIONS["conditions"]]
        assert [line for line in printed.splitlines() if "/" in line] == folders
        assert printed.count("3 runs of 3") == 3

    def test_of_classifiers_are_not_compared(
        self, lab: Lab, compared: list[dict[str, Path]]
    ) -> None:
        one = {"options": {"trainer": {"max_epochs": 1}}}
        assert lab.run(MINIMAL | {"conditions": {"one": one, "two": {}}}) == 0
        assert (lab.root / "tiny-two/study.json").is_file()
        assert compared == []

    def test_one_of_another_study_is_told_before_any_is_run(self, lab: Lab) -> None:
        assert lab.run(CONDITIONS) == 0
        other = CONDITIONS["conditions"] | {"text": {"options": {"data": {"pos": False}}}}
        assert lab.starts(CONDITIONS | {"conditions": other}, status=2) == []
        assert "tiny-text contains another study" in lab.capsys.readouterr().err


def test_the_comparison_is_written(lab: Lab) -> None:
    """By the report itself, from what is collected."""
    assert lab.run(CONDITIONS) == 0
    written = (lab.root / "tiny/exclusivity.csv").read_text()
    assert all(name in written for name in CONDITIONS["conditions"])
