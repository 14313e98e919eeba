"""The chunking tagger, trained, tested and read back."""

import random
import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import numpy as np
import pytest
import torch
from seqeval.metrics import f1_score, precision_score, recall_score

from attnlight.__main__ import main
from attnlight.callbacks import AttentionPermutation, Predictions
from attnlight.checkpoints import AtomicCheckpointIO
from attnlight.compatibility import arguments
from attnlight.datamodules import ChunkingDataModule, PlantedEvidence
from attnlight.errors import InputError
from attnlight.functional import permutations
from attnlight.records import Record, read_record
from attnlight.tasks import ChunkTagger
from attnlight.tasks.options import Optimizer
from tests.bases import spec
from tests.commands import CONFIGS, CPU, QUIET, attnlight_on_one, attnlight_on_two

DETERMINERS, NOUNS, VERBS = ("the", "a", "this"), ("cat", "dog", "Tea", "ox7"), ("sat", "Runs")
FILES: dict[str, Any] = {
    "word_column": 0,
    "pos_column": 1,
    "label_column": -1,
    "train": "train.txt",
    "test": "test.txt",
}
SMALL = {"hidden_size": 16, "heads": 2, "filter_size": 8, "embedding_size": 8, "feature_size": 4}
SEES = {"suffixes": [2], "case": True, "characters": 8, "pos": True}


def written(folder: Path, train: int = 80, test: int = 21) -> Path:
    """Sentences of noun and verb phrases whose tags follow from neighbours; one of one token."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = random.Random(0)
    for name, size in (("train", train), ("test", test)):
        blocks = [". . O\n"]
        for _ in range(size - 1):
            lines = []
            for _ in range(rng.randint(1, 4)):
                if rng.random() < 0.5:
                    lines.append(f"{rng.choice(DETERMINERS)} DT B-NP")
                    lines += [f"{rng.choice(NOUNS)} NN I-NP"] * rng.randint(1, 2)
                else:
                    lines += [f"{rng.choice(VERBS)} VB B-VP", ". . O"]
            blocks.append("\n".join(lines) + "\n")
        (folder / f"{name}.txt").write_text("\n".join(blocks))
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(tmp_path_factory.mktemp("chunks"))


def corpus(folder: Path, **options: Any) -> ChunkingDataModule:
    settings = FILES | {"batch_size": 8, "eval_batch_size": 5} | SEES
    return ChunkingDataModule(str(folder), cache_dir=str(folder / "cache"), **(settings | options))


def task_of(data: ChunkingDataModule, **options: Any) -> ChunkTagger:
    torch.manual_seed(0)
    return ChunkTagger(data.spec, **arguments(SMALL | options))


def trainer(root: Path, *callbacks: pl.Callback, **options: Any) -> pl.Trainer:
    settings: dict[str, Any] = {
        "accelerator": "cpu",
        "devices": 1,
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "num_sanity_val_steps": 0,
        "inference_mode": False,
        "plugins": [AtomicCheckpointIO()],
    }
    warnings.filterwarnings("ignore", message=".*(workers|logging interval)")
    return pl.Trainer(default_root_dir=root, callbacks=list(callbacks), **(settings | options))


TESTS = (Predictions, AttentionPermutation)


def evaluated(
    root: Path, task: ChunkTagger, data: ChunkingDataModule
) -> tuple[dict[str, float], dict[str, Record]]:
    """What the task logs of the test split, and the records of both tests."""
    tests = [Predictions(figures=False), AttentionPermutation(draws=20, figures=False)]
    started = trainer(root, *tests)
    started.test(task, data, verbose=False)
    logged = {name: float(value) for name, value in started.callback_metrics.items()}
    return logged, {t.name: read_record(root / f"records/test/{t.name}.parquet") for t in tests}


def tags_of(values: np.ndarray, record: Record, names: Sequence[str]) -> list[list[str]]:
    """Tags by sentence."""
    index = record.columns["index"]
    return [[names[int(v)] for v in values[index == i]] for i in np.unique(index)]


@pytest.mark.parametrize("readout", ["study", "text", "residual"])
def test_fit_and_test_with_records(folder: Path, tmp_path: Path, readout: str) -> None:
    data = corpus(folder)
    task = task_of(data, readout=readout, learning_rate=0.02, attention_dropout=0.0, dropout=0.0)
    tests = [test(figures=False) for test in TESTS]
    started = trainer(tmp_path, *tests, max_epochs=8)
    started.fit(task, data)
    assert float(started.callback_metrics["val/f1"]) > (0.6 if readout == "text" else 0.9)
    val = read_record(tmp_path / "records/val/predictions-7.parquet").columns
    assert np.unique(val["index"]).tolist() == data.dataset("validation").index.tolist()

    logged, records = evaluated(tmp_path, task, data)
    found = records["predictions"]
    lengths = data.dataset("test").lengths.tolist()
    keys = [(i, p) for i, length in enumerate(lengths) for p in range(length)]
    for record in records.values():
        assert list(zip(record.columns["index"], record.columns["position"], strict=True)) == keys
        assert record.metadata["partial"] is False
    assert found.columns["length"].tolist() == [n for n in lengths for _ in range(n)]
    target = tags_of(found.columns["label"], found, data.classes)
    predicted = tags_of(found.columns["prediction"], found, data.classes)
    source = (folder / "test.txt").read_text().strip().split("\n\n")
    assert target == [[line.split()[2] for line in block.split("\n")] for block in source]
    assert logged["test/f1"] == pytest.approx(f1_score(target, predicted), abs=1e-6)
    assert logged["test/precision"] == pytest.approx(precision_score(target, predicted), abs=1e-6)
    assert logged["test/recall"] == pytest.approx(recall_score(target, predicted), abs=1e-6)
    right = found.columns["label"] == found.columns["prediction"]
    assert logged["test/accuracy"] == pytest.approx(right.mean(), abs=1e-6)
    winner = found.columns["probabilities"][np.arange(len(keys)), found.columns["label"]]
    assert logged["test/loss"] == pytest.approx(-np.log(winner).mean(), rel=1e-4)


@pytest.mark.parametrize("readout", ["study", "residual"])
def test_batch_size_changes_no_record(folder: Path, tmp_path: Path, readout: str) -> None:
    task = task_of(corpus(folder), readout=readout)
    results = []
    for size in (1, 16):
        data = corpus(folder, eval_batch_size=size)
        results.append(evaluated(tmp_path / str(size), task, data))
    (one_logged, one), (all_logged, together) = results
    assert one_logged.keys() == all_logged.keys()
    for name, value in one_logged.items():
        assert value == pytest.approx(all_logged[name], abs=1e-5), name
    for name, record in one.items():
        for column, values in record.columns.items():
            other = together[name].columns[column]
            np.testing.assert_allclose(values, other, atol=5e-6, err_msg=f"{name}.{column}")


@pytest.mark.parametrize("readout", ["study", "residual"])
def test_tokens_and_heads_of_a_sentence_share_their_shuffles(
    folder: Path, tmp_path: Path, readout: str
) -> None:
    data = corpus(folder)
    task = task_of(data, readout=readout).double()
    _, records = evaluated(tmp_path, task, data)
    permuted = records["attention_permutation"].columns
    index = int(np.argmax(data.dataset("test").lengths))
    task.eval()
    batch = data.dataset("test")[[index]]
    with torch.no_grad():
        output = task.model(batch)
        length = len(output.rows)
        key, size = torch.tensor([[index, 0]]), torch.tensor([length])
        moved = []
        for order in permutations(size, key, 20, seed=0)[0]:
            given = task.model(batch, weights=output.weights[..., order])
            moved.append((given.probabilities - output.probabilities).abs().sum(-1) / 2)
    expected = torch.quantile(torch.stack(moved), 0.5, dim=0)
    here = permuted["index"] == index
    np.testing.assert_allclose(permuted["median_tvd"][here], expected, atol=1e-9)
    alone = permuted["index"] == 0  # a sentence of one token
    assert permuted["median_tvd"][alone].tolist() == pytest.approx([0.0], abs=1e-9)


def test_the_loss_is_over_real_tokens_alone(folder: Path) -> None:
    data = corpus(folder)
    task = task_of(data).eval()
    positions = list(range(6))
    batch = data.dataset("train")[positions]
    losses = task._losses(batch, task.model(batch))
    each = [data.dataset("train")[[p]] for p in positions]
    expected = [task._losses(one, task.model(one)) for one in each]
    torch.testing.assert_close(losses, torch.cat(expected), atol=1e-5, rtol=1e-5)
    assert len(losses) == data.dataset("train").lengths[:6].sum()


def test_a_checkpoint_tags_raw_text_alone(folder: Path, tmp_path: Path) -> None:
    data = corpus(folder)
    task = task_of(data)
    started = trainer(tmp_path, max_epochs=1, limit_train_batches=2, limit_val_batches=0)
    started.fit(task, data)
    started.save_checkpoint(tmp_path / "last.ckpt")
    loaded = ChunkTagger.load_from_checkpoint(tmp_path / "last.ckpt")
    assert loaded.classes == data.classes
    dataset = data.dataset("test")
    places = [0, 3, 7]
    texts = [" ".join(dataset.words(place)) for place in places]
    names = {value: key for key, value in enumerate(data.token_features.tables["pos"], 2)}
    expected = dataset[places]
    numbers = {number: name for name, number in names.items()}
    pos = [
        [numbers[n] for n in row[mask].tolist()]
        for row, mask in zip(expected.extras["pos"], expected.mask, strict=True)
    ]
    batch = loaded.encode(texts, pos)
    assert torch.equal(batch.tokens, expected.tokens)
    assert batch.extras.keys() == expected.extras.keys()
    for name, values in batch.extras.items():
        assert torch.equal(values, expected.extras[name].long()), name
    with torch.no_grad():
        logits = task.eval().model(expected).logits
    tags = [data.classes[n] for n in logits.argmax(-1).tolist()]
    assert [tag for found in loaded.tag(texts, pos) for tag in found] == tags
    assert list(map(len, loaded.tag(texts, pos))) == dataset.lengths[places].tolist()
    with pytest.raises(InputError, match="part-of-speech tags are a feature"):
        loaded.tag(texts)


def test_a_checkpoint_of_another_model_is_refused(folder: Path, tmp_path: Path) -> None:
    data = corpus(folder)
    started = trainer(tmp_path, max_epochs=1, limit_train_batches=1, limit_val_batches=0)
    started.fit(task_of(data), data)
    started.save_checkpoint(tmp_path / "last.ckpt")
    other = task_of(data, readout="text")
    with pytest.raises(InputError, match="has readout study, the configuration text"):
        trainer(tmp_path).test(other, data, ckpt_path=tmp_path / "last.ckpt", verbose=False)


def test_the_schedule_of_the_study() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(1, 1))
    options = Optimizer(name="sgd", learning_rate=0.2, warmup_steps=500)
    made = options.scheduled(model, 128)
    scheduler = made["lr_scheduler"]["scheduler"]  # type: ignore[index, typeddict-item]
    rates = {}
    for step in range(1, 2001):
        rates[step] = scheduler.get_last_lr()[0]
        scheduler.optimizer.step()
        scheduler.step()
    for step in (1, 250, 500, 2000):
        factor = min(step**-0.5, step * 500**-1.5) / 128**0.5
        assert rates[step] == pytest.approx(0.2 * factor)
    assert max(rates, key=rates.__getitem__) == 500
    with pytest.raises(InputError, match="warmup_steps is 0"):
        replace(options, warmup_steps=0).scheduled(model, 128)
    with pytest.raises(InputError, match="needs the hidden_size"):
        options.scheduled(model, None)
    with pytest.raises(InputError, match="exclude each other"):
        replace(options, plateau_factor=0.5).scheduled(model, 128)


def test_the_schedule_runs_by_step(folder: Path, tmp_path: Path) -> None:
    data = corpus(folder)
    task = task_of(data, learning_rate=0.2, warmup_steps=5)
    trainer(tmp_path, max_epochs=1, limit_train_batches=3, limit_val_batches=0).fit(task, data)
    steps = 4  # the next one
    expected = 0.2 * 16**-0.5 * steps * 5**-1.5
    assert task.optimizers().param_groups[0]["lr"] == pytest.approx(expected)  # type: ignore[union-attr]


def test_the_optimiser_has_the_given_betas(folder: Path) -> None:
    for options, betas in (({}, (0.9, 0.999)), ({"betas": (0.8, 0.98)}, (0.8, 0.98))):
        optimizer = task_of(corpus(folder), **options).configure_optimizers()
        assert isinstance(optimizer, torch.optim.Adam)
        assert {tuple(group["betas"]) for group in optimizer.param_groups} == {betas}


def test_a_corpus_without_tags_is_refused() -> None:
    data = PlantedEvidence(train_size=20, validation_size=5, test_size=5)
    with pytest.raises(InputError, match="'negative' is not of the BIO scheme"):
        ChunkTagger(spec(data.vocab_size, ["negative", "positive"]))
    task = ChunkTagger(spec(data.vocab_size, ["O", "B-NP", "I-NP"]), **arguments(SMALL))
    batch = data.dataset("train")[[0, 1]]
    with pytest.raises(InputError, match="no label for each token"):
        task._losses(batch, task.model(batch))


COLUMNS = [f"--data.{name}={value}" for name, value in FILES.items()]
TINY = [f"--model.{name}={value}" for name, value in SMALL.items()]


def command(folder: Path, root: Path) -> list[str]:
    model = f"{CONFIGS}/models/tagger_residual.yaml"
    data = ["--data=ChunkingDataModule", f"--data.path={folder}", *COLUMNS, "--data.case=true"]
    place = [f"--root={root}", "--experiment=e", "--run=r", "--trainer.logger=false"]
    return ["-c", f"{CONFIGS}/trainer.yaml", f"--model={model}", *TINY, *data, *place]


def test_the_command_line(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ATTNLIGHT_DATA", raising=False)
    fit = command(folder, tmp_path)
    assert main(["fit", *fit, "--trainer.max_epochs=1", *CPU, *QUIET]) == 0
    run = tmp_path / "e" / "r"
    tests = [f"{CONFIGS}/tests/{name}.yaml" for name in ("predictions", "attention_permutation")]
    attached = ["-c", tests[0], "-c", tests[1]]
    best = [f"--ckpt_path={run}/best.ckpt", *QUIET]
    assert main(["test", "-c", f"{run}/fit.yaml", *attached, *best]) == 0
    records = [read_record(run / f"records/test/{Path(name).stem}.parquet") for name in tests]
    assert records[0].metadata["classes"] == ["O", "B-NP", "I-NP", "B-VP", "I-VP"]
    assert len(records[0].columns["index"]) == len(records[1].columns["index"]) > 21
    assert len(list((run / "figures").rglob("*.svg"))) + len(list((run / "figures").rglob("*.pdf")))


@pytest.mark.slow
@pytest.mark.ddp
def test_two_devices_count_what_one_counts(folder: Path, tmp_path: Path) -> None:
    fit = [*command(folder, tmp_path), "--trainer.max_epochs=1"]
    attnlight_on_one("fit", *fit, *QUIET, cwd=tmp_path, ATTNLIGHT_DATA="")
    run = tmp_path / "e" / "r"
    cheap = [f"{CONFIGS}/tests/{name}.yaml" for name in ("predictions", "attention_permutation")]
    found = []
    for name, call in (("one", attnlight_on_one), ("two", attnlight_on_two)):
        logger = ["--trainer.logger=lightning.pytorch.loggers.CSVLogger"]
        logger += [f"--trainer.logger.save_dir={tmp_path}", f"--trainer.logger.name={name}"]
        given = ["-c", f"{run}/fit.yaml", "-c", cheap[0], "-c", cheap[1]]
        given += [f"--ckpt_path={run}/best.ckpt", *QUIET, *logger]
        call("test", *given, cwd=tmp_path, ATTNLIGHT_DATA="")
        header, row = (tmp_path / name / "version_0/metrics.csv").read_text().split()[:2]
        logged = dict(zip(header.split(","), row.split(","), strict=True))
        record = read_record(run / "records/test/attention_permutation.parquet")
        found.append((logged, record.columns))
    (one, first), (two, second) = found
    for name in ("test/f1", "test/precision", "test/recall"):
        assert one[name] == two[name]
    assert first["index"].tolist() == second["index"].tolist()
    for name, values in first.items():
        np.testing.assert_allclose(values, second[name], atol=5e-6, err_msg=name)
