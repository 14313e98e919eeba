"""How many published figures are met: what our side of a figure is, and the rule."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import t

from tests.kept import DOCS, archived, page, write_kept
from tests.test_results_published import PUBLISHED

archive, findings = map(page, ("archive", "findings"))
replication, tables = map(page, ("replication", "tables"))
RULE = PUBLISHED["agreement"]


def figure(text: str = "0.5", place: tuple[int, ...] = (), **known: Any) -> Any:
    """A figure of a run `a_run`."""
    known = {"run": "a_run", "measure": "gradient", "corpus": "sst", "reading": "", **known}
    return replication.Figure("name", place, text, known)


def side(name: str, place: tuple[int, ...] = (0, 1)) -> tuple[Any, Any]:
    """A figure of published.yaml and our side of it, of the archived runs."""
    runs = archive.Archive(archived(), PUBLISHED)
    (one,) = (x for x in replication.figures(PUBLISHED) if (x.name, x.place) == (name, place))
    return one, replication.runs_of(one, one.known["run"], runs, findings.Tables())


def test_one_more_run_lies_in_the_interval_as_often_as_said() -> None:
    random = np.random.default_rng(0)
    runs = 0.3 + 0.05 * random.normal(size=(4_000, 4)) + 0.02 * random.normal(size=(4_000, 1))
    theirs = 0.3 + 0.05 * random.normal(size=4_000) + 0.02 * random.normal(size=4_000)
    inside = [
        abs(each.mean() - other)
        <= replication.half_width(
            replication.Runs(each.mean(), each.std(ddof=1), 4, 0.02**2), same_texts=False
        )
        for each, other in zip(runs, theirs, strict=True)
    ]
    assert 0.945 < np.mean(inside) < 0.975  # both parts in quadrature are a little wide


def test_the_same_texts_leave_the_seeds_alone() -> None:
    runs = replication.Runs(0.5, 0.1, 3, 0.2)
    half = t(2).interval(0.95)[1] * 0.1 * (4 / 3) ** 0.5
    assert replication.half_width(runs, same_texts=True) == pytest.approx(half)


def test_medians_by_class_and_bin() -> None:
    _, runs = side("median_tvd.sst_bilstm")
    values = []
    for seed in range(5):
        folder = archived() / f"sst_bilstm/seed{seed}/records/test/attention_permutation.parquet"
        columns = archive.read_record(folder).columns
        rows = zip(
            columns["prediction"], columns["max_attention"], columns["median_tvd"], strict=True
        )
        values.append(np.median([tvd for of, most, tvd in rows if of == 0 and 0.25 <= most < 0.5]))
    assert (runs.mean, runs.seeds) == (pytest.approx(np.mean(values)), 5)
    assert runs.deviation == pytest.approx(np.std(values, ddof=1))


def test_mean_of_a_column_by_class(tmp_path: Path) -> None:
    taus = np.array([[0.1, 0.2, np.nan, 0.8], [0.3, 0.2, 0.5, 0.6]])
    for seed, values in enumerate(taus):
        rows = {"index": np.arange(4), "prediction": np.array([0, 0, 0, 1]), "tau": values}
        write_kept(tmp_path, "a_run", {"importance_correlation": rows}, seed=seed)
    runs = archive.Archive(tmp_path, PUBLISHED)
    of = figure(place=(0,), reading="importance_correlation/tau")
    found = replication.runs_of(of, "a_run", runs, findings.Tables())
    assert (found.mean, found.seeds) == (pytest.approx((0.15 + 1 / 3) / 2), 2)
    variances = (np.var([0.1, 0.2]) / 2, np.var([0.3, 0.2, 0.5]) / 3)
    assert found.sampling == pytest.approx(np.mean(variances))
    lacking = figure(reading="importance_correlation/other")
    assert replication.runs_of(lacking, "a_run", runs, findings.Tables()) is None


def test_a_cell_of_a_table_gives_the_seeds_and_the_texts() -> None:
    half = np.hypot(t(3).ppf(0.975) * 0.02 / 2, 1.959964 * 0.01)
    row = f"| λ = 0.25; best | 4 | 0.500 ± 0.020 [{0.5 - half:.6f}, {0.5 + half:.6f}] |"
    other = f"| λ = 0.2 (Yang 2020) | {tables.DASH} | 0.9 |"
    table = f"| model | seeds | F1 |\n| --- | --- | --- |\n{other}\n{row}\n"
    known = findings.Tables({"a_table": table})
    of = {"reading": "a_table: F1", "row": "λ = 0.25"}
    runs = replication.runs_of(figure(**of), "a_run", archive.Archive(Path(), {}), known)
    assert runs[:3] == (0.5, 0.02, 4)
    assert runs.sampling == pytest.approx(0.01**2, rel=1e-3)
    of["row"] = "λ = 0.2"  # which is of a paper
    assert replication.runs_of(figure(**of), "a_run", archive.Archive(Path(), {}), known) is None


@pytest.mark.parametrize(
    ("text", "runs", "expected"),
    [
        ("0.5", (0.54, 0.01, 5), "agrees"),  # 0.54 is within 0.05 of rounding
        ("0.500", (0.54, 0.01, 5), "differs"),
        ("0.500", (0.54, 0.01, 2), "not decided"),
        ("0.500", (0.54, 0.04, 5), "not decided"),
        ("0.500", (0.9, 0.04, 5), "differs"),
        ("<1e-6", (0.001, 0.001, 5), "agrees"),
        ("<1e-6", (0.1, 0.001, 5), "differs"),
        ("3 of 4", (0.75, 0.0, 5), "agrees"),
        ("0.50 ± 0.02 (0.3)", (np.nan, np.nan, 5), "not decided"),
    ],
)
def test_outcome(text: str, runs: tuple[float, float, int], expected: str) -> None:
    assert replication.outcome(figure(text), replication.Runs(*runs, 0.0), RULE) == expected
    assert replication.outcome(figure(text), None, RULE) == "not run"


def test_accuracy_needs_a_narrower_interval() -> None:
    runs = replication.Runs(0.5, 0.01, 5, 0.0)
    found = [replication.outcome(figure("0.500", measure=x), runs, RULE) for x in ("f1", "js")]
    assert found == ["not decided", "agrees"]


def test_too_few_texts_are_named() -> None:
    name = "accuracy.sst_cnn.repository.accuracy"
    text = (DOCS / "results/replication.md").read_text()  # which is held against its records
    (row,) = (line for line in text.splitlines() if line.startswith(f"| `{name}`"))
    half = 1.959964 * (2 * side(name, ())[1].sampling) ** 0.5
    assert f"| the texts alone: ± {half:.3f} |" in row


@pytest.mark.parametrize(("other", "shown"), [(0.6, True), (0.66, False)])
def test_a_cause_halves_the_distance(tmp_path: Path, other: float, shown: bool) -> None:
    rows = {"index": np.arange(2), "prediction": np.zeros(2, int), "tau": np.full(2, other)}
    write_kept(tmp_path, "a_run_vectors", {"importance_correlation": rows})
    rule = RULE | {"causes": {"a_run": {"{run}_vectors": "trained vectors"}}}
    of = figure("0.5000", reading="importance_correlation/tau")
    runs = replication.Runs(0.75, 0.01, 5, 0.0)  # a distance of 0.25
    given = archive.Archive(tmp_path, PUBLISHED), findings.Tables()
    assert bool(replication.cause(of, runs, rule, *given)) is shown
