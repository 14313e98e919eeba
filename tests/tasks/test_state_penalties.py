"""Penalties of states, by loops in NumPy, by finite differences and by training."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from attnlight.batch import AttentionOutput, TextBatch
from attnlight.errors import InputError
from attnlight.models.build import CUSTOM
from attnlight.tasks import (
    AttentionClassifier,
    AttentionTask,
    ChunkTagger,
    SeedVariant,
    Translator,
)
from attnlight.tasks.objectives import Penalties
from attnlight.tasks.options import Objective
from attnlight.tasks.state_penalties import WordHead, diversity, masked_words, tying
from tests.bases import SMALL, Planted, classifier, spec, trainer
from tests.functional.test_mean_cosines import by_loop as cosines
from tests.models import test_classifier as flat
from tests.models import test_hierarchical as hierarchical
from tests.models import test_pair as pair
from tests.tasks.tagged import SMALL as SMALL_TAGGER

SIZE = {"embedding_size": 16, "hidden_size": 8}  # of a BiLSTM whose states are as large as words
MODELS: dict[str, Callable[[int], tuple[Any, TextBatch]]] = {
    "flat": lambda n: (flat.model(**SIZE), flat.collate(flat.corpus(), n)),
    "pair": lambda n: (pair.model(**SIZE), pair.collate(pair.corpus(), (n, n))),
    "hierarchical": lambda n: (
        hierarchical.model(),
        hierarchical.collate(hierarchical.corpus(), n, n),
    ),
}
SIGNED, BY_SIZE = Objective(signed=True), Objective()
Term = Callable[[AttentionOutput, TextBatch], tuple[Tensor, Tensor]]


def term(name: str, model: Any) -> Term:
    if name == "tying":
        return lambda output, batch: tying(output, batch, BY_SIZE, model.embed)
    if name == "masked_words":
        return partial(masked_words, objective=BY_SIZE, head=head(model))
    return partial(diversity, objective=SIGNED if name == "signed" else BY_SIZE)


def head(model: Any) -> WordHead:
    torch.manual_seed(3)
    return WordHead(model.decoder.in_features, 60, seed=11).double()


def by_hand(name: str, model: Any, output: AttentionOutput, batch: TextBatch) -> list[float | None]:
    """The penalty of each text, a state at a time; None where it is not defined."""
    found: list[float | None] = []
    states, embeddings = (x.detach().numpy() for x in (output.states, model.embed(batch)))
    asked, layer = head(model).asked(batch.index, output.mask.shape[1]), head(model)
    weight, bias = (x.detach().numpy() for x in (layer.weight, layer.bias))
    for text, items in enumerate(output.mask):
        values: list[float] = []
        for place in items.nonzero().flatten().tolist():
            state = states[text, place]
            if name in ("diversity", "signed"):
                one = slice(text, text + 1)
                cosine = cosines(output.states[one].detach(), output.mask[one])[0][place]
                values += [cosine if name == "signed" else abs(cosine)] * (items.sum() > 1)
            elif name == "tying":
                values.append(math.sqrt(((state - embeddings[text, place]) ** 2).sum()))
            elif asked[text, place]:
                logits = weight @ state + bias
                own = logits[int(batch.tokens[text, place])]
                values.append(float(np.log(np.exp(logits - own).sum())))
        found.append(sum(values) / len(values) if values else None)
    return found


TERMS = [("flat", name) for name in ("diversity", "signed", "tying", "masked_words")]
TERMS += [("pair", name) for name in ("diversity", "tying", "masked_words")]
TERMS += [("hierarchical", name) for name in ("diversity", "signed")]


@pytest.mark.parametrize(("kind", "name"), TERMS)
def test_terms_equal_loops_and_depend_on_nothing_else_of_a_batch(kind: str, name: str) -> None:
    model, batch = MODELS[kind](0)
    penalty = term(name, model)
    output = model(batch)
    values, defined = penalty(output, batch)
    expected = by_hand(name, model, output, batch)
    assert defined.tolist() == [value is not None for value in expected]
    assert sum(defined.tolist()) > 0
    found = [value or 0.0 for value in expected]
    np.testing.assert_allclose(values.detach(), found, rtol=1e-9, atol=1e-12)
    _, wide = MODELS[kind](5)
    turned = torch.arange(len(batch)).flip(0)
    again, _ = penalty(model(wide.select(turned)), wide.select(turned))
    torch.testing.assert_close(again[turned], values, rtol=0, atol=1e-10)
    for text in range(len(batch)):
        one = wide.select(torch.tensor([text]))
        torch.testing.assert_close(penalty(model(one), one)[0], values[[text]], rtol=0, atol=1e-10)


@pytest.mark.parametrize("name", ["diversity", "signed", "tying", "masked_words"])
def test_gradients_are_those_of_finite_differences(name: str) -> None:
    model, texts = flat.model(**SIZE), flat.corpus()
    batch = flat.collate([texts[0], texts[1], texts[3], texts[5]], padding=1)
    penalty, output = term(name, model), model(batch)
    states = output.states.detach().requires_grad_()

    def values(changed: Tensor) -> Tensor:
        return penalty(replace(output, states=changed), batch)[0]

    assert torch.autograd.gradcheck(values, (states,))
    (gradient,) = torch.autograd.grad(values(states).sum(), states)
    assert gradient[~output.mask].abs().max() == 0
    assert gradient.abs().max() > 0
    if name == "tying":  # where a state is its word
        states = model.embed(batch).detach().requires_grad_()
        values(states).sum().backward()
        assert states.grad.isfinite().all()


def test_a_seventh_of_the_states_is_asked_anew_in_each_epoch() -> None:
    layer, index = WordHead(4, 9, seed=5), torch.arange(2000)
    first = layer.asked(index, 30)
    assert first.double().mean() == pytest.approx(0.15, abs=0.006)
    assert torch.equal(layer.asked(index.flip(0), 20).flip(0), first[:, :20]), "a function of rows"
    layer.epoch = 1
    second = layer.asked(index, 30)
    assert (first & second).double().mean() == pytest.approx(0.0225, abs=0.003)
    evaluated = layer.eval().asked(index, 30)
    assert not torch.equal(evaluated, first)
    layer.epoch = 2
    assert torch.equal(layer.asked(index, 30), evaluated), "the same on validation in every epoch"
    assert not torch.equal(WordHead(4, 9, seed=6).asked(index, 30), first)


def learned(folder: Path, epochs: int = 3, **objective: Any) -> tuple[Any, Any, Any, Planted]:
    """A task, its trainer, its checkpoints and its corpus, after training."""
    torch.manual_seed(0)
    data = Planted()
    options = {"optimizer": {"learning_rate": 0.02}, "objective": objective}
    task = classifier(data.spec, **SMALL, encoder="bigru", **options)
    run = trainer(folder, max_epochs=epochs)
    run.fit(task, data)
    for name in ("best", "last"):
        run.save_checkpoint(folder / f"{name}.ckpt", weights_only=name == "best")
    return task, run, folder, data


@pytest.mark.parametrize("name", ["diversity", "tying", "masked_words"])
def test_training_lowers_a_penalty_by_which_no_epoch_is_chosen(name: str, tmp_path: Path) -> None:
    options = {f"lambda_{name}": 1.0}
    assert AttentionClassifier.monitor({"objective": options}) == ("val/accuracy", "max")
    values = {}
    for epochs in (1, 4):
        task, run, _, data = learned(tmp_path / str(epochs), epochs, **options)
        values[epochs] = {key: float(value) for key, value in run.callback_metrics.items()}
    assert values[4][f"val/{name}"] < 0.97 * values[1][f"val/{name}"]
    batch = data.dataset("validation")[list(range(21))]
    output = task.eval().model(batch)
    loss = task.problem.losses(output, batch, task.class_weight).mean()
    assert values[4]["val/loss"] == pytest.approx(float(loss), abs=1e-6), "without the penalty"
    total = task.penalties(output, batch, torch.ones(21, dtype=torch.bool), "val")
    defined = 21 - values[4][f"val/without_{name}"]
    assert values[4][f"val/{name}"] == pytest.approx(float(total.sum() / defined), abs=1e-6)


def test_a_head_is_there_in_training_alone(tmp_path: Path) -> None:
    options = {"lambda_masked_words": 0.5, "lambda_diversity": 0.5}
    task, _, folder, data = learned(tmp_path, **options)
    keys = {f"penalties.head.{part}" for part in ("weight", "bias")}
    best, last = (torch.load(folder / f"{x}.ckpt", weights_only=True) for x in ("best", "last"))
    assert last["state_dict"].keys() - best["state_dict"].keys() == keys
    assert len(last["optimizer_states"][0]["param_groups"]) == 5
    for file in ("best", "last"):
        loaded = AttentionClassifier.load_from_checkpoint(folder / f"{file}.ckpt")
        assert loaded.penalties.head is None
        assert loaded.hparams["objective"] == task.hparams["objective"]
    again = SeedVariant(data.spec, str(folder / "best.ckpt"))
    assert again.hparams["objective"]["lambda_masked_words"] == 0.5
    # Resumed after two epochs, training ends where it ended; the corpus is tested without the head.
    learned(tmp_path / "two", 2, **options)
    torch.manual_seed(0)
    other = classifier(data.spec, **arguments_of(task))
    trainer(tmp_path, max_epochs=3).fit(other, data, ckpt_path=str(tmp_path / "two/last.ckpt"))
    for name, values in task.state_dict().items():
        assert torch.equal(values, other.state_dict()[name]), name
    trainer(tmp_path).test(
        classifier(data.spec, **arguments_of(task)), data, str(folder / "last.ckpt")
    )


def arguments_of(task: AttentionClassifier) -> dict[str, Any]:
    """The options that a task was made with."""
    groups = {name: task.hparams[name] for name in ("optimizer", "objective")}
    return dict(task.hparams["net"]) | groups


CLASSIFIER = partial(classifier, spec(30, 2))
OWN = {CUSTOM: "attnlight.models.FlatClassifier", "options": {"embedding_size": 8}}
REFUSED: list[tuple[Callable[..., Any], dict[str, Any], str]] = [
    (
        CLASSIFIER,
        {"lambda_tying": 1.0},
        "states .* have 256 numbers and embeddings 300: change hid",
    ),
    (
        partial(CLASSIFIER, encoder="lstm", embedding_size=8, hidden_size=8),
        {"lambda_tying": 1.0, "lambda_masked_words": -1.0},
        "lambda_masked_words is -1.0; it must be",
    ),
    *(
        (
            partial(CLASSIFIER, encoder=encoder),
            {f"lambda_{name}": 1.0},
            f"{name} is .* {encoder} reads",
        )
        for encoder in ("average", "none")
        for name in ("diversity", "tying", "masked_words")
    ),
    *(
        (
            partial(CLASSIFIER, hierarchical=True),
            {f"lambda_{name}": 1.0},
            f"lambda_{name} is for states of words, .* hierarchical classifier are of sentences",
        )
        for name in ("tying", "masked_words")
    ),
    *(
        (
            partial(classifier, spec(words, 2)),
            {"lambda_masked_words": 1.0},
            f"needs a choice of words, but the vocabulary has {max(words - 4, 0)}: leave",
        )
        for words in (3, 4, 5)
    ),
    *(
        (
            make,
            {f"lambda_{name}": 0.5},
            f"lambda_{name} is for attnlight's own classifiers of texts",
        )
        for make in (
            lambda **group: ChunkTagger(spec(30, ["O", "B-NP"]), SMALL_TAGGER, **group),
            lambda **group: AttentionTask(spec(30, 2), "classification", OWN, **group),  # type: ignore[arg-type]
            lambda **group: Translator(spec(30, ["a", "b"]), **group),
        )
        for name in ("diversity", "tying", "masked_words")
    ),
    *(
        (
            partial(CLASSIFIER, normalizer="entmax15"),
            {f"lambda_{name}": 1.0},
            f"lambda_{name} is for attention above 0, but that of normalizer entmax15 may be 0",
        )
        for name in ("deceive", "supervise")
    ),
]


@pytest.mark.parametrize(("make", "objective", "words"), REFUSED)
def test_where_a_penalty_is_not_defined(
    make: Callable[..., Any], objective: dict[str, Any], words: str
) -> None:
    with pytest.raises(InputError, match=words):
        make(objective=objective)


def test_one_that_is_off_has_no_head_and_no_bounds() -> None:
    penalties = Penalties(Objective(lambda_diversity=0.5))
    penalties.start(flat.model(), 60)
    assert penalties.head is None
    task = CLASSIFIER(objective={"lambda_tying": 0.0}, encoder="none")
    assert "objective" not in task.hparams
