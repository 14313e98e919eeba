"""Alignment error rate against loops over sentences and a published example."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import attnlight
from attnlight.callbacks import AlignmentError
from attnlight.errors import InputError
from attnlight.functional.alignment_error import alignment_scores
from attnlight.models.readout import readout_of
from attnlight.problems import Translation
from tests.models.translations import LENGTHS, batch, model


def measured(**options: Any) -> tuple[Any, Any, dict[str, np.ndarray]]:
    made, sources = model(), batch(padding=2)
    output = made(sources).apply(torch.Tensor.detach)
    test = AlignmentError(**options)
    found = test.measure(sources, output, readout_of(sources, output, made))
    assert {*test.measures} <= found.keys()
    numbers = {name: x.numpy() for name, x in found.items() if isinstance(x, torch.Tensor)}
    assert {*found} - {*numbers} == {"shown_weights", "shown_links", "shown_words"}
    assert torch.equal(
        torch.tensor(numbers.pop("label")), Translation({"classes": []}).labels(sources)
    )
    return sources, output, numbers


def test_scores_are_those_of_a_loop() -> None:
    sources, output, found = measured(methods=["attention"], threshold=0.3)
    row = 0
    for text, (words, others) in enumerate(LENGTHS):
        links = sources.links[text, :others, :words].numpy()
        sure = {tuple(p) for p in np.argwhere(links == 2)}
        possible = {tuple(p) for p in np.argwhere(links > 0)}
        weights = output.weights[row : row + others, 0, :words].numpy()
        predicted = {
            "attention": {(t, int(w.argmax())) for t, w in enumerate(weights)},
            "threshold": {tuple(p) for p in np.argwhere(weights >= 0.3)},
            "diagonal": {
                (t, min(int((t + 0.5) / others * words), words - 1)) for t in range(others)
            },
        }
        for name, chosen in predicted.items():
            hits = len(chosen & sure) + len(chosen & possible)
            total = len(chosen) + len(sure)
            error = 1 - hits / total if total else np.nan
            precision = len(chosen & possible) / len(chosen) if chosen else np.nan
            recall = len(chosen & sure) / len(sure) if sure else np.nan
            for score, value in (("error", error), ("precision", precision), ("recall", recall)):
                own = found[f"{score}_{name}"][row : row + others]
                np.testing.assert_allclose(own, value, err_msg=f"{score}_{name}")
        for t in range(others):
            np.testing.assert_allclose(found["mass"][row + t], weights[t][links[t] > 0].sum())
            np.testing.assert_allclose(found["chance"][row + t], (links[t] > 0).mean())
            linked = (t, int(weights[t].argmax())) in possible
            assert found["linked_attention"][row + t] == linked
        end = row + others
        assert all(np.isnan(values[end]) for values in found.values()), "the end is no word"
        row = end + 1
    assert row == len(output.rows)


def test_methods_are_compared_by_their_sizes() -> None:
    occlusion: dict[str, Any] = {"name": "occlusion", "replacement": "delete"}
    _, output, found = measured(methods=["attention", "input_gradient", occlusion])
    assert len(found["error_occlusion"]) == len(output.rows)
    single = [n for n, (words, _) in enumerate(LENGTHS) if words == 1]
    rows = np.isin(output.rows[:, 0].numpy(), [20 + n for n in single])
    assert np.isfinite(found["error_input_gradient"][~np.isnan(found["error_attention"])]).all()
    assert rows.any()


def test_a_published_example() -> None:
    """Och & Ney (2003), section 4.2: perfect sure links and only possible others have no error."""
    links = torch.tensor([[2, 0, 0], [0, 1, 1], [0, 0, 2]])
    predicted = torch.tensor([[1, 0, 0], [0, 1, 0], [0, 0, 1]]).bool()
    one = torch.zeros(3, dtype=torch.long)
    scores = alignment_scores(predicted, links, one)
    assert [value.item() for value in scores] == [0.0, 1.0, 1.0]
    missed = alignment_scores(predicted & torch.tensor([True, True, False]), links, one)
    assert missed.error.item() == pytest.approx(1 - (1 + 2) / (2 + 2))
    assert missed.recall.item() == 0.5
    two = alignment_scores(predicted, links, torch.tensor([0, 1, 1]))
    assert two.error.tolist() == [0.0, pytest.approx(1 - (1 + 2) / (2 + 1))]


def test_batches_alone_are_measured_and_show_no_words(tmp_path: Path) -> None:
    """They are all that `run` reads of translations."""
    results = attnlight.run(model(), [batch()], [AlignmentError(methods=["attention"])])
    _, _, expected = measured(methods=["attention"])
    found = results.table("alignment_error")
    for name in ("error_attention", "recall_threshold", "mass"):
        np.testing.assert_allclose(found[name], expected[name], err_msg=name)
    assert found["shown_words"].isna().all()
    assert results.report(tmp_path).is_file()


def test_bad_input() -> None:
    with pytest.raises(InputError, match=r"threshold of alignment_error is 0; it must be above 0"):
        AlignmentError(threshold=0)
    made, sources = model(), replace(batch(), links=None)
    output = made(sources).apply(torch.Tensor.detach)
    with pytest.raises(InputError, match="needs a corpus with links between words"):
        AlignmentError().measure(sources, output, readout_of(sources, output, made))
