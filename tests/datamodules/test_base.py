"""What every corpus does: fingerprints, one preparation, splits, and loaders."""

import itertools
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import datasets
import lightning.pytorch as pl
import pytest
import torch
from tokenizers import Tokenizer, models

from attnlight.batch import SPECIAL_TOKENS
from attnlight.data.sources import silent
from attnlight.datamodules import CorpusDataModule, PlantedEvidence
from attnlight.datamodules.prepared_format import describe_splits
from attnlight.errors import InputError
from tests.commands import ROOT
from tests.datamodules.counting import Counting, quiet, run


class Tiny(CorpusDataModule):
    """A corpus of given labels per split, one token a text."""

    def __init__(
        self, labels: dict[str, list[int]], counts: dict[str, int] | None = None, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.labels, self.counts, self.built = labels, counts or {}, 0

    def recipe(self) -> dict[str, Any]:
        return {"labels": self.labels}

    def build(self, folder: Path) -> None:
        self.built += 1
        columns = {name: datasets.Value("int64") for name in ("index", "label", "length")}
        features = datasets.Features(columns | {"tokens": datasets.List(datasets.Value("int32"))})
        for split, labels in self.labels.items():
            n = len(labels)
            rows = {"index": range(n), "label": labels, "length": [1] * n, "tokens": [[4]] * n}
            with silent():
                datasets.Dataset.from_dict(rows, features).save_to_disk(str(folder / split))
        vocabulary = {word: number for number, word in enumerate([*SPECIAL_TOKENS, "word"])}
        tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
        splits = {name: {"rows": len(rows)} | self.counts for name, rows in self.labels.items()}
        describe_splits(folder, tokenizer.to_str(), classes=["no", "yes"], splits=splits, extras=[])


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ATTNLIGHT_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_a_corpus_is_prepared_once_and_announced_once(
    cache: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    counts = {"empty": 2, "dropped": 1234}
    first, second = (Tiny({"train": [0, 1], "test": [1, 0]}, counts) for _ in range(2))
    assert first.prepare() == second.prepare()
    assert first.prepare().parent == cache
    assert (first.built, second.built) == (1, 0)
    assert second.dataset("train") is second.dataset("train")
    assert second.label_counts == [1, 1]
    (said,) = capsys.readouterr().err.splitlines()
    note = "(2 empty, kept as one unknown token; 1,234 dropped)"
    assert said.startswith(f"Tiny: train 2 {note}, test 2 {note}; prepared in {cache}")
    other = Tiny({"train": [0, 1]}, cache_dir=str(tmp_path / "other"))
    assert other.prepare().parent == tmp_path / "other"


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ({"train": [1, 1, 1]}, "the train split of Tiny has only one class, yes;"),
        ({"train": [0, 1], "test": [1]}, "the test split of Tiny has only one class, yes;"),
        ({"train": []}, "the train split of Tiny is empty"),
        ({"train": [0, 1], "validation": []}, "the validation split of Tiny is empty"),
        ({"train": [0, 1], "test": [0, -1]}, "the test split of Tiny has label -1; .* 0 to 1"),
        ({"train": [0, 2, 1]}, "the train split of Tiny has label 2"),
    ],
)
def test_untrainable_corpora(cache: Path, labels: dict[str, list[int]], message: str) -> None:
    for _ in range(2):  # a refused corpus is not there the second time either
        with pytest.raises(InputError, match=message):
            Tiny(labels).prepare()
    assert [path for path in cache.iterdir() if path.is_dir()] == []


def test_a_missing_split_and_fewer_texts_than_devices_are_named(cache: Path) -> None:
    with pytest.raises(InputError, match="Tiny gives no test split, only train, validation"):
        Tiny({"train": [0, 1], "validation": [0, 1]}).test_dataloader()
    data = Tiny({"train": [0, 1], "test": [1, 0]})
    data.trainer = pl.Trainer(accelerator="cpu", devices=3, strategy="ddp", logger=False)
    with pytest.raises(InputError, match="test split of Tiny has 2 texts for 3 devices"):
        data.test_dataloader()


def indices(batches: list[list[int]]) -> list[int]:
    return sorted(itertools.chain(*batches))


def outcome(out: Path, rank: int = 0) -> dict[str, list[list[int]]]:
    found: dict[str, list[list[int]]] = json.loads((out / f"rank{rank}.json").read_text())
    return found


def test_one_device_reads_every_text_once_in_every_loop(tmp_path: Path) -> None:
    run(tmp_path, devices=1)
    seen = outcome(tmp_path)
    assert indices(seen["train 0"]) == indices(seen["train 1"]) == list(range(101))
    assert seen["train 0"] != seen["train 1"]
    assert indices(seen["TrainerFn.FITTING validation"]) == sorted([*range(33)] * 2)
    assert indices(seen["TrainerFn.VALIDATING validation"]) == list(range(33))
    assert indices(seen["test"]) == indices(seen["predict"]) == list(range(21))


def test_a_resumed_run_sees_the_batches_of_an_undisturbed_one(tmp_path: Path) -> None:
    def fit(epochs: int, checkpoint: Path | None) -> tuple[pl.Trainer, dict[str, Any]]:
        trainer = quiet(max_epochs=epochs, limit_val_batches=0)
        model, data = Counting(tmp_path), PlantedEvidence(train_size=101, seed=5)
        trainer.fit(model, datamodule=data, ckpt_path=checkpoint, weights_only=True)
        return trainer, model.seen

    _, undisturbed = fit(3, None)
    killed, _ = fit(1, None)
    killed.save_checkpoint(tmp_path / "last.ckpt")
    _, resumed = fit(3, tmp_path / "last.ckpt")
    assert resumed == {epoch: undisturbed[epoch] for epoch in ("train 1", "train 2")}


def test_a_run_may_overfit_a_few_texts(tmp_path: Path) -> None:
    trainer, model = quiet(max_epochs=2, limit_val_batches=0, overfit_batches=3), Counting(tmp_path)
    trainer.fit(model, datamodule=PlantedEvidence(train_size=101))
    assert model.seen["train 0"] == model.seen["train 1"] == [[0], [1], [2]]


def test_worker_processes_load_the_same_batches() -> None:
    loaders = (PlantedEvidence(train_size=101, num_workers=n).train_dataloader() for n in (0, 1))
    for here, there in zip(*loaders, strict=True):
        assert torch.equal(here.tokens, there.tokens)


@pytest.mark.ddp
@pytest.mark.slow
def test_two_devices_read_what_one_reads(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.datamodules.counting", str(tmp_path), "2"]
    subprocess.run(command, cwd=ROOT, timeout=180, check=True)
    ranks = [outcome(tmp_path, rank) for rank in range(2)]
    seen = {loop: indices(batches + ranks[1][loop]) for loop, batches in ranks[0].items()}
    for loop, n in (("TrainerFn.VALIDATING validation", 33), ("test", 21), ("predict", 21)):
        assert seen[loop] == list(range(n))
    texts = sorted([*range(33)] * 2)  # two epochs
    assert seen["TrainerFn.FITTING validation"] == [-1, -1, *texts]
    for epoch in ("train 0", "train 1"):  # each text once, and a repeat that gives ranks as many
        assert seen[epoch] == [-1, *range(101)]
    for loop in ("train 0", "train 1", "TrainerFn.FITTING validation"):
        assert [*map(len, ranks[0][loop])] == [*map(len, ranks[1][loop])]
