"""Options of corpora: declared once in dataclasses, given one by one."""

import inspect
from typing import Any, get_type_hints

import jsonargparse
import pytest

from attnlight import datamodules
from attnlight.data.tokenization import TextRules
from attnlight.datamodules import ChunkingDataModule, CorpusDataModule, TextDataModule
from attnlight.errors import InputError


def test_fields_are_given_one_by_one_or_as_a_whole() -> None:
    data = TextDataModule("a/b", rules=TextRules(markup=True), lowercase=False)
    assert data.rules == TextRules(markup=True, lowercase=False)
    with pytest.raises(InputError, match="truncate is 0"):
        TextDataModule("a/b", truncate=0)
    for options, words in (({"depth": 2}, "argument 'depth'"), ({}, "missing 1 required")):
        with pytest.raises(TypeError, match=words):
            TextDataModule(*["a/b"] * len(options), **options)


def test_the_signature_lists_all_options() -> None:
    options = inspect.signature(TextDataModule).parameters
    rules = inspect.signature(TextRules).parameters
    assert "rules" not in options
    for name, field in rules.items():
        assert (options[name].annotation, options[name].default) == (
            get_type_hints(TextRules)[name],
            field.default,
        )
    tagged = inspect.signature(ChunkingDataModule).parameters
    assert "lowercase" in tagged
    assert not tagged.keys() & {"splitting", "markup", "min_tokens"}  # not to be set there


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
