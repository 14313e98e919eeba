"""The card of a run says what its verdict says, to the hub and to people."""

import json
import re
import shutil
from pathlib import Path

import pytest
import yaml

from attnlight.__main__ import main
from attnlight.storage.shipped import TRAINED


@pytest.fixture
def run(tmp_path: Path) -> Path:
    shutil.copytree(TRAINED / "sst", tmp_path / "sst")
    return tmp_path / "sst"


def plain(markdown: str) -> str:
    return re.sub(r"\\(.)", r"\1", markdown)


def test_the_card_has_front_matter_sentence_lines_and_numbers(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["card", str(run)]) == 0
    assert capsys.readouterr().out == f"{run}/report/card.md\n"
    _, front, body = (run / "report/card.md").read_text(encoding="utf-8").split("---\n", 2)
    assert yaml.safe_load(front) == {
        "library_name": "attnlight",
        "pipeline_tag": "text-classification",
        "datasets": ["SetFit/sst5"],
        "tags": ["attention", "interpretability"],
    }
    verdict = json.loads((run / "report/verdict.json").read_text(encoding="utf-8"))
    assert f"**{verdict['sentence']}**" in plain(body)
    for line in verdict["lines"]:
        assert f"\n* {line['text']}\n" in plain(body)
        assert line["texts"] is None or f" {line['texts']} of 1,821 texts." in plain(body)
    assert re.search(rf"rules of version {verdict['version']}, 20\d\d-\d\d-\d\d", body)
    assert main(["card", str(run), "--section"]) == 0
    assert body.strip().endswith(capsys.readouterr().out.strip())


def test_the_words_of_a_stranger_mean_nothing(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = run / "report/verdict.json"
    verdict = json.loads(path.read_text(encoding="utf-8"))
    verdict["sentence"] = "[here](http://x.invalid) <img src=x> \x1b[31m\n# title"
    path.write_text(json.dumps(verdict))
    assert main(["card", str(run), "--section"]) == 0
    said = capsys.readouterr().out
    assert r"**\[here\](http://x.invalid) \<img src=x\> \\x1b\[31m\\n\# title**" in said


def test_a_run_without_a_verdict_names_the_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "fit.yaml").touch()
    assert main(["card", str(tmp_path)]) == 2
    assert f"`attnlight test {tmp_path} --tests card` makes it" in capsys.readouterr().err


def test_a_corpus_of_a_folder_is_not_called_one_of_the_hub(
    run: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "SetFit/sst5").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert main(["card", "sst"]) == 0
    assert "datasets" not in (run / "report/card.md").read_text(encoding="utf-8")
