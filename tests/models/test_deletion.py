"""Leave-one-out by what a deletion changes, against encoding each shortened text anew."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from attnlight.batch import BOS, EOS, AttentionOutput, TextBatch
from attnlight.models import ATTENTIONS, ENCODERS, FlatClassifier
from attnlight.models.deletion import resumable
from attnlight.probing.leave_one_out import leave_one_out, left_out_logits, reencode
from tests.models import test_classifier as flat
from tests.models import test_hierarchical as hierarchical
from tests.models import test_pair as pair
from tests.probing.oracles import left_out
from tests.turns import by_turns

TOLERANCE = {torch.float64: 1e-10, torch.float32: 1e-6}
KINDS = {"flat": flat, "hierarchical": hierarchical, "pair": pair}
JOINED = {"attend_to": "states_and_embeddings"}
CASES: list[tuple[str, dict[str, str]]] = [
    *(("flat", {"encoder": name}) for name in ENCODERS),
    ("flat", {"encoder": "cnn", "attention": "dot"}),
    *((kind, JOINED | {"encoder": e}) for kind in KINDS for e in ("cnn", "bilstm", "none")),
    ("flat", JOINED | {"encoder": "orthogonal_lstm"}),
    ("flat", {"encoder": "bilstm", "attention": "uniform"}),
    *((kind, {"normalizer": name}) for kind in KINDS for name in ("sparsemax", "entmax15")),
    *(("hierarchical", {"encoder": e, "attention": a}) for e, a in hierarchical.COMBINATIONS),
    *(("pair", {"encoder": e, "decoder": d}) for e, d in by_turns(zip(ENCODERS), pair.DECODERS)),
    *(("pair", {"encoder": "bigru", "attention": name}) for name in ATTENTIONS),
]

WAYS = ((torch.float64, True), (torch.float64, False), (torch.float32, True))


def in_ways() -> Iterator[Any]:
    """Each case in one way by turns, an encoder by itself with boundary tokens and without them."""
    for place, case in enumerate(CASES):
        ways = WAYS[:2] if place < len(ENCODERS) else [WAYS[(place + place // 3) % 3]]
        yield from ((*case, *way) for way in ways)


def every_length() -> TextBatch:
    """Texts of 1 to 60 words, in no order."""
    random = torch.Generator().manual_seed(0)
    lengths = (torch.randperm(60, generator=random) + 1).tolist()
    texts = [torch.randint(4, 60, (n,), generator=random).tolist() for n in lengths]
    return flat.collate([[BOS, *text, EOS] for text in texts], padding=2)


def read(model: nn.Module, batch: TextBatch) -> AttentionOutput:
    with torch.no_grad():
        output: AttentionOutput = model(batch)
    return output


def agree(found: Tensor, expected: Tensor) -> None:
    """The same probabilities, undefined at the same places."""
    assert found.dtype == expected.dtype
    torch.testing.assert_close(
        found.softmax(-1), expected.softmax(-1), rtol=0, atol=TOLERANCE[found.dtype], equal_nan=True
    )


@pytest.mark.parametrize(("name", "options", "dtype", "boundaries"), in_ways())
def test_equals_a_loop_over_texts_and_items(
    name: str, options: dict[str, str], dtype: torch.dtype, boundaries: bool
) -> None:
    kind: Any = KINDS[name]
    model = kind.model(classes=4, dtype=dtype, **options)
    if name == "hierarchical":
        texts = kind.corpus()[:5]
        texts[2][3] = [BOS, EOS]  # between others, and read as if it were not there
        batch = kind.collate(texts, sentences=2, words=1)
    else:
        texts = kind.corpus(boundaries)[:7]
        batch = kind.collate(texts, 3 if name == "flat" else (3, 2))
    output = read(model, batch)
    expected = left_out(model, batch, output, of_items=False)
    agree(left_out_logits(model, batch, output, budget=40), expected)
    with torch.no_grad():
        agree(reencode(model, batch, output, budget=90), expected)
    own = output.logits.double().softmax(-1)
    moved = (expected.double().softmax(-1) - own[:, None]).abs().sum(-1) / 2
    found = leave_one_out(model, batch, output)
    items = output.mask
    atol = TOLERANCE[dtype]
    torch.testing.assert_close(
        found[items].double(), moved[items], rtol=0, atol=atol, equal_nan=True
    )
    assert moved.nan_to_num().max() > 0.02


@pytest.mark.parametrize("encoder", ENCODERS)
def test_fast_path_is_taken_in_bounded_memory(
    encoder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fast path is taken; no block holds more than its share, and a long text comes in several."""
    model, batch, budget = flat.model(encoder), every_length(), 400
    output = read(model, batch)
    counted: dict[str, list[int]] = {"encoded": [], "weights": [], "states": []}

    def count(owner: Any, name: str, kind: str, size: Callable[..., int]) -> None:
        own = getattr(owner, name)

        def counting(*arguments: Any) -> Any:
            counted[kind].append(size(*arguments))
            return own(*arguments)

        monkeypatch.setattr(owner, name, counting)

    count(type(model.encoder), "forward", "encoded", lambda _, embeddings, mask: mask.numel())
    count(model.attention, "normalize", "weights", lambda scores, mask: scores.numel())
    count(type(model.attention), "score", "states", lambda _, states, query: states[..., 0].numel())
    left_out_logits(model, batch, output, budget=budget)
    encoded_anew = sum((output.mask.sum(-1) * batch.mask.sum(-1)).tolist())
    assert sum(counted["encoded"]) < encoded_anew / 2
    assert max(counted["encoded"], default=0) <= budget
    assert max(counted["weights"]) <= 8 * budget
    assert len(counted["weights"]) > len(batch) / 4
    assert max(counted["states"], default=0) <= budget
    if encoder == "bigru":  # several steps of several texts at a time
        assert len(counted["states"]) < 3 * sum(counted["states"]) / 100


def test_an_attention_that_context_cannot_explain_is_encoded_anew() -> None:
    class Middle(ATTENTIONS["uniform"]):  # type: ignore[misc]
        """All weight on the token in the middle of the text, which a deletion moves."""

        def forward(
            self, states: Tensor, mask: Tensor, query: Tensor | None = None
        ) -> tuple[Tensor, Tensor]:
            middle = (mask.sum(-1) + 1) // 2
            weights = torch.eye(mask.shape[1], dtype=states.dtype)[middle] * mask
            return weights, weights

    class Louder(FlatClassifier):
        def forward(self, *args: object, **options: object) -> AttentionOutput:
            output = super().forward(*args, **options)  # type: ignore[arg-type]
            return replace(output, logits=output.logits + output.mask.sum(-1, keepdim=True) / 10)

    batch = flat.collate(flat.corpus())
    moved = flat.model("bilstm")
    moved.attention = Middle(32)
    louder = flat.model("bilstm")
    louder.__class__ = Louder
    for model in (moved, louder):
        output = read(model, batch)
        with torch.no_grad():
            expected = reencode(model, batch, output, budget=5000)
        assert torch.equal(left_out_logits(model, batch, output).isnan(), expected.isnan())
        torch.testing.assert_close(
            left_out_logits(model, batch, output), expected, rtol=0, atol=1e-10, equal_nan=True
        )


def test_networks_of_other_shapes_are_not_resumed() -> None:
    def known(model: FlatClassifier) -> bool:
        return resumable(model.encoder, model.attention)

    assert known(flat.model("bilstm"))
    assert known(flat.model("cnn"))
    assert known(flat.model("orthogonal_lstm"))
    further = flat.model("lstm")
    further.encoder.output = nn.Linear(5, 5)
    assert not known(further)
    for network in (
        nn.LSTM(5, 4, num_layers=2),
        nn.LSTM(5, 4, bidirectional=True),
        nn.LSTM(5, 4, bias=False),
        nn.LSTM(5, 4, proj_size=2),
        nn.RNN(5, 4),
    ):
        other = flat.model("bilstm")
        other.encoder.backwards = network
        assert not known(other)


def test_a_text_that_is_not_finite_leaves_the_others_alone() -> None:
    model, texts = flat.model("bilstm"), flat.corpus()
    with torch.no_grad():
        model.embedding.weight[59] = torch.nan
    bad = [59 in text for text in texts]
    assert 0 < sum(bad) < len(texts)
    batch = flat.collate(texts)
    found = leave_one_out(model, batch, read(model, batch))
    clean = flat.collate([text for text, broken in zip(texts, bad, strict=True) if not broken])
    rows = torch.tensor([not broken for broken in bad])
    expected = leave_one_out(model, clean, read(model, clean))
    torch.testing.assert_close(
        found[rows, : expected.shape[1]], expected, rtol=0, atol=1e-10, equal_nan=True
    )
