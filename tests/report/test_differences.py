"""Pairs of a text and an edit of it on the page of a run."""

from pathlib import Path

import numpy as np

from attnlight.records import RecordFile
from attnlight.report.differences import shown_differences
from attnlight.report.texts import choose_texts
from tests.cli.test_report import ATTACK, TURNED, page_of
from tests.report.fake import MEASURES, rows_of, write_record, write_run
from tests.report.test_texts import row, write

ORIGINAL = ["[BOS]", "the", "film", "is", "bad", "[EOS]"]
EDIT = ["[BOS]", "the", "old", "film", "is", ATTACK, TURNED, "[EOS]"]


def folder_of(tmp_path: Path) -> Path:
    """A run with two pairs, of which the record of texts has one."""
    folder = write_run(tmp_path / "pairs" / "seed0", epochs=())
    records = folder / "records/test"
    rows = rows_of("counterfactual_use", n=4)
    rows["original"] = np.array([np.nan, 0.0, np.nan, 2.0])
    rows["auprc_attention"][::2] = np.nan
    about = {"test": "counterfactual_use", "stage": "test", "classes": ["negative", "positive"]}
    about |= {"measures": MEASURES["counterfactual_use"], "clusters": "original"}  # type: ignore[dict-item]
    write_record(records / "counterfactual_use.parquet", rows, checkpoint="best.ckpt", **about)
    two = {"probabilities": [0.4, 0.6], "label": 1}
    shown = []
    for index, tokens, weights in ((0, ORIGINAL, [0.1, 0.2, 0.1, 0.6]), (1, EDIT, None)):
        count = len(tokens) - 2
        attention = [weights or [0.1, 0.1, 0.2, 0.1, 0.5, 0.0]]
        items = [[place, place + 1] for place in range(1, count + 1)]
        shown.append(row(index, tokens=tokens, items=items, attention=attention, **two))
    shown.append(
        row(3, tokens=ORIGINAL, items=shown[0]["items"], attention=shown[0]["attention"], **two)
    )
    write(records / "texts.parquet", shown)
    return folder


def test_a_pair_is_one_text_with_both(tmp_path: Path) -> None:
    records = folder_of(tmp_path) / "records/test"
    record, texts = (RecordFile(records / f"{x}.parquet") for x in ("counterfactual_use", "texts"))
    chosen = choose_texts(record, "auprc_attention", texts)
    assert chosen is not None
    found = shown_differences(record, chosen, texts)
    (pair,) = [pair for pairs in found.values() for pair in pairs]  # the other has no original
    name, value, words = pair
    values = dict([*chosen.lowest, *chosen.highest, *chosen.typical])
    assert (name, value) == ("text 1", values[1, 0])
    sides = [(word, side) for word, side, _ in words]
    assert sides == [
        ("the", 0),
        ("old", 1),
        ("film", 0),
        ("is", 0),
        ("bad", -1),
        (ATTACK, 1),
        (TURNED, 1),
    ]
    # Attention .1, .1, (.2 + .2) / 2, .1, .6, .5, 0 in per cent of the largest.
    assert [share for *_, share in words] == [17, 17, 33, 17, 100, 83, 0]


def test_the_page_shows_it_as_text(tmp_path: Path) -> None:
    page = page_of(folder_of(tmp_path))
    assert {"del", "ins"} <= page.tags
    assert "img" not in page.tags
    assert page.scripts == 2, "the texts and the page's own script"
    assert not page.turned
    assert "Typical and extreme pairs" in page.text
    assert '<del style="--share:100%">bad</del>' in page.html
    assert '<ins style="--share:17%">old</ins>' in page.html
