"""Rows of Python: every form of the data gives one record, and labels mean what they say."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pandas as pd
import pytest
import torch

import attnlight
from attnlight.data.raw_text import RawText
from attnlight.errors import InputError
from attnlight.records import read_record
from attnlight.tasks import AttentionTask
from tests.bases import Planted, classifier, spec
from tests.pairs import PlantedPairs, pair_task
from tests.tasks.tagged import corpus, task_of, written

pytestmark = pytest.mark.usefixtures("few_steps")

TEXTS = ["filler5 filler17 filler3", "filler7 filler8", "filler1 nonsense filler2 filler6"]


def task_with(classes: list[str]) -> AttentionTask:
    """An untrained classifier of the planted corpus's words, with other classes."""
    torch.manual_seed(0)
    raw = RawText.of_corpus(Planted())
    raw.classes = classes
    task = classifier(spec(Planted().vocab_size, classes), embedding_size=8, hidden_size=4)
    task.raw = raw
    return task.eval()


@pytest.fixture(scope="module")
def task() -> AttentionTask:
    return task_with(["bad", "good"])


def recorded(model: Any, data: Any, batch_size: int = 2) -> dict[str, list[Any]]:
    """The columns of the record of `Predictions`."""
    results = attnlight.run(model, data, ["Predictions"], batch_size)
    columns = read_record(results.folder / "records/test/predictions.parquet").columns
    return {name: np.stack(values).tolist() for name, values in columns.items()}


LABELS = ["good", "bad", "good"]
ROWS = [{"text": text, "label": label} for text, label in zip(TEXTS, LABELS, strict=True)]
WORDS = [text.split() for text in TEXTS]
TABLES: dict[str, Any] = {
    "frame": pd.DataFrame(ROWS, index=[7, 7, 1]),
    "frame of passages": pd.DataFrame({"passage": TEXTS, "label": [1, 0, 1], "source": None}),
    "frame of a categorical": pd.DataFrame(ROWS).astype({"label": "category"}),
    "frame of arrays": pd.DataFrame({"tokens": map(np.array, WORDS), "label": LABELS}),
    "columns": {"label": LABELS, "text": TEXTS},
    "columns of arrays": {"text": np.array(TEXTS), "label": np.array([1, 0, 1])},
    "columns of tensors": {"text": tuple(TEXTS), "label": torch.tensor([1, 0, 1])},
    "columns of words": {"tokens": WORDS, "label": pd.Series([1.0, 0.0, 1.0])},
    "slice of a dataset": datasets.Dataset.from_list(ROWS)[:3],
    "dataset": datasets.Dataset.from_list(ROWS),
    "streamed": datasets.Dataset.from_list(ROWS).to_iterable_dataset(),
    # Its numbers count its own names, whose order is another one.
    "dataset with names": datasets.Dataset.from_list(ROWS).cast_column(
        "label", datasets.ClassLabel(names=["good", "bad"])
    ),
}


@pytest.fixture(scope="module")
def by_rows(task: AttentionTask) -> Any:
    return recorded(task, ROWS), attnlight.explain(task, TEXTS, methods=["attention"])


@pytest.mark.parametrize("form", TABLES)
def test_tables_are_read_by_rows(task: AttentionTask, by_rows: Any, form: str) -> None:
    found = attnlight.explain(task, TABLES[form], methods=["attention"])
    assert (recorded(task, TABLES[form]), found) == by_rows


def test_columns_of_texts_alone(task: AttentionTask) -> None:
    expected = recorded(task, TEXTS)
    assert "label" not in expected
    for data in ({"text": TEXTS}, pd.DataFrame({"text": TEXTS}), pd.Series(TEXTS), np.array(TEXTS)):
        assert recorded(task, data) == expected


def test_a_table_of_pairs(tmp_path: Path) -> None:
    data = PlantedPairs(cache_dir=str(tmp_path))
    pairs = pair_task(data.spec)
    pairs.raw = RawText.of_corpus(data)
    names = sorted(pairs.classes)[:2]
    rows = [
        {"passage": text, "query": query, "candidates": names, "label": names[1]}
        for text, query in zip(TEXTS, ["filler3", "filler8 filler9", "filler6"], strict=True)
    ]
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    expected = recorded(pairs, rows)
    for table in (pd.DataFrame(rows), columns):
        assert recorded(pairs, table) == expected
        found = attnlight.explain(pairs, table, methods=[])
        given = {"queries": columns["query"], "candidates": columns["candidates"]}
        assert found == attnlight.explain(pairs, TEXTS, methods=[], **given)
        assert [one.query for one in found] == columns["query"]
        assert list(found[0].probabilities) == names


def test_a_table_of_tagged_sentences(tmp_path: Path) -> None:
    data = corpus(written(tmp_path / "chunks", test=4))
    tagger = task_of(data)
    tagger.raw = RawText.of_corpus(data)
    rows: list[dict[str, Any]] = []
    for block in (tmp_path / "chunks/test.txt").read_text().strip().split("\n\n"):
        words, pos, tags = map(list, zip(*(s.split() for s in block.splitlines()), strict=True))
        rows.append({"tokens": words, "pos": pos, "label": tags})
    names = tagger.classes[::-1]
    texts = dict.fromkeys(("tokens", "pos"), datasets.Sequence(datasets.Value("string")))
    labels = datasets.Sequence(datasets.ClassLabel(names=names))
    kinds = datasets.Features(texts | {"tags": labels})
    values = ((row["tokens"], row["pos"], [*map(names.index, row["label"])]) for row in rows)
    numbers = [dict(zip(kinds, row, strict=True)) for row in values]
    place = tagger.classes.index
    own = [row | {"label": [np.int64(place(tag)) for tag in row["label"]]} for row in rows]
    expected = recorded(tagger, rows)
    assert (
        recorded(tagger, [row | {"tags": ["x"]} for row in rows]) == expected
    )  # of something else
    for table in (pd.DataFrame(rows), datasets.Dataset.from_list(numbers, features=kinds), own):
        assert recorded(tagger, table) == expected
        explained = attnlight.explain(tagger, table, methods=[])
        assert len(explained) == sum(len(row["label"]) for row in rows)
    with pytest.raises(InputError, match="row 1 of the data has the label 'O'; expected a list"):
        attnlight.run(tagger, [rows[0], rows[1] | {"label": "O"}])
    with pytest.raises(InputError, match="row 0 of the data has the label 'O'; expected a list"):
        attnlight.run(tagger, [rows[1] | {"label": "O"}])


NAMED = ["1", "2", "3"]
READINGS: list[tuple[list[str], Any, Any]] = [
    # (classes, label, its class or a part of the refusal)
    (NAMED, 2, "2"),
    (NAMED, np.int64(3), "3"),
    (NAMED, 1.0, "1"),
    (NAMED, np.float32(2), "2"),
    (NAMED, torch.tensor(2), "2"),
    (NAMED, "2", "2"),
    (NAMED, True, "1"),
    (NAMED, 0, "the label 0; expected one of the classes 1, 2, 3."),
    (NAMED, "4", "the label '4'; expected one of the classes 1, 2, 3."),
    (["10", "2", "1"], 2, "2"),
    (["0.5", "1.0", "-2"], 1, "1.0"),
    (["0.5", "1.0", "-2"], -2, "-2"),
    (["0.5", "1.0", "-2"], 0.5, "0.5"),
    (["1", "01"], 1, "the label 1, which is ambiguous among the classes 1, 01: give the class's"),
    (["1", "01"], "01", "01"),
    (["1", "2", "other"], 2, "the label 2, which is ambiguous among the classes 1, 2, other"),
    (["1", "2", "other"], "2", "2"),
    (["bad", "good"], 1, "good"),
    (["bad", "good"], np.int8(0), "bad"),
    (["bad", "good"], 1.0, "good"),
    (["bad", "good"], np.str_("good"), "good"),
    (["bad", "good"], 2, "the label 2; expected one of the classes bad, good, or its place from 0"),
    (["bad", "good"], -1, "the label -1; expected one of the classes bad, good, or its place"),
    (["bad", "good"], 0.5, "the label 0.5; expected one of the classes bad, good, or its place"),
    (["bad", "good"], np.inf, "the label inf; expected one of the classes"),
    (["bad", "good"], "1", "the label '1'; expected one of the classes bad, good"),
    (["bad", "good"], True, "the label True; expected one of the classes bad, good."),
    (["bad", "good"], ["good"], "the label ['good']; expected one of the classes bad, good."),
    (["bad", "good"], {}, "the label {}; expected one of the classes bad, good."),
    (["bad", "good"], "god", "expected one of the classes bad, good (did you mean 'good'?)."),
    (["bad", "good"], None, "has no label (None): give one to each row or to none."),
    (["bad", "good"], float("nan"), "has no label (nan): give one to each row or to none."),
    (NAMED, float("nan"), "has no label (nan): give one to each row or to none."),
    (["bad", "good"], pd.NA, "has no label (<NA>): give one to each row or to none."),
    (["true", "false"], True, "true"),
    (["False", "True"], np.bool_(False), "False"),
    (["yes", "None"], "None", "None"),
]


@pytest.mark.parametrize(("classes", "label", "meaning"), READINGS)
def test_a_label_is_a_class_or_refused(classes: list[str], label: Any, meaning: str) -> None:
    model = task_with(classes)
    rows = [(TEXTS[0], classes[-1]), (TEXTS[1], label)]
    if meaning in classes:
        expected = [classes.index(classes[-1]), classes.index(meaning)]
        assert recorded(model, rows, 1)["label"] == expected
        return
    with pytest.raises(InputError) as caught:
        recorded(model, rows, 1)
    assert str(caught.value).startswith("row 1 of the data has ")
    assert meaning in str(caught.value)


SPLITS = datasets.DatasetDict(train=TABLES["dataset"], test=TABLES["dataset"])
BOTH = {"text": "a", "tokens": ["b"]}, {"text": "a", "labels": 0, "tags": ["b"]}


def refused() -> Iterator[tuple[Any, str]]:
    """Data that no function reads, and what is said."""
    of_splits = r"that has the splits train, test; expected the rows of one, such as data\['test'\]"
    yield SPLITS, f"DatasetDict {of_splits}"
    yield {"train": TABLES["frame"], "test": TABLES["frame"]}, f"dict {of_splits}"
    yield Path("a.csv"), "the data are of type PosixPath; expected a list of texts"
    yield b"a film", "the data are of type bytes; expected a list of texts"
    yield None, "the data are of type NoneType; expected a list of texts"
    yield {"text": "a film", "label": 1}, r"column text of the data is 'a film'; expected a list"
    yield {"text": ["a"], "label": 1}, r"column label of the data is 1; expected a list"
    yield {"text": ["a", "b"], "label": [1]}, "the data differ in length: text 2, label 1"
    yield {"sentence": ["a"]}, "row 0 of the data has no `text`; its columns are sentence"
    yield pd.DataFrame({"sentence": ["a"], 3: ["b"]}), "no `text`; its columns are sentence, 3"
    yield ["a", 3], "row 1 of the data is of type int; expected a text"
    yield ["a", np.array(["a"])], "row 1 of the data is of type ndarray; expected a text"
    yield pd.DataFrame({"text": ["a", None]}), r"text of row 1 of the data is (nan|None); expected"
    yield [{"tokens": ["a", 1]}], r"text of row 0 of the data is \['a', 1\]; expected a string"
    yield [BOTH[0]], "row 0 of the data has both text and tokens; remove one of them"
    yield [BOTH[1]], "row 0 of the data has both labels and tags; remove one of them"
    yield ["a", "b \ud800"], r"text of row 1 of the data, 'b \\ud800', has a lone surrogate"
    yield ["a", {"text": "a", "label": 0}], "row 0 of the data has no `label`, which row 1 has"
    yield [{"text": "a", "label": 0}, "a"], "row 1 of the data has no `label`, which row 0 has"


@pytest.mark.parametrize(("data", "sentence"), list(refused()))
def test_other_data_are_refused(task: AttentionTask, data: Any, sentence: str) -> None:
    for function in (attnlight.run, attnlight.explain):
        with pytest.raises(InputError, match=sentence) as caught:
            function(task, data)
        assert "\n" not in str(caught.value)


def test_a_string_is_one_text_to_explain_and_no_data_to_test_on(task: AttentionTask) -> None:
    said = r"the data are the string 'a film'; expected a list of texts, such as \['a film'\]"
    with pytest.raises(InputError, match=said):
        attnlight.run(task, "a film")
    assert [one.text for one in attnlight.explain(task, "a film", [])] == ["a film"]
    with pytest.raises(InputError, match="row 0 of the data is of type TextBatch"):
        attnlight.explain(task, [task.encode(["a film"])])
    with pytest.raises(InputError, match="row 1 of the data is of type TextBatch"):
        attnlight.run(task, ["a film", task.encode(["a film"])])
    with pytest.raises(InputError, match="NoneType is not an AttentionModel"):
        attnlight.load(None)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("option", "value", "sentence"),
    [
        *(("batch_size", n, f"batch_size is {n}; it must be at least 1") for n in (0, -1)),
        ("batch_size", "3", "batch_size is '3'; it must be at least 1"),
        *(("tests", tests, "there is no test to run") for tests in ("", " ", ",", None)),
    ],
)
def test_options_of_nothing_are_refused(
    task: AttentionTask, option: str, value: Any, sentence: str
) -> None:
    with pytest.raises(InputError, match=sentence):
        attnlight.run(task, TEXTS, **{option: value})


@pytest.mark.parametrize(
    ("texts", "sentence"),
    [
        ("a film", r"texts is of type str; expected a list of strings, such as \['a film'\]"),
        (TABLES["frame"], "texts is of type DataFrame; expected a list of strings"),
        (SPLITS, "texts is of type DatasetDict; expected a list of strings"),
        (ROWS, r"texts\[0\] is {'label': .*; expected a string"),
        (["a", None], r"texts\[1\] is None; expected a string"),
        (["a", "\udce9"], r"texts\[1\], '\\udce9', has a lone surrogate"),
    ],
)
def test_what_is_no_list_of_texts_is_not_encoded(
    task: AttentionTask, texts: Any, sentence: str
) -> None:
    """`attnlight.load` returns a model with this `encode`; a task classifies by it."""
    for function in (task.encode, task.classify):
        with pytest.raises(InputError, match=sentence):
            function(texts)
