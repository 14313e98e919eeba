"""Files of columns, and the BIO tags in them."""

import gzip
from pathlib import Path

import pytest

from attnlight.data.bio import check_tags, split_tag, tags_of
from attnlight.data.conll import load_columns, read_sentences
from attnlight.errors import InputError

TEXT = "\n\nThe DT B-NP\ncat  NN\tI-NP\n\n \n. . O\n\na b c d\n"


@pytest.mark.parametrize("zipped", [False, True])
def test_sentences_with_the_lines_where_they_begin(tmp_path: Path, zipped: bool) -> None:
    """The compressed file has the line ends of Windows."""
    file = tmp_path / ("train.txt.gz" if zipped else "train.txt")
    with gzip.open(file, "wt", newline="") if zipped else file.open("w") as stream:
        stream.write(TEXT.replace("\n", "\r\n") if zipped else TEXT)
    assert list(read_sentences(file, [0, -1])) == [
        (3, [["The", "cat"], ["B-NP", "I-NP"]]),
        (7, [["."], ["O"]]),
        (9, [["a"], ["d"]]),
    ]
    rows = load_columns(file, [0, 2], tmp_path / "scratch" / "rows.arrow")
    assert rows.column_names == ["line", "0", "2"]
    assert rows[1] == {"line": 7, "0": ["."], "2": ["O"]}
    assert len(rows) == 3


def test_neither_marks_of_documents_nor_a_byte_order_mark_are_words(tmp_path: Path) -> None:
    file = tmp_path / "train.txt"
    file.write_text("-DOCSTART- O\n\nAnn B-PER\n\n-DOCSTART- O\nBob B-PER\n", encoding="utf-8-sig")
    assert list(read_sentences(file, [0, -1])) == [
        (3, [["Ann"], ["B-PER"]]),
        (6, [["Bob"], ["B-PER"]]),
    ]


def test_a_missing_column_is_named_by_file_and_line(tmp_path: Path) -> None:
    file = tmp_path / "train.txt"
    file.write_text("a b c\n\na b\n")
    for column in (2, -3):
        message = rf"train\.txt, line 3, has 2 columns; expected column {column} "
        with pytest.raises(InputError, match=message):
            list(read_sentences(file, [column]))


def test_what_is_no_text(tmp_path: Path) -> None:
    file = tmp_path / "train.txt"
    file.write_bytes(b"caf\xe9 N O\n")
    with pytest.raises(InputError, match=r"train\.txt cannot be read as text"):
        list(read_sentences(file, [0]))
    file.write_text("\n \n")
    with pytest.raises(InputError, match="holds no sentence"):
        load_columns(file, [0], tmp_path / "rows.arrow")
    broken = tmp_path / "train.gz"
    broken.write_bytes(b"no gzip")
    with pytest.raises(InputError, match=r"train\.gz cannot be read"):
        list(read_sentences(broken, [0]))


def test_conll_u(tmp_path: Path) -> None:
    """Comments, words of several tokens and empty nodes are no tokens; tabs divide columns."""
    lines = ["# text = Vámonos #1", "1-2\tVámonos\t_\t_", "1\tVamos\tir\tVERB", "2\tnos\tyo\tPRON"]
    lines += ["2.1\tx\ty\tX", "3\t#1\ta b\tNOUN", "", "1\t2-3\t2-3\tNUM"]
    (tmp_path / "x.conllu").write_text("\n".join(lines))
    found = list(read_sentences(tmp_path / "x.conllu", [1, 3]))
    words, tags = ["Vamos", "nos", "#1"], ["VERB", "PRON", "NOUN"]
    assert found == [(1, [words, tags]), (8, [["2-3"], ["NUM"]])]


KNOWN = tags_of(["NP", "VP"])


@pytest.mark.parametrize("tag", ["", "B", "I-", "O-NP", "X-NP", "NP", "b-NP"])
def test_what_is_no_tag(tag: str) -> None:
    with pytest.raises(InputError, match="not of the BIO scheme; expected O, B-<type> or I-<type>"):
        split_tag(tag)
    assert split_tag("I-NP-SBJ") == ("I", "NP-SBJ")  # types may hold dashes


@pytest.mark.parametrize(
    ("tags", "token"), [("I-NP", 0), ("O I-NP", 1), ("B-NP I-NP I-VP", 2), ("B-NP O I-NP", 2)]
)
def test_an_inside_without_a_begin_is_named(tags: str, token: int) -> None:
    with pytest.raises(InputError, match=f"train.txt, token {token}, has the tag .*conlleval"):
        check_tags("train.txt", tags.split(), KNOWN)
    check_tags("train.txt", tags.split(), KNOWN, strict=False)
    io = tags_of(["NP", "VP"], "I")  # nothing says where a chunk begins
    check_tags("train.txt", [tag.replace("B-", "I-") for tag in tags.split()], io)
    check_tags("train.txt", ["O", "B-NP", "B-NP", "I-NP", "B-VP", "I-VP", "I-VP"], KNOWN)


@pytest.mark.parametrize("tags", ["B-NP E-NP I-NP", "S-NP I-NP", "B-NP E-VP", "O E-VP"])
def test_an_end_closes_its_chunk(tags: str) -> None:
    known = tags_of(["NP", "VP"], "BIES")
    with pytest.raises(InputError, match=r"but no .P before it to continue"):
        check_tags("train.txt", tags.split(), known)
    check_tags("train.txt", ["B-NP", "I-NP", "E-NP", "S-VP", "O", "B-VP", "E-VP"], known)
