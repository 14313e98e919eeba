"""Taggers of transformers: rows are the first tokens of words, items the tokens of a sentence."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, normalizers

import attnlight
from attnlight.__main__ import main
from attnlight.batch import MARKED, TextBatch
from attnlight.data.tokenization import words_of_pieces
from attnlight.datamodules import ChunkingDataModule
from attnlight.errors import InputError
from attnlight.functional.readout.instances import texts_of_rows
from attnlight.huggingface import HuggingFaceTagger
from attnlight.probing.interception import intercept
from attnlight.probing.leave_one_out import reencode
from attnlight.records import read_record
from tests.commands import CPU, NO_FIGURE, QUIET, without_figures
from tests.huggingface.folders import TEXTS, write_model
from tests.huggingface.models import assert_near

AUTO = "AutoModelForTokenClassification"
TAGS = ["O", "B-FILM", "I-FILM"]
SENTENCES = [text.split() for text in (*TEXTS, "overlong", "unfunny gripping casts")]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tagger")
    names = {"id2label": dict(enumerate(TAGS)), "label2id": {t: n for n, t in enumerate(TAGS)}}
    write_model(folder / "bert", auto=AUTO, **names)
    write_model(folder / "gpt2", "gpt2", AUTO, **names)
    write_model(folder / "plain", auto="AutoModel")
    lines = [
        "\n".join(f"{word} {TAGS[(place + number) % 2]}" for place, word in enumerate(words))
        for number, words in enumerate(SENTENCES * 5)
    ]
    (folder / "tags.conll").write_text("\n\n".join(lines) + "\n")
    return folder


@pytest.fixture(autouse=True)
def here(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place)


def corpus(tokenizer: str | None = "bert", **options: Any) -> ChunkingDataModule:
    data = ChunkingDataModule(path="tags.conll", tokenizer=tokenizer, cache_dir="cache", **options)
    data.resolve("fit")
    return data


def a_batch(network: HuggingFaceTagger) -> TextBatch:
    return network.encode([" ".join(words) for words in SENTENCES])


@pytest.fixture(params=["bert", "gpt2"])
def network(request: pytest.FixtureRequest) -> HuggingFaceTagger:
    return HuggingFaceTagger(request.param).eval()


def plain(network: HuggingFaceTagger, batch: TextBatch) -> torch.Tensor:
    """Logits of all tokens by transformers, (B, N, C)."""
    ids = network.numbers[batch.tokens]
    logits: torch.Tensor = network.transformer(ids, attention_mask=batch.mask.long()).logits
    return logits


def test_rows_are_first_pieces(network: HuggingFaceTagger) -> None:
    batch = a_batch(network)
    counts = batch.extras[MARKED].sum(-1).tolist()
    assert counts == list(map(len, SENTENCES))
    for text, words in enumerate(SENTENCES):
        surface = network.raw.surface(" ".join(words))
        first = [
            s for s, m in zip(surface.spans, batch.extras[MARKED][text].tolist(), strict=False) if m
        ]
        assert [
            surface.text[x:][: y - x] == word[: y - x]
            for (x, y), word in zip(first, words, strict=True)
        ]
        assert len({x for x, _ in first}) == len(words)


def test_an_empty_text_has_one_row(network: HuggingFaceTagger) -> None:
    batch = network.encode([" ", "dull casts"])
    assert (batch.instances()[0] == (batch.attendable()[0])).all()
    assert batch.instances().sum(-1).tolist() == [1, 2]
    output, alone = network(batch), network(network.encode(["dull casts"]))
    assert output.rows[:, 0].tolist() == [0, 1, 1]
    assert_near(output.logits[1:], alone.logits)


def test_logits_are_those_of_transformers(network: HuggingFaceTagger) -> None:
    batch = a_batch(network)
    output = network(batch)
    text, position = texts_of_rows(output.rows), output.rows[:, 1]
    assert_near(output.logits, plain(network, batch)[text, position])
    assert torch.equal(output.rows[:, 1], batch.instances().nonzero()[:, 1])
    reaches = output.mask.any(-1)  # not the first token of a decoder, which is no item
    assert_near(output.weights.sum(-1), reaches[:, None].float().expand(output.weights.shape[:2]))


@torch.no_grad()
def test_candidates_equal_full_passes(network: HuggingFaceTagger) -> None:
    batch = a_batch(network)
    output = network(batch)
    generator = torch.Generator().manual_seed(0)
    weights = torch.rand(*output.weights.shape[:2], 3, output.weights.shape[2], generator=generator)
    weights = weights * output.mask[:, None, None]
    weights = weights / weights.sum(-1, keepdim=True).clamp(min=1e-9)
    found = network.readout(output, weights)
    full = network.substituted(output, weights)
    last = len(network.attention_layers) - 1
    for row, (text, position) in enumerate(
        zip(texts_of_rows(output.rows).tolist(), output.rows[:, 1].tolist(), strict=True)
    ):
        one = batch.select(torch.tensor([text]))
        for candidate in range(3):

            def patch(
                given: torch.Tensor, *_: Any, row: int = row, k: int = candidate, at: int = position
            ) -> torch.Tensor:
                changed = given.clone()
                changed[0, :, at] = full[row, :, k, : given.shape[-1]]
                return changed

            with intercept(patch={last: patch}):
                expected = plain(network, one)[0, position]
            assert_near(found[row, candidate], expected)


@torch.no_grad()
def test_leave_one_out_equals_a_loop(network: HuggingFaceTagger) -> None:
    batch = a_batch(network)
    output = network(batch)
    found = reencode(network, batch, output, 1 << 10)
    for row, (text, position) in enumerate(
        zip(texts_of_rows(output.rows).tolist(), output.rows[:, 1].tolist(), strict=True)
    ):
        for item in output.mask[row].nonzero().flatten().tolist():
            if item == position:
                assert found[row, item].isnan().all()
                continue
            kept = batch.mask[text].clone()
            kept[item] = False
            logits = network.transformer(network.numbers[batch.tokens[text][kept]][None]).logits
            assert_near(found[row, item], logits[0, position - int(item < position)])


def test_padding_and_batches_change_nothing(network: HuggingFaceTagger) -> None:
    batch = a_batch(network)
    whole, parts = (
        network(batch),
        [
            network(batch.select(torch.tensor([n])).trim(int(batch.mask[n].sum())))
            for n in range(len(batch))
        ],
    )
    assert_near(torch.cat([part.logits for part in parts]), whole.logits)
    for part, text in zip(parts, range(len(batch)), strict=True):
        own = whole.weights[texts_of_rows(whole.rows) == text][..., : part.weights.shape[-1]]
        assert_near(part.weights, own)


def test_corpus_has_tags_at_first_pieces() -> None:
    data = corpus()
    texts = data.dataset("train")
    for place in range(len(texts)):
        batch = texts[[place]]
        words = texts.table["words"][place].as_py()
        marked = batch.extras[MARKED][0] == 1
        assert (batch.labels[0] >= 0).tolist() == marked.tolist()
        surface = texts.surface(place)
        assert surface.text == " ".join(words)
        assert [
            surface.text[x:].split()[0]
            for (x, _), m in zip(surface.spans, marked.tolist(), strict=True)
            if m
        ] == words
        row = SENTENCES.index(words)
        expected = [(p + int(texts.index[place])) % 2 for p in range(len(words))]
        assert [TAGS[int(label)] for label in batch.labels[0][marked]] == [
            TAGS[n] for n in expected
        ], row


@pytest.mark.usefixtures("few_steps")
def test_fit_test_and_explain() -> None:
    fit = ["fit", "--model=huggingface_tagger", "--model.net.path=plain", "--data=tags.conll"]
    fit += ["--data.tokenizer=plain", "--experiment=tags", "--trainer.max_epochs=1"]
    assert main([*fit, *CPU, *QUIET]) == 0
    (run,) = Path("checkpoints/tags").iterdir()
    tests = ("predictions", "attention_permutation", "card", "adversarial_attention")
    attached = without_figures("tests.yaml", *tests, "decision_flip")
    assert main(["test", str(run), *attached, *CPU, *QUIET]) == 0
    predictions = read_record(run / "records/test/predictions.parquet").columns
    trained = attnlight.load(run)
    with torch.no_grad():
        texts = corpus("plain").dataset("test")
        output = trained.model(texts[list(range(len(texts)))])
    assert output.logits.argmax(-1).tolist() == list(predictions["prediction"])
    one = attnlight.explain(run, ["overlong film"])[0]
    assert one.item == 0


def test_a_folder_is_a_tagger_everywhere() -> None:
    command = ["test", "bert", "--data=tags.conll", "--tests=predictions", NO_FIGURE]
    assert main([*command, *CPU, *QUIET]) == 0
    (run,) = Path("checkpoints/bert").iterdir()
    table = read_record(run / "records/test/predictions.parquet").columns
    rows = [{"text": "dull casts", "label": ["O", "B-FILM"]}]
    found = attnlight.run("bert", rows, tests="predictions").table("predictions")
    network = HuggingFaceTagger("bert").eval()
    with torch.no_grad():
        expected = network(network.encode(["dull casts"])).logits.softmax(-1)
    assert np.allclose(np.stack(found["probabilities"]), expected.numpy(), atol=1e-5)
    assert len(table["prediction"]) > 10


class TestRefusals:
    def test_features(self) -> None:
        with pytest.raises(InputError, match="tokenizer makes other tokens: leave out features"):
            corpus(case=True)

    def test_a_classifier_of_texts(self, place: Path) -> None:
        write_model(place / "films")
        with pytest.raises(InputError, match="was trained to classify texts"):
            HuggingFaceTagger("films")

    def test_sentences_beyond_what_the_model_reads(self, place: Path) -> None:
        write_model(place / "short", auto="AutoModel", max_position_embeddings=8)
        with pytest.raises(InputError, match="lies beyond the tokens that the model reads"):
            corpus("short").prepare()

    def test_a_word_without_a_token(self) -> None:
        tokenizer = Tokenizer.from_str(HuggingFaceTagger("bert").raw.parsed_tokenizer.to_str())
        tokenizer.normalizer = normalizers.Replace("~", "")
        with pytest.raises(
            InputError, match="the word '~', of which a tag is predicted, has no token"
        ):
            words_of_pieces(tokenizer, "a ~ film", [0, 2, 4])
