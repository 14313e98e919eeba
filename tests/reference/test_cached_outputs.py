"""What is kept of a frozen model is what it says of each text alone."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from attnlight.batch import BOS, EOS, TextBatch
from attnlight.errors import InputError
from attnlight.models import FlatClassifier, HierarchicalClassifier, Seq2Seq
from attnlight.problems.classification import Classification
from attnlight.reference import CachedOutputs, cached_outputs, write_outputs
from tests.models.taggers import tagger
from tests.outside import TwoHeads

SIZE = 53


class Corpus:
    """Texts of 1 to 9 words between boundary tokens, with gaps in their indices, out of order."""

    def __init__(self, in_sentences: bool = False) -> None:
        random = np.random.default_rng(0)
        words = [random.integers(5, 50, n) for n in random.integers(1, 10, SIZE)]
        self.texts = [torch.tensor([BOS, *text, EOS]) for text in words]
        self.index = random.permutation(3 * SIZE)[:SIZE].astype(np.int64)
        self.lengths = np.array([len(text) for text in self.texts], np.int32)
        self.in_sentences = in_sentences

    def __len__(self) -> int:
        return SIZE

    def __getitem__(self, positions: Sequence[int]) -> TextBatch:
        chosen = [self.texts[p] for p in positions]
        tokens = nn.utils.rnn.pad_sequence(chosen, batch_first=True)
        if self.in_sentences:
            tokens = nn.functional.pad(tokens, (0, -tokens.shape[1] % 3)).unflatten(1, (-1, 3))
        index = torch.from_numpy(self.index[positions])
        return TextBatch(index, tokens, tokens != 0, labels=torch.zeros_like(tokens))


SMALL: dict[str, Any] = {"encoder": "bigru", "embedding_size": 6, "hidden_size": 4}
MODELS = {
    "flat": lambda: FlatClassifier(50, 3, embedding_scale=2, **SMALL),
    "hierarchical": lambda: HierarchicalClassifier(50, 2, **SMALL),
    "two heads": lambda: TwoHeads(affine=False),
    "tagger": lambda: tagger(vocab_size=50),
}


@pytest.fixture(params=MODELS)
def written(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[Any, Corpus, CachedOutputs]:
    """A model, its corpus, and the store, written in several pieces of several batches."""
    monkeypatch.setattr(cached_outputs, "_PIECE_TEXTS", 20)
    monkeypatch.setattr(cached_outputs, "_CPU_TOKENS", 40)
    torch.manual_seed(0)
    model, corpus = MODELS[request.param](), Corpus(request.param == "hierarchical")
    write_outputs(model.eval(), corpus, tmp_path, note="of a test")
    return model, corpus, CachedOutputs(tmp_path)


@torch.no_grad()
def test_each_text_is_what_the_model_says_of_it_alone(written: Any) -> None:
    model, corpus, outputs = written
    rows = 0
    for position in range(SIZE):
        alone = model(corpus[[position]])
        weights = outputs.attention(alone.rows, alone.mask)
        logits = outputs.logits(alone.rows, corpus[[position]])
        torch.testing.assert_close(weights, alone.weights, atol=2e-6, rtol=0)
        torch.testing.assert_close(logits, alone.logits, atol=1e-5, rtol=1e-5)
        rows += len(alone.rows)
    assert outputs.rows == rows
    assert (outputs.heads, outputs.classes) == (alone.weights.shape[1], alone.logits.shape[1])


@torch.no_grad()
def test_batches_padding_and_order_change_nothing(written: Any) -> None:
    model, corpus, outputs = written
    for positions in ([7, 3, 52, 11], list(range(30, 12, -2))):
        together = model(corpus[positions])
        wider = nn.functional.pad(together.mask, (0, 3))
        weights = outputs.attention(together.rows, wider)
        assert not weights[:, :, -3:].any()
        torch.testing.assert_close(weights[:, :, :-3], together.weights, atol=2e-6, rtol=0)
        order = torch.randperm(len(together.rows))
        again = outputs.attention(together.rows[order], wider[order])
        assert torch.equal(again, weights[order])


@pytest.fixture
def flat(tmp_path: Path) -> tuple[Corpus, CachedOutputs]:
    corpus = Corpus()
    write_outputs(MODELS["flat"]().eval(), corpus, tmp_path, base="b", split="test")
    said = json.loads((tmp_path / "store.json").read_text())
    assert (said["base"], said["split"], said["rows"], said["classes"]) == ("b", "test", SIZE, 3)
    return corpus, CachedOutputs(tmp_path)


def test_repeats_of_a_padded_sampler_are_uniform(flat: tuple[Corpus, CachedOutputs]) -> None:
    corpus, outputs = flat
    rows, mask = Classification.instances(corpus[[4, 9, 2]])
    whole = outputs.attention(rows, mask)
    rows[1, 0] = -1
    weights = outputs.attention(rows, mask)
    assert torch.equal(weights[[0, 2]], whole[[0, 2]])
    torch.testing.assert_close(weights[1, 0], mask[1] / mask[1].sum())
    logits = outputs.logits(rows, corpus[[4, 9, 2]])
    assert logits.isfinite().all()
    assert logits[0].any()


@pytest.mark.parametrize(
    ("name", "limit", "most", "power"),
    [("flat", "_CPU_TOKENS", 12, 1), ("tagger", "_CPU_PAIRS", 200, 2)],
)
def test_several_batches_were_made_and_none_is_too_large(
    name: str, limit: str, most: int, power: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cached_outputs, limit, most)
    corpus = Corpus()
    corpus.lengths[5], corpus.texts[5] = 30, torch.arange(30) + 4
    model, batches = MODELS[name](), []
    model.register_forward_pre_hook(lambda _, given: batches.append(given[0]))
    write_outputs(model.eval(), corpus, tmp_path)
    sizes = [batch.tokens.shape for batch in batches]
    assert sorted(i for batch in batches for i in batch.index.tolist()) == sorted(corpus.index)
    assert all(texts * tokens**power <= most or texts == 1 for texts, tokens in sizes)
    assert sizes[-1] == (1, 30)
    assert sizes[0][0] > 1


class TestRefusal:
    def test_text_that_is_not_there(self, flat: tuple[Corpus, CachedOutputs]) -> None:
        corpus, outputs = flat
        rows, mask = Classification.instances(corpus[[0, 1]])
        rows[1, 0] = 9_999
        with pytest.raises(InputError, match="text 9999 "):
            outputs.attention(rows, mask)
        rows[1] = torch.tensor([int(corpus.index[1]), 1])
        with pytest.raises(InputError, match=r"position 1"):
            outputs.attention(rows, mask)

    def test_text_of_another_length(self, flat: tuple[Corpus, CachedOutputs]) -> None:
        corpus, outputs = flat
        rows, mask = Classification.instances(corpus[[0, 1]])
        count = int(mask[1].sum())
        mask[1] = mask[1] & (mask[1].cumsum(0) < count)
        sentence = f"text {corpus.index[1]} has {count - 1} items, .* has {count}"
        with pytest.raises(InputError, match=sentence):
            outputs.attention(rows, mask)

    @pytest.mark.parametrize("name", ["keys", "ends", "weights", "logits"])
    def test_damaged(self, flat: tuple[Corpus, CachedOutputs], name: str) -> None:
        folder = flat[1].folder
        file = folder / name
        file.write_bytes(file.read_bytes()[:-4])
        with pytest.raises(InputError, match=f"{name} has .* delete it"):
            CachedOutputs(folder)
        file.unlink()
        with pytest.raises(InputError, match="delete it"):
            CachedOutputs(folder)

    @pytest.mark.parametrize("said", ["{", '{"format": 1}', '{"format": 99}'])
    def test_description(self, flat: tuple[Corpus, CachedOutputs], said: str) -> None:
        (flat[1].folder / "store.json").write_text(said)
        with pytest.raises(InputError, match="holds no readable outputs"):
            CachedOutputs(flat[1].folder)

    def test_folder_that_cannot_be_written(self, tmp_path: Path) -> None:
        with pytest.raises(InputError, match="cannot be written"):
            write_outputs(MODELS["flat"](), Corpus(), tmp_path / "missing")


class Translations(Corpus):
    """The same texts, each with two target tokens."""

    def __getitem__(self, positions: Sequence[int]) -> TextBatch:
        batch = super().__getitem__(positions)
        return replace(batch, target=torch.tensor([[1, 0]]).expand(len(batch), -1), labels=None)


@torch.no_grad()
def test_logits_of_many_classes_are_computed_where_they_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cached_outputs, "MANY_CLASSES", 2)
    torch.manual_seed(0)
    model: Any = Seq2Seq(50, 3, **SMALL).eval()
    texts: Any = Translations()
    write_outputs(model, texts, tmp_path)
    assert (tmp_path / "logits").stat().st_size == 0
    outputs = CachedOutputs(tmp_path, lambda: model)
    assert (outputs.rows, outputs.classes) == (2 * SIZE, 3)
    batch = texts[[7, 3, 52, 11]]
    output = model(batch)
    torch.testing.assert_close(
        outputs.attention(output.rows, output.mask), output.weights, atol=2e-6, rtol=0
    )
    chosen = torch.tensor([6, 0, 1, 5])
    assert torch.equal(outputs.logits(output.rows, batch), output.logits)
    assert torch.equal(outputs.logits(output.rows[chosen], batch), output.logits[chosen])
