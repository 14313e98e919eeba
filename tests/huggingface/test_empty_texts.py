"""Texts without a token, or with special tokens alone, through all tests of transformers' models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("transformers")

import attnlight
from attnlight.huggingface import HuggingFaceClassifier
from tests.huggingface.folders import write_model

TESTS = "all,texts,faithfulness,attention_sinks,head_ablation,state_token_agreement"
SPECIAL = {"bert": ("[CLS] [SEP]", "[SEP]", "[SEP] " * 70), "llama": ("<s>",)}
MIXED = {"bert": "a [SEP] film", "llama": "a <s> film"}
DRAWN = ("random", "shuffled", "draws", "permut")  # at random, by the index of the text


@pytest.mark.parametrize(("name", "items"), [("bert", "words"), ("llama", "pieces")])
def test_are_read_as_one_unknown_token(name: str, items: Any, tmp_path: Path) -> None:
    folder = write_model(tmp_path, name, id2label={0: "no", 1: "yes"}, label2id={"no": 0, "yes": 1})
    model = HuggingFaceClassifier(str(folder), items=items)
    texts = ["", *SPECIAL[name], MIXED[name], "a funny film"]
    results = attnlight.run(model, [(text, "yes") for text in texts], tests=TESTS)
    assert (results.table("predictions")["length"] >= 1).all()
    for test in results.table()["test"].unique():
        rows = results.table(test).drop(columns="index")
        for column in (name for name in rows if not any(word in name for word in DRAWN)):
            first, *others = (np.asarray(value, float) for value in rows[column])
            for other in others[: len(SPECIAL[name])]:
                np.testing.assert_allclose(other, first, atol=1e-6, err_msg=f"{test} {column}")
    explained = attnlight.explain(model, texts[1:])
    for one in explained:
        assert len(one.items) == len(one.attention) >= 1
    words = "".join(explained[-2].items)
    assert words.endswith("film")
    assert MIXED[name].split()[1] not in words
