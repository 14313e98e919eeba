"""Penalties of the last layer's attention, against eager attention; models of a configuration."""

import math
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import attnlight
from attnlight.__main__ import main
from attnlight.batch import TextBatch
from attnlight.errors import InputError
from attnlight.functional import masked_softmax
from attnlight.huggingface import HuggingFaceClassifier
from attnlight.models.build import CUSTOM
from attnlight.records import read_record
from attnlight.report.verdict.card import verdict_of
from attnlight.tasks import AttentionTask
from attnlight.tasks.objectives import MARKED
from attnlight.tasks.options import Objective
from tests.bases import spec
from tests.commands import CPU, QUIET, experiment, without_figures
from tests.huggingface.models import DECODERS, HEADS, MODELS, assert_near, assert_same
from tests.huggingface.test_classifier import built, classifier, texts
from tests.huggingface.test_words import words
from tests.turns import by_turns

pytestmark = pytest.mark.usefixtures("few_steps")

CONFIG = {"model_type": "bert", "hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1}
CONFIG |= {"num_attention_heads": 2}


@pytest.mark.parametrize(
    ("name", "items", "special_tokens"),
    by_turns(product(MODELS, ["pieces", "words"]), ["fixed", "attended"]),
)
def test_their_softmax_is_the_attention(name: str, special_tokens: Any, items: str) -> None:
    batch = texts() if items == "pieces" else words()
    model = classifier(name, special_tokens=special_tokens, items=items)
    output = model(batch)
    assert_near(masked_softmax(output.scores, output.mask), output.weights)
    assert model(batch, weights=output.weights).scores is None
    mixed = classifier(name, special_tokens=special_tokens, items=items, uniform_heads=[1])
    assert mixed(batch).scores is None


def eager_penalty(kind: str, eager: Any, batch: TextBatch, mask: Tensor, decoder: bool) -> Tensor:
    """Sum of a penalty over texts, mean over heads, by loops over eager attention's weights."""
    read = {"input_ids": batch.tokens, "attention_mask": batch.mask.long()}
    weights = eager(**read, output_attentions=True).attentions[-1]
    total = weights.new_zeros(())
    for text, items in enumerate(mask):
        places = items.nonzero().flatten().tolist()
        marked = [place for place in places if batch.extras["evidence"][text, place] > 0]
        if not marked or (kind == "deceive" and marked == places):
            continue
        real = batch.mask[text].nonzero().flatten().tolist()
        for row in weights[text, :, real[-1] if decoder else real[0]]:
            of_marked = [row[place] / row[places].sum() for place in marked]
            if kind == "deceive":
                total = total - (1 - torch.stack(of_marked).sum()).log() / HEADS
            else:
                logs = sum(weight.log() for weight in of_marked) / len(marked)
                total = total - (logs + math.log(len(marked))) / HEADS
    return total


@pytest.mark.parametrize(
    ("name", "kind", "special_tokens"), by_turns(product(MODELS, MARKED), ["fixed", "attended"])
)
def test_penalties_and_their_gradients_are_those_of_eager_attention(
    name: str, special_tokens: Any, kind: str
) -> None:
    model, batch = classifier(name, special_tokens=special_tokens), texts()
    marks = torch.rand(batch.tokens.shape, generator=torch.Generator().manual_seed(2)) < 0.4
    batch = replace(batch, extras={"evidence": (marks & batch.mask).to(torch.int8)})
    output = model(batch)
    penalty, _ = MARKED[kind](output, batch, Objective(column="evidence"))
    eager = built(name, attn_implementation="eager", num_labels=3)
    expected = eager_penalty(kind, eager, batch, output.mask, name in DECODERS)
    assert float(expected.detach()) > 0.1
    torch.testing.assert_close(penalty.sum(), expected, rtol=1e-4, atol=1e-5)
    penalty.sum().backward()
    expected.backward()
    own = dict(model.transformer.named_parameters())
    for parameter, other in eager.named_parameters():
        found, wanted = own[parameter].grad, other.grad
        if found is None or wanted is None:
            assert found is None or not found.any(), parameter
            assert wanted is None or not wanted.any(), parameter
        else:
            torch.testing.assert_close(found, wanted, rtol=1e-3, atol=1e-4)


def test_a_model_of_a_configuration_reads_the_tokens_of_its_corpus() -> None:
    first, again = (
        torch.manual_seed(0)
        and HuggingFaceClassifier(num_classes=3, vocab_size=50, config=CONFIG).eval()
        for _ in range(2)
    )
    assert first.numbers.tolist() == list(range(50))
    assert attnlight.check(first, texts()) == []
    assert_same(first(texts()).logits, again(texts()).logits)
    assert HuggingFaceClassifier.stored_options({"config": CONFIG}) == {"config": CONFIG}
    for options in ({}, {"config": CONFIG}, {"num_classes": 2, "vocab_size": 50}):
        with pytest.raises(InputError, match="needs `path`, or `config`, such as"):
            HuggingFaceClassifier(**options)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="a model of `config` has no weights: train it"):
        HuggingFaceClassifier.encoding_of({"config": CONFIG}, ())
    with pytest.raises(InputError, match=r"transformers .* has no model_type 'mine'"):
        HuggingFaceClassifier(num_classes=3, vocab_size=50, config={"model_type": "mine"})


@pytest.mark.parametrize("name", ["diversity", "tying", "masked_words"])
def test_penalties_of_states_are_refused(name: str) -> None:
    net = {CUSTOM: "attnlight.huggingface.HuggingFaceClassifier", "options": {"config": CONFIG}}
    objective: Any = {f"lambda_{name}": 0.5}
    with pytest.raises(InputError, match=f"lambda_{name} is for attnlight's own classifiers"):
        AttentionTask(spec(50, 2), "classification", net, objective=objective)  # type: ignore[arg-type]


def test_one_trained_here_has_a_card_of_its_kind(here: Path) -> None:
    sizes = [f"--data.{split}_size={size}" for split, size in (("train", 64), ("test", 24))]
    command = ["fit", *experiment("known_answers_transformer"), *sizes, *CPU, *QUIET]
    command += ["--model.objective.lambda_supervise=1", "--model.objective.column=evidence"]
    limits = ["--trainer.max_epochs=1", "--trainer.check_val_every_n_epoch=1", "--run=one"]
    assert main([*command, *limits]) == 0
    (run,) = here.glob("checkpoints/*/one")
    assert (
        main(["test", str(run), *without_figures("card.yaml", "card", "measured_use"), *QUIET]) == 0
    )
    card = verdict_of(run)
    assert card.kind == "transformer"
    assert card.case_if_licensed != "unmeasured"
    use = read_record(run / "records/test/measured_use.parquet").columns
    assert len(use["agreement_evidence"]) == 24
    assert 14 <= use["length"].min() <= use["length"].max() <= 40  # words without the tokens around
    model = attnlight.load(run)
    batch = model.raw.encode(["filler1 good0 filler2"])
    assert model.model(batch).mask.tolist() == [[False, True, True, True, False]]
