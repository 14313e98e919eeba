"""Learned heads against the package of AT2's authors, where it is installed (`pip install --no-deps at2`)."""

import sys
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest
import torch
import transformers

from attnlight.attribution import LearnedHeads, fit_heads
from attnlight.attribution.learned_heads import learn_weights
from attnlight.huggingface import AnswerModel
from tests.attribution.test_learned_heads import OTHERS, ablations
from tests.huggingface.test_answers import ANSWERS, encode, write_decoder

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("at2") is None, reason="at2 is not installed"),
]


@pytest.fixture(scope="module")
def at2() -> Iterator[Any]:
    """The package; it imports what splits texts into sentences, and downloads data for it."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("nltk", "spacy", "spacy.lang", "spacy.lang.en"):
            patch.setitem(sys.modules, name, MagicMock())
        yield import_module("at2.attribution")


def test_a_thousand_steps_on_the_same_batches_give_the_same_weights(
    at2: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = ablations(count=40, features=6)
    generator = torch.Generator().manual_seed(0)

    def sample(self: Any, size: int, *_: Any, **__: Any) -> tuple[Any, Any]:
        """The batch that `learn_weights` draws, with sets as its authors have them, of 1 and -1."""
        drawn = torch.randint(len(texts), (size,), generator=generator).tolist()
        features = [(2 * texts[n][1] - 1) @ texts[n][0] for n in drawn]
        return torch.stack(features), torch.stack([texts[n][2] for n in drawn])

    monkeypatch.setattr(at2.LinearScoreEstimatorTrainer, "_sample_batch", sample)
    extractor = SimpleNamespace(num_features=6)
    nothing: Any = None
    trainer = at2.LinearScoreEstimatorTrainer(
        tmp_path, range(len(texts)), nothing, nothing, nothing, extractor
    )
    trainer._task_datas = {n: {"num_targets": 1} for n in range(len(texts))}
    estimator = at2.LinearScoreEstimator(extractor).double()
    options: Any = {"batch_size": 32, "train_indices": [*range(len(texts))], "device": "cpu"}
    trainer.train(estimator, num_iterations=1000, **options)
    expected = estimator.linear.weight.detach().flatten()
    found = learn_weights(texts, steps=1000, batch_size=32, seed=0)
    difference = float((found - expected).abs().max())
    print(f"largest difference of weights: {difference:.1e}")
    assert difference < 1e-4
    assert float((found - 1 / 6).abs().max()) > 0.05, "they have moved"


def test_scores_of_given_weights_are_the_same(at2: Any, tmp_path: Path) -> None:
    folder = write_decoder(tmp_path / "tiny", "llama")
    model: Any = AnswerModel(folder, classes=ANSWERS).eval()
    file = tmp_path / "heads.json"
    weights = fit_heads(model, [encode(model, OTHERS)], file, ablations=8, steps=50)
    batch = encode(model)
    output, prompts = model(batch), model.prompts(batch)
    scores = LearnedHeads(file=str(file))(model, batch, output, output.logits.argmax(-1))
    kind = transformers.AutoModelForCausalLM
    eager: Any = kind.from_pretrained(folder, attn_implementation="eager").eval()
    extractor = at2.AttentionFeatureExtractor(*weights.shape, model_type="llama")
    estimator = at2.LinearScoreEstimator(extractor)
    estimator.linear.weight.data[:] = weights.flatten().float()
    estimator.requires_grad_(False)
    largest = 0.0
    for text in range(2):
        real = prompts.mask[text]
        ids = model.numbers[prompts.flat.batch.tokens[text][real]]
        items = torch.where(prompts.flat.batch.mask[text], prompts.flat.item[text], -1)[real]
        with torch.no_grad():
            states = eager(ids[None], output_hidden_states=True).hidden_states
        task = SimpleNamespace(model=eager, hidden_states=states)
        row = estimator.get_scores(task, len(ids), len(ids) + 1)[0]
        for item in range(int(output.mask[text].sum())):
            largest = max(largest, abs(float(row[items == item].sum() - scores[text, item])))
    print(f"largest difference of scores: {largest:.1e}")
    assert largest < 1e-6
