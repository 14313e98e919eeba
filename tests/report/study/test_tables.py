"""What the tables say, against loops over the fake's own rows."""

import csv
import io
import math
import re
import statistics
from itertools import product

import numpy as np
import pytest

from attnlight.figures.tables import Table
from attnlight.report.study.estimates import JS, Estimates
from attnlight.report.study.figures import draw_tradeoff
from attnlight.report.study.tables import estimates_csv, study_tables
from attnlight.report.study.verdict import selection
from attnlight.statistics.changepoint import fit_segments
from tests.report.study.conftest import RESAMPLES
from tests.report.study.fake import HEADS, FakeStudy, FakeTagging, FakeTexts, whole, whole_tagger
from tests.report.study.naive import each, mean, measure

DASH = "–"  # noqa: RUF001
COLUMNS = {f"head {head}": f"attention_js_heads_{head}" for head in range(HEADS)}
COLUMNS |= {"F1 of positive": "f1", "chunk F1": "f1"}
COLUMNS |= {"accuracy": "accuracy", "agreement": "agreement"}
COLUMNS |= {"NLL, gold": "nll_gold", "NLL, base": "nll_base", "JS": "attention_js"}
COLUMNS |= {"JS of head mean": "attention_js_mean", "share of largest": "attention_js_share"}
COLUMNS |= {"TVD": "prediction_tvd", "tau": "attention_tau"}
KL = {"KL": "attention_kl", "KL per element": "attention_kl_elements"}
COLUMNS |= KL
# Kind of study, table, the beginning of a row's name, and the runs that it is the mean of.
MEANS = r"""
texts|table2|uniform attention|uniform-s\d
texts|table3|the adversary's|guide-adversary-s\d
texts|table4|best adversary|adversary-kl-l0.01-s\d
texts|table4|other seeds|seed-b0-s\d+
texts|table4|imitation control|adversary-kl-l0-s\d
texts|adversaries|JS, λ = 0.002|adversary-js-l0.002-s\d
tagging|models|uniform attention|uniform-s\d
tagging|models|head 2 alone uniform|uniform-h2-s\d
tagging|models|other seeds of base-s0|seed-b0-s\d
tagging|models|probe that reads each token alone: attention of the base, sh|guide-shuffled-tokens-s\d
tagging|distances|probe with the base's encoder: attention of the adv|guide-adversary-s\d
tagging|adversaries|KL, λ = 0.2848|adversary-kl-l0.2848-s\d
tagging|adversaries|KL (released scale), λ = 2.6|adversary-released-l2.6-s\d
tagging|adversary_distances|KL, λ = 1|adversary-kl-l1-s\d
tagging|heads|other seeds|seed-b0-s\d
tagging|heads|KL (released scale), λ = 0.5|adversary-released-l0.5-s\d
"""


@pytest.fixture(scope="module", params=["texts", "tagging"])
def fake(request: pytest.FixtureRequest) -> FakeStudy:
    return whole(texts=80) if request.param == "texts" else whole_tagger()


@pytest.fixture(scope="module")
def grids(estimates: Estimates) -> dict[str, Table]:
    return study_tables(estimates)


def row(grid: Table, start: str) -> list[str]:
    return next(list(row) for row in grid.rows if row[0].startswith(start))


def test_cells_are_means_over_seeds(fake: FakeStudy, grids: dict[str, Table]) -> None:
    compared, kind = 0, "texts" if isinstance(fake, FakeTexts) else "tagging"
    for line in re.findall(rf"^{kind}\|(.*)$", MEANS, re.MULTILINE):
        table, start, stem = line.split("|")
        found = dict(zip(grids[table].head, row(grids[table], start), strict=True))
        runs = [name for name in fake.rows if re.fullmatch(stem, name)]
        assert found["seeds"].partition(" ")[0] == str(len(runs))
        for name in (name for name in COLUMNS if name in found):
            values = [measure(fake, run, COLUMNS[name]) for run in runs]
            compared += 1
            if all(map(math.isnan, values)):
                assert found[name] == DASH
                continue
            cell, expected = found[name].split(" "), (mean(values), statistics.stdev(values))
            assert (float(cell[0]), float(cell[2])) == pytest.approx(expected, abs=5.1e-4)
            assert (cell[1], cell[3][0]) == ("±", "[")
    assert compared == (15 if isinstance(fake, FakeTexts) else 48)


def test_full_numbers(fake: FakeStudy, estimates: Estimates) -> None:
    text = estimates_csv(estimates)
    rows = list(csv.DictReader(io.StringIO(text)))
    held = {(found["group"], found["base"], found["measure"]): found for found in rows}
    assert len(held) == len(rows)
    assert "nan" not in text
    mark, lam = ("", "0.01") if isinstance(fake, FakeTexts) else ("-tokens", "0.0123")
    qualities = each(fake, f"guide-other{mark}-s", "f1")
    found = held[f"guide-other{mark}", "base-s0", "f1"]
    assert float(found["mean"]) == pytest.approx(mean(qualities), rel=1e-12)
    assert float(found["std"]) == pytest.approx(statistics.stdev(qualities))
    assert held["base", "base-s0", JS]["mean"] == ""
    of_adversary = held[f"adversary-kl-{lam}", "base-s0", JS]
    assert float(of_adversary["low"]) < float(of_adversary["high"])


def test_the_note_tells_what_is_resampled(fake: FakeStudy, grids: dict[str, Table]) -> None:
    cluster = "texts" if isinstance(fake, FakeTexts) else "sentences"
    for stem, grid in grids.items():
        said = f"Student's t and {RESAMPLES} resamples of {cluster}" in grid.note
        assert said == (stem != "segments")


def test_a_jump_over_the_middle_is_told() -> None:
    fake, notes = whole(seeds=1, bases=1, texts=30), []
    for state in ("finished", "failed"):
        for run in (run for run in fake.runs if run["lambda"] == 0.002):
            run["state"] = state
        notes.append(study_tables(Estimates(fake.read()))["adversaries"].note)
    assert "No lambda" not in notes[0]
    assert "No lambda of KL has a mean JS between 0.35 and 0.6." in notes[1]
    assert "of JS has" not in notes[1]  # whose largest is below 0.6


def test_how_the_best_was_chosen() -> None:
    fake = whole(seeds=1, bases=1, texts=8)
    for lam, said in (
        (0.01, "The best adversary is chosen on validation.* at least 0.4"),
        (0.0005, "No lambda of KL reached a mean JS of 0.4 on validation"),
        (0.7, "No adversary of the chosen lambda is finished."),
    ):
        fake.head["selected"] = {"run": "x", "term": "kl", "lambda": lam}
        assert re.match(said, selection(fake.read()))


@pytest.mark.parametrize("fake", ["tagging"], indirect=True, scope="module")
class TestTaggers:
    """Tables of a study that holds the losses of its models."""

    def test_differences_are_from_the_base_and_its_other_seeds(
        self, fake: FakeTagging, grids: dict[str, Table]
    ) -> None:
        trained = mean([measure(fake, "base-s0", "f1"), *each(fake, "seed-b0", "f1")])
        uniform = mean(each(fake, "uniform-s", "f1"))
        cell = row(grids["models"], "uniform attention")[-1]
        assert float(cell.split()[0]) == pytest.approx(uniform - trained, abs=5.1e-4)
        for start in ("trained attention, bases", "other seeds"):
            assert row(grids["models"], start)[-1] == DASH

    def test_collapses_and_epochs_by_lambda(self, grids: dict[str, Table]) -> None:
        shares = {found[0]: found[3:5] for found in grids["adversaries"].rows}
        assert shares["KL, λ = 0; imitation control"] == ["0 of 3", "12"]
        assert shares["KL, λ = 1"] == ["3 of 3", "30"]
        assert shares["KL, λ = 0.2848"] == ["1 of 3", "12 (12 to 30)"]
        assert len(grids["adversaries"].rows) == len(grids["adversary_distances"].rows) == 20
        chosen = [name for name in shares if name.endswith("chosen on validation")]
        assert chosen == ["KL, λ = 0.152; chosen on validation"]

    def test_infinite_kl_is_counted_and_left_out(
        self, fake: FakeTagging, grids: dict[str, Table]
    ) -> None:
        infinite = [
            name for name, rows in fake.rows.items() if np.isinf(rows["attention_kl"]).any()
        ]
        assert len(infinite) > 1
        for stem in ("distances", "adversary_distances"):
            said = f"weighs: {len(infinite)} test sentences of single runs have such a token, and"
            assert said in grids[stem].note

    def test_bics_of_three_shapes(self, estimates: Estimates, grids: dict[str, Table]) -> None:
        runs = estimates.study.finished("adversary")
        fits = fit_segments(*(estimates.per_seed(runs, m) for m in ("attention_js", "nll_gold")))
        rows = {(row[0], row[2]): row for row in grids["segments"].rows}
        found = rows["all terms", "gold labels"]
        assert found[3] == "60"
        assert found[4:7] == [f"{fit.bic - fits.jump.bic:.1f}" for fit in fits]
        assert found[7:10] == ["jump", f"{fits.jump.place:.3f}", f"{fits.jump.change:.3f}"]
        terms, marks = ("all terms", "KL", "KL (released scale)"), ("", ", without collapsed runs")
        points = [f"{term}{mark}" for term in terms for mark in marks]
        assert [row[0] for row in grids["segments"].rows] == 2 * points


def test_a_study_without_kl_has_no_columns_of_it() -> None:
    fake = whole_tagger(2, 2, kl=(0.0, 0.1), released=(), sentences=20)
    for columns, shown in (((), True), (KL.values(), False)):
        for rows, column in product(fake.rows.values(), columns):
            rows[column][:] = math.nan  # as of records that lack it
        estimates = Estimates(fake.read())
        grids = study_tables(estimates)
        assert [set(KL) <= set(grids["distances"].head), "KL:" in grids["distances"].note] == [
            shown
        ] * 2
        assert set(KL.values()) & set(estimates.measures) == (set(KL.values()) if shown else set())
        assert len(draw_tradeoff(estimates, "base-s0").axes) == 2 + shown


def test_without_chunks_there_is_accuracy_once() -> None:
    fake = whole_tagger(2, 2, kl=(0.0, 0.1), released=(), sentences=20, target="marked")
    grids = study_tables(Estimates(fake.read()))
    assert list(grids["models"].head[2:4]) == ["accuracy", "NLL, gold"]
    assert grids["models"].head[-1] == "accuracy, less trained"
    assert not any("F1" in text for grid in grids.values() for text in (*grid.head, grid.note))


def test_what_the_text_readout_means_is_told() -> None:
    said = "a token reaches its own tag only through its attention to itself"
    fake = FakeTagging(8)
    fake.add("base-s0", "base")
    for readout, told in (("text", 1), ("residual", 0)):
        fake.head["readout"] = readout
        grids = study_tables(Estimates(fake.read()))
        assert {name: grid.note.count(said) for name, grid in grids.items()} == {
            "models": told,
            "heads": told,
        }
