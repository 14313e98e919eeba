"""Every shipped file of tests on a pretrained encoder and decoder, by pieces and by words."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch

import attnlight
from attnlight.errors import InputError
from attnlight.huggingface import HuggingFaceClassifier
from tests.commands import CONFIGS
from tests.huggingface.folders import NAMES, TEXTS, write_model

FILES = sorted(path.stem for path in (CONFIGS / "tests").glob("*.yaml"))
AFFINE = "needs logits that are affine in attention, and the model's are not: choose"
REFUSED = {
    "alignment_error": "needs a corpus with links between words of translations",
    "attention_interchange": "draws the partners of texts from a corpus",
    "base_divergence": "compares with a base model, and the tested model is no variant of one: give",
    "context": "answer_attention reads models that answer, such as AnswerModel",
    "counterfactual_use": "needs a corpus of texts and edits of them",
    "erasure_words": "has no attention over words inside sentences: leave level out",
    "evidence_swap": "takes the names of classes from a corpus",
    "known_answers": "only PlantedEvidence has",
    "measured_use": "only PlantedEvidence has",
    "sanity": "for which HuggingFaceClassifier lacks the options: it needs a task",
    "saliency": AFFINE,
}
KINDS = ("cost", "documents", "long", "plausibility", "tokens")
REFUSED |= {f"saliency_{kind}": AFFINE for kind in KINDS}
SEARCHING = ("adversarial_search", "jain_wallace_pairs", "jain_wallace_texts")  # seconds a text
MARKED = {  # by the column that they need
    "evidence_mass": "evidence",
    "evidence_swap": "evidence",
    "impermissible_mass": "impermissible",
    "mixing_evidence": "evidence",
    "plausibility": "rationale",
    "real_text_evidence": "evidence",
    "saliency_documents": "rationale",
    "honest_marks": "rationale",
    "saliency_plausibility": "rationale",
}

pytestmark = pytest.mark.usefixtures("few_steps")


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    place = tmp_path_factory.mktemp("models")
    return {name: str(write_model(place / name, name, **NAMES)) for name in ("bert", "llama")}


@pytest.fixture(scope="module")
def model_of(folders: dict[str, str]) -> Callable[[str, Any], HuggingFaceClassifier]:
    """The model of a folder that reads pieces or words, loaded once."""
    return cache(lambda name, items: HuggingFaceClassifier(folders[name], items=items))


@pytest.mark.parametrize(
    ("kind", "items"),
    [("bert", "words"), pytest.param("llama", "pieces", marks=pytest.mark.slow)],
)
@pytest.mark.parametrize("name", FILES)
def test_it_runs_or_is_refused_in_one_sentence(
    name: str, kind: str, items: Any, model_of: Callable[[str, Any], HuggingFaceClassifier]
) -> None:
    model = model_of(kind, items)
    texts = TEXTS if name == "texts" or name in MARKED else TEXTS[:2]
    texts = ("a funny film",) if name in SEARCHING else texts
    data: list[Any] = [(text, ("POS", "NEG")[number % 2]) for number, text in enumerate(texts)]
    if name in MARKED:
        batch = model.raw.encode(list(TEXTS))
        marked = (batch.attendable() & (batch.tokens % 3 == 0)).to(torch.float32)
        labels = torch.tensor([1, 0, 1, 0])
        data = [replace(batch, labels=labels, extras={MARKED[name]: marked})]
    if name in REFUSED:
        with pytest.raises(InputError, match=rf"\A.*{REFUSED[name]}.*\Z"):  # in one line
            attnlight.run(model, data, name)
        return
    results = attnlight.run(model, data, name)
    records = {path.stem for path in (results.folder / "records/test").glob("*.parquet")}
    assert records
    table = results.table()
    for test in records - {"texts"}:
        found = table[table["test"] == test]
        # A measure that no row has, such as the size of an exact flip set, has no mean.
        assert np.isfinite(found["mean"][found["n"] > 0]).all()
        assert (found["n"] > 0).any()
        assert not np.isinf(found["mean"]).any()
    if name == "texts":
        shown = results.table("texts")
        assert all(np.isfinite(np.concatenate(list(row))).all() for row in shown["attention"])
        words = [[word.strip() for word in row] for row in shown["tokens"]]
        if items == "words":
            for text, row in zip(TEXTS, words, strict=True):
                assert [word for word in row if word[:1] not in "[<"] == text.split()


def test_every_refusal_is_of_a_file() -> None:
    assert set(FILES) >= {*REFUSED, *MARKED}


TESTS = "all,texts,faithfulness,attention_sinks,head_ablation,head_roles,state_token_agreement"
SPECIAL = {"bert": ("[CLS] [SEP]", "[SEP]", "[SEP] " * 70), "llama": ("<s>",)}
MIXED = {"bert": "a [SEP] film", "llama": "a <s> film"}
DRAWN = ("random", "shuffled", "draws", "permut")  # at random, by the index of the text


@pytest.mark.parametrize(("name", "items"), [("bert", "words"), ("llama", "pieces")])
def test_texts_without_tokens_are_read_as_one_unknown_token(
    name: str, items: Any, model_of: Callable[[str, Any], HuggingFaceClassifier]
) -> None:
    """Or with special tokens alone, by all tests."""
    model = model_of(name, items)
    texts = ["", *SPECIAL[name], MIXED[name], "a funny film"]
    results = attnlight.run(model, [(text, "POS") for text in texts], tests=TESTS)
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
