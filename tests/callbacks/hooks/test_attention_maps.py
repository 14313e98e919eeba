"""Recorded attention of all layers against eager transformers and loops over texts."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch

from attnlight.callbacks.hooks import attention_maps as module
from attnlight.callbacks.hooks.attention_maps import attention_maps
from tests.attribution.scenes import scene


def arrays(columns: dict[str, pa.Array]) -> list[np.ndarray | None]:
    shaped = zip(columns["maps"].to_pylist(), columns["maps_shape"].to_pylist(), strict=True)
    return [x if x is None else np.array(x).reshape(shape) for x, shape in shaped]


def every(batch: Any) -> torch.Tensor:
    return torch.ones(len(batch), dtype=torch.bool)


class TestTransformers:
    @pytest.fixture(autouse=True)
    def _needs_transformers(self) -> None:
        pytest.importorskip("transformers")

    @pytest.mark.parametrize("padding", ["right", "left"])
    @pytest.mark.parametrize("name", ["bert", "llama"])
    def test_weights_are_those_of_eager_attention(self, name: str, padding: str) -> None:
        from tests.huggingface.test_classifier import classifier, texts

        model, batch = classifier(name, special_tokens="attended"), texts(padding)
        chosen = torch.tensor([True, False, True, True, True])
        columns = attention_maps(model, batch, model(batch), chosen)
        model.transformer.set_attn_implementation("eager")
        maps, read = arrays(columns), columns["maps_read"].to_pylist()
        assert maps[1] is read[1] is None
        for text in (0, 2, 3, 4):
            ids = batch.tokens[text][batch.mask[text]][None]
            own = torch.stack(
                [*model.transformer(ids, output_attentions=True).attentions], 1
            ).detach()
            np.testing.assert_allclose(maps[text], own[0], atol=1e-5)
            assert np.argmax(read[text]) == (0 if name == "bert" else ids.shape[1] - 1)
            assert sum(read[text]) == 1

    def test_of_words_pieces_are_added_and_averaged(self) -> None:
        from tests.huggingface.test_classifier import classifier
        from tests.huggingface.test_words import SIZES, words

        options: Any = {"special_tokens": "attended"}
        pieces, batch = classifier("bert", **options), words()
        flat = module.FlatTexts.of(batch).batch
        fine = arrays(attention_maps(pieces, flat, pieces(flat), every(flat)))
        model = classifier("bert", items="words", **options)
        columns = attention_maps(model, batch, model(batch), every(batch))
        for coarse, weights, sizes in zip(arrays(columns), fine, SIZES, strict=True):
            assert coarse is not None
            assert weights is not None
            ends = np.cumsum(sizes)
            for q, k in np.ndindex(len(sizes), len(sizes)):
                rows = weights[:, :, ends[q] - sizes[q] : ends[q], ends[k] - sizes[k] : ends[k]]
                np.testing.assert_allclose(coarse[:, :, q, k], rows.sum(-1).mean(-1), atol=1e-6)


def test_of_a_tagger_the_first_row_of_each_text() -> None:
    model, batch = scene("transformer", padding=2)
    output = model(batch)
    columns = attention_maps(model, batch, output, every(batch))
    maps, read = arrays(columns), columns["maps_read"].to_pylist()
    firsts = [row for row, position in enumerate(output.rows[:, 1].tolist()) if position == 0]
    assert [row for row, found in enumerate(maps) if found is not None] == firsts
    for row, length in zip(firsts, batch.mask.sum(-1).tolist(), strict=True):
        assert maps[row] is not None
        assert maps[row].shape[-2:] == (length, length)
        assert read[row] == [1.0, *[0.0] * (length - 1)]
        # The last layer's rows are those of the output.
        np.testing.assert_allclose(
            maps[row][-1, :, 0], output.weights[row, :, :length].detach(), atol=1e-6
        )


def test_of_sentences_the_weights_of_their_words() -> None:
    model, batch = scene("han", padding=2)
    output = model(batch)
    columns = attention_maps(model, batch, output, every(batch))
    assert columns["maps_read"].null_count == len(batch)
    assert output.layers is not None
    for text, found in enumerate(arrays(columns)):
        expected = [
            weight
            for weights, mask in zip(output.layers[0][text], batch.mask[text], strict=True)
            for weight in weights[mask].tolist()
        ]
        assert (found is None) == (len(expected) > 64)
        if found is None:
            continue
        assert found.shape == (1, 1, 1, len(expected))
        np.testing.assert_allclose(found.ravel(), expected, atol=1e-6)


def test_long_texts_and_models_without_layers_have_none(monkeypatch: pytest.MonkeyPatch) -> None:
    model, batch = scene("transformer")
    monkeypatch.setattr(module, "TOKENS", 3)
    output = model(batch)
    columns = attention_maps(model, batch, output, every(batch))
    short = [length <= 3 for length in batch.mask.sum(-1).tolist()]
    assert 0 < sum(short) < len(short)
    assert len(columns["maps"]) - columns["maps"].null_count == sum(short)
    monkeypatch.undo()
    model, batch = scene("bilstm")
    columns = attention_maps(model, batch, model(batch), every(batch))
    assert all(column.null_count == len(batch) for column in columns.values())
