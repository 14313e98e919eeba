"""Tokenizers of pretrained models, with attnlight's ids of special tokens, and their whole words."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from attnlight.batch import BOS, EOS, PAD, UNK
from attnlight.data.pieces import longest_text, read_tokenizer
from attnlight.data.raw_text import RawText
from attnlight.data.whole_words import WholeWords
from attnlight.errors import InputError

pytest.importorskip("transformers")

from tests.huggingface.folders import TEXTS, write_tokenizer

OTHER_TEXTS = ("Überlong? 12 films, unfunny.", "", "gripping")


@pytest.fixture(params=["bert", "gpt2", "llama"])
def pair(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Any, Any, list[int], str]:
    """A tokenizer as given and as read, the model's own ids, and the kind."""
    given = write_tokenizer(tmp_path, request.param)
    given.no_padding()
    given.no_truncation()
    return given, *read_tokenizer(str(tmp_path)), request.param


class TestReadTokenizer:
    def test_same_tokens_of_the_same_own_ids(self, pair: Any) -> None:
        given, tokenizer, own, _ = pair
        for text in (*TEXTS, *OTHER_TEXTS):
            expected, found = given.encode(text), tokenizer.encode(text)
            assert [own[number] for number in found.ids] == expected.ids
            assert found.tokens == expected.tokens
            assert found.offsets == expected.offsets
        assert tokenizer.get_vocab_size() == len(own)

    def test_special_tokens_have_their_ids(self, pair: Any) -> None:
        given, tokenizer, own, kind = pair
        ids = tokenizer.encode(TEXTS[0]).ids
        expected = {"bert": (BOS, EOS), "gpt2": (None, None), "llama": (BOS, None)}[kind]
        assert (ids[0] if BOS in ids else None, ids[-1] if EOS in ids else None) == expected
        assert PAD not in ids
        if kind != "gpt2":
            name = "[UNK]" if kind == "bert" else "<unk>"
            assert own[UNK] == given.token_to_id(name)
            assert UNK in tokenizer.encode("\u4e16").ids
        assert sorted(set(own)) == sorted(given.get_vocab().values())

    def test_texts_are_cut(self, tmp_path: Path) -> None:
        write_tokenizer(tmp_path, "bert")
        tokenizer, _ = read_tokenizer(str(tmp_path), 5)
        ids = tokenizer.encode(TEXTS[2]).ids
        assert len(ids) == 5
        assert (ids[0], ids[-1]) == (BOS, EOS)

    @pytest.mark.parametrize(
        ("path", "words"),
        [
            (".", "no tokenizer.json in .*expected a model's folder"),
            ("missing", "no tokenizer.json in .*expected a model's folder"),
            ("nobody/nothing", "'nobody/nothing', neither in a folder .* nor on the"),
            ("damaged", "tokenizer.json of .* is not one that can be read"),
        ],
    )
    def test_none_there(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str, words: str
    ) -> None:
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
        (tmp_path / "damaged").mkdir()
        (tmp_path / "damaged" / "tokenizer.json").write_text("{}")
        with pytest.raises(InputError, match=words):
            read_tokenizer(path if "nobody" in path else str(tmp_path / path))

    def test_two_special_tokens_before_a_text(self, tmp_path: Path) -> None:
        from tokenizers import processors

        tokenizer = write_tokenizer(tmp_path, "llama")
        tokenizer.post_processor = processors.TemplateProcessing(
            single="<s> </s> $A", special_tokens=[("<s>", 1), ("</s>", 2)]
        )
        tokenizer.save(str(tmp_path / "tokenizer.json"))
        with pytest.raises(InputError, match="puts <s> </s> before a text"):
            read_tokenizer(str(tmp_path))


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"model_type": "bert", "max_position_embeddings": 512}, 512),
        ({"model_type": "roberta", "max_position_embeddings": 514, "pad_token_id": 1}, 512),
        ({"model_type": "camembert", "max_position_embeddings": 514, "pad_token_id": 1}, 512),
        ({"model_type": "mpnet", "max_position_embeddings": 514, "pad_token_id": 1}, 512),
        ({"model_type": "gpt2", "n_positions": 1024}, 1024),
        ({"model_type": "other"}, None),
    ],
)
def test_longest_text(config: dict[str, Any], expected: int | None) -> None:
    assert longest_text(json.loads(json.dumps(config))) == expected


@pytest.mark.parametrize("most", ["many", [512], {"a": 1}])
def test_longest_text_that_is_no_number(most: Any) -> None:
    with pytest.raises(InputError, match="as the most positions"):
        longest_text({"model_type": "bert", "max_position_embeddings": most})


WORDED = (
    "an unfunny , overlong mess",
    "It's thin... but the cast (all of it) shines!",
    "overlong,overlong plots:  gripping",
    "caf\u00e9 na\u00efve \u00fcber",
    "\u201cfunny\u201d films",
    "x",
)
# Of a run of punctuation marks, word pieces make a word of each.
PATTERNS = {"bert": r"\w+|[^\w\s]", "gpt2": r"'s|\w+|[^\w\s]+", "llama": r"\w+|[^\w\s]+"}


@pytest.mark.parametrize("name", ["bert", "gpt2", "llama"])
class TestWords:
    def test_are_those_of_the_text(self, tmp_path: Path, name: str) -> None:
        write_tokenizer(tmp_path, name, [*WORDED[:3], *5 * WORDED[4:]])
        raw = RawText(read_tokenizer(str(tmp_path))[0].to_str(), whole_words=True)
        for text in WORDED:
            expected = re.findall(PATTERNS[name], text)
            text_of, spans, forms = raw.surface(text)
            inside = [x < y for x, y in spans]
            assert [w.strip() for w, real in zip(forms, inside, strict=True) if real] == expected
            assert forms == [
                text_of[x:y] or form for (x, y), form in zip(spans, forms, strict=True)
            ]
            batch = raw.encode([text])
            assert int(batch.attendable().any(-1).sum()) == len(expected)
            ids = raw.parsed_tokenizer.encode(text).ids
            assert batch.tokens[batch.mask].tolist() == ids
        assert max(int(raw.encode([text]).mask.sum(-1).max()) for text in WORDED) > 2
        special = raw.encode([WORDED[0]])
        alone = special.mask.any(-1) & ~special.attendable().any(-1)
        assert special.mask[alone].sum() == alone.sum() == {"bert": 2, "gpt2": 0, "llama": 1}[name]
        assert int(raw.encode([""]).attendable().any(-1).sum()) == 1  # the unknown word


def test_tokens_without_marks(tmp_path: Path) -> None:
    tokenizer: Any = write_tokenizer(tmp_path, "gpt2")
    content = json.loads(tokenizer.to_str())
    content["model"] |= {"vocab": {"a": 0, "b": 1, "ab": 2}, "merges": [["a", "b"]]}
    content["added_tokens"] = []
    with pytest.raises(InputError, match="do not say where a word begins"):
        WholeWords(json.dumps(content))
