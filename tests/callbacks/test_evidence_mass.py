"""Attention on evidence against plain loops, and models whose reasons are known."""

import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.metrics import average_precision_score
from torch import Tensor, nn
from torch.nn.functional import pad

from attnlight.batch import AttentionOutput, TextBatch
from attnlight.callbacks import EvidenceMass
from attnlight.callbacks.evidence_mass import class_tokens, full_stops, sentences_in_evidence
from attnlight.data.tokenization import TextRules, make_tokenizer
from attnlight.errors import InputError
from attnlight.functional import expected_average_precision
from tests.callbacks.handmade import batch_of, columns_of, marked, output_of, random_output
from tests.callbacks.hooks.test_prediction_writer import corpus, task_of, texts_of
from tests.callbacks.test_base import recorded

COLUMNS = ("mass", "top_in_evidence", "auprc", "chance", "chance_auprc")


def naive(weights: list[float], evidence: list[bool]) -> dict[str, float]:
    """The columns of one row from its items alone, with ties that are exact."""
    count, items = sum(evidence), len(evidence)
    if not count:
        return dict.fromkeys(COLUMNS, float("nan"))
    top = [gold for w, gold in zip(weights, evidence, strict=True) if w == max(weights)]
    return {
        "mass": sum(w for w, gold in zip(weights, evidence, strict=True) if gold),
        "top_in_evidence": sum(top) / len(top),
        "auprc": average_precision_score(evidence, weights),
        "chance": count / items,
        "chance_auprc": float(expected_average_precision(torch.tensor(count), torch.tensor(items))),
    }


@pytest.mark.parametrize("heads", [1, 3])
def test_equals_plain_loops(heads: int) -> None:
    output = random_output(heads)
    # Weights of few values, some of which are tied: halves, quarters, none.
    output.weights = (output.weights * 8).round() / 8
    batch = marked(output, "evidence")
    found = columns_of(EvidenceMass(), output, batch)
    assert set(found) - {f"{name}_by_head" for name in COLUMNS} == {
        *COLUMNS,
        "evidence_items",
        "without_evidence",
    }
    evidence = batch.extras["evidence"]
    without = 0
    for row, mask in enumerate(output.mask):
        gold = [sign > 0 for sign in evidence[row, mask].tolist()]
        each = output.weights[row][:, mask]
        expected = naive(each.mean(0).tolist(), gold)
        for name, value in expected.items():
            assert float(found[name][row]) == pytest.approx(value, abs=1e-12, nan_ok=True), name
        assert found["evidence_items"][row] == sum(gold)
        assert found["without_evidence"][row] == (sum(gold) == 0)
        without += not sum(gold)
        for head in range(heads if heads > 1 else 0):
            of_head = naive(each[head].tolist(), gold)
            for name in COLUMNS[:3]:
                value = float(found[f"{name}_by_head"][row, head])
                assert value == pytest.approx(of_head[name], abs=1e-12, nan_ok=True)
    assert 2 <= without < 20


def test_tied_tops_count_in_part() -> None:
    output = random_output(rows=1, items=4, zeros=0.0)
    output.mask = torch.ones(1, 4, dtype=torch.bool)
    output.weights = torch.tensor([[[0.3, 0.3 + 1e-6, 0.3, 0.1]]], dtype=torch.float64)
    batch = replace(batch_of(output), extras={"evidence": torch.tensor([[0, 1, 0, 1]])})
    found = columns_of(EvidenceMass(), output, batch)
    assert float(found["top_in_evidence"]) == pytest.approx(1 / 3)


def sentences_of(words: str) -> list[list[int]]:
    """Places of the words of each sentence, by a regular expression: a stop may be several."""
    return [list(range(*part.span())) for part in re.finditer(r"[^.?]*[.?]+|[^.?]+$", words)]


def test_sentences_equal_plain_loops() -> None:
    """Sentences of one to many words with one stop or several, or none at the end, and padding."""
    random = np.random.default_rng(0)
    for _ in range(200):
        words = "".join(
            random.choice(list("ab.?"), size=random.integers(1, 12), p=[0.4, 0.3, 0.2, 0.1])
        )
        before, after = random.integers(0, 3, size=2)  # boundary tokens and padding
        weights = random.integers(0, 3, size=len(words)) / 4  # often tied
        gold = random.random(len(words)) < 0.2
        text = "." * before + words + "." * after
        mask, *given = (
            pad(torch.tensor(values), (int(before), int(after))).unsqueeze(0)
            for values in ([True] * len(words), weights, gold)
        )
        stops = torch.tensor([[mark in ".?" for mark in text]])
        found = sentences_in_evidence(*given, mask, stops)
        sentences = sentences_of(words)
        masses = [weights[places].sum() for places in sentences]
        supports = [gold[places].any() for places in sentences]
        top = [gold for gold, mass in zip(supports, masses, strict=True) if mass == max(masses)]
        expected = [np.mean(top), np.mean(supports)]
        assert [float(values) for values in found] == pytest.approx(expected)


def test_a_corpus_without_full_stops_has_no_sentences() -> None:
    assert full_stops(corpus(None)) == []


class Counting(nn.Module):
    """A bag of words that answers by the names it attends to: evidence, all else or everything."""

    def __init__(self, names: Tensor, reads: str) -> None:
        super().__init__()
        self.names, self.reads = names, reads

    def embed(self, batch: TextBatch) -> Tensor:
        return (batch.tokens.unsqueeze(-1) == self.names).double()

    def forward(
        self, batch: TextBatch, weights: Tensor | None = None, embeddings: Tensor | None = None
    ) -> AttentionOutput:
        evidence, mask = batch.extras["evidence"] > 0, batch.attendable()
        read = {"evidence": evidence, "others": mask & ~evidence, "all": mask}[self.reads]
        attention = (read / read.sum(-1, keepdim=True)).double().unsqueeze(1)
        bias = torch.zeros(len(self.names), dtype=torch.float64)
        return output_of(attention, self.embed(batch).unsqueeze(1), bias, mask)

    def readout(self, output: AttentionOutput, weights: Tensor) -> Tensor:
        raise NotImplementedError


PLACES = torch.tensor([10, 11, 12, 13])


def stories(count: int = 50) -> TextBatch:
    """Sentences "<1> <2> <place>", one of which is evidence and names the label."""
    random = torch.Generator().manual_seed(0)
    places = torch.randint(len(PLACES), (count, 3), generator=random)
    chosen = torch.randint(3, (count, 1), generator=random)
    fillers = torch.full((count, 3, 2), 5)
    tokens = torch.cat([fillers, PLACES[places].unsqueeze(-1)], dim=-1).flatten(1)
    evidence = (torch.arange(3) == chosen).unsqueeze(-1).expand(-1, -1, 3).flatten(1)
    return TextBatch(
        index=torch.arange(count),
        tokens=tokens,
        mask=torch.ones_like(tokens).bool(),
        labels=places.gather(1, chosen).squeeze(1),
        extras={"evidence": evidence.to(torch.int8)},
    )


def swapped(model: Counting, batch: TextBatch) -> dict[str, Tensor]:
    test = EvidenceMass(swap=True)
    test._names = PLACES
    with torch.no_grad():
        columns = dict(test.measure(batch, model(batch), model))
    assert set(test.measures) <= columns.keys()
    return columns


class TestKnownReasons:
    @pytest.mark.parametrize("reads", ["evidence", "others"])
    def test_a_model_of_one_part_alone_is_proven_everywhere_or_nowhere(self, reads: str) -> None:
        found, evidence = swapped(Counting(PLACES, reads), stories()), reads == "evidence"
        assert (found["flips_with_evidence"] == evidence).all()
        assert (found["flips_with_others"] > 0).all() != evidence
        assert (found["proven"] == evidence).all()
        assert ((found["mass"] > 1 - 1e-9) == evidence).all()
        for name in COLUMNS:
            expected = found[name] if evidence else torch.full_like(found[name], torch.nan)
            torch.testing.assert_close(found[f"{name}_proven"], expected, equal_nan=True)

    def test_evidence_without_the_answer_is_undefined_and_counted(self) -> None:
        batch = stories()
        batch.labels[:7] = (batch.labels[:7] + 1) % len(PLACES)
        batch.extras["evidence"][7] = 0
        found = swapped(Counting(PLACES, "evidence"), batch)
        unknown = [True] * 8 + [False] * 42
        assert (found["without_answer"] == 1).tolist() == unknown
        for name in ("flips_with_evidence", "flips_with_others", "proven", "mass_proven"):
            assert found[name].isnan().tolist() == unknown
        assert found["mass"].isnan().tolist() == [False] * 7 + [True] + [False] * 42
        assert found["without_evidence"].sum() == 1


@pytest.mark.parametrize("length", [None, 6])
def test_planted_evidence(tmp_path: Path, length: int | None) -> None:
    """From corpus to record, words and sentences, against the corpus's own columns."""
    data = corpus(length)
    task = task_of(data)
    record = recorded(tmp_path, EvidenceMass(figures=False), task=task, data=data)
    assert record.metadata["measures"] == [*COLUMNS, "without_evidence"]
    for row, _, output, gold in texts_of(data, task.model):
        for name, value in naive(output.weights[0, 0].tolist(), gold).items():
            assert record.columns[name][row] == pytest.approx(value, abs=1e-5), name


class TestClassTokens:
    def corpus(self, *classes: str, **rules: Any) -> Any:
        tokenizer = make_tokenizer(TextRules(**rules), ["garden", "office", "dining", "room"])
        text = tokenizer.to_str()
        return SimpleNamespace(classes=list(classes), tokenizer_json=text, corpus_name="stories")

    @pytest.mark.parametrize("boundary", [True, False])
    def test_are_ids_of_the_vocabulary(self, boundary: bool) -> None:
        data = self.corpus("Office", "garden", boundary_tokens=boundary)
        assert class_tokens(data, "x").tolist() == [5, 4]

    @pytest.mark.parametrize("name", ["dining room", "cellar", ""])
    def test_refuse_what_is_not_one_token(self, name: str) -> None:
        with pytest.raises(InputError, match=rf"{name!r} is not one token of .* of stories"):
            class_tokens(self.corpus("office", name), "x")

    def test_refuse_two_names_of_one_token(self) -> None:
        with pytest.raises(InputError, match="'OFFICE' and 'office' of stories are one token"):
            class_tokens(self.corpus("office", "OFFICE"), "x")
