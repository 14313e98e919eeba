"""The verdict card of the commands: the same words everywhere, and commands that measure the rest."""

from __future__ import annotations

import json
import re
import shlex
from contextlib import chdir
from html import unescape
from pathlib import Path
from textwrap import fill

import numpy as np
import pyarrow.parquet as pq
import pytest

import attnlight
from attnlight.__main__ import main
from attnlight.datamodules import PlantedEvidence
from attnlight.report.verdict.card import verdict_of
from tests.api.test_run import rows_of
from tests.commands import CPU, NO_FIGURE, QUIET, Printed, without_figures
from tests.test_configs import SMALL, TINY

RUN = "checkpoints/e/base"
OPTIONS = [*SMALL, *TINY, "--trainer.max_epochs=1", "--trainer.logger=false", *CPU, *QUIET]
WITHOUT_TRAINING = ["--trainer.logger=false", *CPU, *QUIET]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run of one epoch, of which only the predictions were recorded."""
    folder = tmp_path_factory.mktemp("card")
    with chdir(folder):
        assert main(["fit", "planted_none", "--experiment=e", "--run=base", *OPTIONS]) == 0
        assert main(["test", RUN, "--tests", "predictions", NO_FIGURE, *WITHOUT_TRAINING]) == 0
    return folder


def measure_card() -> None:
    """Run the tests of the card here, without their figures."""
    attached = without_figures("card.yaml", "card")
    assert main(["test", RUN, *attached, "--overwrite", *WITHOUT_TRAINING]) == 0


@pytest.fixture(scope="module")
def measured(place: Path) -> None:
    """The run has the records of a card."""
    with chdir(place):
        measure_card()


@pytest.fixture
def here(place: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(place)
    return place


def words(text: str) -> str:
    return " ".join(text.split())


@pytest.mark.slow
def test_commands_measure_what_was_not(here: Path, printed: Printed) -> None:
    """First all at once, then again once some records are gone."""
    before = verdict_of(Path(RUN))
    assert before["ranks"].command == f"attnlight test {RUN} --tests card"
    assert {line.answer for line in before.lines} == {"not measured"}
    _, *command = shlex.split(before["ranks"].command)
    terminal = printed(*command, *WITHOUT_TRAINING)
    card = verdict_of(Path(RUN))
    assert str(card) in terminal
    assert "not measured" not in {line.answer for line in card.lines}
    said = [text for text in str(card).splitlines() if not text.startswith("  attnlight")]
    assert max(map(len, said)) <= 80
    each = {"ranks": "leave_one_out_agreement", "finds": "faithfulness"}
    each |= {"needed": "attention_permutation", "words": "state_token_agreement"}
    for name, test in each.items():
        Path(RUN, f"records/test/{test}.parquet").unlink()
        missing = verdict_of(Path(RUN))[name]
        assert missing.answer == "not measured"
        assert missing.command == f"attnlight test {RUN} --tests card --overwrite"
    assert main([*shlex.split(missing.command)[1:], *WITHOUT_TRAINING]) == 0
    assert str(verdict_of(Path(RUN))) == str(card)


@pytest.mark.slow
def test_the_same_words_everywhere(here: Path, printed: Printed) -> None:
    measure_card()
    card = verdict_of(Path(RUN))
    assert printed("report", RUN) == f"{fill(card.sentence, 80)}\n{RUN}/report/index.html\n"
    html = Path(RUN, "report/index.html").read_text(encoding="utf-8")
    above = words(re.sub(r"<[^>]+>", "", unescape(html[: html.index("</header>")])))
    assert card.sentence in above
    for line in card.lines:
        assert words(f"{line.question} {line.says} {line.missing}") in above
        assert all(command in above for command in line.command.splitlines())
    written = json.loads(Path(RUN, "report/verdict.json").read_text("utf-8"))
    assert [line["text"] for line in written["lines"]] == [str(line) for line in card.lines]
    assert attnlight.Results(Path(RUN)).verdict() == card
    assert "no better than its majority class" in card.sentence, "after one epoch"


@pytest.mark.usefixtures("measured")
def test_the_card_of_python_is_that_of_the_command(here: Path) -> None:
    sizes = {option.split("=")[0][7:]: int(option.split("=")[1]) for option in SMALL}
    model = attnlight.load(RUN)
    rows = rows_of(model, PlantedEvidence(**sizes).dataset("test"))
    results = attnlight.run(model, rows, batch_size=7)
    assert results.folder.parts[-2:] == ("e", "base")
    for line in verdict_of(Path(RUN)).lines:
        other = results.verdict()[line.name]
        assert (other.answer, other.says) == (line.answer, line.says)
        expected, found = ([each.value, each.low, each.high] for each in (line, other))
        assert [x is None for x in found] == [x is None for x in expected]
        assert [x or 0 for x in found] == pytest.approx([x or 0 for x in expected], abs=1e-5)


@pytest.mark.usefixtures("measured")
def test_explain_says_the_sentence_of_the_card(here: Path, printed: Printed) -> None:
    sentence = verdict_of(Path(RUN)).sentence
    (found,) = json.loads(printed("explain", RUN, "filler3 filler5", "--json"))
    assert found["verdict"] == f"On the test split: {sentence}"
    (one,) = attnlight.explain(f"{RUN}/best.ckpt", ["filler3 filler5"])
    assert str(one.verdict) == found["verdict"]
    assert found["verdict"].split("(")[0] in one._repr_html_()
    file = Path(RUN, "report/verdict.json")
    content = json.loads(file.read_text())
    command = f"was not measured: attnlight test {RUN} --tests card"
    for changed in ({"checkpoint": "another"}, {"checkpoint": None}):
        file.write_text(json.dumps(content | changed))
        (one,) = attnlight.explain(RUN, ["filler3 filler5"])
        assert command in str(one.verdict)
    file.write_text("{}")
    with pytest.raises(attnlight.errors.InputError, match="is not a verdict card"):
        attnlight.explain(RUN, ["filler3 filler5"])
    file.unlink()
    assert command in str(attnlight.explain(RUN, ["filler3 filler5"])[0].verdict)


@pytest.mark.slow
def test_trained_adversaries_are_found(here: Path) -> None:
    measure_card()
    line = verdict_of(Path(RUN))["uniqueness"]
    assert line.missing == "No adversary was trained from it."
    for command in line.command.splitlines():
        assert main([*shlex.split(command)[1:], *WITHOUT_TRAINING]) == 0
    rows = pq.read_table(f"{RUN}-adversary/records/test/base_divergence.parquet")
    said = verdict_of(Path(RUN))["uniqueness"].missing
    assert said.startswith("Of the 1 adversaries trained from it")
    if np.mean(rows["prediction_tvd"]) <= 0.05:
        assert f"JS divergence of {np.mean(rows['attention_js']):.2f}" in said
