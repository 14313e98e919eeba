"""Translation networks: steps by hand in NumPy, and readouts against full passes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from attnlight.attribution.occlusion import Occlusion
from attnlight.batch import TextBatch
from attnlight.errors import InputError
from attnlight.functional.readout.instances import empty_logits
from attnlight.models import Seq2Seq
from attnlight.models.readout import readout_of
from attnlight.probing.leave_one_out import (
    leave_one_out,
    left_out_logits,
    reencode,
    tokens_at_once,
)
from attnlight.probing.row_gradients import gradient_scores
from attnlight.probing.subsets import subset_logits
from attnlight.problems import Translation
from tests.models.oracles import SPARSE, close, normalized
from tests.models.translations import CLASSES, KINDS, LENGTHS, batch, model

Rows = list[tuple[np.ndarray, np.ndarray]]


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def gru(
    values: dict[str, np.ndarray], name: str, word: np.ndarray, state: np.ndarray
) -> np.ndarray:
    weight, inner = (values[f"{name}.weight_{kind}_l0"] for kind in ("ih", "hh"))
    bias, inner_bias = (values[f"{name}.bias_{kind}_l0"] for kind in ("ih", "hh"))
    r_x, z_x, n_x = np.split(weight @ word + bias, 3)
    r_h, z_h, n_h = np.split(inner @ state + inner_bias, 3)
    reset, update = sigmoid(r_x + r_h), sigmoid(z_x + z_h)
    new = np.tanh(n_x + reset * n_h)
    return (1 - update) * new + update * state


def by_hand(made: Seq2Seq, kind: str, tokens: list[int], target: list[int]) -> Rows:
    """Weights and logits of each step for one source, a state and a number at a time."""
    values = {name: p.detach().numpy() for name, p in made.named_parameters()}
    words = values["embedding.weight"][tokens]
    sides = []
    for name, order in (("forwards", words), ("backwards", words[::-1])):
        state, states = np.zeros(made.encoder.output_size // 2), []
        for word in order:
            state = gru(values, f"encoder.{name}", word, state)
            states.append(state)
        sides.append(states if name == "forwards" else states[::-1])
    states = np.array([np.concatenate(pair) for pair in zip(*sides, strict=True)])
    first = np.concatenate([sides[0][-1], sides[1][0]])
    state = np.tanh(values["start.weight"] @ first + values["start.bias"])
    found: Rows = []
    for step in range(len(target)):
        before = values["target_embedding.weight"][target[step - 1] if step else CLASSES]
        if made.luong:
            state = gru(values, "cell", before, state)
        if kind == "additive":
            keys = states @ values["key.weight"].T + values["key.bias"]
            scores = np.tanh(keys + values["query.weight"] @ state) @ values["value.weight"][0]
        elif kind == "general":
            scores = (states @ values["key.weight"].T) @ state
        elif kind == "scaled_dot":
            scores = states @ state / np.sqrt(len(state))
        else:
            scores = np.zeros(len(states))
        weights = normalized(made, scores)
        context = weights @ states
        if made.luong:
            joined = np.concatenate([context, state])
            hidden = np.tanh(values["combine.weight"] @ joined + values["combine.bias"])
        else:
            state = gru(values, "cell", np.concatenate([before, context]), state)
            hidden = np.concatenate([state, context, before])
        found.append((weights, values["decoder.weight"] @ hidden + values["decoder.bias"]))
    return found


@pytest.mark.parametrize(
    ("kind", "normalizer", "step"),
    [
        *((kind, "softmax", None) for kind in KINDS),
        *(("general", name, None) for name in SPARSE.values()),
        *(("uniform", "softmax", "luong"), ("additive", "softmax", "luong")),
        ("general", "softmax", "bahdanau"),
    ],
)
@torch.no_grad()
def test_each_step_is_that_of_its_paper(kind: str, normalizer: str, step: str | None) -> None:
    made, sources = model(kind, normalizer=normalizer, step=step), batch(padding=3)
    assert made.luong == (step == "luong" if step else kind in ("general", "scaled_dot"))
    output = made(sources)
    zeros = (output.weights == 0)[output.mask.unsqueeze(1)].any()
    assert zeros or normalizer != "sparsemax"
    rows, mask = Translation.instances(sources)
    assert torch.equal(output.rows, rows)
    assert torch.equal(output.mask, mask)
    assert sources.target is not None
    row = 0
    for text, (words, others) in enumerate(LENGTHS):
        target = sources.target[text, : others + 1].tolist()
        expected = by_hand(made, kind, sources.tokens[text, :words].tolist(), target)
        for weights, logits in expected:
            close(output.weights[row, 0, :words], torch.tensor(weights))
            assert not output.weights[row, 0, words:].any()
            close(output.logits[row], torch.tensor(logits), logits=True)
            row += 1
    assert row == len(output.rows)


@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_a_readout_is_a_full_pass_with_the_row_substituted(kind: str) -> None:
    made, sources = model(kind), batch()
    output = made(sources)
    candidates = torch.rand(len(output.rows), 1, 3, output.mask.shape[1], dtype=torch.float64)
    candidates = (candidates * output.mask[:, None, None]).softmax(-1) * output.mask[:, None, None]
    candidates[:, :, 2] = 0
    found = made.readout(output, candidates)
    for row in range(len(output.rows)):
        for number in range(3):
            changed = output.weights.clone()
            changed[row] = candidates[row, :, number]
            close(found[row, number], made(sources, weights=changed).logits[row], logits=True)
    close(made.readout(output, output.weights.unsqueeze(2)).squeeze(1), output.logits, logits=True)
    close(empty_logits(made, output), found[:, 2], logits=True)


@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_a_pass_maps_each_word_to_the_vocabulary_once(kind: str) -> None:
    """What the context of no source gives is computed where it is read."""
    made, sources, mapped = model(kind), batch(padding=2), []
    made.decoder.register_forward_hook(lambda _, __, logits: mapped.append(logits[..., 0].numel()))
    output = made(sources)
    rows = len(output.rows)
    readout = readout_of(sources, output, made)
    readout.permute(3, 0, seed=0)
    assert mapped == [rows, 3 * rows]
    close(readout.empty, empty_logits(made, output), logits=True)
    assert mapped == [rows, 3 * rows, rows, rows]
    assert readout.empty is readout.empty


@torch.no_grad()
def test_blocks_of_candidates_do_not_change_them(monkeypatch: pytest.MonkeyPatch) -> None:
    made, sources = model(), batch()
    output = made(sources)
    candidates = output.weights.unsqueeze(2).expand(-1, -1, 4, -1)
    whole = made.readout(output, candidates)
    monkeypatch.setattr("attnlight.models.seq2seq._CPU_BLOCK", 1)
    close(made.readout(output, candidates), whole, logits=True)


@pytest.mark.parametrize("kind", ["additive", "general"])
@torch.no_grad()
def test_padding_batch_and_order_change_nothing(kind: str) -> None:
    made, sources = model(kind), batch()
    output = made(sources)
    by_key = {tuple(key): n for n, key in enumerate(output.rows.tolist())}
    other = made(batch(padding=4, order=[3, 0, 4, 2, 1]))
    size = output.mask.shape[1]
    for row, key in enumerate(other.rows.tolist()):
        own = by_key[tuple(key)]
        close(other.logits[row], output.logits[own], logits=True)
        close(other.weights[row, :, :size], output.weights[own])


@torch.no_grad()
def test_without_attention_the_source_is_in_the_first_state_alone() -> None:
    made, sources = model("none"), batch()
    output = made(sources)
    assert not output.weights.any()
    close(output.logits, empty_logits(made, output), logits=True)
    changed = replace(sources, tokens=sources.tokens.clamp(max=30))
    assert not torch.equal(made(changed).logits, output.logits)


def shortened(sources: TextBatch, text: int, kept: list[int]) -> TextBatch:
    one = sources.select(torch.tensor([text]))
    return replace(one, tokens=one.tokens[:, kept], mask=one.mask[:, kept], links=None)


@pytest.mark.parametrize("kind", ["additive", "general"])
@torch.no_grad()
def test_leaving_words_out_is_a_loop_over_shortened_sources(kind: str) -> None:
    """Of each row, all steps of a target, which the deletion of a source word leaves."""
    made, sources = model(kind), batch(padding=2)
    output = made(sources)
    logits = left_out_logits(made, sources, output)
    change = leave_one_out(made, sources, output)
    sets = torch.rand(len(output.rows), 2, output.mask.shape[1]) > 0.4
    some = subset_logits(
        made, sources, output, torch.arange(len(output.rows)), sets & output.mask[:, None]
    )
    row = 0
    for text, (words, others) in enumerate(LENGTHS):
        for step in range(others + 1):
            for place in range(words):
                if words == 1:
                    assert logits[row, place].isnan().all()
                    continue
                kept = [n for n in range(words) if n != place]
                alone = made(shortened(sources, text, kept))
                close(logits[row, place], alone.logits[step], logits=True)
                moved = (alone.probabilities[step] - output.probabilities[row]).abs().sum() / 2
                close(change[row, place], moved)
            for number in range(2):
                kept = [n for n in range(words) if sets[row, number, n]]
                expected = empty_logits(made, output)[row]
                if kept:
                    expected = made(shortened(sources, text, kept)).logits[step]
                close(some[row, number], expected, logits=True)
            row += 1


def test_gradients_are_those_of_each_row_alone() -> None:
    made, sources = model(), batch(padding=1)
    output = made(sources).apply(torch.Tensor.detach)
    target = output.logits.argmax(-1)
    scores = gradient_scores(made, sources, output, target)
    embeddings = made.embed(sources).detach().requires_grad_()
    logits = made(sources, embeddings=embeddings).logits
    text = 0
    for row, (index, _) in enumerate(output.rows.tolist()):
        text = int((sources.index == index).nonzero())
        others = torch.cat([logits[row, : target[row]], logits[row, target[row] + 1 :]])
        odds = logits[row, target[row]] - others.logsumexp(0)
        (gradient,) = torch.autograd.grad(odds, embeddings, retain_graph=True)
        close(scores[row], (gradient[text] * embeddings[text]).sum(-1).detach())
    assert text


@torch.no_grad()
def test_many_classes_are_measured_in_blocks_of_whole_texts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made, sources = model(), batch()
    readout = readout_of(sources, made(sources), made)
    assert [part.output.rows.tolist() for part in readout.by_texts()] == [
        readout.output.rows.tolist()
    ]
    monkeypatch.setattr("attnlight.models.readout.base.MANY_CLASSES", 2)
    monkeypatch.setattr("attnlight.models.readout.base._PREDICTED", 128 * CLASSES * 10)
    parts = list(readout.by_texts())
    assert [len(part.output.rows) for part in parts] == [7, 5, 10, 2]
    assert torch.equal(torch.cat([part.output.rows for part in parts]), readout.output.rows)
    erased = torch.cat([part.erase() for part in parts])
    close(erased, readout.erase(), logits=True)


@torch.no_grad()
def test_shortened_sources_of_many_classes_are_read_in_blocks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made, sources = model(), batch()
    output = made(sources)
    whole = [
        left_out_logits(made, sources, output),
        Occlusion()._replaced(made, sources, output, output.logits.argmax(-1)),
    ]
    monkeypatch.setattr("attnlight.probing.leave_one_out._LOGITS", CLASSES)
    sizes: list[int] = []
    made.register_forward_hook(lambda _, __, found: sizes.append(len(found.logits)))
    close(
        reencode(made, sources, output, tokens_at_once(output, 20)).nan_to_num(),
        whole[0].nan_to_num(),
    )
    assert (len(sizes) > 8, max(sizes) <= 20) == (True, True)
    every = torch.arange(len(output.rows))
    sets = output.mask[:, None] & (torch.rand(len(every), 9, output.mask.shape[1]) > 0.8)
    expected = subset_logits(made, sources, output, every, sets)
    sizes.clear()
    close(subset_logits(made, sources, output, every, sets, budget=20), expected, logits=True)
    assert (len(sizes) > 9, max(sizes) <= 20) == (True, True)
    occlusion = Occlusion(budget=20)
    occluded = occlusion._replaced(made, sources, output, output.logits.argmax(-1))
    close(occluded[output.mask], whole[1][output.mask])


@pytest.mark.parametrize("kind", ["additive", "general"])
def test_training_reads_its_own_words_as_often_as_asked(kind: str) -> None:
    made, sources = model(kind, teacher_forcing=0.0, dropout=0.0).train(), batch()
    free = made(sources)
    made.teacher_forcing = 1.0
    given = made(sources)
    first = given.rows[:, 1] == 0
    close(free.logits[first].detach(), given.logits[first].detach(), logits=True)
    assert not torch.equal(free.logits, given.logits)
    given.logits.sum().backward()
    assert all(p.grad is not None for p in made.parameters())


@pytest.mark.parametrize("kind", ["general", "scaled_dot"])
def test_one_recurrence_trains_as_steps_do(kind: str) -> None:
    """Luong's states depend on words alone, so that all steps are one call where words are given."""
    made, sources = model(kind, dropout=0.0).train(), batch(padding=2)
    gradients = []
    for forcing in (1.0, 1 - 1e-12):  # at once, and step by step with no word drawn
        made.teacher_forcing = forcing
        made.zero_grad()
        calls: list[int] = []
        handle = made.cell.register_forward_hook(lambda *_, calls=calls: calls.append(1))
        (made(sources).logits ** 2).sum().backward()
        handle.remove()
        gradients.append([parameter.grad for parameter in made.parameters()])
        assert len(calls) == (1 if forcing == 1 else sources.target.shape[1])
    for at_once, by_step in zip(*gradients, strict=True):
        close(at_once, by_step)


def test_bad_input() -> None:
    made = model()
    with pytest.raises(InputError, match="reads sources with targets"):
        made(replace(batch(), target=None))
    with pytest.raises(InputError, match=r"scaled_dot multiplies states of size 8 with .* size 6"):
        model("scaled_dot", decoder_size=6)
    with pytest.raises(InputError, match=r"teacher_forcing is 1.5; it must be 0 to 1"):
        model(teacher_forcing=1.5)
    with pytest.raises(InputError, match="no translations: give a corpus of sources and targets"):
        Translation.instances(replace(batch(), target=None))
    with pytest.raises(InputError, match="one head"):
        Seq2Seq.uniform_net({}, 0)
