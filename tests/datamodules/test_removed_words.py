"""Corpora without the words that scores rank first, against loops over lists of words."""

from __future__ import annotations

from fractions import Fraction
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from attnlight.callbacks import SaliencyAgreement
from attnlight.data.removed_words import STAGES, RemovedWords
from attnlight.datamodules.base import CorpusDataModule
from attnlight.errors import InputError
from attnlight.records import list_column, read_record
from tests.bases import SMALL, Planted, classifier, trainer
from tests.datamodules.test_marks import COLUMN, SIZES, corpus
from tests.report.fake import write_record

ABOUT = {"signed": {"signed": True}, "size": {"signed": False}}
METHODS: list[str | dict[str, Any]] = [
    "gradient",
    {"name": "occlusion", "replacement": "delete"},
    "random",
    {"name": "random", "seed": 1, "label": "other"},
]
Scores = dict[int, list[float]]


def write_scores(
    run: Path, data: CorpusDataModule, split: str, seed: int = 0, **about: Any
) -> dict[str, Scores]:
    """Write scores of the words of a split, many of them tied, and return them by method and row."""
    texts, draw = data.dataset(split), np.random.default_rng(seed)
    index = texts.index
    counts = texts[range(len(texts))].attendable().sum(-1).numpy()
    flat = {name: draw.integers(-2, 3, counts.sum()) / 4 for name in ABOUT}
    path = run / "records" / STAGES[split] / "saliency_agreement.parquet"
    columns = {f"scores_{name}": list_column(values, counts) for name, values in flat.items()}
    metadata = {"corpus": data.fingerprint, "methods": ABOUT} | about
    write_record(path, {"index": index} | columns, **metadata)
    each = {name: np.split(values, np.cumsum(counts)[:-1]) for name, values in flat.items()}
    return {
        name: {int(row): part.tolist() for row, part in zip(index, parts, strict=True)}
        for name, parts in each.items()
    }


def kept(count: int, share: float, scores: list[float], method: str, left: list[int]) -> list[int]:
    """Places of the words that remain of `count`, of which `left` were left, by a loop."""
    goal = min(ceil(Fraction(str(share)) * count), count - 1)
    sizes = scores if method == "signed" else [abs(score) for score in scores]
    by_rank = sorted(range(len(left)), key=lambda place: (-sizes[place], place))
    first = set(by_rank[: max(0, goal - (count - len(left)))])
    return [place for number, place in enumerate(left) if number not in first]


def rows_of(data: CorpusDataModule, split: str, position: int) -> dict[str, Any]:
    """What a corpus has of a text: boundary tokens are left out of `words`."""
    texts = data.dataset(split)
    batch = texts[[position]]
    items = batch.attendable()[0]
    return {
        "index": int(batch.index[0]),
        "label": int(batch.labels[0]),  # type: ignore[index]
        "words": [w for w, item in zip(texts.words(position), items, strict=True) if item],
        "ids": batch.tokens[0][items].tolist(),
        "around": batch.tokens[0][~items].tolist(),
        "extras": {name: values[0][items].tolist() for name, values in batch.extras.items()},
        "query": None if batch.query is None else batch.query.tolist(),
        "length": int(texts.lengths[position]) - int((~items).sum()),
    }


@pytest.mark.parametrize(
    ("name", "by", "method"), [("classifier", "words", "signed"), ("pairs", "column", "size")]
)
def test_the_first_words_are_removed(
    name: str, by: str, method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of both steps, the second of which ranks what the first left."""
    monkeypatch.setattr("attnlight.data.dataset.READ_ROWS", 5)
    complete, shares, removals = corpus(name, by, tmp_path), (0.3, 0.8), list[RemovedWords]()
    wholes = {
        (split, place): rows_of(complete, split, place)
        for split, size in SIZES.items()
        for place in range(size)
    }
    left = {key: list(range(len(whole["words"]))) for key, whole in wholes.items()}
    for step, share in enumerate(shares):
        before = corpus(name, by, tmp_path, removed_words=removals)
        run = tmp_path / f"run{step}"
        scores = {split: write_scores(run, before, split, step)[method] for split in SIZES}
        removals = [*removals, RemovedWords(share=share, method=method, scores=str(run))]
        shortened = corpus(name, by, tmp_path, removed_words=removals)
        assert shortened.fingerprint != before.fingerprint
        assert shortened.tokenizer_json == complete.tokenizer_json
        for (split, place), places in left.items():
            whole = wholes[split, place]
            count, of_text = len(whole["words"]), scores[split][whole["index"]]
            stay = left[split, place] = kept(count, share, of_text, method, places)
            assert 0 < len(stay) < count
            expected = whole | {
                "words": [whole["words"][n] for n in stay],
                "ids": [whole["ids"][n] for n in stay],
                "extras": {k: [values[n] for n in stay] for k, values in whole["extras"].items()},
                "length": len(stay),
            }
            assert rows_of(shortened, split, place) == expected
    assert {*complete.dataset("train").extras} == {COLUMN}
    assert min(map(len, left.values())) == 1 < max(map(len, left.values()))


def test_a_model_scores_each_text_as_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And removes the same words whatever the sizes of batches, also those of a random order."""
    tokens = dict[tuple[str, float], Any]()
    for size in (1, 8):
        monkeypatch.setattr("attnlight.data.dataset.READ_ROWS", 3 * size)
        few: dict[str, Any] = {"validation_size": 5, "test_size": 6, "eval_batch_size": size}
        data = Planted(cache_dir=str(tmp_path / f"cache{size}"), **few)
        torch.manual_seed(0)
        task = classifier(data.spec, **SMALL, encoder="bigru", embedding_scale=2.0).double()
        test, run = SaliencyAgreement(METHODS, keep_scores=True, figures=False), tmp_path / "run"
        trainer(run, test).predict(task, data, return_predictions=False)
        assert (run / "records/predict-test/saliency_agreement.parquet").is_file()
        data.predict_split = "train"
        trainer(run, test).predict(task, data, return_predictions=False)
        trainer(run, test).validate(task, data, verbose=False)
        trainer(run, test).test(task, data, verbose=False)
        found = read_record(run / "records/predict-train/saliency_agreement.parquet").columns
        texts = data.dataset("train")
        assert found["index"].tolist() == texts.index.tolist()
        for place in (0, 17, 60):
            batch = texts[[place]]
            output = task.model.eval()(batch)
            for label, method in test.methods.items():
                alone = method(task.model, batch, output, output.logits.argmax(-1))[0].detach()
                np.testing.assert_allclose(found[f"scores_{label}"][place], alone, atol=1e-9)
        for name, share in (("occlusion", 0.5), ("random", 0.5), ("random", 0.9), ("other", 0.5)):
            removal = RemovedWords(share=share, method=name, scores=str(run))
            few |= {"cache_dir": str(tmp_path / "cache"), "removed_words": [removal]}
            shortened = Planted(**few)
            left = shortened.dataset("train").lengths
            counts = [len(kept(n, share, [0.0] * n, "", list(range(n)))) for n in texts.lengths]
            assert left.tolist() == counts
            ids = shortened.dataset("train").table["tokens"].to_pylist()
            assert tokens.setdefault((name, share), ids) == ids
    assert tokens["random", 0.5] != tokens["other", 0.5], "of another seed"


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "share 0": ({"share": 0.0}, "share of removed_words is 0.0; it must be above 0 and below 1"),
    "share 1": ({"share": 1.0}, "share of removed_words is 1.0; it must be above 0 and below 1"),
    "method": ({"method": "siz"}, "agreement.parquet has no scores of siz, only of signed, size"),
    "corpus": ({"corpus": "v2-0"}, "parquet has scores of another corpus, or of this one with"),
    "split": ({"splits": ["test"]}, "no .*parquet: run `.* predict .*--data.predict_split=train"),
    "texts": ({"subset": {"train": 9}}, "agreement.parquet lacks 15 texts of the train split"),
    "items": ({"truncate": 3}, "has scores of other items than words"),
}


@pytest.mark.parametrize("case", list(REFUSED))
def test_scores_that_do_not_fit_are_refused(case: str, tmp_path: Path) -> None:
    given, sentence = REFUSED[case]
    data = corpus("classifier", "words", tmp_path)
    scored, about = data, {name: given[name] for name in ("corpus",) if name in given}
    if other := {name: given[name] for name in ("truncate", "subset") if name in given}:
        scored = corpus("classifier", "words", tmp_path, **other)
        about = {"corpus": data.fingerprint}
    for split in given.get("splits", SIZES):
        write_scores(tmp_path / "run", scored, split, **about)
    options: dict[str, Any] = {"share": 0.5, "method": "size", "scores": str(tmp_path / "run")}
    options |= {name: given[name] for name in options if name in given}
    with pytest.raises(InputError, match=sentence) as caught:
        corpus("classifier", "words", tmp_path, removed_words=[RemovedWords(**options)]).prepare()
    assert str(caught.value).count(". ") == 0


@pytest.mark.parametrize("name", ["sentences", "tagger"])
def test_sentences_and_tags_are_refused(name: str, tmp_path: Path) -> None:
    removal = RemovedWords(share=0.5, method="size", scores="run")
    with pytest.raises(InputError, match="removed_words needs texts of words with one label"):
        corpus(name, "words", tmp_path, removed_words=[removal]).prepare()
