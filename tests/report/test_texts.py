"""The text that a page begins with, from a file of predictions."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from attnlight.data.selection import choose
from attnlight.report.first_text import FirstText, first_text
from tests.report.fake import write_record

CLASSES = ["garden", "office", "kitchen"]
SPANS = pa.list_(pa.list_(pa.int32(), 2))


def write(path: Path, rows: list[dict[str, Any]], **about: Any) -> Path:
    """Rows as `attnlight predict` writes them, with the columns of pairs where the rows have them."""
    kinds = dict.fromkeys(("tokens", "query"), pa.list_(pa.string()))
    kinds |= {"items": SPANS, "attention": pa.list_(pa.list_(pa.float32())), "label": pa.int64()}
    kinds |= {"probabilities": pa.list_(pa.float32(), len(rows[0]["probabilities"]))}
    kinds["item_logits"] = pa.list_(pa.list_(pa.list_(pa.float32())))
    kinds |= {"text": pa.string(), "offsets": SPANS}
    kinds |= {"allowed": pa.list_(pa.int64()), "evidence": pa.list_(pa.int8())}
    kinds |= dict.fromkeys(("maps", "maps_read"), pa.list_(pa.float32()))
    kinds |= {"maps_shape": pa.list_(pa.int32())}
    kinds |= {name: pa.list_(pa.float64()) for name in rows[0] if name.startswith("scores_")}
    known = [name for name in kinds if name in rows[0]]
    columns: Any = {name: pa.array([row[name] for row in rows], kinds[name]) for name in known}
    columns |= {n: np.array([row.get(n, 0) for row in rows]) for n in ("index", "position")}
    return write_record(path, columns, **({"test": "predict", "stage": "predict"} | about))


def row(index: int = 3, **changes: Any) -> dict[str, Any]:
    """A passage of six tokens, four of which are attended to by two heads."""
    return {
        "index": index,
        "tokens": ["[BOS]", "Mary", "left", "the", "garden", "[EOS]"],
        "items": [[1, 2], [2, 3], [3, 4], [4, 5]],
        "attention": [[0.1, 0.2, 0.1, 0.6], [0.3, 0.2, 0.3, 0.2]],
        "probabilities": [0.7, 0.2, 0.1],
        "label": 1,
    } | changes


def only(tmp_path: Path, **changes: Any) -> FirstText:
    path = write(tmp_path / "predictions.parquet", [row(**changes)])
    shown = first_text(path, CLASSES, None, ())
    assert shown is not None
    return shown


def test_shows_attention_relative_to_the_largest(tmp_path: Path) -> None:
    shown = only(tmp_path)
    assert (shown.name, shown.label) == ("text 3", "office")
    assert (shown.prediction, shown.probability) == ("garden", "0.70")
    assert (shown.query, shown.after) == ("", 0)
    assert not any(token.predicted for token in shown.tokens)
    # The means are .2, .2, .2 and .4.
    shares = {token.word: token.shares["attention"] for token in shown.tokens}
    assert shares == {"Mary": 50, "left": 50, "the": 50, "garden": 100}


def test_shows_the_query_without_boundary_tokens(tmp_path: Path) -> None:
    asked = ["[BOS]", "Where", "is", "Mary", "?", "[EOS]"]
    shown = only(tmp_path, query=asked, allowed=[0, 2])
    assert shown.query == "Where is Mary ?"
    assert "".join(token.before + token.word for token in shown.tokens) == "Mary left the garden"


def test_a_token_has_a_position_and_a_sentence_gives_its_attention_to_its_words(
    tmp_path: Path,
) -> None:
    shown = only(tmp_path, position=4, label=None)
    assert (shown.name, shown.label) == ("text 3, position 4", "")
    assert [token.predicted for token in shown.tokens] == [False, False, False, True]
    shown = only(tmp_path, items=[[0, 3], [3, 6]], attention=[[0.8, 0.2]], position=1)
    assert [token.shares["attention"] for token in shown.tokens] == [100, 100, 25, 25]
    assert shown.name == "text 3, position 1"
    assert [token.predicted for token in shown.tokens] == [False, False, True, True]


def test_long_texts_queries_and_words_are_cut(tmp_path: Path) -> None:
    items = [[n, n + 1] for n in range(1000)]
    long = {"tokens": ["w" * 1_000_000, *["word"] * 999], "attention": [[1e-3] * 1000]}
    shown = only(tmp_path, items=items, query=["why"] * 1000, allowed=[0, 1, 2], **long)
    assert (len(shown.tokens), shown.after) == (40, 960)
    assert shown.tokens[0].word == "w" * 59 + "…"
    assert shown.query == "why " * 400 + "…"


def test_the_first_of_some_texts_chosen_by_a_hash_is_shown(tmp_path: Path) -> None:
    rows = [row(index, position=place) for index in range(40) for place in (0, 1)]
    shown = first_text(write(tmp_path / "predictions.parquet", rows), None, None, ())
    assert shown is not None
    first, *_ = choose(np.arange(40), 6, 0).tolist()
    assert (shown.name, shown.prediction) == (f"text {first}, position 0", "class 0")


def test_without_predictions_or_with_those_of_others_there_is_none(tmp_path: Path) -> None:
    path = tmp_path / "predictions.parquet"
    assert first_text(path, None, None, ()) is None
    other = {name: values for name, values in row().items() if name != "items"}
    assert first_text(write(path, [other]), None, None, ()) is None
