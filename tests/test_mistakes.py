"""Mistakes in a small world: one sentence, status 2, and nothing is lost."""

from __future__ import annotations

import json
import os
import pickle
import shutil
from collections.abc import Callable, Iterator
from contextlib import chdir
from pathlib import Path
from typing import Any, NamedTuple

import lightning.pytorch as pl
import pytest
import torch
import yaml
from lightning.pytorch.callbacks import ModelCheckpoint

from attnlight.__main__ import main
from attnlight.errors import InputError
from attnlight.records import read_record
from attnlight.storage.locking import sole_process
from tests import commands
from tests.cli.test_export import write_run
from tests.commands import CONFIGS, Refused, content, without_figures
from tests.damage import files_of_at_most, make_read_only

TRAINER = ["-c", f"{CONFIGS}/trainer.yaml"]
SMALL = ["--model.net.embedding_size=8", "--model.net.hidden_size=4", "--model.vectors.path=null"]
QUIET = [*commands.QUIET, "--trainer.logger=false", "--trainer.max_epochs=1"]
QUIET += ["--trainer.accelerator=cpu"]
MODEL = ["--model", f"{CONFIGS}/models/bilstm_additive.yaml"]
FIT = ["fit", *TRAINER, *MODEL, "--data=corpus.yaml", *SMALL, *QUIET, "--experiment=new"]
PLANTED = ["fit", *QUIET, "--experiment=new"]  # refused before there is a corpus
RUN = "checkpoints/e/r"
AGAIN = [*FIT, "--experiment=e", "--run=r"]
BEST = f"--ckpt_path={RUN}/best.ckpt"
TEST = ["test", "-c", f"{RUN}/fit.yaml"]
TESTED = [*TEST, "-c", "tests.yaml", BEST]
BASE = ["--model=SeedVariant", "--model.base"]


def corpus(folder: Path, rows: int = 40, **changes: str) -> Path:
    """A corpus in a folder: two classes, a word for each."""
    folder.mkdir()
    words = [("bad", "neg"), ("good", "pos")] * rows
    lines = [f"the film {i} was {word},{label}\n" for i, (word, label) in enumerate(words[:rows])]
    for split in ("train", "validation", "test"):
        text = changes.get(split, "".join(["text,label\n", *lines]))
        (folder / f"{split}.csv").write_text(text)
    return folder


def described(path: Path, folder: str, **options: Any) -> None:
    given = {"path": folder, "validation": "validation"}
    given |= {"classes": {"bad": ["neg"], "good": ["pos"]}}
    content = {"class_path": "attnlight.datamodules.TextDataModule", "init_args": given | options}
    path.write_text(yaml.safe_dump(content))


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Corpora, one trained run with records, and damaged files."""
    world = tmp_path_factory.mktemp("world")
    corpus(world / "corpus", rows=20)
    corpus(world / "another", rows=30)
    corpus(world / "one-class", test="text,label\na,neg\nb,neg\n")
    corpus(world / "empty", test="text,label\n")
    corpus(world / "unlabelled", train="text,label\na,neg\nb,\nc,pos\n")
    for folder in ("corpus", "one-class", "empty", "unlabelled"):
        described(world / f"{folder}.yaml", f"{world}/{folder}")
    classes = {"dull": ["neg"], "fine": ["pos"]}
    described(world / "another.yaml", f"{world}/another", classes=classes)
    with chdir(world):
        assert main(AGAIN) == 0
        without_figures("tests.yaml", "predictions", "attention_permutation")
        assert main(TESTED) == 0
        write_run(world / "marked")
        _damage(world)
        yield world


class Harmful:
    """A pickle that would leave a file behind."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Callable[[str], None], tuple[str]]:
        return os.mkdir, (str(self.mark),)


def _damage(world: Path) -> None:
    whole = (world / RUN / "best.ckpt").read_bytes()
    (world / "half.ckpt").write_bytes(whole[: len(whole) // 2])
    (world / "text.ckpt").write_text("not a checkpoint")
    (world / "raw.ckpt").write_bytes(pickle.dumps(Harmful(world / "HARMED")))
    content = torch.load(world / RUN / "best.ckpt", weights_only=True)
    for key in ("hyper_parameters", "state_dict"):
        torch.save(content | {key: Harmful(world / "HARMED")}, world / f"{key}.ckpt")
    torch.save({"state_dict": {}, "pytorch-lightning_version": "2.6.6"}, world / "foreign.ckpt")
    (world / "latin.yaml").write_bytes("trainer: {max_epochs: 1}  # Müll\n".encode("latin-1"))
    bomb = ["a0: &a0 [x, x]", *(f"a{i}: &a{i} [*a{i - 1}, *a{i - 1}]" for i in range(1, 40))]
    files = {
        "broken.yaml": "trainer: {max_epochs: [1\n",
        "dotted.yaml": "trainer.max_epochs: 3\n",
        "list.yaml": "- a list\n",
        "module.yaml": "data: os.path\n",
        "class.yaml": "model: {class_path: [1]}\n",
        "deep.yaml": "trainer: " + "[" * 3000 + "]" * 3000 + "\n",
        "python.yaml": f"trainer: !!python/object/apply:os.mkdir [{world}/HARMED]\n",
        "bomb.yaml": "\n".join(bomb) + "\n",
        "study.yaml": f"experiment: {CONFIGS}/experiments/sst_bilstm.yaml\nbse: {{seeds: [0]}}\n",
        "a-file": "",
        "tags.txt": "the DT B-NP\ncat NN I-NP\n\nit PRP B-NP\n",
        "open.csv": "title,body,stars,lang\n"
        + "".join(f"t{n},b{n},{n % 2},{n % 3}\n" for n in range(9)),
    }
    for name, text in files.items():
        (world / name).write_text(text)
    shutil.copy(world / "corpus/test.csv", world / "one.csv")
    (world / "test-alone").mkdir()
    shutil.copy(world / "corpus/test.csv", world / "test-alone")
    shutil.copytree(world / "corpus", world / "no-test", ignore=lambda *_: ["test.csv"])
    (world / "no-records").mkdir()
    _copy(world, "latin", "fit.yaml", "# Müll\n".encode("latin-1"))
    _copy(world, "status-latin", "status.json", '{"state": "Müll"}'.encode("latin-1"))
    _copy(world, "status-list", "status.json", b"[]")
    _copy(world, "status-deep", "status.json", b"[" * 100_000)
    _copy(world, "no-id", "wandb_id", b"")


def _copy(world: Path, name: str, file: str, content: bytes) -> None:
    """A copy of the run with one file damaged."""
    folder = shutil.copytree(world / RUN, world / "checkpoints/e" / name)
    (folder / file).write_bytes(content)


class Mistake(NamedTuple):
    """A command, and what its sentence names."""

    id: str
    words: list[str]
    names: tuple[str, ...]


def option(name: str, *names: str) -> Mistake:
    """An option that is refused before there is a model."""
    return Mistake(name, [*PLANTED, "--run=x", name], names)


def in_corpus(id: str, file: str, names: tuple[str, ...], *options: str) -> Mistake:
    words = [word.replace("corpus.yaml", file) for word in FIT]
    return Mistake(id, [*words, "--run=x", *options], names)


def checkpoint(file: str, *names: str) -> Mistake:
    return Mistake(f"checkpoint-{file}", [*TEST, f"--ckpt_path={file}"], (file, *names))


def place(verb: str, name: str, value: str) -> Mistake:
    words = [*PLANTED, "--overwrite"] if verb == "fit" else [*TEST, "--ckpt_path=best"]
    given = {"experiment": "e", "run": "r"} | {name: value}
    options = [f"--{key}={text}" for key, text in given.items()]
    return Mistake(f"{verb}-{name}-{value!r}", [*words, *options], (f"--{name}",))


ABSENT = "mps" if torch.cuda.is_available() else "gpu"
MISTAKES = [
    Mistake("verb", ["train"], ("train", "fit")),
    option("--trainer.precision=17", "trainer.precision"),
    option("--trainer.max_epochs=abc", "trainer.max_epochs"),
    option("--trainer.max_epoch=1", "did you mean '--trainer.max_epochs'"),
    option("--test=card", "did you mean '--tests'"),
    option("--trainer.epochs=3", "did you mean '--trainer.max_epochs'"),
    option("--dtaa.batch_size=3", "--dtaa.batch_size (did you mean '--data.batch_size'?)"),
    option("--model=bilstm", "did you mean bilstm_additive or"),
    option("--data=tags.txt", "tags.txt", "--model tagger_bilstm"),
    Mistake("no-file-of-tags", [*PLANTED, "--model=tagger_bilstm", "--data=missing.conll"], ("no column file missing.conll",)),
    option("--data=open.csv", "set --data.text (title or body) and --data.label (stars or lang)"),
    Mistake("table-as-configuration", ["fit", "corpus/test.csv"], ("corpus/test.csv is a corpus", "bilstm_additive --data corpus/test.csv`")),
    Mistake("folder-as-configuration", ["fit", "corpus"], ("corpus is a corpus", "--data corpus`")),
    Mistake("tags-as-configuration", ["fit", "tags.txt"], ("tags.txt is a corpus", "tagger_bilstm --data tags.txt`")),
    Mistake("tagger-of-texts", [*PLANTED, "--model=tagger_bilstm", "--data=one.csv"], ("--data.word_column (no column has lists of words)",)),
    Mistake("one-split-called-test", [*PLANTED, "--data=test-alone"], ("set --data.train (test)",)),
    Mistake("which-split-to-test", [*TEST, BEST, "--data=no-test"], ("set --data.test (train or validation)",)),
    in_corpus("no-validation", "corpus.yaml", ("corpus gives no validation split, only train, test", "validation_fraction"), "--data.validation=null", "--data.validation_fraction=0"),
    Mistake("broken-yaml", [*PLANTED[:1], "-c", "broken.yaml"], ("broken.yaml",)),
    Mistake("no-utf-8", [*PLANTED[:1], "-c", "latin.yaml"], ("latin.yaml", "utf-8")),
    Mistake("deep-yaml", [*PLANTED[:1], "-c", "deep.yaml"], ("deep.yaml", "deep")),
    Mistake("python-tag", [*PLANTED[:1], "-c", "python.yaml"], ("python.yaml", "python/object")),
    Mistake("no-class-path", [*PLANTED[:1], "-c", "class.yaml"], ("class.yaml: model", "[1]")),
    Mistake("dotted-key", [*PLANTED[:1], "-c", "dotted.yaml"], ("dotted.yaml", "trainer.max_epochs")),
    Mistake("list", [*PLANTED[:1], "-c", "list.yaml"], ("list.yaml", "mapping")),
    Mistake("no-class", [*PLANTED[:1], "-c", "module.yaml"], ("module.yaml", "os.path")),
    Mistake("resume-nothing", [*FIT, "--run=x", "--ckpt_path=last"], ("last.ckpt",)),
    Mistake("test-nothing", ["test", *MODEL, "--data=corpus.yaml"], ("--ckpt_path",)),
    Mistake("alias-bomb", [*PLANTED[:1], "-c", "bomb.yaml"], ("bomb.yaml", "values")),
    Mistake("missing-config", [*PLANTED[:1], "-c", "nowhere.yaml"], ("nowhere.yaml",)),
    Mistake("study-key", ["study", "study.yaml"], ("bse",)),
    option("--seed_everything=-1", "--seed_everything", "-1", "0"),
    option("--seed_everything=4294967296", "--seed_everything", "4294967295"),
    option("--trainer.max_epochs=-5", "max_epochs", "-5"),
    option("--trainer.accelerator=tpu", "accelerator", "tpu"),
    option(f"--trainer.accelerator={ABSENT}", "accelerator", ABSENT),
    option("--trainer.devices=x", "devices", "x"),
    option("--trainer.strategy=nonsense", "strategy", "nonsense"),
    option("--root=a\0b", "--root"),
    option("--root=a-file", "a-file"),
    place("fit", "run", "../../esc"),
    place("fit", "run", ""),
    place("fit", "experiment", ".."),
    place("test", "run", "/tmp/esc"),
    in_corpus("corpus-folder", "corpus.yaml", ("nowhere",), "--data.path=./nowhere"),
    in_corpus("class-label", "corpus.yaml", ("nope",), '--data.classes={"a": ["nope"], "b": ["pos"]}'),
    in_corpus("labels-nan", "unlabelled.yaml", ("label",)),
    in_corpus("empty-test-split", "empty.yaml", ("test",)),
    in_corpus("one-class", "one-class.yaml", ("test", "one class")),
    in_corpus("batch-size", "corpus.yaml", ("batch_size", "0"), "--data.batch_size=0"),
    in_corpus("erased-share", "corpus.yaml", ("erased_words.share", "1.0", "between 0 and 1"), "--data.erased_words.share=1"),
    in_corpus("erased-key", "corpus.yaml", ("erased_words", "did you mean 'share'"), "--data.erased_words={shar: 0.5}"),
    in_corpus("null", "corpus.yaml", ("net.dropout", "null"), "--model.net.dropout=null"),
    in_corpus("constructor", "corpus.yaml", ("hidden_size", "greater"), "--model.net.hidden_size=-3"),
    in_corpus("hub-offline", "corpus.yaml", ("nobody/nothing",), "--data.path=nobody/nothing"),
    checkpoint("nowhere.ckpt"),
    checkpoint("half.ckpt"),
    checkpoint("text.ckpt"),
    checkpoint("foreign.ckpt", "attnlight"),
    checkpoint("raw.ckpt"),
    checkpoint("hyper_parameters.ckpt"),
    checkpoint("state_dict.ckpt"),
    Mistake("checkpoint-without-its-corpus", ["test", *QUIET, BEST], ("add --data FILE", f"`attnlight test {RUN}`")),
    Mistake("checkpoint-of-other-classes", [*TEST, "--data=another.yaml", BEST], ("classes", "another", "dull")),
    Mistake("checkpoint-of-another-attention", [*TEST, BEST, "--model.net.attention=dot"], ("attention",)),
    Mistake("variant-without-base", [*FIT[:3], "--data=corpus.yaml", *QUIET, "--model=SeedVariant"], ("SeedVariant needs the run", "--model.base RUN")),
    Mistake("variant-of-nothing", [*FIT[:3], "--data=corpus.yaml", *QUIET, *BASE, "nowhere.ckpt"], ("nowhere.ckpt",)),
    Mistake("variant-of-a-text", [*FIT[:3], "--data=corpus.yaml", *QUIET, *BASE, "text.ckpt"], ("text.ckpt",)),
    Mistake("divergence-without-base", [*TEST, "-c", f"{CONFIGS}/tests/base_divergence.yaml", BEST], ("base",)),
    Mistake("run-exists", AGAIN, (RUN, "--overwrite")),
    Mistake("no-utf-8-in-fit.yaml", ["test", "-c", "checkpoints/e/latin/fit.yaml", BEST], ("latin/fit.yaml",)),
    *(
        Mistake(name, [*FIT, "--experiment=e", f"--run={name}"], ("status.json", "--overwrite"))
        for name in ("status-latin", "status-list", "status-deep")
    ),
    Mistake("empty-wandb-id", [*TEST, "--ckpt_path=checkpoints/e/no-id/best.ckpt"], ("no-id/wandb_id",)),
    Mistake("report-nowhere", ["report", "nowhere"], ("nowhere",)),
    Mistake("report-a-file", ["report", "a-file"], ("a-file",)),
    Mistake("report-no-records", ["report", "no-records"], ("no trained run no-records: the folder is empty",)),
    Mistake("report-an-experiment", ["report", "checkpoints/e"], ("checkpoints/e is the folder of an experiment", "such as checkpoints/e/")),
    *(
        Mistake(f"{verb}-an-experiment", [verb, "checkpoints/e"], ("checkpoints/e is the folder of an experiment",))
        for verb in ("browse", "card", "export")
    ),
    Mistake("export-without-scores", ["export", RUN], (f"`attnlight test {RUN} --tests texts`",)),
    Mistake("card-beside-other-settings", [*TEST, "--tests=card", BEST], ("measured with other settings (draws", "--overwrite replaces it, and --tests card --overwrite goes last")),
    Mistake("report-latin", ["report", "checkpoints/e/latin"], ("latin/fit.yaml",)),
    Mistake("sanity-nowhere", ["sanity", "checkpoints/e/q"], ("no trained run", "checkpoints/e/q")),
    Mistake("sanity-of-three", ["sanity", RUN, RUN, RUN], ("one or two", "3")),
    Mistake("sanity-of-an-unknown-method", ["sanity", RUN, "--methods=gradeint"], ("gradeint", "gradient")),
    Mistake("sanity-of-no-yaml", ["sanity", RUN, "--methods", "[lrp"], ("--methods", "[lrp")),
    Mistake("reliability-of-one", ["reliability", RUN], ("two",)),
]  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.id)
def test_mistake(mistake: Mistake, world: Path, refused: Refused) -> None:
    refused(*mistake.words, names=mistake.names, leaving=world)


def test_nothing_that_a_file_holds_was_run(world: Path) -> None:
    assert not (world / "HARMED").exists()


class TestOneProcessAtATime:
    @pytest.mark.parametrize(
        "words",
        [
            *([*AGAIN, "--overwrite"], [*AGAIN, "--ckpt_path=last"]),
            *([verb, *TEST[1:], BEST] for verb in ("test", "validate", "predict")),
        ],
        ids=["fit-anew", "fit-on", "test", "validate", "predict"],
    )
    def test_a_second_is_refused(self, words: list[str], world: Path, refused: Refused) -> None:
        with sole_process(world / RUN):
            refused(*words, names=("another process is using", f"{RUN}:"), leaving=world)

    def test_a_report_is_not(self, world: Path, tmp_path: Path) -> None:
        with sole_process(world / RUN):
            assert main(["report", RUN, f"--output={tmp_path}"]) == 0
        assert (tmp_path / "index.html").is_file()

    def test_the_lock_is_held_while_a_model_is_trained_and_then_let_go(
        self, world: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        folder, refused = world / "checkpoints/new/locked", []

        def watch(self: object, trainer: pl.Trainer, module: pl.LightningModule) -> None:
            with pytest.raises(InputError, match="another process") as error:
                sole_process(folder).__enter__()
            refused.append(error)

        monkeypatch.setattr(ModelCheckpoint, "on_train_epoch_start", watch)
        assert main([*FIT, "--run=locked"]) == 0
        assert refused
        with sole_process(folder):
            shutil.rmtree(folder)


class TestDisk:
    def test_that_fills_up_while_a_checkpoint_is_written(
        self, world: Path, refused: Refused
    ) -> None:
        told = "checkpoints/new/full/best.ckpt cannot be written: File too large"
        with files_of_at_most((world / RUN / "best.ckpt").stat().st_size - 1):
            refused(*FIT, "--run=full", names=[told], leaving=world)

    @pytest.mark.parametrize(
        "words",
        [TESTED, ["predict", *TEST[1:], BEST], ["report", RUN], ["export", "marked"]],
        ids=["test", "predict", "report", "export"],
    )
    def test_that_is_full(self, words: list[str], world: Path, refused: Refused) -> None:
        before = content(world)
        with files_of_at_most(100):
            refused(*words, names=["cannot be written: File too large"])
        assert not [name for name in content(world).keys() - before if (world / name).is_file()]
        assert {n: c for n, c in content(world).items() if n in before} == before

    def test_that_is_full_while_a_corpus_is_prepared(self, world: Path, refused: Refused) -> None:
        before, cache = content(world), world / "cache"
        with files_of_at_most(1000):
            refused(*FIT, "--run=x", f"--data.cache_dir={cache}", names=["set ATTNLIGHT_CACHE"])
        assert [path for path in cache.rglob("*") if not path.name.endswith(".lock")] == []
        shutil.rmtree(cache, ignore_errors=True)
        assert content(world) == before

    @pytest.mark.parametrize(
        ("words", "place"),
        [
            *(([verb, *TEST[1:], BEST], RUN) for verb in ("test", "validate", "predict")),
            ([*AGAIN, "--ckpt_path=last", "--trainer.max_epochs=2"], RUN),
            (["report", RUN], f"{RUN}/report"),
            (["export", "marked"], "marked/export"),
        ],
        ids=["test", "validate", "predict", "fit", "report", "export"],
    )
    def test_that_is_read_only(
        self,
        words: list[str],
        place: str,
        world: Path,
        monkeypatch: pytest.MonkeyPatch,
        refused: Refused,
    ) -> None:
        make_read_only(place, monkeypatch)
        refused(*words, names=(place, "cannot be written: Read-only file system"))


def test_nothing_is_deleted_outside_the_root(world: Path, refused: Refused) -> None:
    """`--overwrite` removes what a run is made of, where a path would have led it."""
    victim = shutil.copytree(world / RUN, world / "victim")
    for name in ("../../victim", str(victim)):
        refused(*AGAIN, f"--run={name}", "--overwrite", leaving=victim)
        refused(*FIT, f"--experiment={name}/..", "--run=victim", "--overwrite", leaving=victim)
    shutil.rmtree(victim)


def test_a_refused_run_that_replaces_another_deletes_nothing(world: Path, refused: Refused) -> None:
    refused(*AGAIN, "--overwrite", "--data.text=txet", leaving=world / RUN)


HOSTILE = [
    "<script>alert(1)</script> </style> \" ' & good",
    "\u202eturned good",
    "line\u2028break good",
    "carriage\r\nreturn bad",
    "nul \0 bad",
    "[PAD] [BOS] [UNK] bad",
    "w" * 1_000_000 + " bad",
    "\U0001f600 \u05e9\u05dc\u05d5\u05dd ü good",
    "",
]
LONG = "word " * 2_000 + "good"


@pytest.mark.parametrize("paired", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_hostile_texts_names_and_paths_go_through(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, paired: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("attnlight.report.first_text._TEXTS", 100)
    folder = corpus(tmp_path / "a corpus ü\U0001f600")
    names = ["\u202eevil", "<b>good"]
    rows = [{"text": text, "label": names[i % 2]} for i, text in enumerate(HOSTILE * 3)]
    long = {"text": LONG, "label": names[1]}
    if paired:  # each text also asks, but for the empty one, which is refused
        asked = [text for text in HOSTILE if text]
        rows = [row | {"query": asked[i % len(asked)]} for i, row in enumerate(rows)]
        long["query"] = LONG
    for split, more in (("train", []), ("validation", []), ("test", [long])):
        (folder / f"{split}.csv").unlink()
        lines = "".join(json.dumps(row) + "\n" for row in [*rows, *more])
        (folder / f"{split}.jsonl").write_text(lines)
    described(tmp_path / "corpus.yaml", str(folder), classes={name: [name] for name in names})
    fit = FIT
    if paired:
        content = yaml.safe_load(Path("corpus.yaml").read_text(encoding="utf-8"))
        content["class_path"] = "attnlight.datamodules.PairDataModule"
        content["init_args"] |= {"passage": "text", "query": "query"}
        Path("corpus.yaml").write_text(yaml.safe_dump(content), encoding="utf-8")
        fit = [word.replace("bilstm_additive", "pair_average_additive") for word in FIT]
        fit = [word for word in fit if not word.startswith("--model.vectors.path")]
    given = [*fit, "--root=runs \u202eü", "--run=\u05e9 \U0001f600"]
    assert main(given) == 0
    run = "runs \u202eü/new/\u05e9 \U0001f600"
    tests = ("predictions", "attention_permutation", "decision_flip")
    assert main(["test", run, *without_figures("tests.yaml", *tests)]) == 0
    assert main(["predict", run]) == 0
    assert main(["report", run]) == 0
    record = read_record(Path(run, "records/test/predictions.parquet"))
    assert len(record.columns["index"]) == len(rows) + 1
    page = Path(run, "report/index.html").read_text(encoding="utf-8")
    assert page.count('<section class="one-text"') == 1
    assert page.count('<p class="query" dir="auto">') == paired
    assert "script>alert(1)" not in page
    assert page.count("<script") == 2, "what changes attention on the page, and its data"
    assert len(page) < 20_000_000  # the most that a page may have
    assert "<bdi>\u202eevil\u202c</bdi>" in page
