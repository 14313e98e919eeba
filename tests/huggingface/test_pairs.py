"""Pairs of a passage and a query as one text of a model of transformers."""

import json
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from tokenizers import Tokenizer

import attnlight
from attnlight.__main__ import main
from attnlight.batch import SEGMENT, TextBatch
from attnlight.data.babi import generate_questions
from attnlight.datamodules import BabiStories, PairDataModule, TextDataModule
from attnlight.errors import InputError
from attnlight.huggingface import HuggingFaceClassifier, HuggingFacePooledClassifier
from attnlight.probing.leave_one_out import reencode
from attnlight.probing.removal import delete_tokens, replace_items
from attnlight.records import read_record
from tests.commands import CPU, NO_FIGURE, QUIET
from tests.huggingface.folders import TEXTS, write_model
from tests.huggingface.models import assert_near

QUERIES = ["the film is dull", "a long mess", "unfunny", "a thin plot but funny"]
LABELS = ["same", "other", "same", "other"]
NLI = {"id2label": {0: "entailment", 1: "not_entailment"}}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pairs")
    write_model(folder / "bert", max_position_embeddings=26)
    write_model(folder / "nli", **NLI)
    write_model(folder / "roberta", "roberta", max_position_embeddings=27)
    rows = zip(TEXTS, QUERIES, LABELS, strict=True)
    lines = [json.dumps({"premise": p, "hypothesis": q, "label": y}) for p, q, y in rows]
    (folder / "pairs.jsonl").write_text("\n".join(lines))
    return folder


@pytest.fixture(autouse=True)
def here(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place)


def corpus(model: str = "bert", **options: Any) -> PairDataModule:
    columns = {"passage": "premise", "query": "hypothesis", "label": "label"}
    splits = {"test": "train", "validation": "train"}
    options = {"joined": True, "tokenizer": model, "lowercase": False, **options}
    return PairDataModule(path="pairs.jsonl", cache_dir="cache", **columns, **splits, **options)


def batch_of(data: PairDataModule) -> TextBatch:
    return data.dataset("train")[[0, 1, 2, 3]]


def given(network: Any, batch: TextBatch) -> dict[str, torch.Tensor]:
    """What transformers reads: the model's own ids, the mask and the types of tokens."""
    inputs = {"input_ids": network.numbers[batch.tokens], "attention_mask": batch.mask.long()}
    return inputs | {"token_type_ids": batch.extras[SEGMENT].long()}


def test_ids_and_types_are_those_of_transformers() -> None:
    batch, network = batch_of(corpus()), HuggingFaceClassifier("bert")
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_file="bert/tokenizer.json", pad_token="[PAD]"
    )
    tokenizer.backend_tokenizer.no_truncation()
    found = tokenizer(list(TEXTS), QUERIES, padding=True, return_token_type_ids=True)
    inputs = given(network, batch)
    assert inputs["attention_mask"].tolist() == found["attention_mask"]
    real = batch.mask
    for name in ("input_ids", "token_type_ids"):
        assert inputs[name][real].tolist() == torch.tensor(found[name])[real].tolist()


def test_facts_to_copy_mark_the_source_of_each_answer(place: Path) -> None:
    """Story and question are one text, whose evidence is all pieces of the one sentence asked for."""
    questions = list(islice(generate_questions("copy", 0, 0), 20))
    stories = [" ".join((*one.passage, one.query)) for one in questions] * 5
    options = {"num_labels": 10, "max_position_embeddings": 200}
    write_model(place / "copy", texts=stories, **options)
    sizes = {"train_size": 20, "validation_size": 5, "test_size": 5}
    data = BabiStories("copy", **sizes, tokenizer="copy", cache_dir="cache")
    batch = data.dataset("train")[list(range(20))]
    network = HuggingFaceClassifier("copy", items_of="passage").eval()
    tokenizer = Tokenizer.from_file("copy/tokenizer.json")
    tokenizer.no_padding()
    start, end = (tokenizer.token_to_id(name) for name in ("[CLS]", "[SEP]"))
    mask = network(batch).mask
    for row, question in enumerate(questions):
        *facts, query = (
            tokenizer.encode(text, add_special_tokens=False).ids
            for text in (*question.passage, question.query)
        )
        passage = [piece for fact in facts for piece in fact]
        real = batch.mask[row]
        ids = network.numbers[batch.tokens[row][real]].tolist()
        assert ids == [start, *passage, end, *query, end]
        marks = [[number in question.evidence] * len(fact) for number, fact in enumerate(facts)]
        expected = [False, *chain(*marks), *[False] * (len(query) + 2)]
        assert batch.extras["evidence"][row][real].bool().tolist() == expected
        assert mask[row][real].nonzero().flatten().tolist() == [*range(1, len(passage) + 1)]


def test_logits_are_those_of_transformers() -> None:
    batch, network = batch_of(corpus()), HuggingFaceClassifier("bert").eval()
    whole = network.transformer(**given(network, batch)).logits
    alike = network.transformer(
        **given(network, batch) | {"token_type_ids": torch.zeros_like(batch.tokens)}
    ).logits
    assert_near(network(batch).logits, whole)
    assert (whole - alike).abs().max() > 1e-2  # types matter to this model


def test_pooled_states_are_those_of_transformers() -> None:
    batch, network = batch_of(corpus()), HuggingFacePooledClassifier("bert", 2).eval()
    plain = HuggingFaceClassifier("bert").eval()
    states = plain.transformer.base_model(**given(plain, batch)).last_hidden_state
    assert_near(network(batch).states[batch.mask], states[batch.mask])


def test_kept_states_are_those_of_pairs() -> None:
    data = corpus()
    frozen = HuggingFacePooledClassifier("bert", 2, freeze=True).eval()
    expected = frozen(batch_of(data)).states
    frozen.keep_states([data.dataset("train")])
    real = batch_of(data).mask
    assert_near(frozen(batch_of(data)).states[real], expected[real])


@pytest.mark.parametrize("of", ["both", "passage", "query"])
def test_items_are_of_one_part(of: Any) -> None:
    batch, network = batch_of(corpus()), HuggingFaceClassifier("bert", items_of=of).eval()
    output = network(batch)
    segment = batch.extras[SEGMENT]
    part = torch.ones_like(batch.mask) if of == "both" else segment == (of == "query")
    assert torch.equal(output.mask, batch.attendable() & part)
    assert_near(output.logits, network.transformer(**given(network, batch)).logits)
    whole = HuggingFaceClassifier("bert").eval()(batch)
    own = whole.weights * output.mask.unsqueeze(1)
    assert_near(output.weights, own / own.sum(-1, keepdim=True))


def test_items_of_a_part_need_pairs() -> None:
    network = HuggingFaceClassifier("bert", items_of="query").eval()
    with pytest.raises(InputError, match="texts are no pairs: set `items_of` to both"):
        network(network.encode(["a film"]))


def test_leave_one_out_equals_a_loop_over_both_parts() -> None:
    batch, network = batch_of(corpus()), HuggingFaceClassifier("bert").eval()
    with torch.no_grad():
        output = network(batch)
        found = reencode(network, batch, output, 1 << 10)
        for text, item in output.mask.nonzero().tolist():
            kept = batch.mask[text].clone()
            kept[item] = False
            shorter = {
                name: values[text][kept][None] for name, values in given(network, batch).items()
            }
            assert_near(found[text, item], network.transformer(**shorter).logits[0].to(found))


def test_erased_words_stay_in_their_part() -> None:
    batch = batch_of(corpus())
    everything = torch.ones_like(batch.mask)
    assert torch.equal(
        replace_items(batch, everything, "unk").extras[SEGMENT], batch.extras[SEGMENT]
    )
    of_query = batch.attendable() & (batch.extras[SEGMENT] == 1)
    shorter = delete_tokens(batch, of_query)
    assert shorter.extras[SEGMENT].sum(-1).tolist() == [1] * 4  # the last special token


def test_only_the_passage_is_cut_and_counted() -> None:
    data = corpus(truncate=10)
    whole, batch = batch_of(corpus()), batch_of(data)
    for text in range(4):
        queries = [b.tokens[text][b.extras[SEGMENT][text] == 1].tolist() for b in (whole, batch)]
        assert queries[0] == queries[1]
    assert batch.mask.sum(-1).max() <= 10 + 3
    cut = int((whole.mask.sum(-1) > 13).sum())
    assert cut
    assert data._corpus["splits"]["train"]["truncated"] == cut


def test_marks_of_words_follow_the_passage() -> None:
    rows = [
        {
            "premise": text.split(),
            "hypothesis": query,
            "label": label,
            "rationale": [0, 1] + [0] * (len(text.split()) - 2),
        }
        for text, query, label in zip(TEXTS, QUERIES, LABELS, strict=True)
    ]
    Path("marked.jsonl").write_text("\n".join(map(json.dumps, rows)))
    options = {"passage": "premise", "query": "hypothesis", "label": "label", "test": "train"}
    data = PairDataModule(
        *("marked.jsonl",), **options, rationale="rationale", validation="train", joined=True,
        tokenizer="bert", cache_dir="cache", lowercase=False,
    )  # fmt: skip
    texts = data.dataset("train")
    for place, text in enumerate(TEXTS):
        marked = texts[[place]].extras["rationale"][0] > 0
        spans = [s for s, m in zip(texts.surface(place).spans, marked.tolist(), strict=False) if m]
        assert text[spans[0][0] : spans[-1][1]] == text.split()[1]


def test_surfaces_are_of_both_parts() -> None:
    surface = corpus().dataset("train").surface(0)
    assert surface.text == f"{TEXTS[0]} | {QUERIES[0]}"
    words = [surface.text[x:y] for x, y in surface.spans if x < y]
    assert "".join(words) == f"{TEXTS[0]}{QUERIES[0]}".replace(" ", "")


@pytest.mark.parametrize("model", ["bert", "nli"])
def test_run_reads_pairs(model: str) -> None:
    rows = [{"text": p, "query": q, "label": 0} for p, q in zip(TEXTS, QUERIES, strict=True)]
    found = attnlight.run(model, rows, tests="predictions").table("predictions")
    network = HuggingFaceClassifier(model).eval()
    batch = network.encode(list(TEXTS), QUERIES)
    expected = network.transformer(**given(network, batch)).logits.softmax(-1)
    assert np.allclose(np.stack(found["probabilities"]), expected.detach().numpy(), atol=1e-5)


def test_a_model_of_pairs_refuses_texts() -> None:
    with pytest.raises(InputError, match="give each its own, in `queries`"):
        attnlight.run("nli", list(TEXTS))
    data = TextDataModule(
        "pairs.jsonl", text="premise", label="label", test="train", cache_dir="cache"
    )
    with pytest.raises(InputError, match="was trained on passages with queries"):
        data.evaluate_as(
            HuggingFaceClassifier.encoding_of({"path": "nli"}, ["entailment", "not_entailment"]),
            "pairs",
        )


def test_fit_and_test_commands(place: Path) -> None:
    options = ["--data.passage=premise", "--data.query=hypothesis", "--data.tokenizer=bert"]
    options += ["--data.validation=train", "--data.test=train"]
    model = ["--model=huggingface_last", "--model.net.path=bert"]
    fit = [
        "fit",
        *model,
        "--data=pairs.jsonl",
        *options,
        "--experiment=joined",
        "--trainer.max_epochs=1",
    ]
    assert main([*fit, *CPU, *QUIET]) == 0
    (run,) = Path("checkpoints/joined").iterdir()
    assert (
        main(
            [
                "test",
                f"--ckpt_path={run}/best.ckpt",
                "--config",
                f"{run}/fit.yaml",
                "--tests=predictions",
                NO_FIGURE,
                *CPU,
                *QUIET,
            ]
        )
        == 0
    )
    trained = attnlight.load(run)
    batch = trained.encode(list(TEXTS), queries=QUERIES)
    assert SEGMENT in batch.extras
    record = read_record(run / "records/test/predictions.parquet").columns
    with torch.no_grad():
        assert trained.model(batch).logits.argmax(-1).tolist() == list(record["prediction"])
    with pytest.raises(InputError, match="give each its own, in `queries`"):
        trained.encode(list(TEXTS))


def test_explain_shows_both_parts() -> None:
    one = attnlight.explain("nli", [TEXTS[0]], queries=[QUERIES[0]])[0]
    assert one.text == f"{TEXTS[0]} | {QUERIES[0]}"
    assert one.query is None
    assert "".join(one.items) == f"{TEXTS[0]}{QUERIES[0]}".replace(" ", "")
    assert f"{TEXTS[0]} | {QUERIES[0]}" in str(one)


class TestRefusals:
    def test_own_words(self) -> None:
        with pytest.raises(InputError, match="joined is for the texts of a model of transformers"):
            PairDataModule("pairs.jsonl", label="label", joined=True)

    def test_pairs_that_are_apart(self) -> None:
        network = HuggingFaceClassifier("bert")
        batch = batch_of(corpus(joined=False))
        with pytest.raises(InputError, match="set `joined: true` in `data`"):
            network(batch)

    def test_a_query_that_leaves_no_place(self) -> None:
        with pytest.raises(InputError, match="has a query of 4 or more tokens"):
            corpus(truncate=4).prepare()


def test_an_empty_passage_is_an_unknown_token() -> None:
    network = HuggingFaceClassifier("bert").eval()
    batch = network.encode([" "], ["a film"])
    assert batch.extras[SEGMENT][0].tolist().index(1) == 3  # [CLS], unknown, [SEP]
    assert network(batch).mask[0].sum() == batch.attendable()[0].sum()
