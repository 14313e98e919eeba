"""Tags of the BIO scheme, and what breaks it."""

import pytest

from attnlight.data.bio import check_tags, split_tag, tags_of
from attnlight.errors import InputError

KNOWN = tags_of(["NP", "VP"])


@pytest.mark.parametrize("tag", ["", "B", "I-", "O-NP", "E-NP", "NP", "b-NP"])
def test_what_is_no_tag(tag: str) -> None:
    with pytest.raises(InputError, match="not of the BIO scheme; expected O, B-<type> or I-<type>"):
        split_tag(tag)


def test_types_may_hold_dashes() -> None:
    assert split_tag("I-NP-SBJ") == ("I", "NP-SBJ")


@pytest.mark.parametrize("tags", ["B-NP I-NP O", "O", "B-NP B-NP I-NP B-VP I-VP I-VP"])
def test_sound_tags_pass(tags: str) -> None:
    check_tags("s", tags.split(), KNOWN)


@pytest.mark.parametrize(
    ("tags", "token"), [("I-NP", 0), ("O I-NP", 1), ("B-NP I-NP I-VP", 2), ("B-NP O I-NP", 2)]
)
def test_an_inside_without_a_begin_is_named(tags: str, token: int) -> None:
    with pytest.raises(InputError, match=f"train.txt, token {token}, has the tag .*conlleval"):
        check_tags("train.txt", tags.split(), KNOWN)
    check_tags("train.txt", tags.split(), KNOWN, strict=False)


def test_unknown_and_unreadable_tags_are_named() -> None:
    with pytest.raises(
        InputError, match="s, token 1, has the tag 'B-PP', whose type does not occur"
    ):
        check_tags("s", ["O", "B-PP"], KNOWN, strict=False)
    with pytest.raises(InputError, match="s, token 1, cannot be read: tag 'S-NP'"):
        check_tags("s", ["O", "S-NP"], KNOWN, strict=False)
