"""A trained model evaluated on a corpus that it was not trained on."""

import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import yaml

from attnlight.__main__ import main
from attnlight.errors import InputError
from attnlight.records import read_record
from attnlight.tasks import AttentionClassifier, AttentionTask, SeedVariant
from tests.commands import CONFIGS, CPU, NO_FIGURE, QUIET, Refused, attached, content
from tests.data.local import write_corpus, write_table

GOOD = ["good", "fine", "lovely", "great"]
BAD = ["bad", "awful", "dull", "poor"]
FILLERS = ["the", "film", "was", "a", "plot", "actor", "and", "scene"]
OTHER_FILLERS = ["the", "phone", "was", "a", "battery", "screen"]  # four of six are unknown


def texts(size: int, fillers: list[str], seed: int) -> list[tuple[str, int]]:
    random = np.random.default_rng(seed)
    rows = []
    for label in random.integers(2, size=size):
        words = [*random.choice(fillers, 5), random.choice(GOOD if label else BAD)]
        rows.append((" ".join(random.permutation(words)), int(label)))
    return rows


def data_file(path: Path, folder: Path, **options: Any) -> str:
    settings = {"path": str(folder), "splitting": "words"} | options
    kind = "attnlight.datamodules.TextDataModule"
    path.write_text(yaml.safe_dump({"class_path": kind, "init_args": settings}, sort_keys=False))
    return str(path)


CLASSES = {"negative": [0], "positive": [1]}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Films, whose base was tested on them (`own` is its folder) and on phones, and a variant."""
    folder = tmp_path_factory.mktemp("corpora")
    films = folder / "films"
    for number, (split, size) in enumerate((("train", 120), ("validation", 40), ("test", 40))):
        write_table(films / f"{split}.csv", texts(size, FILLERS, number))
    data = data_file(folder / "films.yaml", films, classes=CLASSES, boundary_tokens=False)
    # The other corpus has a test split alone, names its labels and has them in another order.
    rows = [(text, ["neg", "pos"][label]) for text, label in texts(31, OTHER_FILLERS, 9)]
    write_table(folder / "phones/test.csv", rows)
    phones, unlike = {"positive": ["pos"], "negative": ["neg"]}, {"bad": ["neg"], "good": ["pos"]}
    for name, classes in {"phones": phones, "unlike": unlike, "unnamed": None}.items():
        data_file(folder / f"{name}.yaml", folder / "phones", classes=classes)
    small = ["--model.net.embedding_size=8", "--model.net.hidden_size=4", "--trainer.max_epochs=4"]
    quiet = [*CPU, *QUIET, f"--root={folder}", "--experiment=e"]
    arguments = ["fit", f"--data={data}", "--data.batch_size=8", *quiet]
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert main([*arguments, "--run=base", *small, "--model.optimizer.learning_rate=0.03"]) == 0
        variant = ["--model=SeedVariant", f"--model.base={folder}/e/base/best.ckpt"]
        more = ["--run=seed1", "--seed_everything=1", "--trainer.max_epochs=1"]
        assert main([*arguments, *variant, *more]) == 0
        run, tests = folder / "e/base", attached("predictions")
        assert evaluate(run, "test", *tests) == 0
        shutil.copytree(run, folder / "own")
        assert evaluate(run, "test", "--data=phones.yaml", *tests) == 0
    return folder


@pytest.fixture
def there(place: Path, here: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the runs, for each test its own."""
    shutil.copytree(place / "e", here / "e")
    for file in place.glob("*.yaml"):
        shutil.copy(file, here)
    return here


def command(run: Path, verb: str, *arguments: str) -> list[str]:
    given = ["-c", f"{run}/fit.yaml", f"--ckpt_path={run}/best.ckpt", *CPU, *QUIET]
    return [verb, *given, *arguments]


def evaluate(run: Path, verb: str, *arguments: str) -> int:
    return main(command(run, verb, *arguments))


def test_records_lie_beside_those_of_its_own_corpus(there: Path, place: Path) -> None:
    """Each row against `classify` on the raw text; labels by name, whatever their order."""
    run = there / "e/base"
    for name in ("records/test/predictions.parquet", "test.yaml", "figures/test/predictions.svg"):
        assert (run / name).read_bytes() == (place / "own" / name).read_bytes()
    assert (run / "figures/test-phones/predictions.svg").is_file()
    record = read_record(run / "records/test-phones/predictions.parquet")
    assert record.metadata["corpus_name"] == "phones"
    assert record.metadata["classes"] == ["negative", "positive"]
    # The share of unknown words, counted by hand.
    rows, known = texts(31, OTHER_FILLERS, 9), {*GOOD, *BAD, *FILLERS}
    words = [word for text, _ in rows for word in text.split()]
    share = sum(word not in known for word in words) / len(words)
    assert record.metadata["unknown_words"] == pytest.approx(share)
    assert 0.4 < share < 0.7
    columns, task = record.columns, AttentionClassifier.load_from_checkpoint(run / "best.ckpt")
    assert columns["index"].tolist() == list(range(31))
    assert columns["label"].tolist() == [label for _, label in rows]
    probabilities = task.classify([text for text, _ in rows]).numpy()
    np.testing.assert_allclose(columns["probabilities"], probabilities, atol=2e-6)
    assert (columns["prediction"] == columns["label"]).mean() > 0.8
    assert evaluate(run, "predict", "--data=phones.yaml") == 0
    found = pq.read_table(run / "predictions-phones.parquet").to_pylist()
    for row, (text, _) in zip(found, rows, strict=True):
        assert row["tokens"] == text.split()
    assert not (run / "predictions.parquet").exists()
    with pytest.raises(
        InputError, match="the model reads texts alone: leave out `queries`, or --query"
    ):
        task.read(["a good film"], queries=["good?"])


@pytest.mark.slow
def test_page_and_logs_keep_both_apart(there: Path) -> None:
    run, tests = there / "e/base", attached("predictions")
    logged = ["--trainer.logger=lightning.pytorch.loggers.CSVLogger"]
    logged += [f"--trainer.logger.save_dir={run}", "--trainer.logger.name=logs"]
    for data in ([], ["--data=phones.yaml"]):
        assert evaluate(run, "test", *data, *tests, *logged) == 0
    assert list(run.glob("logs/phones/version_*/metrics.csv"))
    assert main(["report", str(run)]) == 0
    page = (run / "report/index.html").read_text()
    contents, _, page = page.partition("<main>")
    titles = re.findall(r">([^<]*[Tt]est split[^<]*)</a>", contents)
    assert titles == ["Test split", "Test split of phones"]
    assert page.count(">On the test split</h2>") == 1
    own, other = page.split("On another corpus")
    assert own.count("The task itself") == other.count("The task itself") == 1
    assert "phones" in other
    assert "phones" not in own
    again = f"attnlight test -c {run}/test-phones.yaml --ckpt_path {run}/best.ckpt"
    assert again in page
    summary = (run / "report/summary.csv").read_text()
    assert all(f"\n{stage},predictions" in summary for stage in ("test", "test-phones"))
    assert main([*again.split()[1:], *CPU]) == 0


def test_a_variant_is_compared_with_its_base_on_it(there: Path) -> None:
    run, base = there / "e/seed1", there / "e/base/best.ckpt"
    assert evaluate(run, "test", "--data=phones.yaml", *attached("base_divergence"), NO_FIGURE) == 0
    columns = read_record(run / "records/test-phones/base_divergence.parquet").columns
    words = [text for text, _ in texts(31, OTHER_FILLERS, 9)]
    checkpoints = {AttentionClassifier: base, SeedVariant: run / "best.ckpt"}
    tasks = [kind.load_from_checkpoint(path) for kind, path in checkpoints.items()]
    one, other = (task.classify(words).double().numpy() for task in tasks)
    tvd = np.abs(one - other).sum(axis=1) / 2
    assert tvd.max() > 1e-3
    np.testing.assert_allclose(columns["prediction_tvd"], tvd, atol=2e-6)


@pytest.mark.parametrize(("name", "told"), [("unlike", "bad, good"), ("unnamed", "'neg'")])
def test_other_classes_are_refused(there: Path, name: str, told: str, refused: Refused) -> None:
    run, before = there / "e/base", content(there).keys()
    words = command(run, "test", f"--data={name}.yaml", *attached("predictions"), NO_FIGURE)
    refused(*words, names=(told, "negative, positive"))
    assert content(there).keys() == before


def pairs(size: int, people: list[str], seed: int) -> dict[str, list[Any]]:
    """Stories of two sentences; who ran has few candidates."""
    random = np.random.default_rng(seed)
    columns: dict[str, list[Any]] = {"story": [], "question": [], "answer": [], "among": []}
    for _ in range(size):
        answer, other = random.choice(people, 2, replace=False).tolist()
        columns["story"].append([f"{other} sat down .", f"{answer} ran ."])
        columns["question"].append("who ran ?")
        columns["answer"].append(answer)
        columns["among"].append(random.permutation([answer, other]).tolist())
    return columns


@pytest.fixture
def asked(here: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run on pairs, and `asked.yaml` of another corpus of pairs."""
    people = ["Ann", "Bob", "Eve"]
    splits = {"train": pairs(30, people, 1), "validation": pairs(9, people, 2)}
    write_corpus(here / "own", **splits, test=pairs(9, people, 3))
    write_corpus(here / "asked", test=pairs(13, people[:2], 4))
    settings = {"passage": "story", "query": "question", "label": "answer", "candidates": "among"}
    for name in ("own", "asked"):
        kind = "attnlight.datamodules.PairDataModule"
        described = {"class_path": kind, "init_args": settings | {"path": name}}
        (here / f"{name}.yaml").write_text(yaml.safe_dump(described))
    small = ["--model.net.embedding_size=6", "--model.net.hidden_size=4", "--trainer.max_epochs=1"]
    fit = ["fit", "--model=pair_average_additive", "--data=own.yaml", *small, *CPU, *QUIET]
    place = ["-c", f"{CONFIGS}/trainer.yaml", "--root=.", "--experiment=e", "--run=r"]
    assert main([*fit, *place]) == 0
    return here


def test_pairs_are_encoded_and_answered_as_those_of_the_model(asked: Path) -> None:
    """Each row against the checkpoint alone, on raw passages, queries and candidates."""
    run = asked / "e/r"
    task = AttentionTask.load_from_checkpoint(run / "best.ckpt")
    for data, columns, name in (
        ([], pairs(9, ["Ann", "Bob", "Eve"], 3), "test"),
        (["--data=asked.yaml"], pairs(13, ["Ann", "Bob"], 4), "test-asked"),
    ):
        assert evaluate(run, "test", *data, *attached("predictions"), NO_FIGURE) == 0
        record = read_record(run / f"records/{name}/predictions.parquet")
        given = [" ".join(story) for story in columns["story"]], columns["question"]
        probabilities = task.classify(*given, columns["among"]).numpy()
        np.testing.assert_allclose(record.columns["probabilities"], probabilities, atol=2e-6)
        names = [task.classes[label] for label in record.columns["label"]]
        assert names == columns["answer"]
        for row, among in zip(probabilities, columns["among"], strict=True):
            assert {n for n, p in zip(task.classes, row, strict=True) if p} == set(among)
        assert task.classify(*given).all()
    assert record.metadata["unknown_words"] == 0
    with pytest.raises(InputError, match="reads passages with queries: give each its own"):
        task.classify(given[0])


def test_two_corpora_of_one_name_are_told_apart(there: Path, refused: Refused) -> None:
    run = there / "e/base"
    half = ["--data=phones.yaml", "--data.subset={test: 0.5}", *attached("predictions"), NO_FIGURE]
    refused(*command(run, "test", *half), names=["--overwrite"])
    assert evaluate(run, "test", *half, "--corpus=half") == 0
    record = read_record(run / "records/test-half/predictions.parquet")
    assert len(record.columns["index"]) == 16
    refused(*command(run, "test", *half, "--corpus=../half"))


def test_own_corpus_stays_its_own(there: Path) -> None:
    """Options that change no text, and the corpus's own file, leave the records where they were."""
    run = there / "e/base"
    own = ["--data=films.yaml", "--data.eval_batch_size=7", *attached("predictions"), NO_FIGURE]
    assert evaluate(run, "validate", *own) == 0
    metadata = read_record(run / "records/val/predictions.parquet").metadata
    assert not metadata.keys() & {"unknown_words", "corpus_name"}
