"""Serrano & Smith's tables on the results page, from simulated records."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml
from numpy.typing import NDArray
from scipy.stats import binomtest

from attnlight.errors import InputError
from attnlight.statistics.bootstrap import MeanInterval
from tests.kept import DOCS, page, serrano_records, write_kept

claims, archive, serrano, tables = map(page, ("claims", "archive", "serrano", "tables"))
PUBLISHED = yaml.safe_load((DOCS / "results/published.yaml").read_text())
ALL = ("attention", "gradient", "gradient_x_attention", "random_first", "minimal")
SIX = [f"yelp_{kind}_{encoder}" for kind in ("han", "flan") for encoder in ("rnn", "conv", "none")]
FIVE = SIX[:5]


@pytest.fixture(scope="module")
def records() -> dict[str, dict[str, Any]]:
    return {name: serrano_records(seed=place) for place, name in enumerate(FIVE)}


@pytest.fixture(scope="module")
def experiments(records: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Any:
    root = tmp_path_factory.mktemp("results")
    for name, rows in records.items():
        write_kept(root, name, rows)
    return archive.Archive(root, PUBLISHED)


@pytest.fixture(scope="module")
def found(experiments: Any) -> dict[str, Any]:
    models: dict[str, Any] = serrano.read_models(experiments)
    return models


@pytest.fixture(scope="module")
def shown(found: dict[str, Any]) -> dict[str, str]:
    """The tables by place without its prefix."""
    return {
        x.removeprefix("serrano_"): t for x, t in claims.serrano_tables(found, PUBLISHED).items()
    }


def table_of(place: str, **models: Any) -> str:
    table: str = claims.serrano_tables(models, PUBLISHED)[f"serrano_{place}"]
    return table


def cells(table: str, model: str, never: str = "") -> list[str]:
    """The cells of a model's row, after its two words and what texts that never flip count as."""
    words = f"| Yelp | {model} | {never} |" if never else f"| Yelp | {model} |"
    (line,) = (line for line in table.splitlines() if line.startswith(words))
    return [cell.strip() for cell in line.strip("|").split("|")][3 if never else 2 :]


def hand(name: str, **columns: list[float]) -> Any:
    """A model whose records are given; every column that is not is nought."""
    (size,) = {len(values) for values in columns.values()}
    names = [*serrano.ERASURE, *serrano.REMOVAL, *(f"removed_fraction_{name}" for name in ALL)]
    rows: dict[str, NDArray[Any]] = {name: np.zeros(size) for name in names}
    rows |= {"index": np.arange(size), "length": np.full(size, 10.0)}
    rows |= {name: np.array(values) for name, values in columns.items()}
    return serrano.model_case(name, rows)


def step_of(first: Any, second: Any) -> Any:
    """The step between two models that differ in their encoder."""
    (step,) = serrano.cases({"yelp_han_rnn": first, "yelp_han_conv": second})["steps"].values()
    return step


class TestWhatWasRun:
    def test_accuracy_by_hand(self, experiments: Any, records: dict[str, Any]) -> None:
        rows = {row["model"]: row for row in serrano.accuracy(experiments)}
        assert list(rows) == ["HANrnn", "HANconv", "HANnoenc", "FLANrnn", "FLANconv"]
        own, row = records["yelp_han_conv"]["predictions"], rows["HANconv"]
        right = [a == b for a, b in zip(own["label"], own["prediction"], strict=True)]
        assert (row["test texts"], row["epoch chosen"]) == (80, "2 of 2")
        assert row["accuracy"].startswith(f"{sum(right) / 80:.3f} [")
        assert row["published"] == "0.610"

    def test_no_run_at_all_gives_empty_tables(self) -> None:
        assert {len(t.splitlines()) for t in claims.serrano_tables({}, PUBLISHED).values()} == {2}

    def test_other_corpora_than_yelp_have_no_published_accuracy(self) -> None:
        assert set(PUBLISHED["serrano_accuracy"]) == set(SIX)


class TestErasure:
    def test_contingency_against_a_loop(
        self, shown: dict[str, str], records: dict[str, Any]
    ) -> None:
        rows = records["yelp_flan_rnn"]["single_erasure"]
        counts = dict.fromkeys([(1, 1), (1, 0), (0, 1), (0, 0)], 0)
        below = total = 0
        for place in range(80):
            top = rows["flip_top_attention"][place]
            if np.isnan(top):
                continue
            total += 1
            counts[int(top), int(rows["flip_other_drawn_attention"][place])] += 1
            below += rows["delta_js_drawn_attention"][place] < 0
        row = cells(shown["contingency"], "FLANrnn")
        alone = (records["yelp_flan_rnn"]["decision_flip"]["length"] == 1).sum()
        assert row[:2] == [str(total), str(alone)]
        shares = [*(count / total for count in counts.values()), below / total]
        assert [cell.split()[0] for cell in row[2:7]] == [f"{100 * x:.1f}" for x in shares]

    def test_recalled_figures_stand_below_their_model(self, shown: dict[str, str]) -> None:
        lines = shown["contingency"].splitlines()
        assert "HANrnn" in lines[2]
        assert "as recalled, not verified" in lines[3]

    def test_p_values_are_mcnemar_s_corrected_over_the_models(
        self, records: dict[str, Any], shown: dict[str, str]
    ) -> None:
        raw = []
        for name in FIVE:
            rows = records[name]["single_erasure"]
            first, second = rows["flip_top_gradient_x_attention"], rows["flip_top_attention"]
            only = [int((first > second).sum()), int((second > first).sum())]
            raw.append(binomtest(min(only), sum(only)).pvalue)
        order = np.argsort(raw)
        adjusted = np.maximum.accumulate([raw[k] * (5 - i) for i, k in enumerate(order)])
        for k, p in zip(order, np.minimum(adjusted, 1), strict=True):
            row = cells(shown["first"], serrano.MODELS[FIVE[k]]["model"])
            assert row[-1] == ("< 0.001" if p < 0.001 else f"{p:.3f}")

    def test_first_items_by_hand(self) -> None:
        tested = hand(
            "yelp_han_rnn",
            flip_top_attention=[1.0, 0, 0, 0, np.nan],
            flip_top_gradient=[0.0, 0, 0, 1, np.nan],
            flip_top_gradient_x_attention=[1.0, 1, 1, 0, np.nan],
        )
        row = cells(table_of("first", model=tested), "HANrnn")
        assert row[0] == "4"
        assert [cell.split()[0] for cell in row[1:5]] == ["25.0", "25.0", "75.0", "0.0"]
        assert row[5] == "does not (open)"  # as many as attention's are not fewer
        assert row[6].startswith("50.0 [")
        assert row[7] == "holds (open)"  # two texts: a resample may hold neither

    def test_fewer_flips_by_hand(self) -> None:
        flips = {"attention": [1.0] * 30 + [0.0], "gradient": [0.0] * 31}
        columns = {f"flip_top_{name}": values for name, values in flips.items()}
        tested, key = hand("ag_news_flan_conv", **columns), "more flips gradient"
        assert tested.estimates[key].mean == pytest.approx(-30 / 31)
        assert claims.cell(tested, "claim", key) == "holds"
        assert claims.CLAIMS[key]["published"] == "14 of 24"


class TestRemoval:
    def listwise(self, rows: Mapping[str, Any]) -> list[int]:
        return [
            place
            for place in range(80)
            if rows["length"][place] > 1 and not any(rows[f"never_flips_{n}"][place] for n in ALL)
        ]

    @pytest.mark.parametrize("measure", ["fraction", "mass"])
    def test_shares_removed_against_a_loop(
        self, shown: dict[str, str], records: dict[str, Any], measure: str
    ) -> None:
        rows = records["yelp_han_none"]["decision_flip"]
        kept = self.listwise(rows)
        row = cells(shown[measure], "HANnoenc", "left out")
        assert row[0] == str(len(kept))
        for cell, name in zip(row[1:], ALL, strict=True):
            values = [float(rows[f"removed_{measure}_{name}"][place]) for place in kept]
            mean, median = cell.split("; ")
            assert mean.startswith(f"{sum(values) / len(values):.2f} [")
            assert median.startswith(f"{np.median(values):.2f} [")

    @pytest.mark.parametrize("measure", ["fraction", "mass"])
    def test_texts_that_never_flip_count_as_1(
        self, shown: dict[str, str], records: dict[str, Any], measure: str
    ) -> None:
        rows = records["yelp_han_none"]["decision_flip"]
        several = [place for place in range(80) if rows["length"][place] > 1]
        row = cells(shown[measure], "HANnoenc", "as 1")
        assert row[0] == str(len(several)) != str(len(self.listwise(rows)))
        for cell, name in zip(row[1:], ALL, strict=True):
            never = rows[f"never_flips_{name}"]
            values = [
                1.0 if never[place] else float(rows[f"removed_{measure}_{name}"][place])
                for place in several
            ]
            mean, median = cell.split("; ")
            assert mean.startswith(f"{sum(values) / len(values):.2f} [")
            assert median.startswith(f"{np.median(values):.2f} [")

    def test_never_and_last_against_a_loop(
        self, shown: dict[str, str], records: dict[str, Any]
    ) -> None:
        rows = records["yelp_flan_conv"]["decision_flip"]
        several = [place for place in range(80) if rows["length"][place] > 1]
        never = cells(shown["never"], "FLANconv")
        last = cells(shown["last"], "FLANconv")
        assert never[0] == str(len(several))
        for place, name in enumerate(ALL, start=1):
            stuck = [rows[f"never_flips_{name}"][row] for row in several]
            alls = [rows[f"needs_all_{name}"][row] for row in self.listwise(rows)]
            assert never[place].startswith(f"{100 * np.mean(stuck):.1f} [")
            assert last[place].startswith(f"{100 * np.mean(alls):.1f} [")

    def test_excess_against_a_loop(self, shown: dict[str, str], records: dict[str, Any]) -> None:
        rows = records["yelp_han_rnn"]["decision_flip"]
        kept = self.listwise(rows)
        row = cells(shown["excess"], "HANrnn")
        least = [rows["minimal_count"][place] for place in kept]
        assert row[1].startswith(f"{np.mean(least):.2f} [")
        for cell, name in zip(row[2:], ALL[:-1], strict=True):
            counts = [rows[f"removed_count_{name}"][place] for place in kept]
            assert cell.startswith(f"{np.mean(counts) - np.mean(least):.2f} [")


class TestVerdicts:
    @pytest.mark.parametrize(
        ("estimate", "claimed", "said"),
        [
            ((2.0, 1.7, 2.4), (1.6, np.inf), "holds"),
            ((2.0, 1.6, np.inf), (1.6, np.inf), "holds"),
            ((2.0, 1.5, 2.4), (1.6, np.inf), "holds (open)"),
            ((1.5, 1.2, 1.7), (1.6, np.inf), "does not (open)"),
            ((1.5, 1.2, 1.59), (1.6, np.inf), "does not"),
            ((0.0, 0.0, 0.0), (0.0, np.inf, "right"), "does not"),
            ((0.0, 0.0, 0.0), (0.0, np.inf), "holds"),
            ((0.25, 0.16, 0.34), (0.15, 0.35), "holds"),
            ((0.25, 0.10, 0.34), (0.15, 0.35), "holds (open)"),
            ((0.40, 0.10, 0.50), (0.15, 0.35), "does not (open)"),
            ((0.40, 0.36, 0.50), (0.15, 0.35), "does not"),
            ((np.nan, np.nan, np.nan), (0.15, 0.35), "–"),  # noqa: RUF001
        ],
    )
    def test_follow_from_estimate_and_interval(
        self, estimate: tuple[float, float, float], claimed: tuple[Any, ...], said: str
    ) -> None:
        low, high, closed = (*claimed, "both")[:3]
        interval = pd.Interval(low, high, closed=closed)
        assert claims.verdict(MeanInterval(*estimate, 10), interval) == said

    @pytest.mark.parametrize(
        ("attention", "said"),
        [
            # The gradient's box ends at 0.4.
            ([0.1, 0.2, 0.3, 0.4, 0.5], "holds"),
            ([0.1, 0.6, 0.6, 0.6, 0.9], "does not"),
        ],
    )
    def test_on_par_as_box_plots_have_it(self, attention: list[float], said: str) -> None:
        tested = hand(
            "yelp_han_none",
            removed_fraction_attention=attention * 40,
            removed_fraction_gradient=[0.1, 0.2, 0.3, 0.4, 0.5] * 40,
        )
        key = "box gradient listwise"
        assert tested.estimates[key].mean == pytest.approx(np.median(attention) - 0.4)
        assert claims.cell(tested, "claim", key) == said
        row = cells(table_of("par", model=tested), "HANnoenc", "left out")
        assert row[:3] == [
            "200",
            f"{np.median(attention):.2f} ({attention[1]:.2f} to {attention[3]:.2f})",
            "0.30 (0.20 to 0.40)",
        ]
        assert row[-1] == said

    def test_sooner_by_hand(self) -> None:
        # Gradient sooner twice (once attention never flips), as soon once, attention sooner once;
        # one text of one item and one that neither flips are left out.
        tested = hand(
            "yelp_han_rnn",
            removed_count_gradient=[1, 2, 3, 5, 1, np.nan],
            removed_count_attention=[4, np.nan, 3, 4, 2, np.nan],
            never_flips_attention=[0, 1, 0, 0, 0, 1.0],
            never_flips_gradient=[0, 0, 0, 0, 0, 1.0],
            length=[10, 10, 10, 10, 1, 10.0],
        )
        row = cells(table_of("sooner", model=tested), "HANrnn")
        assert row[0] == "4"
        assert [row[k].split()[0] for k in (1, 3, 4, 5)] == ["50.0", "25.0", "25.0", "2.00"]
        assert row[2] == "does not (open)"  # half is not over half
        assert row[6] == "holds (open)"

    def test_without_an_encoder_the_claims_on_sooner_are_not_made(self) -> None:
        counts = {"removed_count_gradient": [5.0] * 30, "removed_count_attention": [2.0] * 30}
        row = cells(table_of("sooner", model=hand("yelp_han_none", **counts)), "HANnoenc")
        assert (row[2], row[6]) == (tables.DASH, tables.DASH)

    def test_falling_pairs_texts(self) -> None:
        # The third text is not flipped under conv, so it is no pair: (0.2 + 0.4) / 2.
        first = hand("yelp_han_rnn", removed_fraction_attention=[0.5, 0.9, 1.0])
        second = hand(
            "yelp_han_conv",
            removed_fraction_attention=[0.3, 0.5, 0.1],
            never_flips_gradient=[0, 0, 1.0],
        )
        step = step_of(first, second)
        found = step.estimates["fall attention listwise"]
        assert found.mean == pytest.approx(0.3)
        assert found.defined == 2
        assert claims.cell(step, "claim", "fall attention listwise") == "holds"

    def test_falling_refuses_other_texts(self) -> None:
        first = hand("yelp_han_rnn", index=[0, 1])
        second = hand("yelp_han_conv", index=[0, 2])
        with pytest.raises(InputError, match="different texts"):
            step_of(first, second)

    def test_a_text_that_never_flips_counts_as_1_where_it_is_not_left_out(self) -> None:
        first = hand("yelp_han_rnn", removed_fraction_attention=[0.5, 0.9])
        second = hand(
            "yelp_han_conv",
            removed_fraction_attention=[0.3, np.nan],
            never_flips_attention=[0, 1.0],
        )
        step = step_of(first, second)
        found = [step.estimates[f"fall attention {never}"] for never in serrano.NEVER]
        assert [one.mean for one in found] == pytest.approx([0.2, (0.2 - 0.1) / 2])
        assert [one.defined for one in found] == [1, 2]

    def test_mass_is_shifted_by_the_difference_of_the_medians(self) -> None:
        tested = hand(
            "yelp_han_rnn",
            removed_mass_attention=[0.9, 0.8, 0.1],
            removed_mass_gradient=[0.6, 0.5, 0.55],
            removed_mass_gradient_x_attention=[0.6, 0.61, 0.0],
        )
        keys = [f"shift {name} listwise" for name in ("gradient", "gradient_x_attention")]
        assert [tested.estimates[key].mean for key in keys] == pytest.approx([0.25, 0.2])
        said = [claims.cell(tested, "claim", key) for key in keys]
        assert said == ["holds (open)", "does not (open)"]

    def test_encoder_steps_need_both_models(self, found: dict[str, Any]) -> None:
        words = [step.words[1] for step in serrano.cases(found)["steps"].values()]
        assert words == ["HANrnn − HANconv", "HANconv − HANnoenc", "FLANrnn − FLANconv"]  # noqa: RUF001

    def test_summary_counts_the_verdicts_of_the_tables(self, shown: dict[str, str]) -> None:
        lines = shown["claims"].splitlines()[2:]
        rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
        cases = [int(row[3]) for row in rows]
        assert cases == [5, 5, 4, 4, 1, 1, *[3] * 6, 5, 5, *[5] * 4]
        assert all(int(row[4]) + int(row[5]) == int(row[3]) for row in rows)
        said = "".join(shown[x] for x in ("sooner", "par", "falling", "first", "lighter"))
        rows = rows[2:]  # the two claims on single erasures have no table with verdicts
        assert sum(int(row[5]) for row in rows) == said.count("| does not")
        assert sum(int(row[6]) for row in rows) == said.count("(open)")

    def test_claims_that_fail_here_are_judged_too(self, shown: dict[str, str]) -> None:
        half = "with an encoder the gradient finds a smaller set for over half of the texts"
        fewer = "first items of gradient flip fewer decisions than attention's"
        assert f"| {half} | – | 10 of 16 |" in shown["claims"]  # noqa: RUF001
        assert f"| {fewer} | – | 14 of 24 |" in shown["claims"]  # noqa: RUF001
