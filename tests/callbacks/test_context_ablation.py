"""Contexts with items left out, against loops that read each shortened text."""

from dataclasses import replace
from itertools import permutations
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from scipy.stats import spearmanr
from torch import Tensor, nn

import attnlight
from attnlight.attribution import ContextCite, fit_heads
from attnlight.attribution.context_cite import lasso
from attnlight.attribution.learned_heads import Heads
from attnlight.batch import AttentionOutput, TextBatch
from attnlight.callbacks import ContextAblation
from attnlight.data.collate import collate_ids
from attnlight.data.rows import read_rows
from attnlight.errors import InputError
from attnlight.figures import describe, figure_rows, tables
from attnlight.huggingface import AnswerModel
from attnlight.models import FlatClassifier
from attnlight.probing.context_ablation import random_subsets
from attnlight.records import read_metadata
from attnlight.reference.rows import encode_rows
from attnlight.reference.trained import TrainedModel
from attnlight.report.verdict.estimate import rules
from attnlight.report.verdict.rows import rows_of
from tests.huggingface.test_answers import write_decoder

LENGTHS = (5, 3, 1, 8)


@pytest.fixture(scope="module")
def model() -> nn.Module:
    torch.manual_seed(0)
    options: Any = {"encoder": "none", "attention": "additive", "embedding_size": 8}
    return FlatClassifier(num_classes=3, vocab_size=40, **options).double().eval()


@pytest.fixture(scope="module")
def batch() -> TextBatch:
    generator = torch.Generator().manual_seed(1)
    ids = [torch.randint(4, 40, (n,), generator=generator).tolist() for n in LENGTHS]
    made = collate_ids(ids)
    made.labels = torch.tensor([0, 1, 2, 0])
    marks = [[1, 0, 0, 0, 1], [0, 1, 0], [1], [0] * 8]
    rows = [[*row, *[0] * (8 - len(row))] for row in marks]
    made.extras["evidence"] = torch.tensor(rows)
    return made


def odds_of(model: Any, batch: TextBatch, text: int, places: Any, target: int) -> float:
    """Log odds of a class where only the tokens at some places of a text are read."""
    shortened = collate_ids([batch.tokens[text, places].tolist()])
    logits = model(shortened).logits[0].detach().double()
    others = torch.cat([logits[:target], logits[target + 1 :]])
    return float(logits[target] - others.logsumexp(0))


@pytest.fixture(scope="module")
def columns(model: Any, batch: TextBatch) -> dict[str, Tensor]:
    test = ContextAblation(methods=["attention", "input_gradient"], subsets=16, top=(1, 3), seed=3)
    with torch.no_grad():
        output: AttentionOutput = model(batch)
    return dict(test.measure(batch, output, model))


def test_measures_are_those_of_loops(
    model: Any, batch: TextBatch, columns: dict[str, Tensor]
) -> None:
    output = model(batch)
    sets = random_subsets(batch.mask, batch.index, 16, 3)
    for text, length in enumerate(LENGTHS):
        target, everything = int(output.logits[text].argmax()), list(range(length))
        if length == 1:
            assert columns["lds_attention"][text].isnan()
            assert columns["necessary_leave_one_out"][text].isnan()
            continue
        whole = odds_of(model, batch, text, everything, target)
        without = [[m for m in everything if m != n] for n in everything]
        effects = [whole - odds_of(model, batch, text, kept, target) for kept in without]
        assert float(columns["largest_effect"][text]) == pytest.approx(max(map(abs, effects)))
        odds = [
            odds_of(model, batch, text, s[:length].nonzero().flatten(), target) for s in sets[text]
        ]
        weights = output.weights[text].mean(0)[:length].tolist()
        for label, scores in {"attention": weights, "leave_one_out": effects}.items():
            sums = [sum(scores[n] for n in everything if s[n]) for s in sets[text]]
            assert float(columns[f"lds_{label}"][text]) == pytest.approx(spearmanr(sums, odds)[0])
            order = sorted(everything, key=lambda n: -scores[n])
            for k in (1, 3):
                found = float(columns[f"drop_{k}_{label}"][text])
                if length <= k:
                    assert np.isnan(found)
                    continue
                expected = whole - odds_of(model, batch, text, sorted(order[k:]), target)
                assert found == pytest.approx(expected)
            rest = collate_ids([[int(batch.tokens[text, n]) for n in without[order[0]]]])
            turned = int(model(rest).logits.argmax()) != target
            assert columns[f"necessary_{label}"][text] == turned
            alone = collate_ids([[int(batch.tokens[text, order[0]])]])
            kept = int(model(alone).logits.argmax()) == target
            assert columns[f"sufficient_{label}"][text] == kept
            assert columns[f"cited_{label}"][text] == order[0]
            marked = batch.extras["evidence"][text, order[0]] > 0
            if batch.extras["evidence"][text].any():
                assert columns[f"finds_{label}"][text] == marked
    assert columns["auprc_attention"][3].isnan(), "a text without evidence"
    for label, passes in {"attention": 0, "input_gradient": 3}.items():
        assert columns[f"passes_{label}"].nan_to_num(passes).eq(passes).all()
    assert columns["passes_leave_one_out"].nan_to_num(1).tolist() == list(LENGTHS)
    assert columns["correct"].tolist() == (output.logits.argmax(-1) == batch.labels).tolist()


def test_random_subsets_keep_half_and_never_nothing() -> None:
    items = torch.tensor([[True, True, False, True], [False, True, False, False]])
    sets = random_subsets(items, torch.tensor([5, 6]), 4000, 0)
    assert sets.any(-1).all()
    assert not sets[:, :, 2].any()
    # Of three items each stays with probability 1/2, and the empty set, 1/8, becomes one of three.
    assert float(sets[0, :, [0, 1, 3]].double().mean()) == pytest.approx(0.5 + 1 / 24, abs=0.01)
    assert not torch.equal(sets[0], random_subsets(items, torch.tensor([5, 6]), 4000, 1)[0])


def test_lasso_minimises_its_objective() -> None:
    random = np.random.default_rng(0)
    features = (random.random((32, 6)) < 0.5).astype(float)
    features[:, 3] = 1.0
    values = features @ [2.0, -1.0, 0.0, 5.0, 0.4, 0.0] + 0.1 * random.normal(size=32)
    kept = [0, 1, 2, 4, 5]
    scale = features[:, kept].std(axis=0)
    standard = (features[:, kept] - features[:, kept].mean(axis=0)) / scale

    def objective(weights: Any) -> float:  # as positive and negative parts, which makes it smooth
        difference = values - values.mean() - standard @ (weights[:5] - weights[5:])
        return float(difference @ difference / 64 + 0.05 * weights.sum())

    best = minimize(objective, np.zeros(10), bounds=[(0, None)] * 10, options={"ftol": 1e-14})
    found = lasso(features, values, 0.05)
    assert found[3] == 0
    np.testing.assert_allclose(found[kept], (best.x[:5] - best.x[5:]) / scale, atol=2e-4)
    plain = np.linalg.lstsq(np.c_[standard, np.ones(32)], values, rcond=None)[0][:5]
    np.testing.assert_allclose(lasso(features, values, 0.0)[kept], plain / scale, atol=1e-6)


def test_context_cite_is_the_lasso_of_shortened_texts(model: Any, batch: TextBatch) -> None:
    output = model(batch)
    target = output.logits.argmax(-1)
    found = ContextCite(ablations=24, seed=2)(model, batch, output, target)
    sets = random_subsets(batch.mask, batch.index, 24, 2 + (1 << 40))
    for text in (0, 1):
        odds = [
            odds_of(model, batch, text, s.nonzero().flatten(), int(target[text]))
            for s in sets[text]
        ]
        expected = lasso(sets[text].double().numpy(), np.array(odds), 0.01)
        np.testing.assert_allclose(found[text], expected, atol=1e-6)


def test_context_cite_refuses_a_tagger(model: Any, batch: TextBatch) -> None:
    output, tagged = model(batch), replace(batch, labels=torch.zeros_like(batch.tokens))
    with pytest.raises(InputError, match="context_cite needs a model with one row for each text"):
        ContextCite()(model, tagged, output, output.logits.argmax(-1))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"subsets": 1}, "subsets of context_ablation is 1"),
        ({"top": [0]}, "top of context_ablation is 0"),
        ({"least": 1.0}, "least of context_ablation is 1.0"),
        ({"methods": [{"name": "random", "label": "leave_one_out"}]}, "give the method another"),
        ({"methods": [{"name": "context_cite", "ablations": 65}]}, "64 ablations at most"),
        ({"methods": [{"name": "answer_attention", "of": "rollout", "layer": 1}]}, "of all layers"),
    ],
)
def test_options_are_refused(options: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        ContextAblation(**options)


def test_other_ways_need_a_model_that_answers(model: Any, batch: TextBatch) -> None:
    test = ContextAblation(methods=["attention", "answer_attention"], way="masked")
    with pytest.raises(InputError, match="FlatClassifier leaves items out by removal only"):
        test.measure(batch, model(batch), model)
    test = ContextAblation(methods=["answer_attention"], subsets=4)
    assert test.measure(batch, model(batch), model)["lds_answer_attention"].isnan().all()


def stories(count: int, first: int = 0) -> list[dict[str, Any]]:
    """Questions on stories of three sentences, by number, of which there are 48."""
    names, places = ("Mary", "John"), ("bathroom", "hallway")
    facts = [f"{name} went to the {place}." for name in names for place in places]
    passages = list(permutations(facts, 3))
    return [
        {
            "passage": list(passages[number % 24]),
            "query": f"Where is {names[number // 24]}?",
            "label": places[number % 2],
        }
        for number in range(first, first + count)
    ]


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = write_decoder(tmp_path_factory.mktemp("context") / "tiny", "llama")
    return AnswerModel(folder, classes=("bathroom", "hallway")).eval()


def test_heads_are_learned_from_some_texts_and_judged_on_others(
    answers: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(rules(), "least_texts", 12)
    file, subsets = str(tmp_path / "heads.json"), 8
    learned, judged = stories(4), [*stories(12, 4), *stories(2)]
    attnlight.run(answers, learned, [ContextAblation(["random"], subsets=subsets, learn=file)])
    own = Heads.read(file)
    batch = encode_rows(TrainedModel.of(answers), read_rows(learned), 0)
    weights = fit_heads(answers, [batch], tmp_path / "own.json", ablations=subsets)
    torch.testing.assert_close(own.weights, weights)
    assert own.table() == Heads.read(tmp_path / "own.json").table()
    methods = ["attention", "answer_attention", "context_cite", "random"]
    results = attnlight.run(
        answers, judged, [ContextAblation(methods, subsets=subsets, heads=file)]
    )
    rows, line = results.table("context_ablation"), results.verdict()["cites"]
    assert line.value == pytest.approx(rows["somers_d_answer_attention"].mean())
    for words, label in {"single head": "best_head", "learned heads": "learned_heads"}.items():
        mean = rows[f"somers_d_{label}"][:12].mean()
        assert f"{words} {mean:.2f} [" in line.says
        assert rows[f"somers_d_{label}"][12:].isna().all(), "they were learned from"
    assert "does attention point to the sentences" in line.question.lower()
    assert results.verdict().subject[0] == "tiny"
    names = [name for name in rows if name.startswith("lds_")]
    means = rows[names].mean().drop(["lds_random", "lds_leave_one_out"])
    words = {"lds_best_head": "the best single head", "lds_learned_heads": "learned heads"}
    words |= {"lds_context_cite": "ContextCite", "lds_attention": "attention"}
    assert f"Cite by {words[means.idxmax()]}, " in line.says
    *_, heads = results_tables(results)
    assert heads.rows[0][0] == "layer {:.0f}, head {:.0f}".format(*own.table()[0])


def results_tables(results: Any) -> list[Any]:
    """The tables of the test."""
    path = results.folder / "records/test/context_ablation.parquet"
    rows, _ = figure_rows(path, describe("context_ablation").columns)
    return tables("context_ablation", rows, None, read_metadata(path))


def test_several_processes_learn_no_heads(answers: Any, tmp_path: Path) -> None:
    test = ContextAblation(["random"], learn=str(tmp_path / "heads.json"))
    around = SimpleNamespace(place=(0, 2))
    with pytest.raises(InputError, match="learns heads in one process, not 2"):
        test.begin(around)  # type: ignore[arg-type]


def test_the_card_says_what_to_cite_by(model: Any, batch: TextBatch) -> None:
    copies = batch.select(torch.tensor([0, 1, 3] * 12))
    copies.index = torch.arange(36)
    test = ContextAblation(methods=["attention", "random"], subsets=8)
    results = attnlight.run(model, [copies], [test])
    line, rows = results.verdict()["cites"], results.table("context_ablation")
    assert rows_of(results.verdict().lines, "sentences")[0].line == line
    assert line.value == pytest.approx(rows["somers_d_attention"].mean())
    assert line.answer == ("no" if line.high is not None and line.high < 0.5 else "not shown")
    means = {label: rows[f"lds_{label}"].mean() for label in ("attention", "random")}
    assert means["random"] > means["attention"]
    assert "No other reading" in line.says, "nobody cites at random"
    few = attnlight.run(model, [batch], [test]).verdict()["cites"]
    assert (few.answer, few.says[:7]) == ("not shown", "Too few")
