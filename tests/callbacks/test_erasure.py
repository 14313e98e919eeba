"""Words inside sentences as items: every column against full passes of the changed model."""

from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import torch
from torch import Tensor

import attnlight
from attnlight.batch import BOS, EOS
from attnlight.callbacks import DecisionFlip, InterpretabilityTest, SingleErasure
from attnlight.errors import InputError
from attnlight.models.readout import readout_of
from attnlight.records import read_record
from tests.callbacks.test_every import measured, one_by_one, require_equal
from tests.callbacks.token_loops import Sentence, gradient, loop_of, paired
from tests.models.test_hierarchical import collate, corpus, model

TEXTS = [[sentence[:5] for sentence in text[:4]] for text in corpus()[1:6]]
TEXTS[2].insert(1, [BOS, EOS])  # nothing to attend to
MODELS: dict[str, dict[str, Any]] = {
    "bigru": {},
    "conv": {"encoder": "conv"},
    "none": {"encoder": "none", "attend_to": "states_and_embeddings"},
    "sparse": {"normalizer": "sparsemax"},
}
CASES: list[tuple[str, type[InterpretabilityTest], dict[str, Any]]] = [
    ("bigru", SingleErasure, {"released": True}),
    ("conv", SingleErasure, {"target": "runner_up"}),
    ("bigru", DecisionFlip, {"draws": 2}),
    ("none", DecisionFlip, {"draws": 1, "target": "runner_up", "emptied": "uniform"}),
    ("sparse", DecisionFlip, {"draws": 1, "target": 1, "gradient": "absolute"}),
]


class Words(Sentence):
    """The words of a text as items, read by a pass of the model that is given their weights."""

    def __init__(self, network: Any, text: list[list[int]], index: int) -> None:
        self.network, self.text, self.index = network, text, index
        words = [(s, n) for s, x in enumerate(text) for n, t in enumerate(x) if t not in (BOS, EOS)]
        self.places = words
        with torch.no_grad():
            output: Any = network(replace(collate([text]), index=torch.tensor([index])))
        own = torch.stack([output.layers[0][0, s, n] for s, n in words])
        mask = torch.ones(1, len(words), dtype=torch.bool)
        self.output = replace(output, weights=own[None, None], mask=mask, item_logits=None)

    def __len__(self) -> int:
        return len(self.places)

    def ways(self) -> list[slice]:
        return [slice(None)]

    def read(self, token: int, weights: Tensor) -> Tensor:
        """Logits of weights (1, N), renormalised in their sentences unless they are differentiated.

        Sentences without any are left out of the text.
        """
        given: dict[int, Tensor] = {}
        for s, sentence in enumerate(self.text):
            its = [item for item, place in enumerate(self.places) if place[0] == s]
            total = weights[0, its].sum()
            if its and total > 0:
                row = torch.zeros(len(sentence), dtype=weights.dtype)
                places = torch.tensor([self.places[item][1] for item in its])
                values = weights[0, its] / (1.0 if weights.requires_grad else total)
                given[s] = row.index_put((places,), values)
        kept = sorted(given, key=lambda s: -len(self.text[s]))  # the order in which they are read
        left = iter(kept)

        def attend(states: Tensor, reached: Tensor) -> tuple[Tensor, None]:
            rows = [given[next(left)] for _ in states]
            size = states.shape[1]
            return torch.stack([torch.cat([x, x.new_zeros(size - len(x))]) for x in rows]), None

        short = collate([[self.text[s] for s in sorted(given)] or [[BOS, EOS]]])
        with patch.object(self.network.word_attention, "forward", attend):
            logits: Tensor = self.network(short).logits[0]
        assert next(left, None) is None
        return logits


@torch.no_grad()
def network_of(name: str = "bigru") -> Any:
    """A model whose decisions depend on single words."""
    network = model(**MODELS[name]).requires_grad_(False)
    network.decoder.weight.mul_(4)
    network.decoder.bias.sub_(network(collate(TEXTS)).logits.mean(0))
    return network


def built(kind: type[InterpretabilityTest], **options: Any) -> InterpretabilityTest:
    return kind(level="words", seed=3, **options)


@pytest.mark.parametrize(("name", "kind", "options"), CASES)
@torch.no_grad()
def test_words_equal_full_passes(
    name: str, kind: type[InterpretabilityTest], options: dict[str, Any]
) -> None:
    network, test, batch = network_of(name), built(kind, **options), collate(TEXTS, 1, 2)
    columns = dict(test.measure(batch, network(batch), network))
    loops = [loop_of(test)(Words(network, x, 100 + n), 0) for n, x in enumerate(TEXTS)]
    assert {x for x in columns if "minimal" not in x} - loops[0].keys() <= {"length"}
    ours, theirs = torch.tensor(paired(columns, loops), dtype=torch.float64).T
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-6, equal_nan=True)
    if kind is DecisionFlip:
        assert len({*columns["removed_count_attention"].nan_to_num().tolist()}) > 2
    else:
        assert columns["delta_js_drawn_gradient"].abs().max() > 1e-3


@pytest.mark.parametrize("name", MODELS)
def test_gradients_and_erasures_equal_full_passes(name: str) -> None:
    network, batch = network_of(name), collate(TEXTS)
    output = network(batch)
    readout = readout_of(batch, network.word_level(batch, output), network)
    torch.testing.assert_close(readout.output.logits, output.logits, rtol=0, atol=1e-10)
    erased = readout.erase()
    for row, text in enumerate(TEXTS):
        words, mask = Words(network, text, 100 + row), readout.output.mask[row]
        for target in (None, "runner_up", 1):
            found = readout.gradient(target)[row][:, mask]
            expected = gradient(SingleErasure(target=target), words, 0)
            torch.testing.assert_close(found, expected, rtol=0, atol=1e-6)
            assert found.abs().max() > 1e-4
        own = words.output.weights[0]
        for item, logits in enumerate(erased[row, mask]):
            changed = own.index_fill(1, torch.tensor([item]), 0.0)
            torch.testing.assert_close(logits, words.read(0, changed), rtol=0, atol=1e-6)


@pytest.mark.parametrize("test", [built(SingleErasure), built(DecisionFlip, emptied="uniform")])
def test_batches_padding_and_order_change_nothing(test: InterpretabilityTest) -> None:
    network, batch = network_of(), collate(TEXTS)
    whole, wide = measured(test, network, batch), collate(TEXTS, 2, 3)
    require_equal(one_by_one(test, network, wide), whole, atol=1e-7)
    turned = wide.select(torch.arange(len(wide)).flip(0))
    require_equal(measured(test, network, turned), whole, atol=1e-7)


def test_records_and_pages_say_what_was_erased(tmp_path: Path) -> None:
    batches = [collate(TEXTS[:3]), replace(collate(TEXTS[3:]), index=torch.tensor([200, 201]))]
    tests = [built(SingleErasure, target="runner_up"), built(DecisionFlip, target=2)]
    results = attnlight.run(network_of(), batches, tests)
    for name, target in (("single_erasure", "runner_up"), ("decision_flip", 2)):
        record = read_record(results.folder / f"records/test/{name}.parquet")
        assert (record.metadata["level"], record.metadata["gradient_of"]) == ("words", target)
    words = [sum(t not in (BOS, EOS) for x in text for t in x) for text in TEXTS]
    assert record.columns["length"].tolist() == words
    page = results.report(tmp_path).read_text(encoding="utf-8")
    assert "Items are the words inside sentences." in page
    assert "Gradients are of the probability of the runner-up." in page
    assert "Gradients are of the probability of the class 2." in page


def test_a_run_holds_a_test_with_several_options(tmp_path: Path) -> None:
    network, batch = network_of(), collate(TEXTS)
    tests = {
        "single_erasure": SingleErasure(),
        "single_erasure-words": SingleErasure(level="words", label="words"),
        "single_erasure-runner_up": SingleErasure(target="runner_up", label="runner_up"),
    }
    results = attnlight.run(network, [batch], list(tests.values()))
    assert {path.stem for path in (results.folder / "records/test").iterdir()} == tests.keys()
    columns = {}
    for name, test in tests.items():
        columns[name] = read_record(results.folder / f"records/test/{name}.parquet").columns
        alone = attnlight.run(network, [batch], [type(test)(level=test.level, target=test.target)])
        expected = read_record(alone.folder / "records/test/single_erasure.parquet").columns
        for column, values in expected.items():
            np.testing.assert_array_equal(columns[name][column], values)
    ranked = [found["delta_js_expected_gradient"].tolist() for found in columns.values()]
    assert ranked[0] != ranked[1] != ranked[2] != ranked[0]
    page = results.report(tmp_path).read_text(encoding="utf-8")
    for title in ("Single erasure", "Single erasure: words", "Single erasure: runner up"):
        assert f">{title}</a>" in page
    assert "matter more than another? (words)</h3>" in page
    with pytest.raises(InputError, match="would write the same record: give one a `label`"):
        attnlight.run(network, [batch], [SingleErasure(), SingleErasure(level="words")])


def test_what_is_refused() -> None:
    network, batch = network_of(), collate(TEXTS)
    for target in ("good", 3):
        with pytest.raises(InputError, match=f"names the label '?{target}'?; .* classes 0, 1, 2"):
            DecisionFlip(target=target).measure(batch, network(batch), network)
    network.guide = lambda batch: torch.full((len(batch), 1, batch.tokens.shape[1]), 0.1).double()
    with pytest.raises(InputError, match="a guide supplies that over sentences: leave level out"):
        built(SingleErasure).measure(batch, network(batch), network)
