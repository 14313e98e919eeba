"""Tokens of several tokenizers as people read them, against the text itself."""

import re
from pathlib import Path

import pytest

from attnlight.data.tokenization import TextRules, make_tokenizer, surface_of
from attnlight.report.explanation import Explanation, FlipSet
from attnlight.report.join_pieces import join_pieces, of_pieces

TEXTS = [
    "An unfunny, overlong\n mess \u2014 caf\u00e9 \U0001f600\U0001f468\u200d\U0001f469 na\u00efve!",
    "\u4f60\u597d... \u2603!?",
    "overlong",
    "  It's (thin)  ",
]


def read(text: str) -> str:
    return re.sub(r"\s+", " ", text).strip()


@pytest.mark.parametrize("name", ["bert", "gpt2", "llama"])
def test_pieces_of_pretrained_tokenizers_read_as_the_text(tmp_path: Path, name: str) -> None:
    pytest.importorskip("transformers")
    from attnlight.data.pieces import read_tokenizer
    from attnlight.data.raw_text import RawText
    from tests.huggingface.folders import write_tokenizer

    write_tokenizer(tmp_path, name)
    raw = RawText(read_tokenizer(str(tmp_path))[0].to_str())
    for text in TEXTS:
        source, spans, forms = raw.surface(text)
        special = [start == end for start, end in spans]
        pieces = join_pieces(forms, special, source, spans)
        assert read("".join(piece.before + piece.text for piece in pieces)) == read(text)
        # Each token is in one piece, in order; bytes of one character are together.
        places = [place for piece in pieces for place in piece.tokens]
        assert places == [place for place, left_out in enumerate(special) if not left_out]
        taken = [spans[place] for piece in pieces for place in piece.tokens[:1]]
        assert len(taken) == len(set(taken))
        if name != "gpt2" and any(special):
            words = join_pieces(forms, [False] * len(forms), source, spans)
            at = special.index(True)
            assert (forms[at], [at]) in [(word.text, word.tokens) for word in words]


def test_what_splitting_drops_stands_where_it_stood() -> None:
    tokenizer = make_tokenizer(TextRules(splitting="words"), ["good", "film", "bad"])
    text = "Good film, (not) bad!!"
    ids = tokenizer.encode(text).ids
    source, spans, forms = surface_of(tokenizer, ids, [(text, None)])
    pieces = join_pieces(forms, [x == y for x, y in spans], source, spans)
    assert [(piece.before, piece.text) for piece in pieces] == [
        ("", "Good"),
        (" ", "film"),
        (", (", "not"),
        (") ", "bad"),
        ("!!", ""),
    ]
    # A rest with words is what was cut, and is not shown.
    assert join_pieces(forms[:3], [False] * 3, source, spans[:3])[-1].text == "film"


def test_without_a_source_marks_of_tokens_join_them() -> None:
    for tokens in (["un", "##fun", "##ny", "mess"], ["un", "fun", "ny", "\u0120mess"]):
        pieces = join_pieces(tokens, [False] * 4)
        assert [piece.before + piece.text for piece in pieces] == ["un", "fun", "ny", " mess"]
    hidden = join_pieces(["[BOS]", "a", "b"], [True, False, False])
    assert [(piece.before, piece.tokens) for piece in hidden] == [("", [1]), (" ", [2])]


def test_an_explanation_shows_the_bytes_of_a_character_once() -> None:
    text = "ok \U0001f600!"
    spans = [(0, 2), (2, 4), (3, 4), (3, 4), (4, 5)]
    items = [text[start:end] for start, end in spans]
    one = Explanation(
        text, None, items, None, "good", {"good": 1.0}, [0.1, 0.2, 0.3, 0.1, 0.3],
        {"occlusion": [None, 0.5, -1.0, None, None]}, FlipSet([1, 2], "bad", True), None,
        spans=spans,
    )  # fmt: skip
    layers = {name: (cells, listed) for name, cells, listed in one.layers()}
    cells, listed = layers["attention"]
    assert [(cell.before, cell.text, cell.value) for cell in cells if cell.text] == [
        ("", "ok", "0.100"),
        (" ", "\U0001f600", "0.600"),
        ("", "!", "0.300"),
    ]
    assert listed == "\U0001f600 0.600, ! 0.300, ok 0.100"
    assert layers["smallest flip set"][1] == "\U0001f600"
    assert [cell.value for cell in layers["occlusion"][0]][:3] == ["\u2013", "-0.500", "\u2013"]
    assert "ok \U0001f600!" in re.sub(
        r"\x1b\[[0-9;]*m", "", str(one.to_rich(coloured=True).renderables[2])
    )
    assert one.items == items, "results are those of the items"


def test_values_of_pieces() -> None:
    pieces = join_pieces(["a", "b", "c"], [False] * 3, "xy", [(0, 1), (0, 1), (1, 2)])
    assert of_pieces(pieces, [0.25, 0.5, None]) == [0.75, None, None]
    assert of_pieces(pieces, [0.0, 1.0, 0.5], largest=True) == [1.0, 0.5, None]
