"""study.json and study.parquet as they come back."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from attnlight.data.targets import TargetName
from attnlight.errors import InputError
from attnlight.report.study.frame import Study, read_study
from attnlight.report.study.texts import texts
from tests.report.study.fake import COUNTS, SUMS, FakeTexts, whole
from tests.report.study.fake import whole_tagger as tagger


def test_rows_come_back_in_order_of_index(fake: FakeTexts, study: Study) -> None:
    assert len(study.runs) == len(fake.runs)
    for name, rows in fake.rows.items():
        held = study.measures.loc[name]
        np.testing.assert_array_equal(held["label"], fake.label)
        for column, values in rows.items():
            wanted = values.astype(np.float32) if values.dtype.kind == "f" else values
            np.testing.assert_array_equal(held[column], wanted)


def test_runs_are_found_by_what_they_are(study: Study) -> None:
    base = study.bases[0]
    assert study.bases == ["base-s0", "base-s1"]
    assert list(study.finished("base", "seed", base=base)["seed"]) == [0, 10, 11, 12, 13, 14]
    found = study.finished("adversary", base="base-s1", term="js", lam=0.002)
    assert list(found.index) == [f"adversary-b1-js-l0.002-s{s}" for s in range(5)]
    assert study.runs.at[base, "frontier"][0][:2] == [0.0, 0.01]
    assert study.selected == ("kl", 0.01)


def test_lambda_0_of_one_term_serves_the_other_unless_that_has_its_own(study: Study) -> None:
    held = study.controls(study.bases[0], "js")
    assert list(held.index) == [f"adversary-kl-l0-s{s}" for s in range(5)]
    fake = whole(seeds=2, bases=1, texts=8)
    lam: dict[str, Any] = {"lambda": 0.0}
    fake.add("adversary-js-l0-s0", "adversary", 0.8, 0.2, term="js", **lam)
    study = fake.read()
    assert list(study.controls(study.bases[0], "js")["term"]) == ["js"]
    assert len(study.controls(study.bases[0])) == 3


def test_what_is_not_finished_has_no_rows() -> None:
    fake = FakeTexts()
    fake.add("base-s0", "base")
    fake.add("uniform-s0", "uniform", js=0.3, state="failed")
    study = fake.read()
    assert not len(study.finished("uniform"))
    assert list(study.planned("uniform")["state"]) == ["failed"]
    assert list(study.measures.index.unique("run")) == ["base-s0"]


# What replaces keys of the head, or of its second run, or of all runs.
DAMAGED: list[tuple[dict[str, Any], str, str]] = [
    ({"schema": 2}, "head", "is of schema 2; this version reads schema 1"),
    ({"runs": [{"name": "base-s0"}]}, "head", "has no key 'seed'"),
    ({"selected": {"term": "kl"}}, "head", "has no key 'lambda'"),
    ({"runs": 3}, "head", "is not as `attnlight study` writes it"),
    ({"runs": []}, "head", "names no base"),
    ({"target": "words"}, "head", "has the target 'words', not one of tokens"),
    ({"problem": {"problem": "parsing"}}, "head", "is not as `attnlight study` writes"),
    ({"name": "../x"}, "run", "not a folder name"),
    ({"name": "base-s0"}, "run", "names a run twice"),
    ({"role": "judge"}, "run", "the role 'judge'"),
    ({"name": "other"}, "run", "holds no rows of other"),
    ({"state": "missing"}, "all runs", "names no finished run"),
]


@pytest.mark.parametrize(("change", "of", "message"), DAMAGED)
def test_a_damaged_head_is_named(tmp_path: Path, change: Any, of: str, message: str) -> None:
    path = whole(seeds=1, bases=1, texts=8).write(tmp_path) / "study.json"
    content = json.loads(path.read_text())
    runs = content["runs"]
    for part in {"head": [content], "run": runs[1:2], "all runs": runs}[of]:
        part |= change
    path.write_text(json.dumps(content))
    with pytest.raises(InputError, match=message):
        read_study(tmp_path)


def shortened(table: pa.Table) -> pa.Table:
    """Lists of which one has one value in place of four."""
    held = table["attention_js_heads"].to_pylist()
    held[max(k for k, values in enumerate(held) if values is not None)] = [0.1]
    place = table.column_names.index("attention_js_heads")
    column = pa.array(held, pa.list_(pa.float32()))
    return table.set_column(place, "attention_js_heads", column)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda table: table.take([*range(1, 40)]), "other texts of"),
        (lambda table: table.take([0, *range(1, 8), 0, *range(8, 40)]), "twice"),
        (lambda table: table.drop_columns("tokens"), "has no column tokens"),
        (shortened, r"lists of \[1, 4\] values in attention_js_heads"),
    ],
)
def test_damaged_rows_are_named(
    tmp_path: Path, change: Callable[[pa.Table], pa.Table], message: str
) -> None:
    path = tagger(seeds=1, sentences=8).write(tmp_path) / "study.parquet"
    pq.write_table(change(pq.read_table(path)), path)
    with pytest.raises(InputError, match=message):
        read_study(tmp_path)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"study\.json is missing"):
        read_study(tmp_path)
    whole(seeds=1, bases=1, texts=8).write(tmp_path)
    rows = tmp_path / "study.parquet"
    pq.write_table(pq.read_table(rows).drop_columns("label"), rows)
    with pytest.raises(InputError, match="has no column label"):
        read_study(tmp_path)
    rows.write_bytes(rows.read_bytes()[:-9])
    with pytest.raises(InputError, match=r"study\.parquet is not a readable record"):
        read_study(tmp_path)
    rows.unlink()
    with pytest.raises(InputError, match=r"study\.parquet is missing"):
        read_study(tmp_path)
    (tmp_path / "study.json").write_text("{")
    with pytest.raises(InputError, match="is not readable JSON"):
        read_study(tmp_path)


def test_targets_are_those_of_the_corpus() -> None:
    assert get_args(TargetName) == tuple(texts()["targets"])


def test_a_study_of_a_tagger() -> None:
    """Its lists become columns, and its runs are found by what they are."""
    fake = tagger(sentences=20)
    study = fake.read()
    assert study.losses
    assert len(study.measures) == 20 * len(fake.rows)
    for name, rows in fake.rows.items():
        found = study.measures.loc[name]
        np.testing.assert_array_equal(found.index, fake.index)
        for column in (*COUNTS, *SUMS):
            np.testing.assert_array_equal(found[column], rows[column].astype(np.float32))
        heads = found[[f"attention_js_heads_{h}" for h in range(4)]]
        np.testing.assert_array_equal(heads, rows["attention_js_heads"].astype(np.float32))
    names = [f"uniform-h2-s{seed}" for seed in range(3)]
    assert list(study.finished("uniform", head=2).index) == names
    assert len(study.finished("uniform", head=None)) == 3
    assert len(study.finished("guide", context="tokens", guide="shuffled")) == 3
    assert study.runs.at["base-s0", "ignorant"] == 0.62
    assert set(study.finished("adversary")["epochs"]) == {12, 30}
    facts = {"options": None, "target": "tokens", "readout": "study", "pos": True}
    assert (study.facts, study.words.quality) == (facts, "chunk F1")
    guided = study.finished("guide", guide="other", context="full")
    assert list(guided["model"]) == ["other-s0", "other-s1", "other-s2"]
