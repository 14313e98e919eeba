"""Models, tokenizers and pipelines of transformers that Python gives, and models by their hub id."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

import attnlight
from attnlight.errors import InputError
from attnlight.huggingface import HuggingFaceClassifier
from tests.huggingface.folders import NAMES, TEXTS, write_model
from tests.huggingface.models import assert_near, assert_same

ROWS = list(zip(TEXTS, ["POS", "NEG", "POS", "NEG"], strict=True))


@pytest.fixture(scope="module", params=["bert", "gpt2"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("given") / "films", request.param, **NAMES)


@pytest.fixture
def model(folder: Path) -> Any:
    return transformers.AutoModelForSequenceClassification.from_pretrained(folder)


@pytest.fixture
def tokenizer(folder: Path) -> Any:
    special = {"pad_token": "[PAD]"} if "bert" in (folder / "config.json").read_text() else {}
    file = str(folder / "tokenizer.json")
    return transformers.PreTrainedTokenizerFast(tokenizer_file=file, **special)


def probabilities(results: attnlight.Results) -> torch.Tensor:
    return torch.tensor([*map(list, results.table("predictions")["probabilities"])])


@pytest.mark.usefixtures("few_steps")
class TestRun:
    def test_a_model_with_its_tokenizer_is_its_folder(
        self, folder: Path, model: Any, tokenizer: Any
    ) -> None:
        expected = probabilities(attnlight.run(folder, ROWS, "predictions"))
        for given in (tokenizer, tokenizer.backend_tokenizer, folder, str(folder)):
            found = attnlight.run(model, ROWS, "predictions", tokenizer=given)
            assert_near(probabilities(found), expected)
            assert list(found.table("predictions")["label"]) == [1, 0, 1, 0]

    def test_a_pipeline(self, folder: Path, model: Any, tokenizer: Any) -> None:
        pipeline: Any = transformers.TextClassificationPipeline(model=model, tokenizer=tokenizer)
        (expected,), (found,) = (attnlight.explain(one, TEXTS[0]) for one in (folder, pipeline))
        assert (found.items, found.prediction) == (expected.items, expected.prediction)
        assert found.attention == pytest.approx(expected.attention, abs=1e-6)
        answer = pipeline(TEXTS[0])[0]
        assert answer["label"] == found.prediction
        assert answer["score"] == pytest.approx(max(found.probabilities.values()), abs=1e-6)
        results = [attnlight.run(one, ROWS, "predictions") for one in (folder, pipeline)]
        assert_near(*map(probabilities, results))

    def test_the_model_is_left_as_it_was(self, model: Any, tokenizer: Any) -> None:
        model.train()
        config, state = (
            model.config.to_dict(),
            {k: v.clone() for k, v in model.state_dict().items()},
        )
        kernel = model.config._attn_implementation
        attnlight.run(model, ROWS, "head_ablation", tokenizer=tokenizer)
        assert model.training
        assert (model.config.to_dict(), model.config._attn_implementation) == (config, kernel)
        assert all(values.grad is None for values in model.parameters())
        for name, values in model.state_dict().items():
            assert_same(values, state[name])

    def test_batches_need_no_tokenizer(self, model: Any, tokenizer: Any) -> None:
        batch = HuggingFaceClassifier(model, tokenizer).encode(list(TEXTS))
        batch.tokens = HuggingFaceClassifier(model, tokenizer).numbers[
            batch.tokens
        ]  # the model's own
        batch.labels = torch.tensor([1, 0, 1, 0])
        expected = attnlight.run(model, ROWS, "predictions", tokenizer=tokenizer)
        assert_near(
            probabilities(attnlight.run(model, [batch], "predictions")), probabilities(expected)
        )


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda m, _: attnlight.run(m, ROWS), "no tokenizer: give it to `run`"),
        (lambda m, _: attnlight.explain(m, TEXTS[0]), "build `HuggingFaceClassifier"),
        (lambda m, _: attnlight.run(m, ROWS, tokenizer=3), "int is no fast tokenizer"),
        (lambda _, t: attnlight.run(torch.nn.Linear(1, 1), ROWS, tokenizer=t), "not with Linear"),
        (
            lambda m, t: HuggingFaceClassifier(m, t, items="word"),  # type: ignore[arg-type]
            "HuggingFaceClassifier: items is 'word' .did you mean 'words'",
        ),
        (lambda _, t: HuggingFaceClassifier("films", t), "films has its own tokenizer"),
        (lambda _, t: attnlight.run("sst", ROWS, tokenizer=t), "not with sst"),
        (
            lambda m, _: HuggingFaceClassifier(m.base_model, None),
            "gives no classes: load it by AutoModelForSequenceClassification",
        ),
    ],
)
@pytest.mark.parametrize("folder", ["bert"], indirect=True)
def test_is_refused(
    call: Callable[[Any, Any], object], said: str, model: Any, tokenizer: Any
) -> None:
    with pytest.raises(InputError, match=said):
        call(model, tokenizer)


@pytest.mark.parametrize("folder", ["bert"], indirect=True)
def test_a_tokenizer_of_another_model(model: Any, tmp_path: Path) -> None:
    write_model(tmp_path, "gpt2")
    with pytest.raises(InputError, match=r"300 tokens, the model embeddings of [0-9]{2}\."):
        attnlight.run(model, ROWS, tokenizer=tmp_path)
