"""The same tagger trained on all tags, on one tag a sentence, and on a label of the sentence."""

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from attnlight.__main__ import main
from attnlight.batch import BOS, TextBatch
from attnlight.callbacks import (
    AttentionPermutation,
    DecisionFlip,
    ImportanceCorrelation,
    InterpretabilityTest,
    Predictions,
    SingleErasure,
)
from attnlight.compatibility import arguments
from attnlight.datamodules import ChunkingDataModule
from attnlight.errors import InputError
from attnlight.functional import input_gradient, leave_one_out, total_variation
from attnlight.models import SelfAttentionTagger
from attnlight.records import Record, read_record
from attnlight.tasks import AdversarialVariant, AttentionTask, ChunkTagger, GuidedVariant
from tests.commands import CONFIGS, CPU, QUIET
from tests.tasks.tagged import save_tagger
from tests.tasks.test_tagging import COLUMNS, FILES, SEES, SMALL, TINY, trainer

READOUTS = ("study", "text", "residual")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sentences whose tags follow from their words; some have a clause, one is of one token."""
    folder, rng = tmp_path_factory.mktemp("targets"), random.Random(0)
    for name, size in (("train", 90), ("test", 23)):
        blocks = ["stop VB B-VP\n"]
        for number in range(size - 1):
            clause = ["if IN B-SBAR"] * (number % 2)
            nouns = [f"{rng.choice(('cat', 'Dog', 'ox7'))} NN B-NP"] * rng.randint(1, 3)
            verbs = [f"{rng.choice(('sat', 'ran'))} VB B-VP"] * rng.randint(1, 2)
            parts = [[*nouns, *verbs], clause]
            rng.shuffle(parts)
            blocks.append("\n".join([*parts[0], *parts[1], ". . O"]) + "\n")
        (folder / f"{name}.txt").write_text("\n".join(blocks))
    return folder


def corpus(folder: Path, target: str, **options: Any) -> ChunkingDataModule:
    settings = FILES | SEES | {"batch_size": 8, "eval_batch_size": 5, "target": target}
    return ChunkingDataModule(str(folder), cache_dir=str(folder / "cache"), **(settings | options))


def task_of(data: ChunkingDataModule, **options: Any) -> ChunkTagger:
    torch.manual_seed(0)
    sizes = SMALL | options
    return ChunkTagger(data.spec, **arguments(sizes))


def whole(data: ChunkingDataModule, split: str = "test") -> TextBatch:
    return data.dataset(split)[list(range(len(data.dataset(split))))]


TESTS = (Predictions, AttentionPermutation, SingleErasure, DecisionFlip, ImportanceCorrelation)


def evaluated(
    root: Path,
    task: AttentionTask,
    data: ChunkingDataModule,
    kinds: Sequence[type[InterpretabilityTest]] = TESTS,
) -> tuple[dict[str, float], dict[str, Record]]:
    tests = [kind(figures=False) for kind in kinds]
    started = trainer(root, *tests)
    started.test(task, data, verbose=False)
    logged = {name: float(value) for name, value in started.callback_metrics.items()}
    return logged, {t.name: read_record(root / f"records/test/{t.name}.parquet") for t in tests}


def macro_f1(label: np.ndarray, prediction: np.ndarray) -> float:
    found = []
    for number in np.union1d(label, prediction):
        hits = ((label == number) & (prediction == number)).sum()
        found.append(2 * hits / ((label == number).sum() + (prediction == number).sum()))
    return float(np.mean(found))


@pytest.mark.parametrize("target", ["marked", "sentence"])
def test_fit_and_test_with_records(folder: Path, tmp_path: Path, target: str) -> None:
    data = corpus(folder, target)
    options = {"attention_dropout": 0.0, "dropout": 0.0, "learning_rate": 0.02}
    task = task_of(data, readout="residual", **options)
    started = trainer(tmp_path, max_epochs=6)
    started.fit(task, data)
    assert float(started.callback_metrics["val/f1"]) > 0.9
    logged, records = evaluated(tmp_path, task, data)
    batch = whole(data)
    text, position = batch.instances().nonzero().unbind(-1)
    keys = torch.stack([batch.index[text], position], 1).tolist()
    for record in records.values():
        found = np.stack([record.columns["index"], record.columns["position"]], 1)
        assert found.tolist() == keys  # one row a sentence
        assert record.metadata["partial"] is False
        assert record.metadata["classes"] == data.classes
    found = records["predictions"].columns
    assert found["length"].tolist() == batch.attendable().sum(-1).tolist()
    assert batch.labels is not None
    label, prediction = found["label"], found["prediction"]
    assert label.tolist() == batch.labels[batch.instances()].tolist()
    assert logged["test/accuracy"] == pytest.approx((label == prediction).mean(), abs=1e-6)
    assert logged["test/f1"] == pytest.approx(macro_f1(label, prediction), abs=1e-6)
    winner = found["probabilities"][np.arange(len(label)), label]
    assert logged["test/loss"] == pytest.approx(-np.log(winner).mean(), rel=1e-4)
    assert not {"test/precision", "test/recall"} & logged.keys()


@pytest.mark.parametrize("target", ["marked", "sentence"])
def test_batch_size_changes_no_record(folder: Path, tmp_path: Path, target: str) -> None:
    task = task_of(corpus(folder, target), readout="residual")
    results = []
    for size in (1, 16):
        data = corpus(folder, target, eval_batch_size=size)
        results.append(evaluated(tmp_path / str(size), task, data, TESTS[:-1]))
    (one_logged, one), (all_logged, together) = results
    for name, value in one_logged.items():
        assert value == pytest.approx(all_logged[name], abs=1e-5, nan_ok=True), name
    for name, record in one.items():
        for column, values in record.columns.items():
            other = together[name].columns[column]
            np.testing.assert_allclose(values, other, atol=1e-5, err_msg=f"{name}.{column}")


@pytest.mark.parametrize("readout", READOUTS)
def test_a_marked_token_is_read_as_among_all(folder: Path, readout: str) -> None:
    """The same weights say of a marked token what they say of it where all are asked for."""
    every, one = corpus(folder, "tokens"), corpus(folder, "marked")
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
def test_a_boundary_token_reads_the_sentence_and_is_not_read(folder: Path, readout: str) -> None:
    data = corpus(folder, "sentence")
    model = task_of(data, readout=readout, layers=2).eval().double().model
    batch = whole(data)
    with torch.no_grad():
        output = model(batch)
        assert output.rows[:, 1].tolist() == [0] * len(batch)
        assert not output.weights[:, :, 0].any()
        torch.testing.assert_close(
            output.weights.sum(-1), torch.ones(len(batch), 4).double()[:, :2]
        )
        assert not output.weights.masked_select(~batch.mask[:, None]).any()
        if output.item_logits is not None:
            read = torch.einsum("rhn,rhnc->rc", output.weights, output.item_logits)
            torch.testing.assert_close(read, output.logits)
        again = model.readout(output, output.weights.unsqueeze(2)).squeeze(1)
        torch.testing.assert_close(again, output.logits)
        for row in range(len(batch)):
            length = int(batch.mask[row].sum())
            alone = model(data.dataset("test")[[row]])
            torch.testing.assert_close(alone.logits[0], output.logits[row])
            torch.testing.assert_close(alone.weights[0], output.weights[row, :, :length])


@pytest.mark.parametrize("target", ["marked", "sentence"])
def test_leave_one_out_by_a_loop(folder: Path, target: str) -> None:
    data = corpus(folder, target)
    model = task_of(data, readout="study").eval().double().model
    batch = whole(data)
    with torch.no_grad():
        output = model(batch)
        found = leave_one_out(model, batch, output, budget=40)
    items = batch.attendable()
    for row in range(len(batch)):
        own = int(output.rows[row, 1])
        for place in items[row].nonzero().squeeze(-1).tolist():
            kept = [p for p in range(int(batch.mask[row].sum())) if p != place]
            if place == own or not items[row, kept].any():
                assert found[row, place].isnan()
                continue
            shortened = TextBatch(
                index=batch.index[row : row + 1],
                tokens=batch.tokens[row : row + 1, kept],
                mask=batch.mask[row : row + 1, kept],
                extras={name: values[row : row + 1, kept] for name, values in batch.extras.items()},
            )
            with torch.no_grad():
                after = model(shortened).probabilities[0]
            expected = total_variation(after, output.probabilities[row])
            torch.testing.assert_close(found[row, place], expected, atol=1e-9, rtol=1e-6)


@pytest.mark.parametrize("target", ["marked", "sentence"])
def test_variants_read_the_same_rows(folder: Path, tmp_path: Path, target: str) -> None:
    data = corpus(folder, target)
    base = str(save_tagger(tmp_path / "base.ckpt", data, readout="residual"))
    for kind, options in (
        (AdversarialVariant, {"lambda_": 0.1}),
        (GuidedVariant, {"guide": "base"}),
    ):
        task = kind(data.spec, base, **options)
        started = trainer(tmp_path, max_epochs=1)
        started.fit(task, data)
        assert isinstance(task.model, SelfAttentionTagger)
        logged, records = evaluated(tmp_path / kind.__name__, task, data, [Predictions])
        assert len(records["predictions"].columns["index"]) == len(data.dataset("test"))
        assert np.isfinite(logged["test/loss"])
        assert "test/precision" not in logged
    other = corpus(folder, "tokens")
    with pytest.raises(InputError, match=f"has target {target}, the corpus in `data` tokens"):
        GuidedVariant(other.spec, base)


def test_a_checkpoint_labels_raw_sentences(folder: Path, tmp_path: Path) -> None:
    data = corpus(folder, "sentence", pos=False)
    task = task_of(data)
    started = trainer(tmp_path, max_epochs=1, limit_train_batches=2, limit_val_batches=0)
    started.fit(task, data)
    started.save_checkpoint(tmp_path / "last.ckpt")
    loaded = ChunkTagger.load_from_checkpoint(tmp_path / "last.ckpt")
    dataset, places = data.dataset("test"), [0, 3, 7]
    texts = [" ".join(dataset.words(place)[1:]) for place in places]
    batch, expected = loaded.encode(texts), dataset[places]
    assert torch.equal(batch.tokens, expected.tokens)
    assert (batch.tokens[:, 0] == BOS).all()
    assert batch.extras.keys() == expected.extras.keys()
    for name, values in batch.extras.items():
        assert torch.equal(values.long(), expected.extras[name].long()), name
    with torch.no_grad():
        numbers = task.eval().model(expected).logits.argmax(-1).tolist()
    assert loaded.tag(texts) == [[data.classes[number]] for number in numbers]
    assert loaded.classify(texts).shape == (3, 2)
    other = ChunkTagger(data.spec | {"target": "marked"}, **arguments(SMALL))
    with pytest.raises(InputError, match="has target sentence, the corpus in `data` marked"):
        trainer(tmp_path).test(other, data, ckpt_path=tmp_path / "last.ckpt", verbose=False)


def test_raw_sentences_of_marked_tokens_are_tagged_whole(folder: Path) -> None:
    data = corpus(folder, "marked", pos=False)
    task = task_of(data)
    task.adopt_corpus(data)
    assert list(map(len, task.tag(["Dog sat .", "ran"]))) == [3, 1]


def test_the_command_line(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ATTNLIGHT_DATA", raising=False)
    model = f"{CONFIGS}/models/tagger_residual.yaml"
    data = [
        "--data=ChunkingDataModule",
        f"--data.path={folder}",
        *COLUMNS,
        "--data.target=sentence",
    ]
    place = [f"--root={tmp_path}", "--experiment=e", "--run=r", "--trainer.logger=false"]
    fit = ["-c", f"{CONFIGS}/trainer.yaml", f"--model={model}", *TINY, *data, *place]
    assert main(["fit", *fit, "--trainer.max_epochs=1", *CPU, *QUIET]) == 0
    run = tmp_path / "e" / "r"
    test = ["-c", f"{run}/fit.yaml", "-c", f"{CONFIGS}/tests/predictions.yaml"]
    assert main(["test", *test, f"--ckpt_path={run}/best.ckpt", *QUIET]) == 0
    record = read_record(run / "records/test/predictions.parquet")
    assert record.metadata["classes"] == ["no SBAR", "SBAR"]
    assert len(record.columns["index"]) == 23
    again = ["-c", f"{run}/fit.yaml", f"--ckpt_path={run}/best.ckpt", *QUIET]
    assert main(["predict", *again]) == 0
    assert (run / "predictions.parquet").exists()
