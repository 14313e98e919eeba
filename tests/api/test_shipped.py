"""Every shipped file of tests by `attnlight.run`: it runs, or one sentence says what it needs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import attnlight
from attnlight.callbacks import Texts
from attnlight.data.raw_text import RawText
from attnlight.datamodules import BabiStories, ChunkingDataModule, TextDataModule
from attnlight.datamodules.base import CorpusDataModule
from attnlight.errors import InputError
from attnlight.records import read_record
from attnlight.tasks import AttentionTask
from tests.api.test_run import planted_rows
from tests.bases import SMALL, Planted, classifier, save_base, trainer
from tests.commands import CONFIGS
from tests.data.local import write_corpus
from tests.pairs import pair_task
from tests.tasks.tagged import corpus as chunks
from tests.tasks.tagged import task_of, written

REFUSED = {
    "alignment_error": "needs a corpus with links between words of translations",
    "attention_interchange": "draws the partners of texts from a corpus: use `attnlight test`",
    "attention_sinks": "needs a model with layers of self-attention",
    "base_divergence": "compares with a base model, and the tested model is no variant of one: give",
    "context": "answer_attention reads models that answer, such as AnswerModel",
    "counterfactual_use": "needs a corpus of texts and edits of them: set edit_of",
    "erasure_words": "FlatClassifier has no attention over words inside sentences: leave level out",
    "evidence_mass": "needs a corpus with a column `evidence`",
    "evidence_swap": "takes the names of classes from a corpus.* run `attnlight test`",
    "head_ablation": "needs a model with layers of self-attention",
    "head_roles": "needs a model with layers of self-attention",
    "impermissible_mass": "needs a corpus with a column `impermissible`",
    "known_answers": "only PlantedEvidence has: run `attnlight test`",
    "measured_use": "only PlantedEvidence has: run `attnlight test`",
    "mixing": "rollout needs a model with layers of self-attention",
    "mixing_evidence": "needs a corpus with a column `rationale` or `evidence`",
    "plausibility": "needs a corpus with a column `rationale` or `evidence`",
    "real_text_evidence": "needs a corpus with a column `rationale` or `evidence`",
    "saliency_documents": "needs a corpus with a column `rationale` or `evidence`",
    "honest_marks": "needs a corpus with a column `rationale` or `evidence`",
    "saliency_plausibility": "needs a corpus with a column `rationale` or `evidence`",
}

pytestmark = pytest.mark.usefixtures("few_steps")


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_base(tmp_path_factory.mktemp("base") / "best.ckpt", Planted())


@pytest.mark.parametrize("name", sorted(path.stem for path in (CONFIGS / "tests").glob("*.yaml")))
def test_it_runs_or_is_refused_in_one_sentence(name: str, checkpoint: Path) -> None:
    _, _, rows = planted_rows(checkpoint)
    if name not in REFUSED:
        results = attnlight.run(checkpoint, rows[:4], name)
        records = list((results.folder / "records/test").glob("*.parquet"))
        assert records
        assert all(read_record(path).metadata["rows"] == 4 for path in records)
        assert set(results.table()["test"]) == {path.stem for path in records} - {"texts"}
        return
    with pytest.raises(InputError, match=REFUSED[name]) as caught:
        attnlight.run(checkpoint, rows[:4], name)
    said = str(caught.value)
    assert "\n" not in said
    assert "Namespace" not in said


def test_a_base_of_no_corpus_is_refused(checkpoint: Path) -> None:
    spec = {"class_path": "BaseDivergence", "init_args": {"base": str(checkpoint)}}
    with pytest.raises(InputError, match=r"needs its corpus, a datamodule.*: run `attnlight test`"):
        attnlight.run(checkpoint, ["good0 filler1"], [spec])


def test_the_page_shows_recorded_texts(checkpoint: Path, tmp_path: Path) -> None:
    _, _, rows = planted_rows(checkpoint)
    results = attnlight.run(checkpoint, rows, "decision_flip,texts")
    assert results.figure("texts") is None
    page = results.report(tmp_path).read_text(encoding="utf-8")
    assert all("\\n".join(text.split()) in page for text, _ in rows)


def test_batches_have_no_words_to_record(checkpoint: Path) -> None:
    with pytest.raises(InputError, match="batches hold no words: give texts, pairs or mappings"):
        attnlight.run(checkpoint, [Planted().dataset("test")[[0, 1]]], "texts")


def of_texts(folder: Path, nested: bool) -> tuple[AttentionTask, CorpusDataModule, list[Any]]:
    texts = ["A GOOD film. It was fine!", "Bad. So unseen, so bad 4.", "no", "Odd  spaces\there ."]
    kind: dict[str, Any] = {"sentences": "nested", "boundary_tokens": False} if nested else {}
    columns: dict[str, Any] = {"text": texts[:2] * 4, "label": [0, 1] * 4}
    columns["text"][-1] = ""
    test = {"text": [*texts, ""], "label": [0, 1, 0, 1, 0]}
    write_corpus(folder / "c", ["neg", "pos"], train=columns, validation=columns, test=test)
    kind |= {"splitting": "words", "cache_dir": str(folder / "cache")}
    data = TextDataModule(str(folder / "c"), **kind)
    task = classifier(data.spec, hierarchical=nested, **SMALL)
    return task, data, [*zip(test["text"], ["neg", "pos"] * 3, strict=False)]


def of_pairs(folder: Path) -> tuple[AttentionTask, CorpusDataModule, list[Any]]:
    sizes = {"train_size": 20, "validation_size": 5, "test_size": 7}
    data = BabiStories(**sizes, cache_dir=str(folder / "cache"))
    split = data.dataset("test")
    rows = [
        {
            "passage": split.table["text"][place].as_py(),
            "query": split.table["query_text"][place].as_py(),
            "label": data.classes[int(split.labels[place])],  # type: ignore[index]
        }
        for place in range(len(split))
    ]
    return pair_task(data.spec), data, rows


def of_tokens(folder: Path, target: str) -> tuple[AttentionTask, CorpusDataModule, list[Any]]:
    options = {"target": target, "sentence_chunk": "VP"}
    data: ChunkingDataModule = chunks(written(folder / "chunks"), **options)
    split = data.dataset("test")
    blocks = (folder / "chunks/test.txt").read_text().strip().split("\n\n")
    rows = []
    for place in split.index.tolist():
        words, pos, _ = zip(*(line.split() for line in blocks[place].splitlines()), strict=True)
        rows.append({"tokens": list(words), "pos": list(pos)})
    return task_of(data), data, rows


@pytest.mark.parametrize("kind", ["texts", "sentences", "pairs", "tokens", "sentence"])
def test_texts_are_those_of_the_trainer(kind: str, tmp_path: Path) -> None:
    if kind in ("tokens", "sentence"):
        task, data, rows = of_tokens(tmp_path, kind)
    elif kind == "pairs":
        task, data, rows = of_pairs(tmp_path)
    else:
        task, data, rows = of_texts(tmp_path, kind == "sentences")
    task.raw = RawText.of_corpus(data)
    if kind == "tokens":
        with pytest.raises(InputError, match="row 0 has 2 labels for 1 tokens"):
            attnlight.run(task, [{"text": ".", "pos": ["."], "label": ["O", "O"]}])
    trainer(tmp_path / "run", Texts()).test(task, data, verbose=False)
    found = attnlight.run(task, rows, "texts", batch_size=3).table("texts")
    expected = read_record(tmp_path / "run/records/test/texts.parquet").columns
    compared = ["index", "position", "tokens", "items", "attention", "scores_loo", "probabilities"]
    for name in [*compared, *(["query"] if kind == "pairs" else [])]:
        assert len(found[name]) == len(expected[name]) > 3
        for pair in zip(found[name], expected[name], strict=True):
            if name in ("tokens", "query"):
                one, other = map(list, pair)
                assert one == other
            else:
                values = map(np.vstack, pair) if name in ("items", "attention") else pair
                np.testing.assert_allclose(*values, atol=1e-6)
