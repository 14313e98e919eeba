"""What tests and predictions say of a model that attends to sentences."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from torch import nn

from attnlight.batch import AttentionOutput, TextBatch
from attnlight.callbacks.hooks.prediction_writer import PredictionWriter
from attnlight.datamodules import PairDataModule, PlantedEvidence
from attnlight.datamodules.base import CorpusDataModule
from attnlight.tasks import AttentionTask
from tests.bases import SMALL, classifier
from tests.callbacks.test_base import trainer
from tests.data.local import write_corpus

SIZES = {"train_size": 20, "validation_size": 10, "test_size": 41}
LENGTH = 6
PLACES = ("garden", "office", "kitchen")


def corpus(length: int | None = LENGTH, batch_size: int = 16) -> PlantedEvidence:
    return PlantedEvidence(sentence_length=length, eval_batch_size=batch_size, **SIZES)


def task_of(data: CorpusDataModule) -> AttentionTask:
    """An untrained classifier of sentences, where the corpus has them, or of words."""
    torch.manual_seed(0)
    net: Any = {"embedding_scale": 2.0, "hierarchical": data.nested, "encoder": "none"}
    return classifier(data.spec, **SMALL, **net).eval()


def texts_of(
    data: PlantedEvidence, model: nn.Module
) -> Iterator[tuple[int, TextBatch, AttentionOutput, list[bool]]]:
    """The place of each text of the test split, its batch and output alone, and its evidence."""
    texts = data.dataset("test")
    for row in range(len(texts)):
        batch = texts[[row]]
        with torch.no_grad():
            output = model(batch)
        signs = batch.extras["evidence"][0][: int(output.mask.sum())]
        yield row, batch, output, [bool((item > 0).any()) for item in signs]


def predicted(folder: Path, data: PlantedEvidence) -> list[dict[str, Any]]:
    started = trainer(folder, PredictionWriter())  # type: ignore[arg-type]
    started.predict(task_of(data), datamodule=data, return_predictions=False)
    rows = pq.read_table(folder / "predictions.parquet").to_pylist()
    return sorted(rows, key=lambda row: row["index"])


@pytest.mark.parametrize("length", [LENGTH, None])
def test_items_are_spans_of_the_tokens(tmp_path: Path, length: int | None) -> None:
    data = corpus(length)
    model = task_of(data).model
    flat, apart = corpus(None).dataset("test"), data.dataset("test")
    rows = predicted(tmp_path, data)
    assert [row["index"] for row in rows] == list(range(41))
    for row in rows:
        text = flat[[row["index"]]]
        size = len(text.tokens[0])
        assert row["tokens"] == flat.words(row["index"])
        assert row["evidence"] == text.extras["evidence"][0].tolist()
        step = length or 1
        spans = [[start, min(start + step, size)] for start in range(0, size, step)]
        assert row["items"] == spans
        output = model(apart[[row["index"]]])
        assert row["label"] == int(text.labels[0])  # type: ignore[index]
        expected = output.weights[0][:, output.mask[0]].tolist()
        np.testing.assert_allclose(row["attention"], expected, atol=2e-6)
        attention, logits = np.array(row["attention"]), np.array(row["item_logits"])
        assert attention.shape == (1, len(spans)) == logits.shape[:2]
        total = np.einsum("hn,hnc->c", attention, logits)
        odds = np.exp(total - total.max())
        np.testing.assert_allclose(odds / odds.sum(), row["probabilities"], atol=1e-5)


def test_single_texts_have_no_columns_of_pairs(tmp_path: Path) -> None:
    row = predicted(tmp_path, corpus())[0]
    assert list(row) == [
        *("index", "position", "tokens", "items", "label", "probabilities", "attention"),
        *("item_logits", "bias", "text", "offsets", "evidence"),
    ]
    # Generated texts have no source.
    assert (row["text"], row["offsets"]) == ("", [[0, 0]] * len(row["tokens"]))


def write_pairs(path: Path) -> PairDataModule:
    """A corpus of pairs in which each question has two or three candidates."""
    rows = [
        {
            "passage": f"Ann is in the {PLACES[n % 3]}",
            "query": f"where is {'Ann' if n % 2 else 'the <b>'} ?",
            "answer": PLACES[n % 3],
            "candidates": [PLACES[n % 3], PLACES[(n + 1) % 3]] + [PLACES[n % 3 - 1]] * (n % 2),
        }
        for n in range(12)
    ]
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    write_corpus(path, train=columns, validation=columns, test=columns)
    options: dict[str, Any] = {"label": "answer", "candidates": "candidates", "eval_batch_size": 5}
    return PairDataModule(str(path), cache_dir=str(path.parent / "cache"), **options)


def test_pairs_have_the_words_of_the_query_and_the_allowed_answers(tmp_path: Path) -> None:
    data = write_pairs(tmp_path / "pairs")
    net = {"embedding_size": 5, "hidden_size": 8, "encoder": "average"}
    task = AttentionTask(data.spec, "pairs", net)  # type: ignore[arg-type]
    started = trainer(tmp_path, PredictionWriter())  # type: ignore[arg-type]
    started.predict(task, datamodule=data, return_predictions=False)
    rows = pq.read_table(tmp_path / "predictions.parquet").to_pylist()
    for n, row in enumerate(rows):
        assert row["index"] == n
        words = ["where", "is", *(["Ann"] if n % 2 else ["the", "<b>"]), "?"]
        assert row["query"] == ["[BOS]", *words, "[EOS]"]
        found = [row["text"][start:end] for start, end in row["offsets"]]
        assert ["[BOS]", *found[1:-1], "[EOS]"] == row["tokens"]
        assert row["text"] == " ".join(found).strip()
        names = {PLACES[n % 3], PLACES[(n + 1) % 3], *([PLACES[n % 3 - 1]] if n % 2 else [])}
        assert {data.classes[number] for number in row["allowed"]} == names
        assert row["allowed"] == sorted(row["allowed"])
        impossible = set(range(3)) - set(row["allowed"])
        assert all(row["probabilities"][number] == 0 for number in impossible)


def test_what_an_interruption_leaves_is_removed(tmp_path: Path) -> None:
    data = corpus()
    task = task_of(data)
    steps = iter([True, False])

    def step(batch: TextBatch, batch_idx: int) -> dict[str, Any]:
        if next(steps):
            return {"output": task.model(batch)}
        raise RuntimeError("the second batch")

    task.predict_step = step  # type: ignore[method-assign]
    with pytest.raises(RuntimeError, match="the second batch"):
        trainer(tmp_path, PredictionWriter()).predict(  # type: ignore[arg-type]
            task, datamodule=data, return_predictions=False
        )
    assert not list(tmp_path.rglob("*predictions*"))
