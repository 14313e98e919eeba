"""What each reading would cite, on the page of a run."""

from pathlib import Path

import numpy as np

from attnlight.records import RecordFile
from attnlight.report.citations import citations
from tests.cli.test_report import ATTACK, page_of
from tests.report.fake import MEASURES, rows_of, write_record, write_run
from tests.report.test_texts import row, write

TOKENS = ["mary", "left", ATTACK, "john", "went", "home"]


def folder_of(tmp_path: Path) -> Path:
    """A run with three contexts of two sentences, of which the last has no cited one."""
    folder = write_run(tmp_path / "stories" / "seed0", epochs=())
    records = folder / "records/test"
    rows = rows_of("context_ablation", n=3)
    for name, columns in {
        "attention": ([0.0, 1.0, np.nan], [1.0, 0.0, np.nan], [0.0, 1.0, np.nan]),
        "leave_one_out": ([1.0, 1.0, np.nan], [1.0, 1.0, np.nan], [1.0, 0.0, np.nan]),
    }.items():
        for measure, values in zip(("cited", "necessary", "sufficient"), columns, strict=True):
            rows[f"{measure}_{name}"] = np.array(values)
    about = {"test": "context_ablation", "stage": "test", "classes": ["negative", "positive"]}
    about |= {"measures": MEASURES["context_ablation"]}  # type: ignore[dict-item]
    write_record(records / "context_ablation.parquet", rows, checkpoint="best.ckpt", **about)
    shown = [
        row(
            index,
            tokens=TOKENS,
            items=[[0, 3], [3, 6]],
            attention=[[0.3, 0.7]],
            probabilities=[0.2, 0.8] if index else [0.7, 0.3],
            label=0,
        )
        | {"query": ["where", "is", "john", "?"], "evidence": [0, 0, 0, 1, 1, 1]}
        for index in range(3)
    ]
    write(records / "texts.parquet", shown)
    return folder


def test_each_context_has_the_sentence_that_each_reading_cites(tmp_path: Path) -> None:
    records = folder_of(tmp_path) / "records/test"
    record, texts = (RecordFile(records / f"{x}.parquet") for x in ("context_ablation", "texts"))
    first, second, third = citations(record, texts, [(1, 0), (0, 0), (2, 0), (1, 0)], ["home", "a"])
    assert first.title == "Text 1: where is john ? a"
    assert second.title == "Text 0: where is john ? home"
    one, two = f"1. mary left {ATTACK}", "2. john went home"
    marked = ["marked as supporting", two, "", ""]
    own = ["attention", f"{two} ✓", "no", "yes"], ["leave-one-out", f"{two} ✓", "yes", "no"]
    assert [line for line in first.rows if line[0] != "random"] == [marked, *own]
    own = ["attention", one, "yes", "no"], ["leave-one-out", f"{two} ✓", "yes", "yes"]
    assert [line for line in second.rows if line[0] != "random"] == [marked, *own]
    assert third.rows == [marked]
    assert citations(texts, texts, [(1, 0)], None) == []


def test_the_page_shows_them_as_text(tmp_path: Path) -> None:
    page = page_of(folder_of(tmp_path))
    assert "What each reading would cite (3 contexts)" in page.text
    assert "img" not in page.tags
    assert page.scripts == 2, "the texts and the page's own script"
    assert not page.turned
