"""Adversarial attention: columns of the functions, budgets, whole runs."""

from pathlib import Path

import numpy as np
import pytest
import torch

from attnlight.callbacks import AdversarialAttention, GradientSearch
from attnlight.data.selection import choose
from attnlight.errors import InputError
from attnlight.functional import max_js, search_adversary, worst_case_attention, worst_case_js
from attnlight.functional.adversary.local_search import most_evaluations
from attnlight.records import read_metadata, read_record
from attnlight.statistics.frontier import EPSILONS
from tests.callbacks.handmade import Hidden, batch_of, columns_of, output_of, random_output
from tests.callbacks.test_base import recorded, run_test, trainer
from tests.outside import OutsideTask, Texts, loader

MEASURES = ("worst_js", "worst_share", "worst_tvd", "upper_js")
SEARCHED = ("search_js", "search_tvd", "search_gap")
FEW_STEPS = GradientSearch(steps=40, learning_rate=0.1)


@pytest.mark.parametrize(("heads", "classes"), [(1, 2), (3, 3)])
def test_columns_are_those_of_the_functions(heads: int, classes: int) -> None:
    output = random_output(heads, classes, rows=12)
    test = AdversarialAttention(search=FEW_STEPS, seed=3, frontier=True)
    found = columns_of(test, output)
    arguments = (output.weights, output.item_logits, output.mask, 0.01)
    searched = search_adversary(*arguments, output.rows, seed=3, steps=40, learning_rate=0.1)
    adversary, js, upper = worst_case_attention(*arguments, searched[0])
    assert js.shape == (12, heads)
    share = js / max_js(output.weights, output.mask)
    terms = ("worst_js", "upper_js", "search_js", "worst_share")
    for name, expected in zip(terms, (js, upper, searched[1], share), strict=True):
        torch.testing.assert_close(found[name], expected.mean(-1), equal_nan=True)
    if heads == 1:
        moved = (Hidden(output).readout(output, adversary.unsqueeze(2))[:, 0]).softmax(-1)
        expected = (moved - output.probabilities).abs().sum(-1) / 2
        torch.testing.assert_close(found["worst_tvd"], expected, rtol=0, atol=1e-9)
    else:
        assert (found["joint_js"] <= found["worst_js"] + 1e-12).all()
    torch.testing.assert_close(found["search_gap"], (js - searched[1]).mean(-1))
    assert (found["search_gap"] >= -1e-12).all()
    assert (found["search_tvd"] <= 0.01 + 1e-9).all()
    assert found.keys() >= {*MEASURES, *SEARCHED}
    by_head = {name for name in found if name.endswith("_by_head")}
    assert by_head == {f"{name}_by_head" for name in (*MEASURES, *SEARCHED) if heads > 1}
    if heads > 1:
        torch.testing.assert_close(found["worst_js_by_head"], js)
    if (heads, classes) == (1, 2):
        grid = torch.tensor(EPSILONS, dtype=torch.float64)
        expected = worst_case_js(output.weights[:, 0], output.item_logits[:, 0], output.mask, grid)
        torch.testing.assert_close(found["frontier_js"], expected)
    else:
        assert "frontier_js" not in found


@pytest.mark.parametrize("affine", [True, False])
def test_wider_tolerances_are_those_of_tests_of_their_own(affine: bool) -> None:
    output = random_output(2, 3, rows=5, zeros=0.0)
    narrow, wide = AdversarialAttention(wider_epsilons=[0.05, 0.2]), AdversarialAttention(0.05)
    model = Hidden(output)
    with torch.no_grad():
        found, alone = (
            dict(test.measure(batch_of(output), output if affine else model.output, model))  # type: ignore[arg-type]
            for test in (narrow, wide)
        )
    assert narrow.measures[-2:] == ("worst_js_0.05", "worst_js_0.2")
    gained = found["worst_js_0.05"] - alone["worst_js"]
    assert (gained >= -1e-12).all(), "the attention within 0.01 is a further candidate"
    assert gained.max() < 1e-3
    assert (found["worst_js_0.2"] >= found["worst_js_0.05"]).all()
    assert (found["worst_js_0.05"] > found["worst_js"] + 1e-3).any()
    with pytest.raises(InputError, match=r"wider_epsilons .* are \[0.005\]; they must ascend"):
        AdversarialAttention(wider_epsilons=[0.005])


def test_one_item_has_no_share_and_none_is_undefined() -> None:
    mask = torch.tensor([[True, False, False], [False, False, False], [True, False, True]])
    weights = torch.tensor([[1.0, 0, 0], [0, 0, 0], [0.25, 0, 0.75]]).unsqueeze(1)
    items = torch.randn(3, 1, 3, 2, generator=torch.Generator().manual_seed(0))
    output = output_of(weights, items, torch.zeros(2), mask)
    found = columns_of(AdversarialAttention(frontier=True, search=FEW_STEPS), output)
    for name, column in found.items():
        undefined = [name == "worst_share", True, False]
        assert column.reshape(3, -1).isnan().any(-1).tolist() == undefined, name
    assert found["worst_js"][0] == found["worst_tvd"][0] == found["search_js"][0] == 0


@pytest.mark.parametrize(
    ("cheap", "evaluations", "most"),
    [(False, 200, 200), (True, 200, most_evaluations(4)), (False, None, most_evaluations(4))],
)
def test_the_budget_of_evaluations_is_said_once(
    cheap: bool, evaluations: int | None, most: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """A readout that the model does not call cheap has a budget; a cheap one is searched in full."""
    output = random_output(1, 4, rows=6, zeros=0.0)
    model, test = Hidden(output), AdversarialAttention(evaluations=evaluations)
    model.cheap_readout = cheap
    with torch.no_grad():
        for _ in range(2):
            test.measure(batch_of(output), model.output, model)  # type: ignore[arg-type]
        (line,) = capsys.readouterr().err.splitlines()
        columns_of(AdversarialAttention(), output)
    assert "the largest JS is at least worst_js" in line
    assert f"evaluates the readout at most {most:,} times for each head of a row" in line
    assert not capsys.readouterr().err, "an affine one has no budget"


def test_one_process_says_the_budget(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCAL_RANK", "1")
    output = random_output(1, 4, rows=6, zeros=0.0)
    model = Hidden(output)
    with torch.no_grad():
        AdversarialAttention(evaluations=9).measure(batch_of(output), output, model)  # type: ignore[arg-type]
    assert not capsys.readouterr().err


def test_search_is_for_some_instances_chosen_by_hash(tmp_path: Path) -> None:
    task = OutsideTask()
    search = GradientSearch(instances=6, steps=15, learning_rate=0.3)
    test = AdversarialAttention(epsilon=0.2, search=search, seed=4)
    started = run_test(tmp_path, test, task=task)
    path = tmp_path / "records/test/adversarial_attention.parquet"
    rows = read_record(path).columns
    searched = rows["index"][~np.isnan(rows["search_js"])]
    assert searched.tolist() == choose(np.arange(23), 6, 4).tolist()
    for name in ("search_tvd", "search_gap"):
        assert np.array_equal(np.isnan(rows[name]), np.isnan(rows["search_js"]))
    about = read_metadata(path)
    assert about["measures"] == [*MEASURES, *SEARCHED]
    assert about["epsilon"] == 0.2
    assert (about["search"]["steps"], about["search"]["instances"]) == (15, 6)
    assert "test/adversarial_attention/search_js_low" in started.callback_metrics
    assert all(parameter.grad is None for parameter in task.parameters())
    search = GradientSearch(instances=6, steps=2)
    test = AdversarialAttention(max_instances=10, search=search, seed=4)
    fewer = recorded(tmp_path / "fewer", test, task=task).columns
    assert len(fewer["index"]) == 10
    assert fewer["index"][~np.isnan(fewer["search_js"])].tolist() == searched.tolist()


def test_programs_on_validation_epochs_are_for_some_texts(tmp_path: Path) -> None:
    """Two texts in `fit`, all at test; nulls and metadata say which."""
    texts = Texts()
    task, test = OutsideTask(), AdversarialAttention(program_instances=2, seed=4)
    started = trainer(tmp_path, test, max_epochs=1)
    started.fit(task, loader(texts), loader(texts))
    started.test(task, loader(texts), verbose=False)
    chosen = choose(np.arange(23), 2, 4)
    (fitted,) = (tmp_path / "records/val").glob("adversarial_attention*.parquet")
    for path, index, count in (
        (fitted, chosen, 2),
        (tmp_path / "records/test/adversarial_attention.parquet", np.arange(23), None),
    ):
        rows, about = read_record(path).columns, read_metadata(path)["several_classes"]
        assert len(rows["index"]) == 23
        assert rows["index"][~np.isnan(rows["worst_js"])].tolist() == index.tolist()
        assert np.array_equal(np.isnan(rows["upper_js"]), np.isnan(rows["worst_js"]))
        assert not np.isnan(rows["max_attention"]).any()
        assert about["texts"] == count
        assert about["candidates"] == ["lightest item", "linear programs", "one and two items"]
    without = recorded(tmp_path / "without", AdversarialAttention(program_instances=0), task=task)
    gained = rows["worst_js"] - without.columns["worst_js"]
    assert (gained >= -1e-7).all()
    assert (gained > 1e-3).any()
    assert "linear programs" not in without.metadata["several_classes"]["candidates"]


def test_true_is_the_search_of_the_released_code() -> None:
    one, other = (AdversarialAttention(search=search) for search in (True, GradientSearch()))
    assert one.search == GradientSearch()
    assert one.hparams == other.hparams
    assert AdversarialAttention().search is None
