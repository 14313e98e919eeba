"""Every test's figure is found by its name and says what it shows."""

import pkgutil
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure

from attnlight import callbacks, figures
from attnlight.figures import describe, descriptions
from attnlight.report import draw, save_figure
from tests.report.fake import MEASURES, rows_of

TESTS = list(descriptions())
# Lines in the legends beside the classes.
LINES = {
    "evidence_mass": ("chance",),
    "faithfulness": ("random ranking",),
    "plausibility": ("chance",),
    "state_token_agreement": ("attribution to the own token", "all tokens alike"),
}
# Figures of all classes together.
TOGETHER = (
    *("saliency_agreement", "sanity", "attribution_cost"),
    *("head_ablation", "attention_sinks"),
)


@pytest.mark.parametrize("test", TESTS)
class TestEach:
    def test_is_described_in_words(self, test: str) -> None:
        found = describe(test)
        assert found.question.endswith("?")
        assert found.source
        assert len(found.caption) > 100
        callback = getattr(callbacks, found.title.title().replace(" ", ""))
        assert all(map(found.words, [*MEASURES[test], *callback.measures]))

    def test_draws(self, test: str, tmp_path: Path) -> None:
        figure = draw(test, rows_of(test))
        assert isinstance(figure, Figure)
        files = save_figure(figure, tmp_path / test)
        assert all(path.stat().st_size > 1_000 for path in files)
        ticks = [
            label.get_text()
            for axes in figure.axes
            for axis in (axes.xaxis, axes.yaxis)
            for label in axis.get_ticklabels()
        ]
        assert ticks
        assert not any("mathdefault" in tick for tick in ticks)  # named in markup

    @pytest.mark.parametrize(
        "given", [{"classes": 3}, {"classes": 20}, {"n": 1}, {"n": 2}], ids=str
    )
    def test_draws_many_classes_and_a_handful_of_rows(
        self, test: str, given: dict[str, int]
    ) -> None:
        figure = draw(test, rows_of(test, **given))
        assert figure is not None
        figure.draw_without_rendering()

    def test_draws_nothing_without_rows(self, test: str) -> None:
        assert draw(test, {name: rows[:0] for name, rows in rows_of(test).items()}) is None

    def test_names_the_classes(self, test: str) -> None:
        figure = draw(test, rows_of(test), ["$5", "{x}$_"])
        assert figure is not None
        if test in TOGETHER:
            assert "predicted $5" not in str([legend.get_texts() for legend in figure.legends])
            return
        names = [text.get_text() for text in figure.legends[0].get_texts()]
        assert names == ["predicted $5", "predicted {x}$_", *LINES.get(test, ())]


def test_every_module_has_a_description() -> None:
    modules = [module.name for module in pkgutil.iter_modules(figures.__path__)]
    shown = (import_module(f"attnlight.figures.{name}") for name in modules)
    drawn = {module.__name__.split(".")[-1] for module in shown if hasattr(module, "draw")}
    assert drawn
    assert drawn < set(TESTS)


def test_columns_are_those_that_are_described_and_named() -> None:
    found = describe("predictions").columns
    assert found is not None
    assert {"attention_entropy", "label", "probabilities"} <= set(found)
    assert describe("unheard_of").columns is None
    assert describe("saliency_agreement").columns is None


@pytest.mark.parametrize("test", ["unheard_of", "../style", "", "a.b", "__init__"])
def test_a_test_without_a_figure(test: str) -> None:
    assert draw(test, {"index": np.arange(3)}) is None
    assert not describe(test).caption


def test_an_unknown_test_has_a_title() -> None:
    assert describe("my_own_test").title == "My own test"


def test_no_global_state_of_matplotlib_is_touched() -> None:
    import matplotlib as mpl

    before = dict(mpl.rcParams)
    with mpl.rc_context({"font.size": 40, "axes.facecolor": "red"}):
        styled = draw("attention_permutation", rows_of("attention_permutation"))
        assert mpl.rcParams["font.size"] == 40
    assert dict(mpl.rcParams) == before
    assert styled is not None
    assert styled.axes[0].xaxis.label.get_fontsize() == 10
