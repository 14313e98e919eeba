"""Every test's figure is found by its name and says what it shows, and the rows it is made of."""

import pkgutil
from importlib import import_module
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pyarrow as pa
import pytest

from attnlight import callbacks, figures
from attnlight.figures import describe, descriptions, draw, figure_rows
from attnlight.figures.style import figure_bytes
from attnlight.records import read_record
from tests.report.fake import MEASURES, drawn, rows_of, write_record

TESTS = list(descriptions())
# Lines in the legends beside the classes.
LINES = {
    "evidence_mass": ("chance",),
    "faithfulness": ("random ranking",),
    "plausibility": ("chance",),
    "counterfactual_use": ("chance",),
    "context_ablation": ("chance",),
    "state_token_agreement": ("attribution to the own token", "all tokens alike"),
}
# Figures of all classes together.
TOGETHER = ("saliency_agreement", "sanity", "attribution_cost", "head_ablation", "attention_sinks")
TOGETHER += ("erased_accuracy", "attention_interchange", "head_roles", "alignment_error")


@pytest.mark.parametrize("test", TESTS)
class TestEach:
    def test_is_described_in_words(self, test: str) -> None:
        found = describe(test)
        assert found.question.endswith("?")
        assert found.source
        assert len(found.caption) > 100
        callback = getattr(callbacks, found.title.title().replace(" ", ""))
        assert all(map(found.words, [*MEASURES[test], *callback.measures]))

    def test_draws_and_names_the_classes(self, test: str) -> None:
        figure = drawn(test, rows_of(test), ["$5", "{x}$_"])
        assert len(figure_bytes(figure, "svg")) > 1_000
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
        figure = drawn(test, rows := rows_of(test, **given))
        if "n" in given:
            figure.set_layout_engine("none")  # half of the time
        figure.draw_without_rendering()
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


@pytest.fixture
def kept_scores(tmp_path: Path) -> Path:
    """A record of 60 rows with a list of scores in each, of which every fifth was not measured."""
    chosen = np.arange(60) % 5 != 0
    rows: dict[str, Any] = {n: values[chosen] for n, values in rows_of("predictions").items()}
    rows["scores"] = pa.array([[0.5] * (k % 4) for k in range(48)], pa.list_(pa.float32()))
    return write_record(tmp_path / "x.parquet", rows, excluded=[(n, 0) for n in range(0, 60, 5)])


def test_rows_of_figures_are_those_that_were_measured(kept_scores: Path) -> None:
    found, note = figure_rows(kept_scores)
    assert not note
    whole = rows_of("predictions")
    assert found.keys() == whole.keys()  # no lists
    for name, values in found.items():
        np.testing.assert_array_equal(values, whole[name][np.arange(60) % 5 != 0])
        assert values.dtype.kind == whole[name].dtype.kind


def test_rows_of_figures_have_the_columns_asked_for(kept_scores: Path) -> None:
    found, _ = figure_rows(kept_scores, ["scores", "length", "not_there", "index"])
    assert list(found) == ["index", "position", "prediction", "max_attention", "scores", "length"]
    assert [len(scores) for scores in found["scores"][:5]] == [0, 1, 2, 3, 0]


def test_calibration_of_many_classes_is_drawn_from_a_record(tmp_path: Path) -> None:
    """The record has the probability of the prediction in place of all."""
    rows, shown = rows_of("predictions"), []
    many = {name: values for name, values in rows.items() if name != "probabilities"}
    many["probability_prediction"] = rows["probabilities"].max(1)
    for number, recorded in enumerate((rows, many)):
        path = write_record(tmp_path / f"{number}.parquet", recorded)
        found, _ = figure_rows(path, describe("predictions").columns)
        (*_, text) = [text for axes in drawn("predictions", found).axes for text in axes.texts]
        shown.append(text.get_text())
    assert shown[0] == shown[1]
    assert shown[0].startswith("ECE = ")


def test_whole_texts_of_a_long_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("attnlight.records.reading.PIECE_ROWS", 128)
    rows = rows_of("attention_permutation", n=4_000)
    rows["index"], rows["position"] = rows["index"] // 4, rows["index"] % 4
    path = write_record(tmp_path / "x.parquet", rows)
    monkeypatch.setattr("attnlight.figures.MAX_ROWS", 1_000)
    found, note = figure_rows(path)
    assert len(found["index"]) == 1_000
    assert note == "Shows 1,000 of 4,000 rows, those of texts chosen by a hash."
    texts, counts = np.unique(found["index"], return_counts=True)
    assert (counts == 4).all()
    assert 400 < texts.mean() < 600  # not the first ones
    whole = read_record(path).columns
    kept = np.isin(whole["index"], texts)
    for name, values in found.items():
        np.testing.assert_array_equal(values, whole[name][kept])
    monkeypatch.setattr("attnlight.figures.MAX_ROWS", 4_000)
    assert figure_rows(path)[1] == ""
    empty = {name: values[:0] for name, values in rows.items()}
    found, note = figure_rows(write_record(path, empty))
    assert (len(found["index"]), note) == (0, "")
