"""Attention kept off marked items or drawn to them: every kind of model, by loops and by training."""

from __future__ import annotations

import math
from contextlib import nullcontext
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from attnlight.batch import AttentionOutput, TextBatch
from attnlight.errors import InputError
from attnlight.functional import masked_softmax
from attnlight.reference import read_base
from attnlight.tasks import AttentionClassifier, GuidedVariant, SeedVariant, UniformVariant
from attnlight.tasks.objectives import MARKED, Penalties, deceive, supervise
from attnlight.tasks.options import Objective
from tests.bases import SMALL, Planted, save_base, trainer
from tests.callbacks.test_impermissible_mass import marked
from tests.models import translations
from tests.tasks.conftest import Scene

KINDS = pytest.mark.parametrize("scene", ["two", "sentences", "pairs", "tokens"], indirect=True)
COLUMN = "forbidden"
OBJECTIVE = Objective(1.0, "mean", "evidence")
OBJECTIVES = ("val/objective", "max")


def by_loop(
    name: str, batch: TextBatch, output: AttentionOutput, aggregate: str
) -> tuple[list[float], list[bool]]:
    """Penalties from the weights of each row and head, and the rows that have one."""
    penalties, defined = [], []
    for row, (index, _) in enumerate(output.rows.tolist()):
        marks = batch.extras[COLUMN][batch.index.tolist().index(index)] > 0
        items = output.mask[row].nonzero().flatten().tolist()
        forbidden = {item: bool(marks[item].any()) for item in items}  # any word of a sentence
        has = len(set(forbidden.values())) == 2 if name == "deceive" else any(forbidden.values())
        each = []
        for head in output.weights[row].tolist():
            weights = [head[item] for item in items if forbidden[item]]
            if not has:
                each.append(0.0)
            elif name == "deceive":
                each.append(-math.log(1 - sum(weights)))
            else:
                each.append(sum(math.log(1 / len(weights) / weight) for weight in weights))
                each[-1] /= len(weights)
        penalties.append(max(each) if aggregate == "max" else sum(each) / len(each))
        defined.append(has)
    return penalties, defined


@KINDS
@pytest.mark.parametrize("name", MARKED)
@pytest.mark.parametrize("aggregate", ["mean", "max"])
def test_every_kind_of_model_equals_a_loop(
    scene: Scene, aggregate: Any, name: str, tmp_path: Path
) -> None:
    penalty_of = MARKED[name]
    model: Any = read_base(scene.base(tmp_path)).model.double()  # type: ignore[attr-defined]
    data = scene.corpus.dataset("train")
    batch = marked(data[list(range(17))], COLUMN)
    output = model(batch)
    torch.testing.assert_close(
        masked_softmax(output.scores, output.mask), output.weights, rtol=0, atol=1e-12
    )
    assert model(batch, weights=output.weights).scores is None
    penalty, has = penalty_of(output, batch, Objective(1.0, aggregate, COLUMN))
    expected, defined = by_loop(name, batch, output, aggregate)
    assert has.tolist() == defined
    assert 0 < sum(defined) < len(defined)
    torch.testing.assert_close(penalty, torch.tensor(expected).double(), rtol=1e-6, atol=1e-9)
    # Of the batch nothing else counts: each text alone, without its padding.
    for text in range(len(batch)):
        one = marked(data[[text]], COLUMN)
        of_text = output.rows[:, 0] == batch.index[text]
        alone, _ = penalty_of(model(one), one, Objective(1.0, aggregate, COLUMN))
        torch.testing.assert_close(alone, penalty[of_text], rtol=0, atol=1e-9)


def task(**objective: Any) -> tuple[AttentionClassifier, Planted]:
    torch.manual_seed(0)
    data = Planted()
    options = {"column": "evidence"} | objective
    net: Any = SMALL | {"encoder": "none"}
    fast: Any = {"learning_rate": 0.03}
    return AttentionClassifier(data.spec, net, optimizer=fast, objective=options), data


def test_training_keeps_attention_off_and_logs_the_loss_without_it(tmp_path: Path) -> None:
    logged = {}
    for weight in (0.0, 1.0):
        trained, data = task(lambda_deceive=weight)
        run = trainer(tmp_path, max_epochs=3)
        run.fit(trained, data)
        logged[weight] = dict(run.callback_metrics)
        batch = data.dataset("validation")[list(range(21))]
        trained.eval()
        with torch.no_grad():
            output = trained.model(batch)
        expected = trained.problem.losses(output, batch, trained.class_weight).mean()
        assert logged[weight]["val/loss"] == pytest.approx(expected.item(), abs=1e-6)
    assert not [name for name in logged[0.0] if "deceive" in name or "objective" in name]
    values, has = deceive(output, batch, OBJECTIVE)
    mean = float(values[has].mean())
    assert logged[1.0]["val/deceive"] == pytest.approx(mean, abs=1e-6)
    assert logged[1.0]["val/without_deceive"] == (~has).sum()
    objective = float(logged[1.0]["val/accuracy"] - values.mean())
    assert logged[1.0]["val/objective"] == pytest.approx(objective, abs=1e-6)
    assert logged[1.0]["train/without_deceive"] == 0
    untrained, _ = task(lambda_deceive=1.0)
    before, _ = deceive(untrained.model(batch), batch, OBJECTIVE)
    assert mean < 0.8 * float(before[has].mean())


def test_training_draws_attention_to_the_evidence_and_counts_texts_without(tmp_path: Path) -> None:
    trained, data = task(lambda_supervise=1.0)
    batch = data.dataset("validation")[list(range(21))]
    untrained, _ = task(lambda_supervise=1.0)
    before, _ = supervise(untrained.model(batch), batch, OBJECTIVE)
    run = trainer(tmp_path, max_epochs=3)
    run.fit(trained, data)
    after = float(run.callback_metrics["val/supervise"])
    assert after < 0.8 * float(before.mean())
    assert run.callback_metrics["val/without_supervise"] == 0
    # Without marks a text has neither penalty nor gradient; where all items are marked it has both.
    batch.extras["evidence"][1], batch.extras["evidence"][2] = -1, 1
    scores = torch.randn(21, 1, batch.tokens.shape[1], requires_grad=True)
    output = trained.model(batch)
    output.scores = scores
    penalty, has = supervise(output, batch, OBJECTIVE)
    assert has.tolist() == (penalty > 0).tolist() == [row != 1 for row in range(21)]
    (gradient,) = torch.autograd.grad(penalty.sum(), scores)
    assert gradient.isfinite().all()
    assert gradient.flatten(1).any(1).tolist() == has.tolist()


def test_texts_without_one_kind_are_counted_and_have_no_penalty() -> None:
    penalties, data = Penalties(replace(OBJECTIVE, lambda_deceive=2.0)), Planted()
    batch = data.dataset("train")[list(range(8))]
    evidence = batch.extras["evidence"]
    evidence[1], evidence[2] = 0, 1
    scores = torch.randn(8, 1, evidence.shape[1], requires_grad=True)
    output = AttentionClassifier(data.spec, SMALL).model(batch)  # type: ignore[arg-type]
    output.scores = scores
    real = torch.arange(8) != 5  # a repeat
    total: Any = penalties(output, batch, real, "train")
    assert (total != 0).tolist() == [True, False, False, True, True, False, True, True]
    logged = {name: float(metric.compute()) for name, metric in penalties.logged("train").items()}
    assert logged["train/without_deceive"] == 2
    assert logged["train/deceive"] == pytest.approx(float(total.sum()) / 2 / 5)
    (gradient,) = torch.autograd.grad(total.sum(), scores)
    assert gradient.flatten(1).any(1).tolist() == (total != 0).tolist()


def test_a_task_without_an_objective_has_the_hyperparameters_of_before(tmp_path: Path) -> None:
    (without, data), (off, _) = task(lambda_deceive=0.0), task(lambda_deceive=0)
    net: Any = SMALL | {"encoder": "none"}
    plain = AttentionClassifier(data.spec, net, optimizer={"learning_rate": 0.03})
    assert dict(without.hparams) == dict(off.hparams) == dict(plain.hparams)
    assert "objective" not in plain.hparams
    on, _ = task(lambda_deceive=0.5)
    assert on.hparams["objective"] == asdict(Objective(0.5, "mean", "evidence"))
    assert on.state_dict().keys() == plain.state_dict().keys()


def test_variants_take_over_or_refuse(tmp_path: Path) -> None:
    data = Planted()
    objective = {"lambda_deceive": 0.3, "column": "evidence"}
    base = str(save_base(tmp_path / "base.ckpt", data, objective=objective))
    plain = str(save_base(tmp_path / "plain.ckpt", data))
    again = SeedVariant(data.spec, base)
    assert again.hparams["objective"] == asdict(Objective(0.3, "mean", "evidence"))
    stronger = SeedVariant(data.spec, base, objective={"lambda_deceive": 2.0})
    assert stronger.hparams["objective"]["lambda_deceive"] == 2.0
    assert stronger.hparams["objective"]["column"] == "evidence"
    assert "objective" not in SeedVariant(data.spec, plain).hparams
    assert SeedVariant.monitor({"base": base}) == OBJECTIVES
    assert SeedVariant.monitor({"base": plain}) == ("val/accuracy", "max")
    for kind in (UniformVariant, GuidedVariant):
        assert "objective" not in kind(data.spec, base).hparams
        assert kind.monitor({"base": base}) == ("val/accuracy", "max")
        with pytest.raises(InputError, match=f"{kind.__name__} is trained without an objective"):
            kind(data.spec, base, objective={"lambda_deceive": 1.0})


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"column": "evidense"}, r"column evidense .* this one: evidence.*did you mean 'evidence'"),
        ({"lambda_deceive": -1.0}, "lambda_deceive is -1.0; it must be a finite number of at le"),
        ({"lambda_deceive": math.nan}, "lambda_deceive is nan"),
        ({"lambda_supervise": -0.5, "lambda_deceive": 0.0}, "lambda_supervise is -0.5; it must be"),
        ({"lambda_supervise": 1.0}, "keeps attention off the items that lambda_supervise draws"),
        (
            {"lambda_supervise": 1.0, "lambda_deceive": 0.0, "column": "rationale"},
            "lambda_supervise needs a corpus with the column rationale",
        ),
        ({"lamda_deceive": 1.0}, "objective has no option 'lamda_deceive'.*did you mean"),
    ],
)
def test_mistakes_in_options(options: dict[str, Any], words: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=words):  # noqa: PT012
        trained, data = task(**{"lambda_deceive": 1.0} | options)
        trainer(tmp_path, max_epochs=1).fit(trained, data)


@pytest.mark.parametrize(
    ("name", "mark", "words"),
    [
        ("deceive", 0, "in each of the 61 training texts the column evidence marks every item or"),
        ("deceive", 1, "in each of the 61 training texts the column evidence marks every item or"),
        ("supervise", 0, "in each of the 61 training texts the column evidence marks no item"),
        ("supervise", 1, ""),
    ],
)
def test_a_corpus_of_which_everything_is_marked_or_nothing(
    name: str, mark: int, words: str
) -> None:
    trained, _ = task(**{f"lambda_{name}": 1.0})
    texts = Planted().dataset("train")

    class Marked:
        extras = texts.extras

        def __len__(self) -> int:
            return len(texts)

        def __getitem__(self, positions: Any) -> TextBatch:
            batch = texts[positions]
            return replace(batch, extras={"evidence": torch.full_like(batch.tokens, mark)})

    with pytest.raises(InputError, match=words) if words else nullcontext():
        trained.penalties.require_marks(Marked())


def test_a_column_of_another_length_and_attention_that_is_not_trained() -> None:
    data = Planted()
    batch = data.dataset("train")[[0, 1]]
    model = AttentionClassifier(data.spec, SMALL | {"attention": "uniform"}).model  # type: ignore[arg-type]
    real = torch.ones(2, dtype=torch.bool)
    with pytest.raises(InputError, match="needs attention whose scores are trained"):
        Penalties(OBJECTIVE)(model(batch), batch, real, "train")
    output = model(batch, weights=model(batch).weights)
    for name, penalty in MARKED.items():
        with pytest.raises(InputError, match=f"lambda_{name} needs attention whose scores are tr"):
            penalty(output, batch, OBJECTIVE)
    short: Tensor = batch.extras["evidence"][:, :-1]
    with pytest.raises(InputError, match=r"evidence of a batch is of shape \(2, .*a number for"):
        deceive(model(batch), replace(batch, extras={"evidence": short}), OBJECTIVE)


@pytest.mark.parametrize("kind", ["additive", "general"])
def test_links_of_translations_are_penalised_by_sentence(kind: str) -> None:
    made, sources = translations.model(kind).train(), translations.batch(padding=2)
    output = made(sources)
    found, defined = deceive(output, sources, Objective(1.0, "mean", "links"))
    row = 0
    for text, (words, others) in enumerate(translations.LENGTHS):
        masses = []
        for step in range(others + 1):
            links = sources.links[text, step, :words] > 0
            mass = output.weights[row + step, 0, :words][links].sum().item()
            masses.append(mass if 0 < links.sum() < words else 0.0)  # else it cannot move
        expected = -math.log(1 - sum(masses) / len(masses))
        for step in range(others + 1):
            assert found[row + step].item() == pytest.approx(expected, abs=1e-9)
            assert defined[row + step].item() == (words > 1)
        row += others + 1
    (gradient,) = torch.autograd.grad(
        found.sum(), made.query.weight if kind == "additive" else made.key.weight
    )
    assert gradient.abs().sum() > 0
    with pytest.raises(InputError, match="needs a corpus with the column links"):
        deceive(output, replace(sources, links=None), Objective(1.0, "mean", "links"))
    uniform = translations.model("uniform").train()
    free = uniform(sources)
    penalty, _ = deceive(free, sources, Objective(1.0, "mean", "links"))
    assert not penalty.requires_grad, "which `Penalties` refuses"
