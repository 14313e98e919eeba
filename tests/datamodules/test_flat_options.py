"""Options of corpora: declared once in dataclasses, given one by one, refused out of range."""

import inspect
from typing import Any, get_type_hints

import jsonargparse
import pytest

from attnlight import datamodules
from attnlight.data.features import FeatureRules
from attnlight.data.planted import PlantedSpec
from attnlight.data.selection import Selection
from attnlight.data.sentences import SentenceRules
from attnlight.data.tokenization import TextRules
from attnlight.data.word2vec import Word2VecSettings
from attnlight.datamodules import (
    BabiStories,
    ChunkingDataModule,
    CorpusDataModule,
    PlantedEvidence,
    TextDataModule,
)
from attnlight.errors import InputError


def test_fields_are_given_one_by_one_or_as_a_whole() -> None:
    data = TextDataModule("a/b", rules=TextRules(markup=True), lowercase=False)
    assert data.rules == TextRules(markup=True, lowercase=False)
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


NESTED = {"path": "a/b", "sentences": "nested", "boundary_tokens": False, "splitting": "words"}
WHOLE = NESTED | {"sentences": "none"}
OUT_OF_RANGE: dict[type, list[tuple[dict[str, Any], str]]] = {
    PlantedSpec: [
        ({"num_classes": 1}, "num_classes is 1; it must be at least 2"),
        *(({name: 0}, f"{name} is 0") for name in ("vocabulary", "keywords", "negators")),
        ({"redundancy": 0}, "redundancy is 0"),
        ({"distractors": -1}, "distractors is -1"),
        ({"zipf": -0.1}, "zipf is -0.1"),
        ({"corpus_seed": -1}, "corpus_seed is -1"),
        ({"negation": 1.0}, r"negation is 1.0; it must be in \[0, 1\)"),
        ({"redundancy": 2, "distractors": 2}, "more keywords of its class than distractors"),
        ({"min_tokens": 3}, "need 4 <= min_tokens"),
        ({"min_tokens": 11, "negation": 0.1}, "need 12 <= min_tokens"),
        ({"min_tokens": 50}, "min_tokens is 50 and max_tokens 40"),
    ],
    SentenceRules: [
        ({"language": "EN"}, "language is 'EN'; expected a code of two or three letters"),
        ({"length": 0}, "sentence_length is 0; it must be at least 1"),
        ({"max_sentences": 0}, "max_sentences is 0"),
        ({"max_tokens": -1}, "max_sentence_tokens is -1"),
    ],
    Selection: [
        ({"validation_fraction": 1.0}, "between 0 and 1"),
        ({"subset": {"test": 1.5}}, "subset of test is 1.5"),
        ({"subset": {"test": 0}}, "subset of test is 0"),
    ],
    FeatureRules: [
        *(({"suffixes": sizes}, "suffixes is") for sizes in ((0,), (2, 2))),
        *(({"characters": count}, "characters is") for count in (4, -8)),
    ],
    TextRules: [  # digit tokens that would be split
        *(({"digits": x, "splitting": "whitespace"}, "digits is") for x in ("two words", "")),
        ({"digits": "<NUM>", "splitting": "words"}, "digits is"),
    ],
    Word2VecSettings: [
        *(({n: 0}, f"{n} is 0; it must be") for n in ("size", "epochs", "window", "min_count")),
        *(({"seed": seed}, f"seed is {seed}; it must be") for seed in (-1, 2**32)),
    ],
    PlantedEvidence: [
        *(
            ({name: 0}, f"{name} is 0; it must be at least 1")
            for name in ("train_size", "validation_size", "test_size", "sentence_length")
        ),
        ({"batch_size": 0}, "batch_size is 0"),
        ({"eval_batch_size": 0}, "eval_batch_size is 0"),
    ],
    BabiStories: [
        *(
            ({name: 0}, f"{name} is 0; it must be at least 1")
            for name in ("train_size", "validation_size", "test_size")
        ),
        ({"task": 4}, "task is 4; expected one of: 1, 2, 3"),
        ({"corpus_seed": -1}, "corpus_seed is -1; it must be at least 0"),
    ],
    TextDataModule: [
        ({"path": "a/b", "truncate": 0}, "truncate is 0"),
        (NESTED | {"boundary_tokens": True}, "boundary_tokens cannot be used with sentences"),
        (NESTED | {"truncate": 5}, "truncate cannot be used with sentences"),
        (NESTED | {"max_sentence_tokens": 0}, "max_sentence_tokens is 0"),
        (WHOLE | {"max_sentences": 3}, "need sentences: nested or flat"),
        (WHOLE | {"cap_test": True}, "need sentences: nested or flat"),
        (WHOLE | {"language": "de"}, "need sentences: nested or flat"),
        (WHOLE | {"tokens": "w", "line_breaks": True}, "line_breaks needs raw text"),
    ],
}


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [(kind, *row) for kind, rows in OUT_OF_RANGE.items() for row in rows],
)
def test_values_out_of_range_are_refused(kind: Any, options: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        kind(**options)


@pytest.mark.parametrize("option", ["batch_size", "lowercase", "edits_in", "split_seed"])
def test_null_is_no_value_of_an_option_that_needs_one(option: str) -> None:
    with pytest.raises(InputError, match=f"{option} is null"):
        TextDataModule("a/b", **{option: None})
    assert TextDataModule("a/b", marks=None, min_tokens=None).marks == {}
