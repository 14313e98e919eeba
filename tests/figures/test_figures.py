"""Every test's figure is found by its name and says what it shows."""

import pkgutil
from importlib import import_module
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pytest

from attnlight import callbacks, figures
from attnlight.figures import describe, descriptions, draw
from attnlight.report import save_figure
from tests.report.fake import MEASURES, drawn, rows_of

TESTS = list(descriptions())
# Lines in the legends beside the classes.
LINES = {
    "evidence_mass": ("chance",),
    "faithfulness": ("random ranking",),
    "plausibility": ("chance",),
    "state_token_agreement": ("attribution to the own token", "all tokens alike"),
}
# Figures of all classes together.
TOGETHER = ("saliency_agreement", "sanity", "attribution_cost", "head_ablation", "attention_sinks")
TOGETHER += ("erased_accuracy",)


@pytest.mark.parametrize("test", TESTS)
class TestEach:
    def test_is_described_in_words(self, test: str) -> None:
        found = describe(test)
        assert found.question.endswith("?")
        assert found.source
        assert len(found.caption) > 100
        callback = getattr(callbacks, found.title.title().replace(" ", ""))
        assert all(map(found.words, [*MEASURES[test], *callback.measures]))

    def test_draws_and_names_the_classes(self, test: str, tmp_path: Path) -> None:
        figure = drawn(test, rows_of(test), ["$5", "{x}$_"])
        assert all(path.stat().st_size > 1_000 for path in save_figure(figure, tmp_path / test))
        all_axes = [axis for axes in figure.axes for axis in (axes.xaxis, axes.yaxis)]
        ticks = [label.get_text() for axis in all_axes for label in axis.get_ticklabels()]
        assert ticks
        assert not any("mathdefault" in tick for tick in ticks)  # named in markup
        names = [text.get_text() for legend in figure.legends for text in legend.get_texts()]
        if test in TOGETHER:
            assert "predicted $5" not in names
        else:
            assert names == ["predicted $5", "predicted {x}$_", *LINES.get(test, ())]

    @pytest.mark.parametrize("given", [{"classes": 20}, {"n": 1}, {"n": 2}], ids=str)
    def test_draws_many_classes_a_handful_of_rows_and_none(
        self, test: str, given: dict[str, int]
    ) -> None:
        rows = rows_of(test, **given)
        drawn(test, rows).draw_without_rendering()
        assert draw(test, {name: values[:0] for name, values in rows.items()}) is None


def test_every_module_has_a_description() -> None:
    modules = [module.name for module in pkgutil.iter_modules(figures.__path__)]
    shown = (import_module(f"attnlight.figures.{name}") for name in modules)
    found = {module.__name__.split(".")[-1] for module in shown if hasattr(module, "draw")}
    assert set() < found < set(TESTS)


def test_columns_are_those_that_are_described_and_named() -> None:
    found = describe("predictions").columns
    assert {"attention_entropy", "label", "probabilities"} <= set(found or ())
    assert describe("unheard_of").columns is describe("saliency_agreement").columns is None


@pytest.mark.parametrize("test", ["unheard_of", "../style", "", "a.b", "__init__"])
def test_a_test_without_a_figure(test: str) -> None:
    assert draw(test, {"index": np.arange(3)}) is None
    assert not describe(test).caption
    assert describe("my_own_test").title == "My own test"


def test_no_global_state_of_matplotlib_is_touched() -> None:
    before = dict(mpl.rcParams)
    with mpl.rc_context({"font.size": 40, "axes.facecolor": "red"}):
        figure = drawn("attention_permutation", rows_of("attention_permutation"))
        assert mpl.rcParams["font.size"] == 40
    assert dict(mpl.rcParams) == before
    assert figure.axes[0].xaxis.label.get_fontsize() == 10
