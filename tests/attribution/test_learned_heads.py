"""Heads learned from ablations, against gradients by differences and loops."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from attnlight.attribution import LearnedHeads, fit_heads
from attnlight.attribution.learned_heads import Ablations, Heads, learn_weights
from attnlight.errors import InputError
from attnlight.functional import log_odds
from attnlight.huggingface import AnswerModel
from tests.huggingface.test_answers import ANSWERS, QUESTIONS, STORIES, encode, write_decoder


def ablations(count: int = 6, features: int = 4, noise: float = 0.1) -> list[Ablations]:
    """Texts whose log odds are the sum of the second feature of the items that stay."""
    generator = torch.Generator().manual_seed(0)
    draw: Any = lambda *shape: torch.rand(*shape, generator=generator, dtype=torch.float64)
    texts = []
    for _ in range(count):
        rows, sets = draw(5, features), (draw(20, 5) < 0.5).double()
        texts.append((rows, sets, sets @ rows[:, 1] + noise * draw(20)))
    return texts


def test_one_step_follows_the_gradient_of_the_correlation() -> None:
    texts = ablations(count=1)
    (features, sets, odds), weights = texts[0], np.full(4, 0.25)

    def loss(at: Any) -> float:
        sums = [
            sum(float(features[s] @ torch.from_numpy(at)) for s in range(5) if kept[s])
            for kept in sets
        ]
        return -float(np.corrcoef(sums, odds)[0, 1])

    steps = np.eye(4) * 1e-6
    gradient = [(loss(weights + step) - loss(weights - step)) / 2e-6 for step in steps]
    moved = weights - 0.01 * np.sign(gradient)  # Adam's first step
    found = learn_weights(texts, steps=1, learning_rate=0.01)
    np.testing.assert_allclose(found, moved / np.abs(moved).sum(), atol=1e-6)


def test_the_head_that_predicts_ablations_is_found() -> None:
    weights = learn_weights(ablations(noise=0.0), steps=600, learning_rate=0.01)
    assert int(weights.argmax()) == 1
    assert float(weights[1]) > 0.9
    assert float(weights.abs().sum()) == pytest.approx(1)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = write_decoder(tmp_path_factory.mktemp("heads"), "llama")
    return AnswerModel(folder, classes=ANSWERS).eval()


OTHERS = ("John moved to the bathroom. Mary sat.", "Mary sat. John slept. Mary went to the garden.")


def test_a_file_of_weights_is_read_for_its_model_alone(model: Any, tmp_path: Path) -> None:
    batch, file = encode(model), tmp_path / "heads.json"
    weights = fit_heads(model, [encode(model, OTHERS)], file, ablations=8, steps=3)
    output = model(batch)
    answer = output.logits.argmax(-1)
    found = LearnedHeads(file=str(file))(model, batch, output, answer)
    best = LearnedHeads(file=str(file), best=True)(model, batch, output, answer)
    layer, head = divmod(int(Heads.read(file).somers_d.argmax()), weights.shape[1])
    rows = model.answer_attention(batch, "attention")
    for text, items in enumerate(output.mask):
        for item in items.nonzero().flatten().tolist():
            products = [
                float(weights[layer, head] * rows[text, layer, head, item])
                for layer in range(weights.shape[0])
                for head in range(weights.shape[1])
            ]
            assert float(found[text, item]) == pytest.approx(sum(products), abs=1e-9)
            assert best[text, item] == rows[text, layer, head, item]
    other = AnswerModel(write_decoder(tmp_path / "other", "qwen3"), classes=ANSWERS).eval()
    with pytest.raises(InputError, match="are of another model"):
        LearnedHeads(file=str(file))(other, batch, output, answer)


def test_texts_that_heads_were_learned_from_are_not_judged_by_them(
    model: Any, tmp_path: Path
) -> None:
    batch = encode(model, (STORIES[0], OTHERS[1]), (QUESTIONS[0], QUESTIONS[0]))
    fit_heads(model, [encode(model)], tmp_path / "heads.json", ablations=8, steps=1)
    output = model(batch)
    method = LearnedHeads(file=str(tmp_path / "heads.json"))
    scores = method(model, batch, output, output.logits.argmax(-1))
    assert scores[0][output.mask[0]].isnan().all()
    assert not scores[1].isnan().any()


def test_what_a_file_says_of_single_heads_is_that_of_loops(model: Any, tmp_path: Path) -> None:
    batch = encode(model)
    fit_heads(model, [batch], tmp_path / "heads.json", ablations=8, steps=1)
    heads, output = Heads.read(tmp_path / "heads.json"), model(batch)
    rows, prompts = model.answer_attention(batch, "attention"), model.prompts(batch)
    answer = output.logits.argmax(-1)
    _, layers, _ = model.last_layer.read_last(
        model.transformer, prompts.embeddings, prompts.mask, every=True
    )
    expected = []
    for text, items in enumerate(output.mask):
        kept = ~torch.eye(len(items)).bool()[None].expand(2, -1, -1)
        count = int(items.sum())
        odds = log_odds(model.ablated_logits(batch, kept, "removed")[0], answer)[text, :count]
        sizes = (log_odds(output.logits, answer)[text] - odds).abs().tolist()
        weights = rows[text, 1, 2].tolist()
        pairs = [
            np.sign(weights[a] - weights[b])
            for a in range(count)
            for b in range(count)
            if sizes[a] - sizes[b] > 0.1 * max(sizes)
        ]
        expected.append(np.mean(pairs) if pairs else np.nan)  # no two effects differ
    assert float(heads.somers_d[1, 2]) == pytest.approx(np.nanmean(expected))
    copied = model.copied_answers(batch, torch.tensor([1, 0]))  # hallway and bathroom
    for text, name in enumerate(("hallway", "bathroom")):
        inside = prompts.flat.batch.mask[text] & (
            prompts.flat.batch.tokens[text] == model.answers[ANSWERS.index(name), 0]
        )
        if not inside.any():
            assert copied[text].isnan().all()
            continue
        for layer, head in np.ndindex(*copied.shape[1:]):
            place = int(layers[layer].weights[text, head, 0].argmax())
            assert copied[text, layer, head] == float(inside[place])
    assert copied[1].isnan().all(), "no bathroom in the second story"
    assert not copied[0].isnan().any()
    layer, head, weight, _, _ = heads.table(1)[0]
    assert weight == heads.weights.max() == heads.weights[layer, head]


def test_files_that_are_refused(tmp_path: Path, model: Any) -> None:
    with pytest.raises(InputError, match="needs the option file"):
        LearnedHeads()
    with pytest.raises(InputError, match="no file"):
        LearnedHeads(file=str(tmp_path / "none.json"))
    (tmp_path / "x.json").write_text('{"model": "a", "weights": [1]}')
    with pytest.raises(InputError, match="has no `weights`, `somers_d` and `copies` by"):
        LearnedHeads(file=str(tmp_path / "x.json"))
    with pytest.raises(InputError, match="learned_heads reads models that answer"):
        fit_heads(SimpleNamespace(), [], tmp_path / "y.json")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="no text has two items"):
        fit_heads(model, [encode(model, ["Mary sat."], ["Who?"])], tmp_path / "y.json")
