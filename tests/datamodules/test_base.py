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
from attnlight.errors import InputError
from tests.datamodules.counting import Counting, run

REPOSITORY = Path(__file__).parents[2]


class Tiny(CorpusDataModule):
    """A corpus of given labels per split, one token a text."""

    def __init__(
        self,
        labels: dict[str, list[int]],
        counts: dict[str, int] | None = None,
        **kwargs: int | str,
    ) -> None:
        super().__init__(**kwargs)  # type: ignore[arg-type]
        self.labels = labels
        self.counts = counts or {}
        self.built = 0

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
        Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]")).save(
            str(folder / "tokenizer.json")
        )
        splits = {
            split: {"rows": len(labels)} | self.counts for split, labels in self.labels.items()
        }
        corpus = {"format": 1, "classes": ["no", "yes"], "splits": splits, "extras": []}
        (folder / "corpus.json").write_text(json.dumps(corpus))


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ATTNLIGHT_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_what_a_model_needs_to_know(cache: Path) -> None:
    data = Tiny({"train": [0, 1, 1, 1], "test": [1, 0]})
    assert data.classes == ["no", "yes"]
    assert data.vocab_size == 5
    assert data.label_counts == [1, 3]
    assert Tokenizer.from_str(data.tokenizer_json).token_to_id("word") == 4
    assert len(data.dataset("train")) == 4
    assert data.dataset("train") is data.dataset("train")
    assert data.built == 1


def test_the_fingerprint_is_that_of_the_recipe(cache: Path) -> None:
    def fingerprint(labels: list[int], **kwargs: int) -> str:
        return Tiny({"train": labels}, **kwargs).fingerprint

    assert fingerprint([0, 1]) == fingerprint([0, 1], seed=9, batch_size=3, num_workers=1)
    assert fingerprint([0, 1]) != fingerprint([1, 0])


def test_a_corpus_is_prepared_once_and_announced_once(
    cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    counts = {"empty": 2, "dropped": 1234}
    first, second = (Tiny({"train": [0, 1], "test": [1, 0]}, counts) for _ in range(2))
    assert first.prepare() == second.prepare()
    assert first.prepare().parent == cache
    assert (first.built, second.built) == (1, 0)
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 1
    note = "(2 empty, kept as one unknown token; 1,234 dropped)"
    assert said[0].startswith(f"Tiny: train 2 {note}, test 2 {note}; prepared in {cache}")


def test_cache_dir_beats_the_environment(cache: Path, tmp_path: Path) -> None:
    data = Tiny({"train": [0, 1]}, cache_dir=str(tmp_path / "other"))
    assert data.prepare().parent == tmp_path / "other"


@pytest.mark.slow
def test_processes_that_start_cold_build_once(tmp_path: Path) -> None:
    code = (
        "import sys; from attnlight.datamodules import PlantedEvidence as P;"
        "print(P(train_size=20000, cache_dir=sys.argv[1]).label_counts)"
    )
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(tmp_path)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=REPOSITORY,
        )
        for _ in range(3)
    ]
    said = [process.communicate(timeout=120) for process in processes]
    assert [process.returncode for process in processes] == [0, 0, 0], said
    assert len({out for out, _ in said}) == 1
    assert sum(error.count("prepared in") for _, error in said) == 1
    assert len([path for path in tmp_path.iterdir() if path.is_dir()]) == 1


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ({"train": [1, 1, 1]}, "the train split of Tiny has only one class, 1"),
        ({"train": [0, 1], "test": [1]}, "the test split of Tiny has only one class, 1"),
        ({"train": []}, "the train split of Tiny is empty"),
        ({"train": [0, 1], "validation": []}, "the validation split of Tiny is empty"),
        ({"train": [0, 1], "test": [0, -1]}, "the test split of Tiny has label -1; .* 0 to 1"),
        ({"train": [0, 2, 1]}, "the train split of Tiny has label 2"),
    ],
)
def test_corpora_that_nothing_can_be_trained_on_are_refused(
    cache: Path, labels: dict[str, list[int]], message: str
) -> None:
    for _ in range(2):  # a refused corpus is not there the second time either
        with pytest.raises(InputError, match=message):
            Tiny(labels).prepare()
    assert [path for path in cache.iterdir() if path.is_dir()] == []


def test_a_missing_split_is_named(cache: Path) -> None:
    data = Tiny({"train": [0, 1], "validation": [0, 1]})
    with pytest.raises(InputError, match="Tiny gives no test split, only train, validation"):
        data.test_dataloader()


@pytest.mark.parametrize("option", ["batch_size", "eval_batch_size"])
def test_a_batch_has_at_least_one_text(option: str) -> None:
    with pytest.raises(InputError, match=f"{option} is 0"):
        Tiny({}, **{option: 0})


def test_fewer_texts_than_devices_are_refused(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = Tiny({"train": [0, 1], "test": [1, 0]})
    data.trainer = pl.Trainer(accelerator="cpu", devices=3, strategy="ddp", logger=False)
    with pytest.raises(InputError, match="test split of Tiny has 2 texts for 3 devices"):
        data.test_dataloader()


def indices(batches: list[list[int]]) -> list[int]:
    return list(itertools.chain(*batches))


def outcome(out: Path, rank: int = 0) -> dict[str, list[list[int]]]:
    found: dict[str, list[list[int]]] = json.loads((out / f"rank{rank}.json").read_text())
    return found


def test_one_device_reads_every_text_once_in_every_loop(tmp_path: Path) -> None:
    run(tmp_path, devices=1)
    seen = outcome(tmp_path)
    assert sorted(indices(seen["train 0"])) == sorted(indices(seen["train 1"])) == list(range(101))
    assert seen["train 0"] != seen["train 1"]
    assert sorted(indices(seen["TrainerFn.FITTING validation"])) == sorted([*range(33)] * 2)
    assert sorted(indices(seen["TrainerFn.VALIDATING validation"])) == list(range(33))
    assert sorted(indices(seen["test"])) == sorted(indices(seen["predict"])) == list(range(21))


def test_a_resumed_run_sees_the_batches_of_an_undisturbed_one(tmp_path: Path) -> None:
    def fit(epochs: int, checkpoint: Path | None) -> tuple[pl.Trainer, dict[str, Any]]:
        trainer = pl.Trainer(
            accelerator="cpu",
            max_epochs=epochs,
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            limit_val_batches=0,
        )
        model = Counting(tmp_path)
        data = PlantedEvidence(train_size=101, validation_size=33, test_size=21, seed=5)
        trainer.fit(model, datamodule=data, ckpt_path=checkpoint, weights_only=True)
        return trainer, model.seen

    _, undisturbed = fit(3, None)
    killed, _ = fit(1, None)
    killed.save_checkpoint(tmp_path / "last.ckpt")
    _, resumed = fit(3, tmp_path / "last.ckpt")
    assert resumed == {epoch: undisturbed[epoch] for epoch in ("train 1", "train 2")}


def test_a_run_may_overfit_a_few_texts(tmp_path: Path) -> None:
    trainer = pl.Trainer(
        accelerator="cpu",
        overfit_batches=3,
        max_epochs=2,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        limit_val_batches=0,
    )
    model = Counting(tmp_path)
    trainer.fit(model, datamodule=PlantedEvidence(train_size=101))
    assert model.seen["train 0"] == model.seen["train 1"] == [[0], [1], [2]]


def test_worker_processes_load_the_same_batches() -> None:
    def batches(workers: int) -> list[torch.Tensor]:
        data = PlantedEvidence(train_size=101, num_workers=workers)
        return [batch.tokens for batch in data.train_dataloader()]

    for here, there in zip(batches(0), batches(1), strict=True):
        assert torch.equal(here, there)


@pytest.mark.ddp
@pytest.mark.slow
def test_two_devices_read_what_one_reads(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.datamodules.counting", str(tmp_path), "2"]
    subprocess.run(command, cwd=REPOSITORY, timeout=180, check=True)
    ranks = [outcome(tmp_path, rank) for rank in range(2)]
    for loop, n in (("TrainerFn.VALIDATING validation", 33), ("test", 21), ("predict", 21)):
        assert sorted(indices(ranks[0][loop]) + indices(ranks[1][loop])) == list(range(n))
    fitting = [rank["TrainerFn.FITTING validation"] for rank in ranks]
    assert [*map(len, fitting[0])] == [*map(len, fitting[1])]
    texts = sorted([*range(33)] * 2)  # two epochs
    assert sorted(indices(fitting[0]) + indices(fitting[1])) == [-1, -1, *texts]
    for epoch in ("train 0", "train 1"):
        assert [*map(len, ranks[0][epoch])] == [*map(len, ranks[1][epoch])]
        # Each text once, and one marked repeat that gives both ranks as many.
        assert sorted(indices(ranks[0][epoch]) + indices(ranks[1][epoch])) == [-1, *range(101)]
