"""Pretrained models on the command line and by `attnlight.run`, from folders, without network."""

import csv
import random
import shutil
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

import attnlight
from attnlight.__main__ import main
from attnlight.errors import InputError
from attnlight.huggingface import HuggingFaceClassifier
from attnlight.records import read_metadata, read_record
from tests.commands import CPU, NO_FIGURE, QUIET, Refused
from tests.data.local import write_table
from tests.huggingface.folders import NAMES, TEXTS, write_model, write_tokenizer
from tests.huggingface.models import assert_same
from tests.huggingface.test_folder import reweigh

pytestmark = pytest.mark.usefixtures("few_steps")

POSITIVE, NEGATIVE = ["funny", "gripping", "shines"], ["dull", "overlong", "mess"]
PREDICTIONS = ["--tests=predictions", NO_FIGURE, *CPU, *QUIET]
FAST = [*CPU, *QUIET, "--trainer.max_epochs=1", "--trainer.logger=false"]


def write_corpus(folder: Path) -> Path:
    """A data file of a corpus of films; a text has 3 to 12 words, one of 80."""
    generator, words = random.Random(0), " ".join(TEXTS).split()
    for split, count in (("train", 48), ("validation", 16), ("test", 16)):
        rows = []
        for number in range(count):
            text = generator.choices(words, k=80 if number == 3 else generator.randint(2, 11))
            text.append(generator.choice((NEGATIVE, POSITIVE)[number % 2]))
            rows.append([" ".join(text), ("neg", "pos")[number % 2]])
        write_table(folder / f"{split}.csv", rows)
    data = folder.parent / "films.yaml"
    options = {"path": str(folder), "classes": {"neg": "neg", "pos": "pos"}}
    corpus = {"class_path": "attnlight.datamodules.TextDataModule", "init_args": options}
    data.write_text(yaml.safe_dump(corpus))
    return data


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pretrained")
    write_corpus(folder / "films")
    shutil.copytree(write_model(folder / "bert", auto="AutoModel"), folder / "moving")
    write_model(folder / "gpt2", "gpt2", auto="AutoModel")
    write_model(folder / "trained", **NAMES)
    other = {"id2label": {0: "bad", 1: "good"}, "label2id": {"bad": 0, "good": 1}}
    write_model(folder / "renamed", **other)
    write_tokenizer(folder / "bert-other", "bert", [*TEXTS, "quite different words"])
    shutil.copy(folder / "bert/config.json", folder / "bert-other")
    return folder


@pytest.fixture(autouse=True)
def here(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place)


@pytest.fixture
def last(here: None, place: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """A run of the last layer of the model in the folder `moving`, trained and tested once."""
    run = place / "checkpoints/e/last"
    if not run.exists():
        capsys.readouterr()
        assert fit("last", name="moving") == 0
        assert "1 cut at the model's longest text" in capsys.readouterr().err
        assert main(["test", "checkpoints/e/last", *PREDICTIONS]) == 0
    return "checkpoints/e/last"


def fit(run: str, *options: str, model: str = "huggingface_last", name: str = "bert") -> int:
    named = ["--model", model, "--data", "films.yaml", "--experiment=e", f"--run={run}"]
    paths = [f"--model.net.path={name}", f"--data.tokenizer={name}"]
    return main(["fit", *named, *paths, *options, *FAST])


def films() -> list[str]:
    with Path("films/test.csv").open() as file:
        return [row["text"] for row in csv.DictReader(file)]


def require_readable(run: str) -> None:
    """Check that a run predicts of its test texts what its record says."""
    record = read_record(Path(run, "records/test/predictions.parquet")).columns
    trained = attnlight.load(run)
    batch = trained.encode(films())
    longest = int(batch.mask[:3].sum(-1).max())
    few = batch.trim(longest).select(torch.tensor([0, 1, 2]))
    assert attnlight.check(trained.model, few) == []
    assert trained.model(batch).logits.argmax(-1).tolist() == list(record["prediction"])


def test_the_last_layer_is_read_and_named_on_every_page(
    place: Path, last: str, capsys: pytest.CaptureFixture[str]
) -> None:
    require_readable(last)
    sentence = "Its attention is of the last layer only."
    for command in (["report", last], ["explain", last, TEXTS[0]]):
        capsys.readouterr()
        assert main(command) == 0
        assert sentence in " ".join(capsys.readouterr().out.split())
    for page in ("index.html", "verdict.json"):
        assert sentence in (place / last / "report" / page).read_text()
    results = attnlight.run(attnlight.load(last), list(TEXTS), tests="predictions")
    assert sentence in str(results.verdict())
    shutil.copytree(last, "checkpoints/e/again")
    assert main(["report", last, "checkpoints/e/again", "--output=compared"]) == 0
    assert sentence in Path("compared/index.html").read_text()


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("pooled", "bert"),
        pytest.param("pooled", "gpt2", marks=pytest.mark.slow),
        pytest.param("last", "gpt2", marks=pytest.mark.slow),
    ],
)
def test_fit_test_and_read_texts(model: str, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    run = f"checkpoints/e/{model}-{name}"
    assert fit(f"{model}-{name}", model=f"huggingface_{model}", name=name) == 0
    capsys.readouterr()
    assert main(["test", run, *PREDICTIONS]) == 0
    scope = "Its attention is of the last layer only."
    assert (scope in capsys.readouterr().out) is (model == "last")
    require_readable(run)


@pytest.mark.parametrize("name", ["bert", pytest.param("gpt2", marks=pytest.mark.slow)])
def test_words(place: Path, name: str) -> None:
    run = f"words-{name}"
    assert fit(run, "--model.net.items=words", name=name) == 0
    assert main(["test", f"checkpoints/e/{run}", "--tests=predictions,texts", *CPU, *QUIET]) == 0
    trained = attnlight.load(f"checkpoints/e/{run}")
    shown = read_record(place / f"checkpoints/e/{run}/records/test/texts.parquet").columns
    record = read_record(place / f"checkpoints/e/{run}/records/test/predictions.parquet").columns
    for number, text in enumerate(films()):
        words = [word for word in shown["tokens"][number] if not word.startswith("[")]
        *whole, last = (word.strip() for word in words)
        assert whole == text.split()[: len(whole)]
        assert text.split()[len(whole)].startswith(last)  # one text is cut
        assert len(text.split()) == len(words) or number == 3
        output = trained.model(trained.encode([text]))
        places = output.mask[0].nonzero().flatten().tolist()
        assert [list(span) for span in shown["items"][number]] == [[n, n + 1] for n in places]
        torch.testing.assert_close(
            output.probabilities[0], torch.tensor(record["probabilities"][number]).float()
        )
    explained = attnlight.explain(trained, [films()[0]])[0]
    assert [word.strip() for word in explained.items] == films()[0].split()
    assert attnlight.check(trained.model, trained.encode(films()[:3])) == []


def test_checkpoints_need_no_folder(place: Path, last: str) -> None:
    shutil.copy(f"{last}/best.ckpt", "alone.ckpt")
    expected = attnlight.load(last)
    logits = expected.model(expected.encode(list(TEXTS))).logits
    (place / "moving").rename("elsewhere")
    try:
        for path in (last, "alone.ckpt"):  # its own class is of the package
            moved: Any = attnlight.load(path)
            assert isinstance(moved.model, HuggingFaceClassifier)
            found = moved.model(moved.encode(list(TEXTS))).logits
            assert_same(found, logits)
        paths = ["--model.net.path=elsewhere", "--data.tokenizer=elsewhere"]
        named = ["--model=huggingface_last", "--data=films.yaml", "--experiment=e", "--run=last"]
        assert main(["validate", *named, *paths, *PREDICTIONS]) == 0
    finally:
        (place / "elsewhere").rename("moving")
    for stage in ("test", "val"):  # of the checkpoint, not of the folder that training started from
        record = Path(last, f"records/{stage}/predictions.parquet")
        assert read_metadata(record)["checkpoint"] == "best.ckpt"


def test_weights_that_have_changed(place: Path, last: str, refused: Refused) -> None:
    shutil.copytree("moving", "kept")
    try:
        reweigh(Path("moving"), lambda state: [values.mul_(0.5) for values in state.values()])
        command = ["fit", "--model=seed", f"--model.base={last}/best.ckpt", "--experiment=e"]
        named = ["--data=films.yaml", "--data.tokenizer=bert", "--run=after"]
        said = "the weights in moving are not those that training started from"
        refused(*command, *named, *FAST, names=[said])
    finally:
        shutil.rmtree("moving")
        Path("kept").rename("moving")


VARIANTS = [*product(("uniform", "seed", "adversarial"), ("last", "pooled"))]


@pytest.mark.parametrize(("variant", "kind"), [*VARIANTS, ("guided", "pooled")])
@pytest.mark.slow
def test_variants(place: Path, variant: str, kind: str) -> None:
    model = f"huggingface_{kind}"
    base = place / f"checkpoints/e/base-{model}/best.ckpt"
    if not base.exists():
        assert fit(f"base-{model}", model=model) == 0
    command = ["fit", f"--model={variant}", f"--model.base={base}", "--data=films.yaml"]
    run = f"{variant}-{model}"
    named = ["--data.tokenizer=bert", "--experiment=e", f"--run={run}"]
    assert main([*command, *named, *FAST]) == 0
    assert main(["test", f"checkpoints/e/{run}", *PREDICTIONS]) == 0
    if variant == "uniform":
        weights = attnlight.load(f"checkpoints/e/{run}")
        output = weights.model(weights.encode(list(TEXTS)))
        equal = output.mask / output.mask.sum(-1, keepdim=True)
        torch.testing.assert_close(output.weights, equal[:, None].expand_as(output.weights))


def test_texts_that_are_cut_are_counted(capsys: pytest.CaptureFixture[str]) -> None:
    long = "funny " * 70
    texts = ["funny", long, "dull film", long, " ".join(["funny"] * 62)]
    for items in ("pieces", "words"):
        model = HuggingFaceClassifier("trained", items=items)  # type: ignore[arg-type]
        attnlight.run(model, texts, tests="predictions", batch_size=2)
        assert "2 of 5 texts are cut at the model's longest text." in capsys.readouterr().err
        attnlight.run(model, [texts[0], texts[4]], tests="predictions")
        assert "cut" not in capsys.readouterr().err


NAMED = ["--model=huggingface_last", "--data=films.yaml", "--experiment=x", *FAST]
TEST, FIT = ["test", *NAMED], ["fit", *NAMED, "--model.net.path=bert"]


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (
            [*TEST, "--model.net.path=renamed"],
            "has the classes neg, pos, the model bad, good: rename",
        ),
        ([*TEST, "--model.net.path=bert"], "has no trained head"),
        ([*FIT, "--data.tokenizer=bert-other"], "other tokens than the model: set `tokenizer` of"),
        ([*FIT, "--data.tokenizer=bert", "--data.max_vocabulary=100"], "other tokens: leave out"),
    ],
)
def test_is_refused(command: list[str], said: str, refused: Refused) -> None:
    """Other names of classes, a head that is not trained, and tokens that are not the model's."""
    refused(*command, names=[said])
    if said == "has no trained head":
        with pytest.raises(InputError, match=said):
            attnlight.run(HuggingFaceClassifier("bert"), list(TEXTS), tests="cheap")
