"""`attnlight export`: formats of other packages, from simulated records and from a run."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from attnlight.__main__ import main
from attnlight.records import list_column
from attnlight.records.parquet import read_table
from tests.commands import CPU, QUIET, Printed, Refused, experiment
from tests.data.local import write_corpus, write_table
from tests.report.fake import write_record

SCORES = [[0.5, 0.1, 0.4, 0.0], [0.2, 0.2, 0.9], [3.0], [-1.0, 2.0, 1.5, float("nan"), 0.0]]
MARKED = [1, 0, 1, 2]
ERASER = ["--format", "eraser"]
ATTENTION = [[[0.2, 0.8], [0.6, 0.4]], [[0.5, 0.25, 0.25], [0.1, 0.3, 0.6]]]  # of two heads


def write_run(folder: Path, position: int = 0, **metadata: Any) -> Path:
    """A run with the record of two methods over four texts; the fifth was not measured."""
    lengths, flat = np.array([len(row) for row in SCORES]), np.concatenate(SCORES)
    columns = {
        "index": np.array([3, 0, 7, 5]),
        "position": np.array([position, 0, 0, 0]),
        "prediction": np.array([0, 1, 1, 0]),
        "probabilities": np.array([[0.75, 0.25], [0.4, 0.6], [0.1, 0.9], [0.5, 0.5]]),
        "rationale_items": np.array(MARKED),
        "scores_gradient": list_column(flat, lengths),
        "scores_random": list_column(-flat, lengths),
    }
    about = {"classes": ["NEG", "POS"]} | metadata
    write_record(folder / "records/test/plausibility.parquet", columns, excluded=[(9, 0)], **about)
    return folder


def lines(file: Path) -> dict[str, dict[str, Any]]:
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    return {row["annotation_id"]: row for row in rows}


def exported(run: Path, *options: str) -> dict[str, dict[str, Any]]:
    assert main(["export", str(run), *ERASER, "--method", "gradient", *options]) == 0
    return lines(run / "export/test-gradient.jsonl")


def write_texts(folder: Path) -> Path:
    """A run with the record of two texts; the items of the second are a word, a sentence and a word."""
    columns = {
        "index": np.array([2, 4]),
        "prediction": np.array([0, 1]),
        "probabilities": np.array([[0.75, 0.25], [0.4, 0.6]]),
        "label": pa.array([1, None], pa.int64()),
        "tokens": pa.array([["so", "dull"], ["a", "good", "film", "!"]]),
        "items": pa.array([[[0, 1], [1, 2]], [[0, 1], [1, 3], [3, 4]]]),
        "attention": pa.array(ATTENTION, pa.list_(pa.list_(pa.float64()))),
        "scores_loo": list_column(np.array([-0.5, 2.0, 0.0, -4.0, np.nan]), np.array([2, 3])),
    }
    write_record(folder / "records/test/texts.parquet", columns, classes=["NEG", "POS"])
    return folder


def test_all_scores_of_a_text_are_a_line(tmp_path: Path, printed: Printed) -> None:
    run = write_texts(tmp_path)
    file = run / "export/test-texts.jsonl"
    assert printed("export", str(run)).splitlines()[-1] == str(file)
    first, second = (json.loads(line) for line in file.read_text().splitlines())
    assert first == {
        "id": "2", "index": 2, "position": 0, "items": ["so", "dull"], "label": "POS",
        "prediction": "NEG", "probabilities": {"NEG": 0.75, "POS": 0.25},
        "scores": {"attention": [0.4, pytest.approx(0.6)], "loo": [-0.5, 2.0]},
    }  # fmt: skip
    assert (second["items"], second["label"]) == (["a", "good film", "!"], None)
    assert second["scores"]["loo"] == [0.0, -4.0, None]


def test_records_that_captum_shows(tmp_path: Path) -> None:
    run = write_texts(tmp_path)
    assert main(["export", str(run), "--format", "captum", "--method", "loo"]) == 0
    file = run / "export/test-loo.captum.jsonl"
    first, second = (json.loads(line) for line in file.read_text().splitlines())
    # The arguments of captum.attr.visualization.VisualizationDataRecord.
    assert first == {
        "word_attributions": [-0.25, 1.0], "pred_prob": 0.75, "pred_class": "NEG", "true_class": "POS",
        "attr_class": "NEG", "attr_score": 1.5, "raw_input_ids": ["so", "dull"],
        "convergence_score": None,
    }  # fmt: skip
    assert second["word_attributions"] == [0.0, -1.0, 0.0]


def test_a_data_set_as_thermostat_has_it(tmp_path: Path) -> None:
    run = write_texts(tmp_path)
    assert main(["export", str(run), "--format", "thermostat"]) == 0
    file, cache = str(run / "export/test-attention.parquet"), str(tmp_path / "cache")
    found = datasets.Dataset.from_parquet(file, cache_dir=cache)
    assert found.features["label"].names == ["NEG", "POS"]
    assert found["label"][:] == [1, None]
    assert found["idx"][:] == [2, 4]
    assert found["tokens"][0] == ["so", "dull"]
    for shown, heads in zip(found["attributions"], ATTENTION, strict=True):
        assert shown == pytest.approx(np.mean(heads, axis=0))
    assert found["predictions"][1] == pytest.approx([0.4, 0.6])


def test_each_text_as_eraser_reads_it(tmp_path: Path) -> None:
    run = write_run(tmp_path)
    found = exported(run, "--share", "0.5")
    assert list(found) == ["0", "3", "5", "7"]
    first, second = ({"start_token": n, "end_token": n + 1} for n in (0, 2))
    rationale = {"docid": "3", "hard_rationale_predictions": [first, second]}
    assert found["3"] == {
        "annotation_id": "3",
        "rationales": [rationale | {"soft_rationale_predictions": SCORES[0]}],
        "classification": "NEG",
        "classification_scores": {"NEG": 0.75, "POS": 0.25},
    }
    # Rounded up, ties from left to right; an item without a score comes last.
    hard = {key: row["rationales"][0]["hard_rationale_predictions"] for key, row in found.items()}
    assert hard["0"] == [first, second]
    assert hard["7"] == [first]
    assert hard["5"] == [{"start_token": 1, "end_token": 3}, {"start_token": 4, "end_token": 5}]
    soft = found["5"]["rationales"][0]["soft_rationale_predictions"]
    assert soft == [-1.0, 2.0, 1.5, -1.0, 0.0]


def test_the_default_share_is_that_of_the_marked_items(tmp_path: Path) -> None:
    run = write_run(tmp_path)
    share = np.mean([1 / 4, 1 / 1, 2 / 5])  # the text without marks does not count
    for key, row in exported(run).items():
        (rationale,) = row["rationales"]
        size = len(rationale["soft_rationale_predictions"])
        runs = rationale["hard_rationale_predictions"]
        chosen = sum(part["end_token"] - part["start_token"] for part in runs)
        assert chosen == np.ceil(share * size), key


def test_every_method_has_a_file(tmp_path: Path, printed: Printed) -> None:
    run = write_run(tmp_path)
    said = printed("export", str(run), *ERASER).splitlines()
    files = [run / f"export/test-{name}.jsonl" for name in ("gradient", "random")]
    assert said[-1] == str(run / "export")
    assert [len(lines(file)) for file in files] == [4, 4]
    assert lines(files[0]) != lines(files[1])


def test_sentences_have_scores_alone(tmp_path: Path) -> None:
    found = exported(write_run(tmp_path, items="sentences"))
    assert found["7"]["rationales"] == [{"docid": "7", "soft_sentence_predictions": [3.0]}]


@pytest.mark.parametrize("unique", [True, False])
def test_ids_are_those_of_the_corpus(tmp_path: Path, unique: bool) -> None:
    names = [f"doc{row if unique else row % 4}" for row in range(10)]
    rows = {"text": ["a b"] * 10, "label": [0, 1] * 5, "name": names}
    path = write_corpus(tmp_path / "corpus", train=rows, test=rows)
    run = write_run(tmp_path / "run")
    (run / "fit.yaml").write_text(
        "data:\n  class_path: attnlight.datamodules.TextDataModule\n"
        f"  init_args: {{path: {path}, cache_dir: {tmp_path / 'cache'}}}\n"
    )
    found = exported(run, "--ids", "name")
    expected = (
        ["doc0", "doc3", "doc5", "doc7"] if unique else ["doc0:0", "doc3:3", "doc1:5", "doc3:7"]
    )
    assert list(found) == expected
    documents = [row["rationales"][0]["docid"] for row in found.values()]
    assert documents == [names[row] for row in (0, 3, 5, 7)]


@pytest.mark.parametrize("place", ["fit.yaml", "test.yaml", "--data"])
def test_ids_of_splits_that_were_cut_are_those_of_their_rows(tmp_path: Path, place: str) -> None:
    """One table, of which `fit` cut the test split, or which a model from elsewhere was tested on."""
    run, table = write_run(tmp_path / "run"), tmp_path / "table.csv"
    write_table(
        table, [("a b", row % 2, f"doc{row}") for row in range(10)], ["text", "label", "name"]
    )
    cut = "test: train" if place == "test.yaml" else "test_fraction: 0.5"
    if place != "--data":
        (run / place).write_text(
            "data:\n  class_path: attnlight.datamodules.TextDataModule\n"
            f"  init_args: {{path: {table}, {cut}}}\n"
        )
    found = exported(run, "--ids", "name", *(["--data", str(table)] if place == "--data" else []))
    assert list(found) == ["doc0", "doc3", "doc5", "doc7"]


def test_mistakes_are_answered_in_one_sentence(tmp_path: Path, refused: Refused) -> None:
    run, tokens = write_run(tmp_path / "run"), write_run(tmp_path / "tokens", position=2)
    nothing, command = tmp_path / "nothing", "--tests texts"
    nothing.mkdir()
    (nothing / "fit.yaml").touch()
    of_films = f"-c {nothing}/validate-films.yaml"
    for words, told in (
        ([nothing], f"run `attnlight test {nothing} {command}`"),
        ([nothing, "--records", "val-films"], f"run `attnlight validate {of_films} {command}`"),
        ([nothing, "--record", "predictions"], f"run `attnlight test {nothing} {command}`"),
        ([nothing, "--record", "plausibility"], "--tests plausibility --trainer.callbacks.keep_scores=true`"),
        ([run, "--method", "gradien"], "no method 'gradien' (did you mean 'gradient'?); it has gradient, random"),
        ([run, "--share", "1.5"], "--share is 1.5; it must be above 0"),
        ([tokens, *ERASER], "explains tokens; ERASER's format has one"),
        ([run, "--format", "captum"], "no column label, which --format captum needs"),
        ([run, "--format", "xml"], "invalid choice: 'xml'"),
        ([run, "--ids", "name"], "fit.yaml"),
    ):  # fmt: skip
        refused("export", *map(str, words), names=[told])


@pytest.mark.parametrize(
    "records", ["../x", "/etc", "..", "test/../../x", "", "test-a/../..", "fit"]
)
def test_records_are_those_of_the_run(tmp_path: Path, refused: Refused, records: str) -> None:
    run = write_run(tmp_path / "run")
    shutil.copytree(run / "records/test", tmp_path / "run/x")
    told = f"--records is {records!r}; expected"
    refused("export", str(run), "--records", records, names=[told], leaving=tmp_path)


def test_a_method_of_a_strangers_record_is_no_path(tmp_path: Path, refused: Refused) -> None:
    run = write_run(tmp_path / "run")
    record = run / "records/test/plausibility.parquet"
    table = read_table(record)
    names = [name.replace("scores_random", "scores_/../../../out") for name in table.column_names]
    pq.write_table(table.rename_columns(names), record)
    told = "'/../../../out', which cannot be the name"
    refused("export", str(run), names=[told], leaving=tmp_path)


def test_a_link_is_not_followed(tmp_path: Path, refused: Refused) -> None:
    run, victim = write_run(tmp_path / "run"), tmp_path / "victim"
    victim.mkdir()
    (run / "export").symlink_to(victim)
    refused("export", str(run), names=["export is a link to"], leaving=victim)


def test_a_record_without_scores_or_marks(
    tmp_path: Path, refused: Refused, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"{__name__}.MARKED", [0, 0, 0, 0])
    told = "has no marked items to take the share of"
    refused("export", str(write_run(tmp_path)), *ERASER, names=[told])
    record = tmp_path / "plain/records/test/plausibility.parquet"
    write_record(record, {"prediction": np.array([1])})
    told = "holds no scores: run `attnlight test "
    refused("export", str(tmp_path / "plain"), "--record", "plausibility", names=[told])


def test_from_fit_to_export(here: Path, printed: Printed) -> None:
    """A planted run: trained, tested with scores, exported; and its report. Paths are printed last."""
    run = "checkpoints/e/r"
    small = ["--data.train_size=60", "--data.validation_size=20", "--data.test_size=20"]
    options = ["--trainer.max_epochs=1", "--trainer.enable_progress_bar=false", *CPU, *QUIET]
    named = ["--experiment=e", "--run=r", *small, *options]
    assert printed("fit", *experiment("planted_none"), *named).splitlines()[-1] == run
    (here / "scores.yaml").write_text(
        "trainer:\n  inference_mode: false\n  callbacks+:\n"
        "    - class_path: attnlight.callbacks.Plausibility\n"
        "      init_args: {methods: [attention, input_gradient], keep_scores: true}\n"
    )
    assert printed("test", run, "-c", "scores.yaml").splitlines()[-1] == run
    assert printed("export", run, *ERASER).splitlines()[-1] == f"{run}/export"
    for name in ("attention", "input_gradient"):
        found = lines(Path(run, f"export/test-{name}.jsonl"))
        assert len(found) == 20
        for row in found.values():
            scores = row["classification_scores"]
            assert sum(scores.values()) == pytest.approx(1, abs=1e-5)
            assert row["classification"] == max(scores, key=scores.__getitem__)
    assert printed("report", run).splitlines()[-1] == f"{run}/report/index.html"
    page = Path(run, "report/index.html").read_text(encoding="utf-8")
    assert "Agreement of explanations with marked items" in page
    assert "gradient × input" in page  # noqa: RUF001
