"""What the figures of the tests draw, against their rows, and what their tables say beside means."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.axes import Axes
from scipy import stats

from attnlight.figures import describe, draw, figure_rows, tables
from attnlight.figures.methods import recorded_methods
from attnlight.figures.predictions import calibration_bins
from attnlight.statistics.frontier import EPSILONS
from tests.report.fake import METHODS, Rows, drawn, rows_of, write_record

PARTS = ["decoder", "word_attention", "embedding"]
NAMED = {method: {"name": method} for method in METHODS}
METADATA: dict[str, Any] = {"parts": PARTS, "against": "e/seed1", "methods": NAMED}
CLASSES = ["negative", "positive"]


def ticks(axes: Axes, axis: str = "y") -> list[str]:
    return [label.get_text() for label in getattr(axes, f"get_{axis}ticklabels")()]


@pytest.mark.parametrize(
    ("test", "column"),
    [
        ("adversarial_attention", "worst_js"),
        ("attention_interchange", "covered_all"),
        ("base_divergence", "attention_js"),
        ("evidence_mass", "mass"),
        ("plausibility", "chance_auprc"),
    ],
)
def test_nothing_is_drawn_where_nothing_is_defined(test: str, column: str) -> None:
    rows = rows_of(test, n=3)
    rows[column][:] = np.nan
    assert draw(test, rows) is None


@pytest.mark.parametrize("test", ["attention_permutation", "decision_flip", "sanity"])
def test_a_record_of_nothing_but_nan_has_no_figure(test: str) -> None:
    rows = rows_of(test, n=30)
    assert draw(test, rows, None, METADATA) is not None
    names = [name for name in rows if rows[name].dtype.kind == "f" and name != "max_attention"]
    nothing = rows | {name: np.full(rows[name].shape, np.nan) for name in names}
    assert draw(test, nothing, None, METADATA) is None


@pytest.mark.parametrize(
    ("test", "column", "left"),
    [("decision_flip", "minimal_count", 3), ("predictions", "attention_entropy", 2)],
)
def test_an_axis_without_data_is_left_out(test: str, column: str, left: int) -> None:
    rows = rows_of(test, n=30)
    whole = drawn(test, rows).axes
    rows[column] = np.full(len(rows["index"]), np.nan)
    assert len(drawn(test, rows).axes) == left == len(whole) - 1


class TestBaseDivergence:
    def test_every_text_is_a_point_and_the_mean_is_marked(self) -> None:
        rows = rows_of("base_divergence", n=200)
        rows["attention_js"][::50] = np.nan
        _, scatter = drawn("base_divergence", rows).axes
        points = np.concatenate([np.asarray(c.get_offsets()) for c in scatter.collections])
        both = np.stack([rows[name] for name in ("prediction_tvd", "attention_js")], axis=1)
        expected = both[~np.isnan(both).any(axis=1)]
        assert sorted(map(tuple, points)) == sorted(map(tuple, expected))
        (cross,) = (line for line in scatter.lines if line.get_marker() == "P")
        assert cross.get_xydata()[0] == pytest.approx(expected.mean(axis=0))

    def test_bins_are_those_of_the_base(self) -> None:
        rows = rows_of("base_divergence", n=40) | {"base_max_attention": np.full(40, 0.9)}
        violins = drawn("base_divergence", rows).axes[0]
        counts = [int(text.get_text().removeprefix("n = ")) for text in violins.texts]
        assert sum(counts[-2:]) == 40
        assert violins.get_ylabel() == "Maximum attention weight of the base"


class TestAdversarialAttention:
    def rows(self, n: int = 80) -> Rows:
        rows = rows_of("adversarial_attention", n)
        rows["worst_js"] = 0.69 * rows["worst_js"]
        found = np.where(np.arange(n) % 3 == 0, 0.8 * rows["worst_js"], np.nan)
        rows |= {"search_js": found, "search_gap": rows["worst_js"] - found}
        rows["search_tvd"] = np.where(np.isnan(found), np.nan, 0.005)
        frontier = 0.69 * np.random.default_rng(0).random((n, len(EPSILONS)))
        return rows | {"frontier_js": np.sort(frontier, axis=1)}

    def axes(self, rows: Rows) -> list[Axes]:
        return drawn("adversarial_attention", rows, CLASSES).axes

    def test_draws_what_the_record_has(self) -> None:
        rows, unknown = self.rows(), self.rows()
        assert len(self.axes(rows)) == 3
        del rows["frontier_js"]
        assert len(self.axes(rows)) == 2
        unknown["frontier_js"][:] = unknown["search_js"][:] = np.nan
        axes = self.axes(unknown)
        assert (len(axes), axes[0].get_legend()) == (2, None)

    def test_share_stands_beside_the_divergence(self) -> None:
        rows = self.rows()
        rows["worst_share"][3] = np.nan
        title = self.axes(rows)[0].get_title()
        assert f"{np.nanmean(rows['worst_share']):.3f}" in title
        rows["worst_share"][:] = np.nan
        assert self.axes(rows)[0].get_title().endswith("possible: –")  # noqa: RUF001

    def test_each_class_adds_up_to_one(self) -> None:
        rows = self.rows(5)
        rows["worst_js"] = np.array([0.0, 0.01, 0.35, 0.69, np.nan])
        rows["prediction"][:] = 1
        (patch, *_) = self.axes(rows)[0].patches
        bars, edges, _ = patch.get_data()  # type: ignore[attr-defined]
        assert (len(bars), edges[0], edges[-1]) == (40, 0.0, 0.7)
        assert bars.sum() == pytest.approx(1)
        assert bars[[0, 20, 39]].tolist() == pytest.approx([0.5, 0.25, 0.25])

    def test_tables_without_a_search_and_of_one_class(self) -> None:
        rows = {name: x for name, x in self.rows().items() if not name.startswith("search")}
        rows["prediction"][:] = 1
        (worst,) = tables("adversarial_attention", rows, CLASSES)
        assert [row[0] for row in worst.rows] == ["all"]
        assert "Do not interpret it alone" in worst.note


class TestEvidenceMass:
    def test_chance_is_drawn_for_all_proven_and_not_proven(self) -> None:
        rows = rows_of("evidence_mass", n=200)
        panels = drawn("evidence_mass", rows).axes
        assert ticks(panels[0]) == ["not proven", "proven", "all"]
        subsets = [rows["proven"] == 0, rows["proven"] == 1, np.ones(200, dtype=bool)]
        for axes, chance in zip(panels, ("chance", "chance_auprc"), strict=True):
            parts = [getattr(part, "get_segments", list)() for part in axes.collections]
            found = [segment[0][0] for segments in parts for segment in segments]
            assert found == pytest.approx([rows[chance][members].mean() for members in subsets])

    def test_the_note_counts_what_is_left_out_and_without_swaps_there_is_one_row(self) -> None:
        rows = rows_of("evidence_mass", n=300)
        rows["mass"][:40] = np.nan
        note = tables("evidence_mass", rows)[0].note
        assert "left out: 40 of 300 instances." in note
        assert f"undefined for {np.isnan(rows['proven']).sum():,} instances" in note
        del rows["proven"]
        assert ticks(drawn("evidence_mass", rows).axes[0]) == ["all"]
        (table,) = tables("evidence_mass", rows)
        assert [row[0] for row in table.rows] == ["all"]
        assert "Proven" not in table.note


class TestMethods:
    """Tests that have a row for each attribution method."""

    def test_random_is_drawn_across_all_methods(self) -> None:
        rows = rows_of("faithfulness", n=200)
        panels = drawn("faithfulness", rows).axes
        shown = ticks(panels[0])[::-1]  # from the top down
        assert shown == list(recorded_methods(rows, "comprehensiveness").values())
        assert shown[-1] == "random"
        for axes, measure in zip(panels, ("comprehensiveness", "sufficiency"), strict=True):
            (dashed,) = [line for line in axes.lines if line.get_linestyle() == "--"]
            expected = rows[f"{measure}_random"].mean()
            assert dashed.get_xdata()[0] == pytest.approx(expected, rel=1e-6)
            assert "is better" in axes.get_xlabel()

    def test_faithfulness_says_direction_and_range(self) -> None:
        first, second = tables("faithfulness", rows_of("faithfulness", n=90))
        assert first.head[1:4] == ["comprehensiveness ↑", "excess", "sufficiency ↓"]
        assert second.head[3] == "sufficiency ↑"
        assert all("higher is better" in table.note for table in (first, second))
        last = first.rows[-1]
        assert (last[0], last[2], last[4]) == ("random", "", "")
        words = describe("faithfulness").words
        assert "-1 to 1, lower is better" in words("sufficiency_occlusion").replace("\n", " ")
        assert "0 to 1, higher is better" in words("normalized_sufficiency_random")

    def test_labels_of_the_user_are_shown(self) -> None:
        rows = rows_of("faithfulness")
        for measure in ("comprehensiveness", "sufficiency"):
            for name in (measure, f"excess_{measure}"):
                rows[f"{name}_my_shap"] = rows.pop(f"{name}_attention")
            rows[f"{measure}_my_shap_at"] = np.zeros((60, 5))
        for measure in ("comprehensiveness", "sufficiency"):
            del rows[f"normalized_{measure}_random"]
        (table,) = tables("faithfulness", rows)
        names = [row[0] for row in table.rows]
        assert ("my shap" in names, "my shap at" in names) == (True, False)

    @pytest.mark.parametrize("place", [0, 1])
    def test_one_of_the_measures_is_shown(self, place: int) -> None:
        rows, measures = rows_of("faithfulness"), ("comprehensiveness", "sufficiency")
        whole = tables("faithfulness", rows)
        rows = {name: column for name, column in rows.items() if measures[1 - place] not in name}
        assert len(drawn("faithfulness", rows).axes) == 1
        for table, both in zip(tables("faithfulness", rows), whole, strict=True):
            for row, expected in zip(table.rows, both.rows, strict=True):
                kept = slice(1 + 2 * place, 3 + 2 * place)
                assert row[kept] == expected[kept]
                assert row.count("") == 2 + (row[0] == "random")

    def test_a_point_for_each_method_and_a_line_for_chance(self) -> None:
        rows = rows_of("plausibility", n=80)
        rows["auprc_attention"][:20] = np.nan
        panels = drawn("plausibility", rows).axes
        assert ticks(panels[0]) == ["gradient × input", "attention"]  # noqa: RUF001
        for axes, measure in zip(panels, ("auprc", "token_f1", "iou_f1"), strict=True):
            *points, chance = axes.lines
            pooled = [line for line in points if line.get_marker() == "|"]
            assert len(points) == 3 * len(pooled)  # two predicted classes
            found = [float(np.ravel(point.get_xdata())[0]) for point in pooled]
            columns = [f"{measure}_{name}" for name in ("input_gradient", "attention")]
            assert found == pytest.approx([float(np.nanmean(rows[name])) for name in columns])
            expected = rows[f"chance_{measure}"].mean()
            assert np.ravel(chance.get_xdata())[0] == pytest.approx(expected)

    def test_people_stand_between_methods_and_chance(self) -> None:
        rows = rows_of("plausibility", n=50)
        for measure in ("auprc", "token_f1", "iou_f1"):
            rows[f"human_{measure}"] = np.where(np.arange(50) < 30, 0.5, np.nan)
        (table,) = tables("plausibility", rows)
        names = ["attention", "gradient × input", "people", "chance"]  # noqa: RUF001
        assert [row[0] for row in table.rows] == names
        assert table.rows[2] == ["people", *["0.500 [0.500, 0.500]"] * 3, "30"]

    def test_columns_of_any_method_are_read_and_described(self, tmp_path: Path) -> None:
        rows = rows_of("plausibility") | {"iou_f1_my_own": np.ones(60), "other": np.ones(60)}
        path = write_record(tmp_path / "plausibility.parquet", rows)
        description = describe("plausibility")
        read, _ = figure_rows(path, description.columns)
        assert ("iou_f1_my_own" in read, "other" in read) == (True, False)
        assert description.words("iou_f1_my_own").startswith("F1 of the spans")
        assert description.words("chance_iou_f1").startswith("IoU F1 of as many random items")
        assert description.words("other") == ""

    def test_agreement_is_a_heat_map_of_mean_taus(self) -> None:
        rows = rows_of("saliency_agreement", n=50)
        rows["tau_attention_random"][:] = np.nan
        rows["tau_attention_gradient_x_attention"][3:9] = np.nan
        (axes,) = drawn("saliency_agreement", rows).axes
        assert ticks(axes) == ["attention", "gradient × attention", "random"]  # noqa: RUF001
        cells = {text.get_position(): float(text.get_text()) for text in axes.texts}
        for a, b in ((0, 1), (1, 2)):  # the tau of 0 and 2 is undefined
            mean = pytest.approx(np.nanmean(rows[f"tau_{METHODS[a]}_{METHODS[b]}"]), abs=0.0051)
            assert cells[a + 0.5, b + 0.5] == cells[b + 0.5, a + 0.5] == mean
        assert len(cells) == 4

    def test_agreement_notes_chance_and_ties(self) -> None:
        rows = rows_of("saliency_agreement", n=40)
        rows["tau_attention_random"][:10] = np.nan
        (table,) = tables("saliency_agreement", rows)
        assert table.rows[1][6:] == ["25.0", "30"]  # per cent of ties, and rows
        assert f"{100 * rows['chance_overlap'].mean():.1f} % of random orders" in table.note
        assert f"random {100 * rows['tied_random'].mean():.1f} %" in table.note


class TestSanity:
    def test_a_panel_of_each_method_has_both_curves_and_the_level_of_two_seeds(self) -> None:
        rows = rows_of("sanity", n=50)
        rows["signed_seeds_random"][:] = np.nan
        figure = drawn("sanity", rows, metadata=METADATA)
        panels = [axes for axes in figure.axes if axes.axison]
        titles = [axes.get_title(loc="left") for axes in panels]
        assert titles == ["attention", "gradient × attention", "random"]  # noqa: RUF001
        for method, axes in zip(METHODS, panels, strict=True):
            lines = {tuple(np.round(np.array(line.get_ydata(), float), 6)) for line in axes.lines}
            for kind in ("signed", "sizes"):
                means = [rows[f"{kind}_{step}_{method}"].mean() for step in (1, 2, 3)]
                assert tuple(np.round(means, 6)) in lines
            seeds = float(rows[f"signed_seeds_{method}"].mean())
            levels = set() if np.isnan(seeds) else {(round(x, 6),) * 2 for x in (seeds, seeds / 2)}
            assert {line for line in lines if len(line) == 2} == levels
            assert ticks(axes, "x") == ["decoder", "word attention", "embedding"]
        assert [t.get_text() for t in figure.legends[0].get_texts()] == ["with signs", "of sizes"]

    def test_verdicts(self) -> None:
        rows = rows_of("sanity", n=60)
        levels = {"3_attention": 0.1, "seeds_attention": 0.6, "3_random": 1, "seeds_random": 1}
        for name, level in (levels | {"seeds_gradient_x_attention": 0.1}).items():
            rows[f"signed_{name}"] = np.full(60, level, float)
        verdicts, signed, sizes = tables("sanity", rows, metadata=METADATA)
        numbers = ["0.100 [0.100, 0.100]", "0.600 [0.600, 0.600]"]
        assert verdicts.rows[0] == ["attention", *numbers, "passes"]
        assert [row[-1] for row in verdicts.rows] == ["passes", "undecidable", "fails"]
        assert "those of e/seed1" in verdicts.note
        assert "fail by construction: random." in verdicts.note
        assert "attnlight sanity" not in verdicts.note
        parts = ["decoder", "word attention", "embedding", "two random", "two seeds", "n"]
        assert list(signed.head) == list(sizes.head) == ["method", *parts]
        assert list(tables("sanity", rows)[1].head)[1:4] == ["1", "2", "3"], "steps without names"

    @pytest.mark.parametrize("weights", [None, "0123abcd"])
    def test_without_a_second_seed_the_note_names_what_decides(self, weights: str | None) -> None:
        """A command, unless the model was trained elsewhere."""
        rows = {n: v for n, v in rows_of("sanity").items() if not n.count("seeds")}
        rows = {n: v for n, v in rows.items() if "random" not in n[-6:]}
        given = METADATA | {"against": None, "weights": weights}
        verdicts, signed, _ = tables("sanity", rows, metadata=given)
        assert [row[2:] for row in verdicts.rows] == [["–", "undecidable"]] * 2  # noqa: RUF001
        assert "Without a second seed nothing is decided" in verdicts.note
        assert ("`attnlight sanity RUN RUN2 --overwrite` decides" in verdicts.note) == (not weights)
        assert ("trained elsewhere" in verdicts.note) == bool(weights)
        assert "by construction" not in verdicts.note
        assert "two seeds" not in signed.head


def test_lines_of_token_agreement_are_means_of_texts_of_similar_length() -> None:
    rows = rows_of("state_token_agreement", n=300)
    rows["items"] = np.repeat([3, 10, 20], 100)
    rows["hidden_token_attribution"][:7] = np.nan
    share, chance = drawn("state_token_agreement", rows).axes[1].get_lines()
    assert share.get_xdata() == pytest.approx([3, 10, 20])
    for line, name in ((share, "hidden_token_attribution"), (chance, "chance")):
        values = np.where(np.isnan(rows["hidden_token_attribution"]), np.nan, rows[name])
        assert line.get_ydata() == pytest.approx(np.nanmean(values.reshape(3, 100), axis=1))
    for name in ("hidden_token_attribution", "tau_erasure_deletion"):
        rows[name][:] = np.nan
    assert len(drawn("state_token_agreement", rows).axes) == 1, "an axis of nothing is left out"


def by_tenth(rows: Rows) -> dict[int, list[tuple[float, bool]]]:
    """Confidence of each labelled row and whether it is right, by its tenth."""
    bins: dict[int, list[tuple[float, bool]]] = {}
    for row, own in zip(rows["probabilities"], rows["label"], strict=True):
        if own >= 0:
            entry = float(max(row)), bool(row.argmax() == own)
            bins.setdefault(min(int(10 * max(row)), 9), []).append(entry)
    return bins


def test_reliability_equals_a_naive_loop() -> None:
    rows = rows_of("predictions", n=300, classes=3)
    rows["label"] = rows["label"].astype(np.float64)
    rows["label"][::10], rows["label"][1::10] = np.nan, -1
    rows["probabilities"][5] = [0, 1, 0]  # certainty falls into the last bin
    confidence, prediction = rows["probabilities"].max(1), rows["probabilities"].argmax(1)
    found, bins = calibration_bins(confidence, prediction, rows["label"]), by_tenth(rows)
    assert found.index.tolist() == sorted(bins)
    assert len(bins) > 5
    for tenth, line in found.iterrows():
        confidences, rights = zip(*bins[tenth], strict=True)
        interval = stats.binomtest(sum(rights), len(rights)).proportion_ci(method="wilson")
        expected = [len(rights) / 240, np.mean(confidences), np.mean(rights), *interval]
        names = ["share", "confidence", "accuracy", "low", "high"]
        assert line[names].tolist() == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("labels", ["all", "undefined", "absent"])
def test_calibration_is_drawn_where_there_are_labels(labels: str) -> None:
    rows = rows_of("predictions")
    if labels == "undefined":
        rows["label"] = np.full(60, np.nan)
    if labels == "absent":
        del rows["label"]
    panels = drawn("predictions", rows).axes
    texts = [text.get_text() for axes in panels for text in axes.texts]
    shown = [text for text in texts if text.startswith("ECE")]
    if labels != "all":
        assert (len(panels), shown) == (2, [])
        return
    means = [(len(held), *np.mean(held, axis=0)) for held in by_tenth(rows).values()]
    error = sum(n / 60 * abs(confidence - accuracy) for n, confidence, accuracy in means)
    assert (len(panels), shown) == (3, [f"ECE = {error:.3f}"])
