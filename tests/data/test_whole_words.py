"""Words among the tokens of pretrained tokenizers, against the words of the text."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("transformers")

from attnlight.data.pieces import read_tokenizer
from attnlight.data.raw_text import RawText
from attnlight.data.whole_words import WholeWords
from attnlight.errors import InputError
from tests.huggingface.folders import write_tokenizer

TEXTS = (
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
        write_tokenizer(tmp_path, name, [*TEXTS[:3], *5 * TEXTS[4:]])
        raw = RawText(read_tokenizer(str(tmp_path))[0].to_str(), whole_words=True)
        for text in TEXTS:
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
        assert max(int(raw.encode([text]).mask.sum(-1).max()) for text in TEXTS) > 2
        special = raw.encode([TEXTS[0]])
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
