"""Evidence, swaps and predictions on bAbI's real questions, against the stories as strings."""

from __future__ import annotations

import re
from collections import defaultdict
from itertools import chain, groupby
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
import yaml
from sklearn.metrics import average_precision_score
from tokenizers import Tokenizer

from attnlight.batch import EOS, TextBatch
from attnlight.callbacks.evidence_mass import class_tokens
from attnlight.datamodules import PairDataModule
from attnlight.probing.swaps import swap_flips
from attnlight.records import read_record
from attnlight.report.page import write_report
from attnlight.tasks import AttentionTask
from tests.commands import CONFIGS, QUIET, attnlight_on_one

pytestmark = pytest.mark.slow
RUN = "checkpoints/babi/run"
SMALL = ["--model.net.hidden_size=12", "--model.net.embedding_size=16", "--trainer.max_epochs=8"]
SMALL += ["--model.optimizer.learning_rate=0.01", "--trainer.logger=false"]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, corpora: Path) -> Path:
    """A small model of bAbI 1, tested, its predictions written and reported."""
    folder = tmp_path_factory.mktemp("babi")
    place = {"cwd": folder, "ATTNLIGHT_DATA": str(corpora)}
    model = [
        "--model",
        "pair_bilstm_additive",
        "--data",
        "babi_1",
        "--experiment=babi",
        "--run=run",
    ]
    attnlight_on_one("fit", *model, *SMALL, *QUIET, **place)  # type: ignore[arg-type]
    attnlight_on_one("test", RUN, "--tests", "evidence_swap", *QUIET, **place)  # type: ignore[arg-type]
    attnlight_on_one("predict", RUN, *QUIET, **place)  # type: ignore[arg-type]
    return folder / RUN


@pytest.fixture(scope="module")
def questions(corpora: Path) -> list[dict[str, Any]]:
    (file,) = (corpora / "babi_qa1/data").glob("test-*.parquet")
    rows: list[dict[str, Any]] = pq.read_table(file).to_pylist()
    return rows


@pytest.fixture(scope="module")
def columns(run: Path) -> dict[str, Any]:
    return read_record(run / "records/test/evidence_mass.parquet").columns


def test_attention_is_that_on_the_supporting_sentences(
    run: Path, questions: list[dict[str, Any]], columns: dict[str, Any]
) -> None:
    predicted = pq.read_table(run / "predictions.parquet").to_pylist()
    assert [row["index"] for row in predicted] == columns["index"].tolist() == list(range(1000))
    for question, row in list(zip(questions, predicted, strict=True))[::25]:
        sentences = [re.findall(r"\w+|\.", sentence) for sentence in question["story"]]
        gold = [
            place in question["supporting_ids"]
            for place, sentence in enumerate(sentences)
            for _ in sentence
        ]
        assert row["tokens"] == ["[BOS]", *chain(*sentences), "[EOS]"]
        assert row["query"] == ["[BOS]", *re.findall(r"\w+|\?", question["question"]), "[EOS]"]
        assert row["allowed"] == list(range(6))
        weights, index = np.array(row["attention"][0]), row["index"]
        assert columns["mass"][index] == pytest.approx(weights[gold].sum(), abs=1e-6)
        assert columns["chance"][index] == pytest.approx(np.mean(gold))
        assert columns["top_in_evidence"][index] == gold[int(weights.argmax())]
        expected = average_precision_score(gold, weights)
        assert columns["auprc"][index] == pytest.approx(expected, abs=1e-6)
        parts = np.split(weights, np.cumsum([len(words) for words in sentences]))[:-1]
        top = int(np.argmax([part.sum() for part in parts]))
        assert columns["top_sentence_in_evidence"][index] == (top in question["supporting_ids"])
        share = len(question["supporting_ids"]) / len(sentences)
        assert columns["chance_sentence"][index] == pytest.approx(share)
    assert not columns["without_evidence"].any()


def test_swaps_are_those_of_stories_rewritten_as_strings(
    run: Path, questions: list[dict[str, Any]], columns: dict[str, Any]
) -> None:
    task = AttentionTask.load_from_checkpoint(run / "best.ckpt").eval()
    places = task.classes
    assert sorted(places) == ["bathroom", "bedroom", "garden", "hallway", "kitchen", "office"]

    def answers(stories: list[list[str]], question: str) -> list[int]:
        with torch.no_grad():
            texts = [" ".join(story) for story in stories]
            return task.classify(texts, [question] * len(texts)).argmax(-1).tolist()

    for index, question in list(enumerate(questions))[::40]:
        story, answer = question["story"], question["answer"]
        evidence = set(question["supporting_ids"])
        stories = [story]
        for k in range(1, 6):
            other = {place: places[(n + k) % 6] for n, place in enumerate(places)}
            pattern = "|".join(places)
            stories.append(
                [
                    sentence.replace(answer, other[answer]) if place in evidence else sentence
                    for place, sentence in enumerate(story)
                ]
            )
            stories.append(
                [
                    sentence
                    if place in evidence
                    else re.sub(pattern, lambda match: other[match[0]], sentence)  # noqa: B023
                    for place, sentence in enumerate(story)
                ]
            )
        before, *after = answers(stories, question["question"])
        assert columns["prediction"][index] == before
        within, outside = (np.mean([now != before for now in after[kind::2]]) for kind in (0, 1))
        assert columns["flips_with_evidence"][index] == pytest.approx(within)
        assert columns["flips_with_others"][index] == pytest.approx(outside)
        assert columns["proven"][index] == (within == 1 and outside == 0)


def test_some_answers_are_proven_and_most_attended_there(columns: dict[str, Any]) -> None:
    proven = columns["proven"] == 1
    assert not columns["without_answer"].any()  # in task 1 the evidence names the answer
    assert 20 < proven.sum() < 980
    for name in ("mass", "top_sentence_in_evidence"):
        np.testing.assert_array_equal(columns[f"{name}_proven"][proven], columns[name][proven])
        assert np.isnan(columns[f"{name}_proven"][~proven]).all()
    assert columns["mass_proven"][proven].mean() > columns["mass"][~proven].mean()


def test_the_page_shows_questions_and_the_proven_share(run: Path) -> None:
    write_report(run)
    page = (run / "report/index.html").read_text(encoding="utf-8")
    assert page.count('<p class="query" dir="auto">') == 6
    assert "Is attention on the evidence, and is that evidence the model&#39;s?" in page
    assert '<th scope="row">proven</th>' in page
    table = (run / "report/tables/test-evidence_mass-1.md").read_text(encoding="utf-8")
    proven = read_record(run / "records/test/evidence_mass.parquet").columns["mass_proven"]
    line = next(line for line in table.splitlines() if line.startswith("| proven "))
    assert f"{np.nanmean(proven):.3f} [" in line


class Solver:
    """Answers as the story says: where a person or an object is, or was before another place."""

    MOVE = re.compile(r"(\w+) (?:moved|went|journeyed|travelled)(?: back)? to the (\w+)")
    TAKE = re.compile(r"(\w+) (?:got|grabbed|took|picked up) the (\w+)")
    DROP = re.compile(r"(\w+) (?:dropped|discarded|left|put down) the (\w+)")

    def __init__(self, corpus: PairDataModule) -> None:
        vocabulary = Tokenizer.from_str(corpus.tokenizer_json).get_vocab()
        self.words = {number: word for word, number in vocabulary.items()}
        self.classes = corpus.classes

    def __call__(self, batch: TextBatch) -> Any:
        assert batch.query is not None
        logits = torch.zeros(len(batch), len(self.classes))
        for row, pair in enumerate(zip(batch.tokens, batch.query, strict=True)):
            story, question = (
                " ".join(self.words[token] for token in ids.tolist() if token > EOS) for ids in pair
            )
            logits[row, self.classes.index(self.answer(story, question))] = 1
        return SimpleNamespace(logits=logits)

    def answer(self, story: str, question: str) -> str:
        place: dict[str, str] = {}
        holder: dict[str, str] = {}
        visited: dict[str, list[str]] = defaultdict(list)
        for sentence in story.split(" ."):
            if move := self.MOVE.match(sentence.strip()):
                place[move[1]] = move[2]
                for thing in (thing for thing, person in holder.items() if person == move[1]):
                    visited[thing].append(move[2])
            elif take := self.TAKE.match(sentence.strip()):
                holder[take[2]] = take[1]
                visited[take[2]] += [place[take[1]]] if take[1] in place else []
            elif drop := self.DROP.match(sentence.strip()):
                del holder[drop[2]]
            else:
                assert not sentence
        if asked := re.fullmatch(r"Where is (?:the )?(\w+) \?", question):
            return place.get(asked[1]) or visited[asked[1]][-1]
        asked = re.fullmatch(r"Where was the (\w+) before the (\w+) \?", question)
        assert asked is not None
        path = [name for name, _ in groupby(visited[asked[1]])]
        return path[len(path) - 2 - path[::-1].index(asked[2])]


@pytest.mark.parametrize("task", [1, 2, 3])
def test_the_evidence_is_the_reason_of_one_who_solves_the_task(task: int, corpora: Path) -> None:
    """Every swap in the evidence changes the right answer, and none outside does."""
    options = yaml.safe_load((CONFIGS / f"data/babi_{task}.yaml").read_text())["init_args"]
    corpus = PairDataModule(**options | {"path": str(corpora / f"babi_qa{task}"), "local": None})
    solver: Any = Solver(corpus)
    batch = corpus.dataset("test")[list(range(0, 1000, 4))]
    assert torch.equal(solver(batch).logits.argmax(-1), batch.labels)
    names = class_tokens(corpus, "this")
    within, outside = swap_flips(solver, batch, batch.extras["evidence"] > 0, names)
    assert (within == 1).all()
    assert (outside == 0).all()
