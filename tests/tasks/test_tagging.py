"""The chunking tagger, trained on all tags, on one tag a sentence or on a label of the sentence."""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from seqeval.metrics import f1_score, precision_score, recall_score
from sklearn.metrics import f1_score as f1_of_classes

from attnlight.batch import BOS, TextBatch
from attnlight.callbacks import (
    AttentionPermutation,
    DecisionFlip,
    ImportanceCorrelation,
    Predictions,
    SingleErasure,
)
from attnlight.data.raw_text import RawText
from attnlight.datamodules import ChunkingDataModule
from attnlight.errors import InputError
from attnlight.probing.input_gradient import input_gradient
from attnlight.probing.leave_one_out import leave_one_out
from attnlight.records import Record, read_record
from attnlight.tasks import ChunkTagger
from tests.probing.oracles import moved
from tests.tasks.tagged import SMALL, corpus, save_tagger, task_of, trainer, written

READOUTS = ("study", "text", "residual")
Data = Callable[..., ChunkingDataModule]


@pytest.fixture(scope="module")
def data_of(tmp_path_factory: pytest.TempPathFactory) -> Data:
    """The corpus by its target."""
    folder = written(tmp_path_factory.mktemp("chunks"))
    return lambda target, **options: corpus(folder, target=target, sentence_chunk="VP", **options)


def whole(data: ChunkingDataModule, split: str = "test") -> TextBatch:
    return data.dataset(split)[list(range(len(data.dataset(split))))]


def tags_of(values: np.ndarray, record: Record, names: Sequence[str]) -> list[list[str]]:
    """Tags by sentence."""
    index = record.columns["index"]
    return [[names[int(v)] for v in values[index == i]] for i in np.unique(index)]


@pytest.mark.parametrize(
    ("target", "readout", "reached"),
    [
        ("tokens", "study", 0.9),
        ("tokens", "text", 0.6),
        pytest.param("tokens", "residual", 0.9, marks=pytest.mark.slow),
        pytest.param("marked", "residual", 0.9, marks=pytest.mark.slow),
        ("sentence", "residual", 0.9),
    ],
)
def test_fit_and_test_with_records(
    data_of: Data, tmp_path: Path, target: str, readout: str, reached: float
) -> None:
    data = data_of(target)
    task = task_of(
        data, readout=readout, attention_dropout=0.0, dropout=0.0, optimizer={"learning_rate": 0.02}
    )
    started = trainer(tmp_path, Predictions(figures=False), max_epochs=8)
    started.fit(task, data)
    assert float(started.callback_metrics["val/f1"]) > reached
    val = read_record(tmp_path / "records/val/predictions-7.parquet").columns
    assert np.unique(val["index"]).tolist() == data.dataset("validation").index.tolist()

    kinds = (SingleErasure, DecisionFlip, ImportanceCorrelation) if target != "tokens" else ()
    tests = [kind(figures=False) for kind in (Predictions, *kinds)]
    tests.append(AttentionPermutation(draws=20, figures=False))
    started = trainer(tmp_path, *tests)
    started.test(task, data, verbose=False)
    logged = {name: float(value) for name, value in started.callback_metrics.items()}
    records = {t.name: read_record(tmp_path / f"records/test/{t.name}.parquet") for t in tests}
    batch = whole(data)
    text, position = batch.instances().nonzero().unbind(-1)
    keys = torch.stack([batch.index[text], position], 1).tolist()
    assert target == "tokens" or len(keys) == len(batch)  # one row a sentence
    for record in records.values():
        assert np.stack([record.columns["index"], record.columns["position"]], 1).tolist() == keys
        assert record.metadata["partial"] is False
        assert record.metadata["classes"] == data.classes
    found = records["predictions"].columns
    assert found["length"].tolist() == batch.attendable().sum(-1)[text].tolist()
    label, prediction = found["label"], found["prediction"]
    assert label.tolist() == batch.labels[batch.instances()].tolist()
    assert logged["test/accuracy"] == pytest.approx((label == prediction).mean(), abs=1e-6)
    winner = found["probabilities"][np.arange(len(keys)), label]
    assert logged["test/loss"] == pytest.approx(-np.log(winner).mean(), rel=1e-4)
    if target != "tokens":
        macro = f1_of_classes(label, prediction, average="macro")
        assert logged["test/f1"] == pytest.approx(macro, abs=1e-6)
        assert not {"test/precision", "test/recall"} & logged.keys()
        return
    gold, predicted = (
        tags_of(values, records["predictions"], data.classes) for values in (label, prediction)
    )
    source = (Path(data.path) / "test.txt").read_text().strip().split("\n\n")
    assert gold == [[line.split()[2] for line in block.split("\n")] for block in source]
    scores = {"f1": f1_score, "precision": precision_score, "recall": recall_score}
    for name, score in scores.items():
        assert logged[f"test/{name}"] == pytest.approx(score(gold, predicted), abs=1e-6)


@pytest.mark.parametrize("readout", READOUTS)
def test_a_marked_token_is_read_as_among_all(data_of: Data, readout: str) -> None:
    """The same weights say of a marked token what they say of it where all are asked for."""
    one = data_of("marked")
    every = corpus(Path(one.path))
    model = task_of(every, readout=readout).eval().model
    batch = whole(one)
    with torch.no_grad():
        full, found = model(whole(every)), model(batch)
    assert len(found.rows) == len(batch)
    places = {tuple(row): number for number, row in enumerate(full.rows.tolist())}
    kept = [places[tuple(row)] for row in found.rows.tolist()]
    torch.testing.assert_close(found.logits, full.logits[kept])
    torch.testing.assert_close(found.weights, full.weights[kept])
    torch.testing.assert_close(found.mask, full.mask[kept])
    for kind in (True, False):
        torch.testing.assert_close(
            input_gradient(model, batch, found, detached=kind),
            input_gradient(model, whole(every), full, detached=kind)[kept],
            atol=1e-6,
            rtol=1e-4,
        )


@pytest.mark.parametrize("readout", READOUTS)
@torch.no_grad()
def test_a_boundary_token_reads_the_sentence_and_is_not_read(data_of: Data, readout: str) -> None:
    data = data_of("sentence")
    model = task_of(data, readout=readout, layers=2).eval().double().model
    batch = whole(data)
    output = model(batch)
    assert output.rows[:, 1].tolist() == [0] * len(batch)
    assert not output.weights[:, :, 0].any()
    torch.testing.assert_close(output.weights.sum(-1), torch.ones(len(batch), 2).double())
    for row, length in enumerate(batch.mask.sum(-1).tolist()):
        alone = model(data.dataset("test")[[row]])
        torch.testing.assert_close(alone.logits[0], output.logits[row])
        torch.testing.assert_close(alone.weights[0], output.weights[row, :, :length])


@pytest.mark.parametrize("target", ["marked", "sentence"])
@torch.no_grad()
def test_leave_one_out_by_a_loop(data_of: Data, target: str) -> None:
    data = data_of(target)
    model = task_of(data, readout="study").eval().double().model
    batch = whole(data)
    with torch.no_grad():
        output = model(batch)
        found = leave_one_out(model, batch, output, budget=40)
    expected = moved(model, batch, output, of_items=True)
    items = output.mask
    torch.testing.assert_close(found[items], expected[items], atol=1e-9, rtol=1e-6, equal_nan=True)


@pytest.mark.parametrize(("target", "pos"), [("tokens", True), ("sentence", False)])
def test_a_checkpoint_tags_raw_text(data_of: Data, tmp_path: Path, target: str, pos: bool) -> None:
    data = data_of(target, pos=pos)
    task = task_of(data)
    started = trainer(tmp_path, max_epochs=1, limit_train_batches=2, limit_val_batches=0)
    started.fit(task, data)
    started.save_checkpoint(tmp_path / "last.ckpt")
    loaded = ChunkTagger.load_from_checkpoint(tmp_path / "last.ckpt")
    assert loaded.classes == data.classes
    dataset, places = data.dataset("test"), [0, 3, 7]
    expected, first = dataset[places], int(target == "sentence")
    texts = [" ".join(dataset.words(place)[first:]) for place in places]
    given = None
    if pos:
        names = dict(enumerate(data.token_features.tables["pos"], 2))
        rows = zip(expected.extras["pos"], expected.mask, strict=True)
        given = [[names[n] for n in row[mask].tolist()] for row, mask in rows]
    batch = loaded.encode(texts, given)
    assert torch.equal(batch.tokens, expected.tokens)
    assert torch.equal(batch.mask, expected.mask)
    assert target == "tokens" or (batch.tokens[:, 0] == BOS).all()
    assert batch.extras.keys() == expected.extras.keys()
    for name, values in batch.extras.items():
        assert torch.equal(values.long(), expected.extras[name].long()), name
    with torch.no_grad():
        output = task.eval().model(expected)
    tags = [data.classes[n] for n in output.logits.argmax(-1).tolist()]
    found = loaded.tag(texts, given)
    assert [tag for text in found for tag in text] == tags
    assert list(map(len, found)) == expected.instances().sum(-1).tolist()
    if pos:
        with pytest.raises(InputError, match="part-of-speech tags are a feature"):
            loaded.tag(texts)
    else:
        torch.testing.assert_close(loaded.classify(texts), output.probabilities)


def test_raw_sentences_of_marked_tokens_are_tagged_whole(data_of: Data) -> None:
    data = data_of("marked", pos=False)
    task = task_of(data)
    task.raw = RawText.of_corpus(data)
    assert list(map(len, task.tag(["Dog sat .", "ran"]))) == [3, 1]


def test_a_checkpoint_of_another_model_is_refused(data_of: Data, tmp_path: Path) -> None:
    for target, spec, options, told in (
        ("tokens", {}, {"readout": "text"}, "has readout study, the configuration text"),
        ("sentence", {"target": "marked"}, {}, "has target sentence, .*in `data` marked"),
    ):
        data = data_of(target)
        path = save_tagger(tmp_path / "last.ckpt", data)
        given = ChunkTagger(data.spec | spec, SMALL | options)
        with pytest.raises(InputError, match=told):
            trainer(tmp_path).test(given, data, ckpt_path=path, verbose=False)
