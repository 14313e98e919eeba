"""The cascade of random parameters against one made by hand, a text at a time."""

import hashlib
import math
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from attnlight.callbacks import Sanity
from attnlight.data.raw_text import RawText
from attnlight.datamodules.base import CorpusDataModule
from attnlight.errors import InputError
from attnlight.models import (
    FlatClassifier,
    HierarchicalClassifier,
    PairClassifier,
    SelfAttentionTagger,
)
from attnlight.records import Record
from tests.bases import Planted, classifier, save
from tests.callbacks.every import LABELS, METHODS, explained
from tests.callbacks.test_base import recorded
from tests.callbacks.token_loops import rho
from tests.pairs import PlantedPairs, pair_task
from tests.tasks import tagged

SMALL: dict[str, Any] = {"embedding_size": 6, "hidden_size": 4, "embedding_scale": 1.0}
SIZES: dict[str, Any] = {"train_size": 30, "validation_size": 20, "eval_batch_size": 5}
# Prefixes of the parameters of each part, from the output down.
CASCADES: dict[str, list[tuple[str, ...]]] = {
    "flat": [("decoder.",), ("attention.",), ("encoder.",), ("embedding.",)],
    "sentences": [
        ("decoder.",),
        ("sentence_attention.",),
        ("sentence_encoder.",),
        ("word_attention.",),
        ("word_encoder.",),
        ("embedding.",),
    ],
    "pairs": [
        ("output.", "decoder.", "query_decoder."),
        ("attention.",),
        ("encoder.", "query_encoder."),
        ("embedding.", "query_embedding."),
    ],
    "tagger": [
        ("decoder.",),
        ("attention.", "norm."),
        ("layers.0.",),
        ("projection.",),
        ("embedding.", "features."),
    ],
}
KINDS = {
    "flat": FlatClassifier,
    "sentences": HierarchicalClassifier,
    "pairs": PairClassifier,
    "tagger": SelfAttentionTagger,
}
Made = tuple[Any, CorpusDataModule]


def made(kind: str, folder: Path, seed: int = 3, texts: int = 12, **options: Any) -> Made:
    """A task in double precision with parameters far from any start, and its corpus."""
    sizes = SIZES | {"test_size": texts}
    data: Any
    if kind == "tagger":
        data = tagged.corpus(tagged.written(folder / "chunks", 12, 3))
        task: Any = tagged.task_of(data, layers=2, readout="study")
    elif kind == "pairs":
        data = PlantedPairs(**sizes)
        task = pair_task(data.spec)
    else:
        data = Planted(in_sentences=kind == "sentences", **sizes)
        task = classifier(data.spec, **SMALL, hierarchical=kind == "sentences", **options)
    random = torch.Generator().manual_seed(seed)
    task.double()
    with torch.no_grad():
        for values in task.model.parameters():
            values.copy_(0.7 * torch.randn(values.shape, generator=random))
    task.raw = RawText.of_corpus(data)
    return task, data


def measured(folder: Path, task: Any, data: CorpusDataModule, **options: Any) -> Record:
    """The record of a test of all texts."""
    settings = {"methods": METHODS, "max_instances": None, "figures": False}
    return recorded(folder, Sanity(**(settings | options)), task=task, data=data)


def drawn_by_hand(kind: str, task: Any, seed: int, draw: int) -> dict[str, Tensor]:
    """Parameters of a network made by its constructor, under a seed derived here."""
    number = int(hashlib.sha256(f"sanity {seed} {draw}".encode()).hexdigest()[:14], 16)
    spec, net = task.hparams["spec"], dict(task.hparams["net"])
    net.pop("hierarchical", None)
    if kind == "flat":
        net.pop("sentence_dropout", None)
    given = {"features": spec["features"]} if kind == "tagger" else {}
    before = torch.get_rng_state()
    torch.manual_seed(number)
    network = KINDS[kind](spec["vocab_size"], len(spec["classes"]), **given, **net)
    torch.set_rng_state(before)
    return dict(network.named_parameters())


def randomised(model: Any, prefixes: tuple[str, ...], values: dict[str, Tensor]) -> Any:
    """A copy of a model with those parameters that have one of the prefixes."""
    copy = deepcopy(model)
    with torch.no_grad():
        for name, parameter in copy.named_parameters():
            if name.startswith(prefixes):
                parameter.copy_(values[name])
    return copy


@pytest.mark.parametrize("kind", CASCADES)
def test_equals_a_cascade_by_hand(kind: str, tmp_path: Path) -> None:
    task, data = made(kind, tmp_path, texts=3)
    second, _ = made(kind, tmp_path, seed=4, texts=3)
    against = save(second, tmp_path / "best.ckpt")
    parameters = dict(task.model.named_parameters())
    before = {name: values.clone() for name, values in task.model.state_dict().items()}
    record = measured(tmp_path, task, data, against=str(against), seed=5)
    for name, parameter in task.model.named_parameters():
        assert parameter is parameters[name]
        assert parameter.grad is None
        assert parameter.requires_grad
    for name, values in task.model.state_dict().items():
        assert torch.equal(values, before[name])
    parts, model = CASCADES[kind], task.model.eval()
    draws = [drawn_by_hand(kind, task, 5, draw) for draw in range(2)]
    models = {
        str(step): randomised(model, sum(parts[:step], ()), draws[0])
        for step in range(1, len(parts) + 1)
    }
    every = sum(parts, ())
    models |= {"random": randomised(model, every, draws[1])}
    models |= {"seeds": second.model.eval()}
    assert len(record.metadata["parts"]) == len(parts)
    names = [f"{k}_{step}_{m}" for step in models for m in LABELS for k in ("signed", "sizes")]
    keyed = ["index", "position", "prediction", "max_attention"]
    assert list(record.columns) == keyed + names
    texts, row, defined = data.dataset("test"), 0, 0
    places = {int(index): place for place, index in enumerate(texts.index)}
    for index in sorted(places):
        batch = task.problem.mark_instances(texts[[places[index]]])
        with torch.no_grad():
            output = model(batch)
        target, scores = output.logits.argmax(-1), {}
        scores["trained"] = explained(model, batch, target)
        for step, other in models.items():
            scores[step] = explained(other, batch, target)
        for number in range(len(target)):
            for step in models:
                reference = scores[str(len(parts)) if step == "random" else "trained"]
                for label in LABELS:
                    items = output.mask[number].clone()
                    if kind == "tagger" and label == "deletion":
                        items[output.rows[number, 1]] = False
                    pair = [values[label][number, items] for values in (reference, scores[step])]
                    expected = {"signed": rho(*pair), "sizes": rho(*(x.abs() for x in pair))}
                    for sign, value in expected.items():
                        found = record.columns[f"{sign}_{step}_{label}"][row]
                        where = (sign, step, label, index, number)
                        assert found == pytest.approx(value, abs=1e-6, nan_ok=True), where
                        defined += not math.isnan(value)
            assert record.columns["index"][row] == index
            row += 1
    assert row == len(record.columns["index"])
    assert defined > 0.5 * row * len(names)


def save_of(data: CorpusDataModule, folder: Path, **options: Any) -> Path:
    """The checkpoint of an untrained classifier of a corpus."""
    made_of = classifier(data.spec, **(SMALL | options))
    made_of.raw = RawText.of_corpus(data)
    return save(made_of, folder / "other.ckpt")


REFUSED: dict[str, tuple[Callable[[Path], Path], str]] = {
    "another corpus": (
        lambda folder: save_of(Planted(**SIZES, test_size=12, max_tokens=9), folder),
        "other.ckpt was trained on another corpus or on other splits of it",
    ),
    "another network": (
        lambda folder: save_of(Planted(**SIZES, test_size=12), folder, encoder="cnn"),
        "other.ckpt is not this run with another seed: its encoder is cnn, here bilstm",
    ),
    "another objective": (
        lambda folder: save_of(
            Planted(**SIZES, test_size=12), folder, objective={"lambda_deceive": 0.5}
        ),
        "other.ckpt is not this run with another seed: its lambda_deceive is 0.5, here 0.0",
    ),
    "the run itself": (
        lambda folder: save(made("flat", folder)[0], folder / "same.ckpt"),
        "same.ckpt has the parameters of this run: compare with another seed",
    ),
    "no checkpoint": (lambda folder: folder / "none.ckpt", "there is no checkpoint .*none.ckpt"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_second_run_that_is_no_seed_of_this_one_is_refused(case: str, tmp_path: Path) -> None:
    against, message = REFUSED[case]
    task, data = made("flat", tmp_path)
    path = against(tmp_path)
    with pytest.raises(InputError, match=message):
        measured(tmp_path, task, data, against=str(path))
    assert not list(tmp_path.rglob("sanity.parquet"))


def test_measuring_without_models_is_refused(tmp_path: Path) -> None:
    task, data = made("flat", tmp_path)
    batch = data.dataset("test")[[0, 1]]
    with pytest.raises(InputError, match="before `begin`"):
        Sanity().measure(batch, task.model.eval()(batch), task.model)
