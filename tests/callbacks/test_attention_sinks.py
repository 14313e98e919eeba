"""Attention on sinks, and tests without them, against loops over texts and tokens."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from scipy.special import softmax

from attnlight.batch import BOS, EOS, TextBatch
from attnlight.callbacks import AttentionSinks
from attnlight.callbacks.attention_sinks import punctuation
from attnlight.probing.interception import intercept
from tests.callbacks.faithfulness_loops import erased, ranked
from tests.callbacks.token_loops import tau
from tests.models.taggers import sentences, tagger

MARKS = [5, 7, 8, 11]  # ids that are punctuation here


def with_boundaries(batch: TextBatch) -> TextBatch:
    """The sentences of four tokens and more with boundary tokens at their ends."""
    for text, length in enumerate(batch.mask.sum(-1).tolist()):
        if length >= 4:
            batch.tokens[text, 0], batch.tokens[text, length - 1] = BOS, EOS
    return batch


@pytest.mark.filterwarnings("ignore:.*input is constant")
def test_of_a_tagger_by_hand() -> None:
    model, batch = tagger("residual", layers=2).double(), with_boundaries(sentences(extra=1))
    test = AttentionSinks()
    test._punctuation = MARKS
    output = model(batch).apply(torch.Tensor.detach)
    columns = test.measure(batch, output, model)  # type: ignore[arg-type]
    with torch.no_grad(), intercept(record="all") as found:
        model(batch)
    sinks = {name: set[int]() for name in ("special", "first", "punctuation")}
    expected: dict[str, list[float]] = {name: [] for name in columns if "_by_" not in name}
    for row, (index, query) in enumerate(output.rows.tolist()):
        text = int((batch.index == index).nonzero())
        tokens = batch.tokens[text, : int(batch.mask[text].sum())].tolist()
        sinks["special"] = {i for i, token in enumerate(tokens) if token in (BOS, EOS)}
        sinks["first"] = {0}
        sinks["punctuation"] = {i for i, token in enumerate(tokens) if token in MARKS}
        items = [i for i, token in enumerate(tokens) if token not in (BOS, EOS)]
        mean = output.weights[row].mean(0)

        def change(gone: set[int]) -> float:
            """Of the row's prediction without some items."""
            logits = erased(model, output, row, sorted(gone))  # noqa: B023
            moved = np.subtract(softmax(logits), output.probabilities[row].numpy())  # noqa: B023
            return float(abs(moved).sum() / 2)

        single = {item: change({item}) for item in items}
        for name, sink in {"": set[int](), **sinks}.items():
            end = f"_without_{name}" if name else ""
            others = [item for item in items if item not in sink]
            attended, moved = [float(mean[i]) for i in others], [single[i] for i in others]
            expected[f"tau{end}"].append(tau(attended, moved))
            order = ranked(mean.tolist(), others) if others else []
            expected[f"erased_top{end}"].append(single[order[0]] if order else float("nan"))
            if not name:
                continue
            gone = sink & set(items)
            expected[f"erased_{name}"].append(change(gone) if gone else float("nan"))
            masses = [
                sum(float(found[layer].weights[text, head, query, i]) for i in sink)
                for layer in range(2)
                for head in range(2)
            ]
            expected[f"mass_{name}"].append(sum(masses) / 4)
            heads = torch.tensor(masses, dtype=torch.float64)
            torch.testing.assert_close(columns[f"mass_{name}_by_head"][row], heads)
            by_layer = heads.view(2, 2).mean(1)
            torch.testing.assert_close(columns[f"mass_{name}_by_layer"][row], by_layer)
    for name, values in expected.items():
        wanted = torch.tensor(values, dtype=torch.float64)
        torch.testing.assert_close(columns[name], wanted, equal_nan=True, atol=1e-9, rtol=1e-7)
    assert float(columns["mass_punctuation"].max()) > 0.1
    assert columns["erased_special"].isnan().all()  # the tagger does not attend to them
    assert float(columns["erased_first"].nan_to_num().max()) > 1e-3
    assert set(test.measures) < columns.keys()


def test_mass_of_a_text_is_the_mean_over_its_tokens() -> None:
    pytest.importorskip("transformers")
    from tests.huggingface.test_classifier import classifier, texts

    model: Any = classifier("bert", special_tokens="attended")
    batch = texts()
    columns = AttentionSinks().measure(batch, model(batch), model)
    with intercept(record="all") as found:
        model(batch)
    layers = [found[number].weights for number in sorted(found)]
    for text, length in enumerate(batch.mask.sum(-1).tolist()):
        for number in range(8):
            weights = layers[number // 4][text, number % 4]
            for sink, tokens in (("special", [0, length - 1]), ("first", [0])):
                mean = sum(float(weights[query, tokens].sum()) for query in range(length)) / length
                own = columns[f"mass_{sink}_by_head"][text, number]
                assert float(own) == pytest.approx(mean, abs=1e-6)
    assert "mass_punctuation" not in columns


def test_punctuation_of_a_vocabulary() -> None:
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel

    words = ["[PAD]", "[UNK]", "the", ".", "##,", "\u0120!?", "don't", "``", "\u2581", "--", "a."]
    vocabulary = {word: number for number, word in enumerate(words)}
    corpus: Any = SimpleNamespace(
        parsed_tokenizer=Tokenizer(WordLevel(vocabulary, unk_token="[UNK]"))
    )
    assert punctuation(corpus) == [3, 4, 5, 7, 9]
