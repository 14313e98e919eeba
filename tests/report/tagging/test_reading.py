"""study.json and study.parquet of a tagger as they come back."""

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
from attnlight.report.study import read_study
from attnlight.report.tagging import TaggingStudy, read_tagging_study
from attnlight.report.tagging.reading import TARGETS
from tests.report.study.fake import whole as classifier
from tests.report.tagging.fake import COUNTS, SUMS, FakeTagging


def test_targets_are_those_of_the_corpus() -> None:
    assert get_args(TargetName) == TARGETS


def test_rows_come_back_in_order_of_index(fake: FakeTagging, study: TaggingStudy) -> None:
    assert (study.sentences, study.heads, study.target) == (60, 4, "tokens")
    for name, rows in fake.rows.items():
        found = study.columns[name]
        np.testing.assert_array_equal(found["index"], fake.index)
        for column in (*COUNTS, *SUMS):
            np.testing.assert_array_equal(found[column], rows[column].astype(np.float32))
        heads = np.stack([found[f"attention_js_heads_{h}"] for h in range(4)], axis=1)
        np.testing.assert_array_equal(heads, rows["attention_js_heads"].astype(np.float32))


def test_runs_are_found_by_what_they_are(study: TaggingStudy) -> None:
    assert [run.name for run in study.finished("uniform", head=2)] == [
        f"uniform-h2-s{seed}" for seed in range(3)
    ]
    assert len(study.finished("guide", context="tokens", guide="shuffled")) == 3
    assert study.bases[0].ignorant == 0.62
    assert {run.epochs for run in study.finished("adversary")} == {12, 30}
    assert (study.readout, study.pos, study.condition, study.f1) == (
        "study",
        True,
        None,
        "chunk F1",
    )


def test_a_probe_reads_the_base_encoder_unless_told_otherwise(tmp_path: Path) -> None:
    fake = FakeTagging(8)
    fake.add("base-s0", "base")
    fake.add("guide-base-s0", "guide", guide="base")
    (probe,) = read_tagging_study(fake.write(tmp_path)).planned("guide")
    assert probe.context == "full"


def test_each_reader_refuses_the_other_kind(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is of a tagger; this reads studies of classifiers"):
        read_study(folder)
    other = classifier(seeds=1, bases=1, texts=8).write(tmp_path)
    with pytest.raises(InputError, match="is of a classifier; this reads studies of taggers"):
        read_tagging_study(other)


def other_sentences(path: Path) -> None:
    table = pq.read_table(path)
    pq.write_table(table.slice(1), path)


def uneven_heads(path: Path) -> None:
    table = pq.read_table(path)
    held = table["attention_js_heads"].to_pylist()
    last = max(k for k, values in enumerate(held) if values is not None)
    held[last] = [0.1]
    place = table.column_names.index("attention_js_heads")
    column = pa.array(held, pa.list_(pa.float32()))
    pq.write_table(table.set_column(place, "attention_js_heads", column), path)


def no_tokens(path: Path) -> None:
    pq.write_table(pq.read_table(path).drop_columns("tokens"), path)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (other_sentences, "holds other texts of"),
        (uneven_heads, r"lists of \[1, 4\] values in attention_js_heads"),
        (no_tokens, "has no column tokens"),
    ],
)
def test_damaged_rows_are_named(
    fake: FakeTagging, tmp_path: Path, spoil: Callable[[Path], None], message: str
) -> None:
    path = fake.write(tmp_path)
    spoil(path / "study.parquet")
    with pytest.raises(InputError, match=message):
        read_tagging_study(path)


@pytest.mark.parametrize(
    ("head", "message"),
    [({"target": "words"}, "has the target 'words', not one of tokens"), ({"runs": []}, "no base")],
)
def test_a_damaged_head_is_named(
    fake: FakeTagging, tmp_path: Path, head: dict[str, Any], message: str
) -> None:
    path = fake.write(tmp_path) / "study.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | head))
    with pytest.raises(InputError, match=message):
        read_tagging_study(tmp_path)
