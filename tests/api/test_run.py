"""The Python interface: its results are those of `attnlight test` on the same rows."""

from __future__ import annotations

import html
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

import attnlight
from attnlight.api.recording import build_tests
from attnlight.callbacks import DecisionFlip, Predictions
from attnlight.errors import InputError
from attnlight.records import read_record
from attnlight.tasks import AttentionClassifier, AttentionTask
from tests.api.test_check import Sound, Unnormalised, batch_of, one_logit
from tests.bases import Planted, save_base, trainer
from tests.callbacks.every import every
from tests.outside import TwoHeads

ALL = [*every("random networks")]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_base(tmp_path_factory.mktemp("base") / "best.ckpt", Planted())


def assert_equal_records(first: Path, second: Path, names: set[str]) -> None:
    """Columns within 1e-6, in the same rows."""
    assert {path.stem for path in first.glob("*.parquet")} == names
    assert {path.stem for path in second.glob("*.parquet")} == names
    for name in names:
        one, other = (read_record(folder / f"{name}.parquet") for folder in (first, second))
        assert one.columns.keys() == other.columns.keys()
        assert len(one.columns["index"]) > 1
        for column, values in one.columns.items():
            if values.dtype == object:
                assert [list(row) for row in values] == [list(row) for row in other.columns[column]]
            else:
                np.testing.assert_allclose(values, other.columns[column], atol=1e-6, err_msg=column)
        assert one.metadata["settings"] == other.metadata["settings"]


def planted_rows(checkpoint: Path) -> tuple[AttentionTask, Planted, list[tuple[str, str]]]:
    """A task, its corpus, and the test split as pairs of a text and its class."""
    task, data = AttentionClassifier.load_from_checkpoint(checkpoint), Planted()
    return task, data, rows_of(task, data.dataset("test"))


def rows_of(model: Any, split: Any) -> list[tuple[str, str]]:
    """The rows of a split as pairs of a text and its class."""
    names = {number: word for word, number in model.raw.parsed_tokenizer.get_vocab().items()}
    rows = []
    assert split.index.tolist() == list(range(len(split)))
    for place in range(len(split)):
        batch = split[[place]]
        words = [names[number] for number in batch.tokens[batch.attendable()].tolist()]
        rows.append((" ".join(words), model.classes[int(batch.labels[0])]))
    return rows


@pytest.mark.usefixtures("few_steps")
def test_records_are_those_of_the_trainer(checkpoint: Path, tmp_path: Path) -> None:
    task, data, rows = planted_rows(checkpoint)
    tests = [getattr(attnlight.callbacks, name)(figures=False) for name in ALL]
    trainer(tmp_path, *tests).test(task, data, verbose=False)
    results = attnlight.run(checkpoint, rows, tests=ALL, batch_size=5)
    folders = (folder / "records/test" for folder in (tmp_path, results.folder))
    assert_equal_records(*folders, {test.name for test in tests})


@pytest.mark.parametrize("form", ["texts", "batches", "task"])
def test_all_forms_of_data_give_one_record(checkpoint: Path, form: str) -> None:
    task, data, rows = planted_rows(checkpoint)
    texts = data.dataset("test")
    given: dict[str, Any] = {
        "texts": [text for text, _ in rows],
        "batches": [texts[list(range(10))], texts[list(range(10, 23))]],
        "task": rows,
    }
    expected = attnlight.run(checkpoint, rows, [DecisionFlip(), "Predictions"])
    model = attnlight.load(checkpoint) if form == "texts" else task
    found = attnlight.run(model, given[form], [DecisionFlip(), "Predictions"])
    for test in ("decision_flip", "predictions"):
        one, other = found.table(test), expected.table(test)
        assert ("label" in one) == (test == "predictions" and form != "texts")
        for column in one:
            values = (np.array(list(table[column]), float) for table in (one, other))
            np.testing.assert_allclose(*values, atol=1e-6)


def test_of_a_test_in_several_files_the_last_one_counts() -> None:
    """As of `--tests cheap,card`."""
    cheap, card, both = (
        {test.name: dict(test.hparams) for test in build_tests(name)}
        for name in ("cheap", "card", "cheap,card")
    )
    assert cheap.keys() & card.keys()
    assert both == cheap | card


def test_a_model_from_outside_reads_batches() -> None:
    torch.manual_seed(0)
    model = TwoHeads(affine=False).train()
    results = attnlight.run(model, [batch_of()], ["Predictions", "AttentionPermutation"])
    with torch.no_grad():
        expected = model(batch_of()).probabilities.numpy()
    found = np.array(list(results.table("predictions")["probabilities"]))
    np.testing.assert_allclose(found, expected, atol=1e-6)
    assert model.training


@pytest.mark.parametrize("kind", [Sound, Unnormalised])
def test_promises_that_a_model_from_outside_breaks_are_said(
    kind: type[Sound], capsys: pytest.CaptureFixture[str]
) -> None:
    model = kind()
    attnlight.run(model, [batch_of()], ["Predictions"])
    said = [line.partition(": ")[2] for line in capsys.readouterr().err.splitlines()]
    assert said == attnlight.check(model, batch_of())
    assert bool(said) == (kind is Unnormalised)


def test_outputs_of_other_shapes_are_refused() -> None:
    with pytest.raises(
        InputError, match=r"^Sound breaks a promise .*: shapes: `logits` is \(4, 1\)"
    ):
        attnlight.run(Sound(one_logit), [batch_of()], ["Predictions"])


def test_tables_figures_and_report(checkpoint: Path, tmp_path: Path) -> None:
    _, _, rows = planted_rows(checkpoint)
    results = attnlight.run(checkpoint, rows, "decision_flip,attention_permutation")
    table = results.table()
    assert list(table.columns) == ["test", "measure", "mean", "low", "high", "n"]
    assert set(table["test"]) == {"decision_flip", "attention_permutation"}
    flips = results.table("decision_flip")
    row = table[(table["test"] == "decision_flip") & (table["measure"] == "never_flips_minimal")]
    assert float(row["mean"].iloc[0]) == pytest.approx(flips["never_flips_minimal"].mean())
    assert ((table["low"] <= table["mean"]) & (table["mean"] <= table["high"])).mean() > 0.5
    short = results.headlines()
    assert list(short["test"]) == ["attention_permutation", "decision_flip"]
    for _, row in short.iterrows():
        (same,) = table[(table["test"] == row["test"]) & (table["measure"] == row["measure"])].index
        assert row[table.columns].tolist() == table.loc[same].tolist()
        says = row["says"]
        assert says in " ".join(str(results).split())
        assert says in results._repr_html_()
    figure = results.figure("attention_permutation")
    assert figure is not None
    assert figure.axes
    page = results.report(tmp_path / "page")
    assert page == tmp_path / "page/index.html"
    assert "Attention permutation" in page.read_text(encoding="utf-8")
    verdict = results.verdict()
    lines = verdict.table()
    assert lines["question"].tolist() == [line.question for line in verdict.lines]
    assert lines.loc[lines["name"] == "needed", "value"].item() == pytest.approx(
        table.loc[table["measure"] == "uniform_tvd", "mean"].item()
    )
    for words in (verdict.heading, verdict.sentence, verdict.lines[0].question):
        assert words in html.unescape(verdict._repr_html_())
    assert str(results).startswith(verdict.sentence[:60])
    with pytest.raises(InputError, match=r"no test 'decision_flp' .did you mean 'decision_flip'"):
        results.figure("decision_flp")
    folder = results.folder
    del results
    assert not folder.exists()


def test_options_reach_a_test_and_its_object_is_not_changed(checkpoint: Path) -> None:
    _, _, rows = planted_rows(checkpoint)
    test = Predictions(max_instances=7)
    spec = {"class_path": "DecisionFlip", "init_args": {"draws": 2, "max_instances": 4}}
    results = attnlight.run(checkpoint, rows, [test, spec])
    assert len(results.table("predictions")) == 7
    assert len(results.table("decision_flip")) == 4
    metadata = read_record(results.folder / "records/test/decision_flip.parquet").metadata
    assert metadata["settings"]["draws"] == 2
    assert metadata["partial"] is True
    assert test.figures


def test_texts_whose_logits_are_not_finite_are_recorded_as_such(checkpoint: Path) -> None:
    task, _, rows = planted_rows(checkpoint)
    word = rows[3][0].split()[0]
    with torch.no_grad():
        task.model.embedding.weight[task.tokenizer.token_to_id(word)] = torch.nan
    with_word = [word in text.split() for text, _ in rows]
    results = attnlight.run(task, rows, Predictions())
    assert (results.table("predictions")["prediction"] == -1).tolist() == with_word


def mistakes() -> Iterator[tuple[Any, dict[str, Any], str]]:
    yield [], {}, "there are no data to test on"
    for size in (2.5, None):
        yield ["a"], {"batch_size": size}, f"batch_size is {size!r}; it must be a whole number"
    twice = pd.DataFrame([["a", "b"]], columns=["text", "text"])
    yield twice, {}, "the data have several columns 'text': rename or remove all but one"
    nothing = replace(batch_of(), mask=torch.zeros(4, 9, dtype=torch.bool))
    yield [batch_of(), nothing], {}, r"a batch has a text without a token \(index 0\): leave it out"
    yield [batch_of(())], {}, "a batch has no text; expected at least one"
    yield ["a"], {"tests": "cheep"}, "did you mean"
    yield ["a"], {"tests": []}, "there is no test to run"
    yield (
        ["a"],
        {"tests": ["DecisionFlop"]},
        r"no class 'DecisionFlop' \(did you mean 'DecisionFlip'",
    )
    yield (
        ["a"],
        {"tests": ["decision_flip"]},
        r"no class 'decision_flip' \(did you mean 'DecisionFlip'",
    )
    yield (
        ["a"],
        {"tests": Predictions},
        "a test is <class .*>; expected the name of its class, such as",
    )
    yield ["a"], {"tests": ["EvidenceMass"]}, "needs a corpus with a column `evidence`"
    sanity = {"class_path": "Sanity", "init_args": {"against": "a/run"}}
    yield ["a"], {"tests": [sanity]}, "against of sanity needs the corpus of the run"
    yield ["a"], {"tests": ["BaseDivergence"]}, "compares with a base model"
    yield ["a"], {"tests": ["MeasuredUse"]}, "needs the counterfactuals of words"
    yield ["a"], {"tests": [{"class_path": "Predictions", "init_args": {"x": 1}}]}, "no option 'x'"


@pytest.mark.parametrize(("data", "options", "sentence"), list(mistakes()))
def test_mistakes_are_one_sentence(
    checkpoint: Path, data: Any, options: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(InputError, match=sentence) as caught:
        attnlight.run(checkpoint, data, **options)
    assert "\n" not in str(caught.value)
