"""Attention on evidence against plain loops, and models whose reasons are known."""

import re
from dataclasses import replace
from math import isnan, nan
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.metrics import average_precision_score
from torch.nn.functional import one_hot, pad

from attnlight.callbacks import EvidenceMass
from attnlight.callbacks.evidence_mass import class_tokens, sentences_in_evidence
from attnlight.data.tokenization import TextRules, make_tokenizer
from attnlight.errors import InputError
from attnlight.functional import expected_average_precision
from attnlight.probing.swaps import swap_flips
from tests.callbacks.handmade import batch_of, columns_of, marked, random_output
from tests.callbacks.hooks.test_prediction_writer import corpus, task_of, texts_of
from tests.callbacks.test_base import recorded
from tests.probing import test_swaps as swaps

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


def test_evidence_is_proven_where_all_swaps_in_it_and_none_elsewhere_flip() -> None:
    model, batch = swaps.Reader(), swaps.texts(2, count=200, allowed=False)
    label: Any = batch.labels
    two = torch.stack([label, label + 1], dim=1) % swaps.CLASSES  # with one swap of each text
    batch.allowed_classes = one_hot(two, swaps.CLASSES).any(1)
    test = EvidenceMass(swap=True)
    test._names = swaps.NAMES
    found = test.measure(batch, model(batch), model)  # type: ignore[arg-type]
    assert set(test.measures) <= found.keys()
    flips = swap_flips(model, batch, batch.extras["evidence"] > 0, swaps.NAMES)
    torch.testing.assert_close(found["flips_with_evidence"], flips[0], equal_nan=True)
    torch.testing.assert_close(found["flips_with_others"], flips[1], equal_nan=True)
    assert torch.equal(found["without_answer"] == 1, flips[0].isnan())
    pairs = zip(flips[0].tolist(), flips[1].tolist(), strict=True)
    expected = torch.tensor([nan if isnan(a) else float((a, b) == (1, 0)) for a, b in pairs])
    torch.testing.assert_close(found["proven"], expected.to(found["proven"]), equal_nan=True)
    assert 1 < (expected == 1).sum() < (expected == 0).sum()
    for name in COLUMNS:
        kept = found[name].masked_fill(expected != 1, nan)
        torch.testing.assert_close(found[f"{name}_proven"], kept, equal_nan=True)


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
        parsed = {"parsed_tokenizer": tokenizer}
        return SimpleNamespace(classes=list(classes), corpus_name="stories", **parsed)

    @pytest.mark.parametrize("boundary", [True, False])
    def test_are_ids_of_the_vocabulary(self, boundary: bool) -> None:
        data = self.corpus("Office", "garden", boundary_tokens=boundary)
        assert class_tokens(data, "x").tolist() == [5, 4]

    @pytest.mark.parametrize(
        ("name", "message"),
        [
            *(
                (x, rf"{x!r} is not one token of .* of stories")
                for x in ("dining room", "cellar", "")
            ),
            ("OFFICE", "'OFFICE' and 'office' of stories are one token"),
        ],
    )
    def test_refuse_what_is_not_one_token_of_its_own(self, name: str, message: str) -> None:
        with pytest.raises(InputError, match=message):
            class_tokens(self.corpus("office", name), "x")
