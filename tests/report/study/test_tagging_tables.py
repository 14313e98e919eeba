"""What the tables say, against loops over the fake's own rows."""

import csv
import io
import math
import re
import statistics
from pathlib import Path

import pytest

from attnlight.report.study.estimates import Estimates
from attnlight.report.study.frame import Study, read_study
from attnlight.report.study.tables import Tables, estimates_csv
from attnlight.report.tables import Table
from tests.report.study.fake_tagging import FakeTagging, whole
from tests.report.study.naive import mean, measure

WHOLE = whole
DASH = "–"  # noqa: RUF001


@pytest.fixture(scope="module")
def grids(study: Study, estimates: Estimates) -> dict[str, Table]:
    return Tables(estimates).all()


def row(grid: Table, start: str) -> list[str]:
    (found,) = [list(row) for row in grid.rows if row[0].startswith(start)]
    return found


def numbers(cell: str) -> tuple[float, float]:
    """Mean and standard deviation of a cell."""
    found = re.match(r"(\S+) ± (\S+) \[", cell)
    assert found is not None
    return float(found[1]), float(found[2])


def named(fake: FakeTagging, stem: str) -> list[str]:
    return [name for name in fake.rows if re.fullmatch(stem, name)]


@pytest.mark.parametrize(
    ("table", "start", "stem"),
    [
        ("models", "uniform attention", r"uniform-s\d"),
        ("models", "head 2 alone uniform", r"uniform-h2-s\d"),
        ("models", "other seeds of base-s0", r"seed-b0-s\d"),
        (
            "models",
            "probe that reads each token alone: attention of the base, shuffled",
            r"guide-shuffled-tokens-s\d",
        ),
        (
            "distances",
            "probe with the base's encoder: attention of the adv",
            r"guide-adversary-s\d",
        ),
        ("adversaries", "KL, λ = 0.2848", r"adversary-kl-l0.2848-s\d"),
        ("adversaries", "KL (released scale), λ = 2.6", r"adversary-compat-l2.6-s\d"),
        ("adversary_distances", "KL, λ = 1", r"adversary-kl-l1-s\d"),
        ("heads", "other seeds", r"seed-b0-s\d"),
        ("heads", "KL (released scale), λ = 0.5", r"adversary-compat-l0.5-s\d"),
    ],
)
def test_cells_are_means_over_seeds(
    fake: FakeTagging, grids: dict[str, Table], table: str, start: str, stem: str
) -> None:
    heads = {f"head {h}": f"attention_js_heads_{h}" for h in range(4)} if table == "heads" else {}
    columns = heads | {
        "chunk F1": "f1",
        "accuracy": "accuracy",
        "NLL, gold": "nll_gold",
        "NLL, base": "nll_base",
        "JS": "attention_js",
        "JS of head mean": "attention_js_mean",
        "share of largest": "attention_js_share",
        "TVD": "prediction_tvd",
        "agreement": "agreement",
        "tau": "attention_tau",
    }
    found = dict(zip(grids[table].head, row(grids[table], start), strict=True))
    runs = named(fake, stem)
    assert found["seeds"] == str(len(runs))
    measured = [name for name in columns if name in found]
    assert len(measured) >= 4
    for name in measured:
        each = [measure(fake, run, columns[name]) for run in runs]
        if all(map(math.isnan, each)):
            assert found[name] == DASH
            continue
        assert numbers(found[name])[0] == pytest.approx(mean(each), abs=5.1e-4)
        assert numbers(found[name])[1] == pytest.approx(statistics.stdev(each), abs=5.1e-4)


def test_differences_are_from_the_base_and_its_other_seeds(
    fake: FakeTagging, grids: dict[str, Table]
) -> None:
    trained = mean([measure(fake, run, "f1") for run in ["base-s0", *named(fake, r"seed-b0-s\d")]])
    uniform = mean([measure(fake, run, "f1") for run in named(fake, r"uniform-s\d")])
    cell = row(grids["models"], "uniform attention")[-1]
    assert float(cell.split()[0]) == pytest.approx(uniform - trained, abs=5.1e-4)
    for start in ("trained attention, bases", "other seeds"):
        assert row(grids["models"], start)[-1] == DASH


def test_collapses_and_epochs_by_lambda(grids: dict[str, Table]) -> None:
    shares = {found[0]: found[3:5] for found in grids["adversaries"].rows}
    assert shares["KL, λ = 0; imitation control"] == ["0 of 3", "12"]
    assert shares["KL, λ = 1"] == ["3 of 3", "30"]
    assert shares["KL, λ = 0.2848"] == ["1 of 3", "12 (12 to 30)"]
    assert len(grids["adversaries"].rows) == len(grids["adversary_distances"].rows) == 20
    chosen = [name for name in shares if name.endswith("chosen on validation")]
    assert chosen == ["KL, λ = 0.1520; chosen on validation".replace("0.1520", "0.152")]


def test_bics_of_three_shapes(study: Study, estimates: Estimates, grids: dict[str, Table]) -> None:
    from attnlight.statistics.changepoint import fit_segments

    runs = study.finished("adversary")
    fits = fit_segments(*(estimates.per_seed(runs, m) for m in ("attention_js", "nll_gold")))
    (found,) = [
        found
        for found in grids["segments"].rows
        if found[0] == "all terms" and found[2] == "gold labels"
    ]
    assert found[3] == "60"
    assert found[4:7] == [f"{fit.bic - fits.jump.bic:.1f}" for fit in fits]
    assert found[7:10] == ["jump", f"{fits.jump.place:.3f}", f"{fits.jump.change:.3f}"]
    points = [found[0] for found in grids["segments"].rows]
    several = ("all terms", "KL", "KL (released scale)")
    assert points == 2 * [p + mark for p in several for mark in ("", ", without collapsed runs")]


def test_full_numbers(fake: FakeTagging, study: Study, estimates: Estimates) -> None:
    text = estimates_csv(estimates)
    rows = list(csv.DictReader(io.StringIO(text)))
    held = {(found["group"], found["base"], found["measure"]): found for found in rows}
    assert len(held) == len(rows)
    assert "nan" not in text
    each = [measure(fake, f"guide-other-tokens-s{seed}", "f1") for seed in range(3)]
    found = held["guide-other-tokens", "base-s0", "f1"]
    assert float(found["mean"]) == pytest.approx(mean(each), rel=1e-12)
    assert float(found["std"]) == pytest.approx(statistics.stdev(each))
    assert held["base", "base-s1", "attention_js"]["mean"] == ""
    assert held["uniform-head-3", "base-s0", "attention_js_heads_3"]["mean"] != ""


def test_without_chunks_there_is_accuracy_once(tmp_path: Path) -> None:
    fake = whole(seeds=2, variants=2, kl=(0.0, 0.1), compat=(), sentences=20, target="marked")
    study = read_study(fake.write(tmp_path))
    grids = Tables(Estimates(study)).all()
    assert list(grids["models"].head[2:4]) == ["accuracy", "NLL, gold"]
    assert grids["models"].head[-1] == "accuracy, less trained"
    assert not any("F1" in text for grid in grids.values() for text in (*grid.head, grid.note))


def test_what_is_missing_is_told(tmp_path: Path) -> None:
    fake = FakeTagging(8)
    fake.add("base-s0", "base")
    for seed in range(2):
        fake.add(f"guide-base-s{seed}", "guide", js=0.1, state="missing", guide="base")
    study = read_study(fake.write(tmp_path))
    grids = Tables(Estimates(study)).all()
    note = grids["models"].note
    assert "Not finished: 2 of 2 guided taggers (guide-base-s0, guide-base-s1)." in note
    assert "The study has no runs with uniform attention." in note
    assert row(grids["models"], "probe")[1:] == ["0", *[DASH] * 5]
    assert not grids["adversaries"].rows
    assert not grids["segments"].rows
    assert "The study has no adversaries." in grids["segments"].note


def test_what_the_text_readout_means_is_told(tmp_path: Path) -> None:
    said = "a token reaches its own tag only through its attention to itself"
    fake = FakeTagging(8)
    fake.add("base-s0", "base")
    for readout, told in (("text", True), ("residual", False)):
        fake.head["readout"] = readout
        study = read_study(fake.write(tmp_path))
        grids = Tables(Estimates(study)).all()
        assert [grid.note.count(said) for grid in grids.values()] == [int(told)] * 6
