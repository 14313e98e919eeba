"""The page of answers from a context: its cells by loops over the archived records, and its rule."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from attnlight.records import read_record
from attnlight.statistics.seed_bootstrap import SeedInterval
from tests.kept import BLOCKS, archived, page

answers, findings = page("answers"), page("findings")
TABLES = findings.Tables(BLOCKS)
SHOWN = {row["model"] for row in TABLES.rows("context_models")}
MODELS = [name for name, words in answers.MODELS.items() if words["model"] in SHOWN]


def records(name: str, test: str) -> list[dict[str, Any]]:
    """The rows of a test of each seed, by column."""
    runs = sorted((archived() / name).glob(f"seed*/records/test/{test}.parquet"))
    return [read_record(run).columns for run in runs]


@pytest.mark.parametrize("name", MODELS)
def test_cells_are_means_of_the_records(name: str) -> None:
    """Means over rows, then over seeds; of learned heads over the rows that they were not fitted on."""
    turn = answers.MODELS[name].get("held_out", 1)
    for place, right in (("context_readings", False), ("context_right", True)):
        for row in TABLES.rows(place, answers.MODELS[name]["model"]):
            label = next(
                key
                for key in answers.METHODS
                if answers.method_words(key) == row["reading"]
                and f"lds_{key}" in records(name, "context_ablation")[0]
            )
            for heading, measure in answers.MEASURES.items():
                means = []
                for columns in records(name, "context_ablation"):
                    kept = []
                    for number, value in enumerate(columns.get(f"{measure}_{label}", ())):
                        index, correct = columns["index"][number], columns["correct"][number]
                        out = label == "learned_heads" and (index + 1) % turn
                        if not (np.isnan(value) or out or (right and correct < 1)):
                            kept.append(float(value))
                    means += [sum(kept) / len(kept)] if kept else []
                cell = findings.Cell(row[heading])
                if not means:
                    assert np.isnan(cell.value)
                    continue
                assert cell.value == pytest.approx(np.mean(means), abs=0.0051), (name, heading, row)
                assert not cell.low > cell.value
                assert not cell.high < cell.value


@pytest.mark.parametrize("name", MODELS)
def test_accuracy_is_held_against_the_largest_class(name: str) -> None:
    (row,) = TABLES.rows("context_models", answers.MODELS[name]["model"])
    labels = records(name, "predictions")[0]
    index = [*records(name, "context_ablation")[0]["index"]]
    tested = [
        label for one, label in zip(labels["index"], labels["label"], strict=True) if one in index
    ]
    largest = max(tested.count(label) for label in tested) / len(tested)
    right = [np.mean(columns["correct"]) for columns in records(name, "context_ablation")]
    accuracy = findings.Cell(row["accuracy"])
    assert accuracy.value == pytest.approx(np.mean(right), abs=0.0051)
    assert float(row["largest class"]) == pytest.approx(largest, abs=5e-4)
    assert int(row["contexts"].replace(",", "")) == len(index)
    assert int(row["stories or passages"]) == len(
        {x // answers.MODELS[name]["rows"] for x in index}
    )
    shown = accuracy.low > largest
    assert (row["better?"] == "yes") == shown
    for reading in () if shown else TABLES.rows("context_readings", answers.MODELS[name]["model"]):
        assert reading["to be trusted?"] == answers.DASH


@pytest.mark.parametrize(
    ("order", "lds", "said"),
    [
        ((0.6, 0.8), (0.1, 0.3), "yes"),
        ((0.59, 0.8), (0.1, 0.3), "open"),
        ((0.6, 0.8), (-0.1, 0.3), "open"),
        ((0.7, 0.8), (-0.4, -0.1), "no"),
        ((0.3, 0.49), (0.2, 0.3), "no"),
        ((0.3, 0.5), (0.2, 0.3), "open"),
        ((np.nan, np.nan), (np.nan, np.nan), answers.DASH),
    ],
)
def test_the_rule(order: tuple[float, float], lds: tuple[float, float], said: str) -> None:
    intervals = (SeedInterval((low + high) / 2, low, high, ()) for low, high in (order, lds))
    assert answers._trust(*intervals) == said


def test_a_reading_s_verdict_is_in_the_words_at_the_top() -> None:
    text = " ".join(BLOCKS["context_findings"].split())
    claimed = [x for x in TABLES.rows("context_models") if x["better?"] == "yes"]
    for row in TABLES.rows("context_readings"):
        if row["to be trusted?"] in ("yes", "no", "open"):
            verb = {"yes": "may be trusted", "no": "may not", "open": "are not decided"}
            part = text.partition(f"{row['model']}: ")[2].partition(". ")[0]
            group = next(x for x in part.split("; ") if verb[row["to be trusted?"]] in x)
            assert f"*{row['reading']}*" in group
    assert ("Of which answers is nothing claimed?" in text) == (
        len(claimed) < len(TABLES.rows("context_models"))
    )


def test_rows_of_the_corpora(tmp_path: Path) -> None:
    """A question after six sentences of each story; the first answers of two questions of a passage."""
    rows, facts = page("answer_runs"), [f"Ann went to the {place}." for place in "abcdefgh"]
    stories = [
        {"story": facts[:count], "question": "Where is Ann?", "answer": "x", "supporting_ids": [2]}
        for count in (2, 4, 6, 8)
    ]
    pairs = [
        {"doc_id": doc, "query_and_answer": f"{question} || {answer}", "label": answer % 2}
        | {"passage": "One .\nTwo .\nThree .", "evidences": ["Two ."], "tokens": ["w"] * size}
        for doc, size, questions in (("long", 9, "abc"), ("short", 5, "de"), ("single", 2, "f"))
        for question in questions
        for answer in (0, 1)
    ]
    for name, content in (
        ("babi_qa1/data/test", stories),
        ("eraser_multi_rc/data/validation", pairs),
    ):
        (tmp_path / name).parent.mkdir(parents=True)
        pd.DataFrame(content).to_parquet(tmp_path / f"{name}-00000-of-00001.parquet")
    (story,) = rows.babi(tmp_path)
    assert story == {"passage": facts[:6], "evidence": [2], "query": "Where is Ann?", "label": "x"}
    found = [*rows.multi_rc(tmp_path)]
    assert [x["query"] for x in found] == ["d || 0", "e || 0", "a || 0", "b || 0"]
    assert [x["doc_id"] for x in found] == ["short", "short", "long", "long"]
    assert found[0]["passage"] == ["One .", "Two .", "Three ."]
    assert all(x["evidence"] == [1] and x["label"] == "false" for x in found)
