"""The differences of honest attention against loops over archived values, and the rule that judges them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from scipy.stats import norm, t, ttest_1samp

from attnlight.records import read_record
from attnlight.statistics.seed_bootstrap import resampled_means, seeds_then_instances
from tests.kept import BLOCKS, archived, page
from tests.report.study.fake import FakeTexts

findings, honest = map(page, ("findings", "honest"))
TABLES = findings.Tables(BLOCKS)
STUDIES = {"honest_sst": "honest_differences", "honest_planted": "honest_planted"}


def by_hand(condition: str, study: str, measure: str) -> dict[int, list[float]]:
    """A measure of each text by seed, read from the records of the archived runs."""
    test, column, *_ = honest.MEASURES[study][measure]
    found = {}
    for run in sorted(archived().glob(f"{study}-{condition}/seed*")):
        record = read_record(run / f"records/test/{test}.parquet").columns
        values = []
        for place in range(len(record["index"])):
            if column == "correct":
                value = float(record["prediction"][place] == record["label"][place])
            elif test == "decision_flip":
                never = record["never_flips_attention"][place]
                value = 1.0 if never == 1 else float(record[column][place])
                value = value if record["length"][place] > 1 else np.nan
            else:
                value = float(record[column][place])
            values.append(value)
        found[int(run.name.removeprefix("seed"))] = values
    return found


@pytest.mark.parametrize("study", STUDIES)
def test_differences_are_means_over_seeds_of_those_text_by_text(study: str) -> None:
    words = {name: key for key, name in honest.CONDITIONS.items()}
    rows = [x for x in TABLES.rows(STUDIES[study]) if x["seeds"] != "0"]
    assert rows
    for row in rows:
        condition = words[row["condition"]]
        other = {"bilstm_diversity": "bilstm"}.get(condition, "plain")
        ours, theirs = (by_hand(x, study, row["measure"]) for x in (condition, other))
        seeds = ours.keys() & theirs.keys()
        means = [
            np.nanmean([a - b for a, b in zip(ours[s], theirs[s], strict=True)]) for s in seeds
        ]
        cell = findings.Cell(row["difference"])
        assert int(row["seeds"]) == len(seeds)
        assert cell.value == pytest.approx(np.mean(means), abs=6e-4), row
        half = t.ppf(0.975, len(means) - 1) * np.std(means, ddof=1) / np.sqrt(len(means))
        assert cell.high - cell.low >= 2 * half - 2e-3  # texts widen it


@pytest.mark.parametrize("study", STUDIES)
def test_runs_that_are_compared_were_tested_on_the_same_texts(study: str) -> None:
    for test in {test for test, *_ in honest.MEASURES[study].values()}:
        paths = sorted(archived().glob(f"{study}-*/seed*/records/test/{test}.parquet"))
        texts = [read_record(path).columns["index"].tolist() for path in paths]
        assert all(each == texts[0] for each in texts), test


@pytest.mark.parametrize("spread", [0.0, 0.02, 0.2])
def test_p_is_the_level_at_which_the_interval_ends_at_zero(spread: float) -> None:
    random = np.random.default_rng(0)
    texts, seeds = random.normal(0.05, 0.5, 300), random.normal(0, spread, (5, 1))
    values: NDArray[Any] = texts + seeds + random.normal(0, 0.1, (5, 300))
    less = seeds_then_instances(values)
    _, replicates = resampled_means(values)
    shared = np.cov(replicates.T)[~np.eye(5, dtype=bool)].mean()
    own = values.mean(1).var(ddof=1) / 5
    p = honest.p_value(less)
    assert 1e-6 < p < 1
    ends = [
        np.hypot(t.isf(x / 2, 4) * np.sqrt(own), norm.isf(x / 2) * np.sqrt(shared))
        for x in (0.997 * p, min(1, 1.001 * p))
    ]
    assert ends[0] > abs(values.mean()) > ends[1]
    assert (p <= 0.05) == (less.low > 0 or less.high < 0)


def test_of_texts_that_are_all_alike_p_is_student_s() -> None:
    means = np.array([0.3, 0.1, 0.25, 0.2, 0.4])
    less = seeds_then_instances(np.repeat(means[:, None], 40, axis=1))
    assert honest.p_value(less) == pytest.approx(ttest_1samp(means, 0).pvalue, rel=3e-3)
    alike = seeds_then_instances(np.full((5, 40), 0.2))
    assert honest.p_value(alike) <= 1.1e-9
    assert honest.p_value(seeds_then_instances(np.zeros((5, 40)))) == 1
    assert np.isnan(honest.p_value(seeds_then_instances(np.full((2, 40), 0.2))))


def adjusted(p_values: list[float]) -> list[float]:
    """Holm's p-values, one by one from the smallest."""
    found, least = [0.0] * len(p_values), 0.0
    order = sorted(range(len(p_values)), key=lambda place: p_values[place])
    for rank, place in enumerate(order):
        least = max(least, min(1.0, p_values[place] * (len(p_values) - rank)))
        found[place] = least
    return found


def test_verdicts_are_those_of_adjusted_p_values() -> None:
    rows = TABLES.rows("honest_differences", "diversity")
    less = []
    for row in rows:
        ours, theirs = (by_hand(x, "honest_sst", row["measure"]) for x in ("diversity", "plain"))
        less.append(np.array([np.subtract(ours[seed], theirs[seed]) for seed in ours]))
    means = [seeds_then_instances(each) for each in less]
    found = adjusted([honest.p_value(mean) for mean in means])
    for row, mean, p in zip(rows, means, found, strict=True):
        assert row["p (Holm)"] == ("< 0.001" if p < 0.001 else f"{p:.3f}")
        better = mean.mean * honest.MEASURES["honest_sst"][row["measure"]][2] > 0
        assert row["claim: better"] == (
            ("holds" if better else "does not") if p <= 0.05 else "open"
        )


@pytest.mark.parametrize(
    ("better", "worse", "verdict"),
    [(6, 0, "holds"), (6, 2, "holds"), (5, 2, "open"), (0, 2, "open"), (5, 3, "does not")],
)
def test_attention_is_more_faithful_by_six_of_eight_measures(
    better: int, worse: int, verdict: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [x for x, of in honest.MEASURES["honest_sst"].items() if "faithful" in of]
    assert len(names) == 8
    said = ["holds"] * better + ["does not"] * worse + ["open"] * (8 - better - worse)
    said = dict(zip(names, said, strict=True)) | {"conicity": "holds", "accuracy": "does not"}

    def rows(archive: Any, models: Any) -> Iterator[dict[str, Any]]:
        for measure, word in said.items():
            yield {"condition": "x", "measure": measure, "seeds": 5, "claim: better": word}

    monkeypatch.setattr(honest, "differences", rows)
    (row,) = honest.summary({})
    assert row["claim: faithful"] == verdict
    assert row["faithful"] == f"x, {better} of 8 better and {worse} worse:"
    assert row["better"] == ", ".join([*names[:better], "conicity"])
    assert row["worse"].endswith("accuracy")


def test_the_ceiling_is_the_lesser_agreement_between_seeds() -> None:
    for row in TABLES.rows("honest_agreement"):
        words = {name: key for key, name in honest.CONDITIONS.items()}
        path = archived() / f"honest_sst-{words[row['condition']]}" / "reliability.parquet"
        taus = pd.read_parquet(path)
        scores = ("input_gradient", "integrated_gradients", "occlusion")
        for place, score in enumerate(scores):
            means = [
                taus.groupby(["first", "second"])[f"tau_{x}"].mean().mean()
                for x in ("attention", score)
            ]
            ceiling = row["ceiling" + (f" {place + 1}" if place else "")]
            assert float(ceiling) == pytest.approx(min(means), abs=0.0101)


def test_adversaries_are_archived_by_their_means(tmp_path: Path) -> None:
    study = FakeTexts(texts=12)
    study.add("base-s0", "base", 0.9)
    for seed, weight in ((0, 0.0), (0, 0.17), (1, 0.17)):
        entry = {"base": "base-s0", "term": "js", "lambda": weight}
        study.add(f"adversary-{weight}-s{seed}", "adversary", 0.8, 0.3, seed=seed, **entry)
    folder = study.write(tmp_path / "study")
    target = tmp_path / "honest_sst-tying" / honest.ADVERSARIES
    honest.archive_adversaries(folder, target)
    table = pd.read_parquet(folder / "study.parquet").groupby("run")[["attention_js"]].mean()
    found = pd.read_csv(target).set_index(["lam", "seed"])
    for lam, seed in found.index:
        mean = table.loc[f"adversary-{lam}-s{seed}", "attention_js"]
        assert found.loc[(lam, seed), "attention_js"] == pytest.approx(mean, rel=1e-5)
    rows = {x["condition"]: x for x in honest.adversaries(page("archive").Archive(tmp_path, {}))}
    assert rows["tying"]["seeds"] == 2
    assert "by seed" in rows["tying"]["JS, λ = 0.17"]
    assert rows["plain"]["JS, λ = 0.17"] == "open: not run"
    assert "BiLSTM" not in rows


def test_what_is_not_run_is_said(tmp_path: Path) -> None:
    rows = [*honest.differences(page("archive").Archive(tmp_path, {}))]
    assert len(rows) == 10 * 12
    assert {row["difference"] for row in rows} == {"open: not run"}
    assert {row["claim: better"] for row in rows} == {"open: not run"}
    said = [*honest.summary(page("archive").Archive(tmp_path, {}))]
    assert {row["claim: faithful"] for row in said} == {"open: not run"}
