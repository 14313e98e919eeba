"""The table of deceptive attention, from runs made by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from tests.kept import page
from tests.report.fake import write_record

pruthi, archived = page("pruthi"), page("archive")
ROOT = Path(__file__).parents[1]
PUBLISHED = yaml.safe_load((ROOT / "docs/results/published.yaml").read_text(encoding="utf-8"))
RIGHT = {"none_1": 0.95, "bilstm_1": 1.0, "none_removed": 0.7}
MASS = {"none_1": 0.1, "bilstm_1": 1e-5}


def write_run(folder: Path, seed: int, share: float, mass: float | None) -> None:
    """A run on 100 texts, a share of them right, with a mass if its tokens are there."""
    run, index = folder / f"seed{seed}", np.arange(100)
    rows: dict[str, Any] = {"index": index, "position": 0 * index, "label": index % 2}
    right = index < 100 * share
    rows["prediction"] = np.where(right, rows["label"], 1 - rows["label"])
    about = {"stage": "test", "partial": False, "classes": ["male", "female"]}
    write_record(run / "records/test/predictions.parquet", rows, **about)
    if mass is not None:
        rows["mass"] = np.full(100, mass)
        rows |= {"chance": np.full(100, 0.08), "accuracy": right.astype(float)}
        rows |= {column: (index < 60).astype(float) for column in pruthi.ERASED.values()}
        del rows["label"]
        write_record(run / "records/test/impermissible_mass.parquet", rows, **about)
    (run / "logs/version_0").mkdir(parents=True)
    csv = "epoch,val/loss,val/accuracy,val/objective\n0,0.1,0.9,0.2\n1,0.2,0.8,0.7\n"
    (run / "logs/version_0/metrics.csv").write_text(csv)
    (run / "fit.yaml").write_text(f"seed_everything: {seed}\n")


@pytest.fixture
def archive(tmp_path: Path) -> Any:
    """Two seeds of three conditions, 100 texts each; the second seed has twice the mass."""
    for name, share in RIGHT.items():
        for seed in (1, 2):
            mass = seed * MASS[name] if name in MASS else None
            write_run(tmp_path / f"pruthi_pronoun-{name}", seed, share, mass)
    return archived.Archive(tmp_path, PUBLISHED)


def test_each_cell_is_beside_the_published_one_and_misses_are_named(archive: Any) -> None:
    rows = {(row["model"], row["λ"]): row for row in pruthi.deception(archive)}
    assert set(rows) == {("embedding", "1"), ("BiLSTM", "1"), ("embedding", "removed")}
    row = rows["embedding", "1"]
    assert row["seeds"] == "2 of 5"
    assert row["accuracy"] == "0.950 (0.950, 0.950 by seed)"
    assert (row["published#accuracy"], row["published#mass"]) == ("0.992", "0.008")
    assert row["mass, mean over seeds"] == "0.15 (0.1, 0.2 by seed)"
    assert row["largest seed"] == "0.2"
    assert row["missed"] == "accuracy -0.042, mass +0.142"
    assert str(row["deleted"]).startswith("0.600")
    assert rows["BiLSTM", "1"]["missed"] == "none"
    assert rows["embedding", "removed"]["missed"] == "accuracy +0.032"
    assert "deleted" not in rows["embedding", "removed"]


def test_a_missed_cell_is_beside_single_seeds_in_the_published_setting(tmp_path: Path) -> None:
    """Ours have a mass of 0.2 and 0.4, theirs of 0.8 and 1.0; 0.968 lies between, 0.668 does not."""
    conditions = {
        "pronoun-bilstm_0": 0.2,
        "reasons-pronoun_bilstm_0": 0.8,
        "pronoun-none_removed": None,
        "reasons-pronoun_none_removed": None,
    }
    for name, mass in conditions.items():
        for seed in (1, 2):
            write_run(tmp_path / f"pruthi_{name}", seed, 0.7, mass and mass + 0.2 * (seed - 1))
    mass, removed = pruthi.reasons(archived.Archive(tmp_path, PUBLISHED))
    assert (mass["corpus"], mass["model"], mass["λ"]) == ("pronoun", "BiLSTM", "0")
    assert (mass["ours"], mass["released setting"]) == (pytest.approx(0.3), pytest.approx(0.9))
    assert (mass["lowest and highest seed"], mass["seeds"]) == ("0.800 to 1.000", "2 of 5")
    assert (mass["published"], mass["within the seeds"]) == ("0.968", "yes")
    assert (mass["changed"], removed["changed"]) == ("vectors", "vectors, words")
    assert (removed["measure"], removed["within the seeds"]) == ("accuracy", "**no**")
    assert removed["lowest and highest seed"] == "0.700 to 0.700"


def test_every_reason_is_of_a_published_cell() -> None:
    assert len(pruthi.REASONS) == 5
    assert not pruthi.REASONS.keys() & pruthi.MODELS.keys()
    cells = {(model.corpus, model.encoder, model.weight) for model in pruthi.MODELS.values()}
    assert all(model[:3] in cells for model in pruthi.REASONS.values())


def test_only_more_than_an_upper_bound_is_missed() -> None:
    assert pruthi.miss("mass", 0.0, "<0.1", 0.05) == []
    assert pruthi.miss("mass", 0.2, "<0.1", 0.05) == ["mass +0.100"]


def test_every_condition_has_its_published_cell() -> None:
    for name, model in pruthi.MODELS.items():
        cell = PUBLISHED["pruthi"][model.corpus][name.partition("-")[2]]
        assert set(cell) == (
            {"accuracy"} if model.weight == pruthi.REMOVED else {"accuracy", "mass"}
        )
    assert len(pruthi.MODELS) == 24


def test_the_epoch_of_an_objective_and_the_figure(archive: Any) -> None:
    assert archive["pruthi_pronoun-none_1"].chosen.tolist() == [1, 1]
    figure = pruthi.draw(archive)
    assert figure is not None
    points = {line.get_label(): line.get_xydata() for line in figure.axes[0].lines}
    np.testing.assert_allclose(points["embedding, λ = 1"], [[0.1, 0.95], [0.2, 0.95]], rtol=1e-6)
    assert pruthi.draw(archived.Archive(Path("/nonexistent"), PUBLISHED)) is None
