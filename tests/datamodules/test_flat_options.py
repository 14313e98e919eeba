"""Options of corpora: declared once in dataclasses, given one by one."""

import inspect
from dataclasses import dataclass, field
from typing import Any

import jsonargparse
import pytest

from attnlight import datamodules
from attnlight.data.tokenization import TextRules
from attnlight.datamodules import CorpusDataModule, TextDataModule
from attnlight.datamodules.flat_options import flat_options
from attnlight.errors import InputError


@dataclass(frozen=True)
class Size:
    """A size.

    Args:
        width: The width.
        height: The height,
            in lines.
    """

    width: int
    height: int = 2


@dataclass(frozen=True)
class Square(Size):
    """A size of one number.

    Args:
        width: The one number.
    """

    height: int = field(default=0, init=False)


@dataclass(frozen=True)
class Colour:
    """A colour.

    Args:
        red: Its red.
    """

    red: int


class Box:
    """A box.

    Args:
        size: Its size.
        name: Its name.
    """

    @flat_options
    def __init__(self, size: Size, name: str = "box", *, colour: Colour) -> None:
        self.given = (size, name, colour)


class Flat(Box):
    """A red box."""

    @flat_options
    def __init__(self, size: Square) -> None:
        super().__init__(size=size, name="flat", colour=Colour(1))


def test_fields_are_given_one_by_one_or_as_a_whole() -> None:
    assert Box(3, red=2).given == (Size(3), "box", Colour(2))
    assert Box(size=Size(3, 4), height=5, red=1).given[0] == Size(3, 5)
    assert Flat(3).given == (Square(3), "flat", Colour(1))
    for options, words in (
        ({"width": 1}, "missing 1 required"),
        ({"width": 1, "red": 2, "depth": 2}, "unexpected keyword argument 'depth'"),
    ):
        with pytest.raises(TypeError, match=words):
            Box(**options)


def test_the_signature_lists_all_options_and_the_command_line_reads_them() -> None:
    parameters = list(inspect.signature(Box).parameters.values())
    assert [(p.name, p.annotation, p.default) for p in parameters] == [
        ("width", int, inspect.Parameter.empty),
        ("height", int, 2),
        ("name", str, "box"),
        ("red", int, inspect.Parameter.empty),
    ]
    assert list(inspect.signature(Flat).parameters) == ["width"]
    parser = jsonargparse.ArgumentParser(exit_on_error=False)
    parser.add_class_arguments(Box, "box")
    parser.add_class_arguments(Flat, "flat")
    shown = " ".join(parser.format_help().split())
    assert "The height, in lines. (type: int, default: 2)" in shown
    assert "The one number. (required, type: int)" in shown
    given = ["--box.width=3", "--box.height", "4", "--box.red=1", "--flat.width=1"]
    assert parser.instantiate_classes(parser.parse_args(given)).box.given[0] == Size(3, 4)
    with pytest.raises(jsonargparse.ArgumentError, match="height"):
        parser.parse_args([*given, "--box.height=tall"])


def test_rules_of_a_group_hold_for_its_fields() -> None:
    with pytest.raises(InputError, match="truncate is 0"):
        TextDataModule("a/b", truncate=0)
    data = TextDataModule("a/b", rules=TextRules(markup=True), lowercase=False)
    assert data.rules == TextRules(markup=True, lowercase=False)


@pytest.mark.parametrize("name", datamodules.__all__)
def test_every_option_of_every_corpus_has_a_type_and_a_description(name: str) -> None:
    kind: type[CorpusDataModule] = getattr(datamodules, name)
    parser = jsonargparse.ArgumentParser()
    added: Any = parser.add_class_arguments(kind, "data")
    shown = {action.dest: action.help for action in parser._actions}
    assert {"data.batch_size", "data.marks"} <= set(added)
    for option in added:
        text = shown[option].strip()
        assert text, option
        assert not text.startswith("Where the corpus is read from"), option  # the attribute's
