"""States of a frozen model that are computed once: the same as without, in any process."""

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import attnlight.huggingface.states as kept_states
from attnlight.__main__ import main
from attnlight.batch import AttentionOutput, TextBatch
from attnlight.data.collate import collate_ids
from attnlight.data.dataset import TokenDataset
from attnlight.data.erased_words import ErasedWords
from attnlight.datamodules import PlantedEvidence
from attnlight.errors import InputError
from attnlight.huggingface import HuggingFacePooledClassifier
from attnlight.huggingface.attention import intercept
from attnlight.huggingface.pooled import TransformerEncoder
from attnlight.probing.patches import off
from attnlight.probing.removal import delete_tokens
from tests.commands import CPU, NO_FIGURE, QUIET
from tests.huggingface.folders import write_model
from tests.huggingface.models import MODELS
from tests.huggingface.test_commands import write_corpus

Batches, Capture = list[TextBatch], pytest.CaptureFixture[str]
SIZES = {"train_size": 40, "validation_size": 16, "test_size": 16, "vocabulary": 60}


@pytest.fixture
def texts(tmp_path: Path) -> TokenDataset:
    return PlantedEvidence(**SIZES, cache_dir=str(tmp_path)).dataset("train")  # type: ignore[arg-type]


def classifier(name: str = "bert") -> HuggingFacePooledClassifier:
    torch.manual_seed(0)
    return HuggingFacePooledClassifier(MODELS[name](vocab_size=200), 2, freeze=True).eval()


def caching(texts: TokenDataset, name: str = "bert") -> HuggingFacePooledClassifier:
    model = classifier(name)
    model.keep_states([texts])
    return model


def count_texts(model: HuggingFacePooledClassifier) -> list[int]:
    """How many texts the encoder reads from now on, in a list of one number."""
    count = [0]

    def add(module: object, args: tuple[torch.Tensor, ...], result: object) -> None:
        count[0] += len(args[0])

    model.encoder.register_forward_hook(add)
    return count


@pytest.fixture
def batches(texts: TokenDataset) -> list[TextBatch]:
    order = np.random.default_rng(0).permutation(len(texts))
    return [texts[part.tolist()] for part in np.array_split(order, 4)]


def equal(found: AttentionOutput, expected: AttentionOutput, atol: float = 1e-5) -> None:
    mask = expected.mask
    for name in ("logits", "weights"):
        torch.testing.assert_close(getattr(found, name), getattr(expected, name), atol=atol, rtol=0)
    torch.testing.assert_close(found.states[mask], expected.states[mask], atol=atol, rtol=0)
    assert torch.equal(found.mask, mask)


@pytest.mark.parametrize("name", ["bert", "llama"])
@pytest.mark.parametrize("tokens", [1, 100, 1 << 20])
def test_same_as_without(
    texts: TokenDataset, batches: Batches, name: str, tokens: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_states, "_CPU_TOKENS", tokens)
    monkeypatch.setattr(kept_states, "_PIECE_TEXTS", 7)
    model, plain = caching(texts, name), classifier(name)
    read = count_texts(model)
    for batch in batches * 2:
        equal(model(batch), plain(batch))
    assert read == [len(texts)]


def test_nothing_is_read_again(texts: TokenDataset, batches: list[TextBatch]) -> None:
    model = caching(texts).train()
    for batch in batches:
        model(batch)
    other = caching(texts)  # another run: attention and decoder of its own, the same model below
    with torch.no_grad():
        other.decoder.weight.mul_(2)
    for network in (model, other, copy.deepcopy(model)):
        read = count_texts(network)
        for batch in batches:
            network(batch)
        assert read == [0]
    loss = model(batches[0]).logits.sum()
    loss.backward()
    assert all(p.grad is not None for p in model.parameters() if p.requires_grad)


def test_wider_batches_and_repeats(texts: TokenDataset) -> None:
    model, plain = caching(texts), classifier()
    alone = texts[[3]]
    wide = collate_ids([alone.tokens[0].tolist(), texts[[5]].tokens[0].tolist() * 2])
    wide = wide.select(torch.tensor([0]))
    wide.index = alone.index
    read = count_texts(model)
    equal(model(wide), plain(wide))
    assert read == [len(texts)]
    repeated = texts[[2, -3]]
    assert repeated.index.tolist() == [int(texts.index[2]), -1]
    equal(model(repeated), plain(repeated))


@pytest.mark.parametrize(
    "change", ["token", "deletion", "erased_words", "embeddings", "interception", "weights"]
)
def test_what_differs_is_computed(texts: TokenDataset, batches: Batches, change: str) -> None:
    def differing(net: Any) -> Any:
        batch = copy.deepcopy(batches[0])
        if change == "token":
            batch.tokens[0, 2] = batch.tokens[0, 2] % 30 + 6
        elif change == "deletion":
            rows = zip(batch.tokens, batch.mask, strict=True)
            batch = collate_ids([row[mask].tolist()[:-1] for row, mask in rows])
            batch.index = batches[0].index
        elif change == "erased_words":
            erased = ErasedWords(texts=0.9).draw(batch.attendable(), batch.index, 0, 0)
            batch = delete_tokens(batch, erased)
        elif change == "embeddings":
            return net(batch, embeddings=net.embed(batch) * 1.5)
        elif change == "interception":
            with intercept(patch={0: off}):
                return net(batch)
        else:
            torch.manual_seed(3)
            net.draw_parameters()
        return net(batch)

    model, plain = caching(texts), classifier()
    before = model(batches[0])
    found, expected = differing(model), differing(plain)
    equal(found, expected)
    assert found.logits.shape == before.logits.shape
    assert float((found.logits - before.logits).abs().max().detach()) > 1e-5


def test_another_model_has_its_own(texts: TokenDataset, batches: list[TextBatch]) -> None:
    caching(texts)(batches[0])
    base = MODELS["bert"](vocab_size=200, initializer_range=0.3)
    other = HuggingFacePooledClassifier(base, 2, freeze=True).eval()
    other.keep_states([texts])
    plain = copy.deepcopy(other)
    plain._kept = ()
    equal(other(batches[0]), plain(batches[0]))


@pytest.fixture
def folder(texts: TokenDataset, batches: list[TextBatch]) -> Path:
    caching(texts)(batches[0])
    (found,) = texts.folder.parents[1].glob("states-*-train")
    return found


@pytest.mark.parametrize("damage", ["changed", "cut", "gone"])
def test_a_damaged_file_is_not_used(
    texts: TokenDataset, batches: Batches, folder: Path, damage: str, capsys: Capture
) -> None:
    file = folder / "states"
    content = bytearray(file.read_bytes())
    file.unlink()
    if damage != "gone":
        content[: 1 << 10] = bytes(1 << 10)
        file.write_bytes(content if damage == "changed" else content[:-4])
    model, plain = caching(texts), classifier()
    equal(model(batches[0]), plain(batches[0]))
    assert "is damaged" in capsys.readouterr().err
    assert file.stat().st_size == len(content)


def test_a_full_disk(
    texts: TokenDataset, batches: Batches, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    def full(*arguments: object) -> None:
        raise InputError("states cannot be written: No space left on device.")

    monkeypatch.setattr(kept_states.KeptStates, "_write", full)
    model, plain = caching(texts), classifier()
    for _ in range(2):
        equal(model(batches[0]), plain(batches[0]))
    said = capsys.readouterr().err
    assert said.count("states are computed every time: states cannot be written: No space") == 1
    assert not list(texts.folder.parents[1].glob("states-*-train"))


def test_models_that_are_trained_keep_nothing(texts: TokenDataset, batches: Batches) -> None:
    for options in ({"freeze": False}, {"freeze": True, "encoder": "average"}):
        model = HuggingFacePooledClassifier(MODELS["bert"](vocab_size=200), 2, **options)
        model.keep_states([texts])
        model(batches[0])
    assert not list(texts.folder.parents[1].glob("states-*"))


def test_runs_and_variants_share_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ATTNLIGHT_CACHE", str(tmp_path / "cache"))
    write_corpus(tmp_path / "films")
    write_model(tmp_path / "bert", auto="AutoModel")
    read, forward = [], TransformerEncoder.forward

    def counted(encoder: TransformerEncoder, embeddings: Any, mask: Any) -> torch.Tensor:
        read.append(len(mask))
        return forward(encoder, embeddings, mask)

    monkeypatch.setattr(TransformerEncoder, "forward", counted)
    shared = ["--data=films.yaml", "--data.tokenizer=bert", "--experiment=e", *CPU, *QUIET]
    shared += ["--trainer.max_epochs=2", "--trainer.logger=false"]
    model = ["--model=huggingface_pooled", "--model.net.path=bert"]
    variant = ["--model=adversarial", "--model.base=checkpoints/e/first/best.ckpt"]
    for run, given in (("first", model), ("third", variant)):
        assert main(["fit", *given, f"--run={run}", *shared]) == 0
        assert sum(read) == 48 + 16  # training and validation texts, in two epochs
    for run, tests in (("first", "predictions"), ("third", "base_divergence")):
        command = ["test", f"checkpoints/e/{run}", f"--tests={tests}", NO_FIGURE]
        assert main([*command, *CPU, *QUIET]) == 0
    assert sum(read) == 48 + 16 + 16
