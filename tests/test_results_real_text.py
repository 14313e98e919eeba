"""Remove and retrain, and the answers of the page on real text, against loops over archived values."""

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
import yaml
from scipy.stats import kendalltau, t
from torchmetrics.functional.classification import binary_average_precision

from attnlight.data.planted import PlantedSpec
from attnlight.records import read_record
from tests.kept import BLOCKS, archived, page
from tests.report.study.fake import FakeTexts

findings, real_text, roar = map(page, ("findings", "real_text", "roar"))
TABLES = findings.Tables(BLOCKS)
WORDS = {"input_gradient": "gradient × input", "integrated_gradients": "integrated gradients"}  # noqa: RUF001


def archived_roar() -> dict[str, dict[tuple[str, float, int], float]]:
    """Accuracy of each run, by corpus; method, share and seed."""
    found: dict[str, dict[tuple[str, float, int], float]] = {}
    for row in pd.read_parquet(roar.ARCHIVE).to_dict("records"):
        right = sum(bool(x) for x in row["correct"]) / len(row["correct"])
        found.setdefault(row["corpus"], {})[row["method"], row["share"], row["seed"]] = right
    return found


def losses_by_seed(runs: dict[tuple[str, float, int], float], method: str) -> list[float]:
    by_seed = []
    for seed in range(5):
        shares = [share for x, share, one in runs if (x, one) == (method, seed)]
        lost = [runs["random", share, seed] - runs[method, share, seed] for share in shares]
        by_seed.append(sum(lost) / len(lost))
    return by_seed


def test_accuracy_and_loss_beyond_random_are_means_of_runs() -> None:
    for corpus, words in {"planted": "planted", "sst": "SST"}.items():
        runs = archived_roar()[corpus]
        assert len(runs) == 5 + 5 * 6 * 5
        for method in {x for x, *_ in runs}:
            (row,) = TABLES.rows("roar", words, WORDS.get(method, method))
            for share in {share for x, share, _ in runs if x == method}:
                each = [runs[method, share, seed] for seed in range(5)]
                cell = findings.Cell(row[f"{share:.0%}".replace("%", " %")])
                assert cell.value == pytest.approx(sum(each) / 5, abs=6e-4)
            if method in ("nothing", "random"):
                assert row["mean loss beyond random"] == "–"  # noqa: RUF001
                continue
            by_seed = losses_by_seed(runs, method)
            cell = findings.Cell(row["mean loss beyond random"])
            assert cell.value == pytest.approx(np.mean(by_seed), abs=6e-4)
            half = t.ppf(0.975, 4) * np.std(by_seed, ddof=1) / np.sqrt(5)
            assert cell.high - cell.low >= 2 * half - 2e-3  # texts widen it


def test_taus_of_planted_texts_are_scipy_s() -> None:
    runs = archived_roar()["planted"]
    whole = pd.read_parquet(roar.ARCHIVE).query("corpus == 'planted' and method == 'nothing'")
    methods = [x.removeprefix("auprc_") for x in whole if x.startswith("auprc_")]
    taus = []
    for row in whole.to_dict("records"):
        lost = [losses_by_seed(runs, method)[int(row["seed"])] for method in methods]
        taus.append(kendalltau(lost, [row[f"auprc_{x}"].mean() for x in methods]).statistic)
    cell = TABLES.cell("real_text_agreement", "tau", "planted evidence", "ROAR")
    assert cell.value == pytest.approx(np.mean(taus), abs=0.0051)
    taus = []
    for run in sorted(archived().glob("real_text-planted_*-whole/seed*")):
        faith, right = (
            read_record(run / f"records/test/{x}.parquet").columns
            for x in ("faithfulness", "plausibility")
        )
        excess = [np.nanmean(faith[f"excess_comprehensiveness_{x}"]) for x in real_text.METHODS]
        auprc = [np.nanmean(right[f"auprc_{x}"]) for x in real_text.METHODS]
        taus.append(kendalltau(excess, auprc).statistic)
    by_model = (
        np.array(taus).reshape(3, 3).mean(1)
    )  # three seeds of each encoder, in order of names
    half = t.ppf(0.975, 2) * np.std(by_model, ddof=1) / np.sqrt(3)
    cell = TABLES.cell("real_text_agreement", "tau", "planted evidence", "deletion")
    assert cell.value == pytest.approx(np.mean(by_model), abs=0.0051)
    assert cell.low == pytest.approx(cell.value - half, abs=0.011)


def test_answers_count_the_verdicts_of_the_tables() -> None:
    columns = {"resampling": "more faithful? 2", "erased training": "more faithful? 3"}
    found = {
        f"more faithful by {x}, too": [row[y] for row in TABLES.rows("real_text_faithful")]
        for x, y in columns.items()
    }
    for texts, words in page("real_text").NAMES["real_text"]["erased"].items():
        found[words] = [row["answer"] for row in TABLES.rows("real_text_erased", texts)]
    chance = "attention finds edited words better than chance"
    found[chance] = [row["better?"] for row in TABLES.rows("real_text_edited", "attention")]
    for statement, said in found.items():
        (row,) = TABLES.rows("real_text_answers", statement)
        counts = {x: sum(y == x for y in said) for x in ("yes", "no", "open")}
        assert {x: int(row[x]) for x in counts} == counts
        assert int(row["not run"]) == len(said) - sum(counts.values())


def test_of_two_orders_the_one_of_the_evidence_is_right(monkeypatch: pytest.MonkeyPatch) -> None:
    noise = np.random.default_rng(0).normal(0, 0.01, (3, 40))
    evidence = {"a": 0.9 + noise, "b": 0.2 - noise}

    def ordered(_: Any) -> Iterator[Any]:
        for erasure, (a, b) in {"x": (0.5, 0.1), "y": (0.1, 0.5), "z": (0.3, 0.3)}.items():
            faith = {"a": a + noise, "b": b - noise * (erasure != "z")}
            yield ("planted evidence", erasure, "none"), faith, evidence, np.arange(40)

    monkeypatch.setattr(real_text, "ordered", ordered)
    rows = {
        (row["first"], row["second"]): [*row.values()][2:] for row in real_text.disagreements({})
    }
    assert rows["x", "y"] == [1, 1, 1, 1, 0]
    assert rows["x", "z"][2:] == [0, 0, 0]


def test_seeds_are_compared_that_both_trainings_have() -> None:
    runs = page("archive").Experiment("x", ["f0", "f1", "f2"], [0, 1, 2], None)
    other = page("archive").Experiment("y", ["g1", "g3"], [1, 3], None)
    found = real_text.paired({"whole": runs, "erased": other})
    assert {x: y.folders for x, y in found.items()} == {"whole": ["f1"], "erased": ["g1"]}
    assert real_text.paired({"whole": runs}) == {}
    means = [SimpleNamespace(low=x, high=x + 0.1) for x in (0.01, -0.05, -0.2)]
    assert [real_text.answer(mean) for mean in means] == ["yes", "open", "no"]
    assert real_text.answer(means[1], -0.06) == "yes"


@pytest.mark.parametrize("planted", [True, False])
def test_a_run_of_roar_is_a_row(planted: bool, tmp_path: Path) -> None:
    study, spec = FakeTexts(texts=24), PlantedSpec()
    study.head["corpus"] = "planted" if planted else "sst"
    study.add("base-s3", "base", 0.9, seed=3)
    for state in ("finished", "failed"):
        entry = {"method": "occlusion_by_size", "share": 0.3, "seed": 3, "base": None}
        study.add(f"roar-{state}", "roar", 0.6, state=state, **entry)
    folder = study.write(tmp_path / "roar-x")
    (texts,) = spec.draw(2, 24)
    data = {
        "class_path": "x.PlantedEvidence" if planted else "x.SST",
        "init_args": asdict(spec) | {"test_size": 24},
    }
    run = folder / "base-s3"
    (run / "records/test").mkdir(parents=True)
    (run / "fit.yaml").write_text(yaml.safe_dump({"data": data}))
    random = np.random.default_rng(0)
    scores = {f"scores_{x}": [random.random(n) for n in texts.lengths] for x in roar.METHODS}
    pd.DataFrame(scores).to_parquet(run / "records/test/saliency_agreement.parquet")
    roar.archive_roar(tmp_path, target := tmp_path / "roar.parquet")
    removed, whole = pd.read_parquet(target).to_dict("records")
    assert (removed["method"], removed["share"], removed["seed"]) == ("deletion", 0.3, 3)
    assert (whole["method"], whole["share"]) == ("nothing", 0.0)
    rows = study.rows["roar-finished"]
    assert removed["correct"].tolist() == (rows["label"] == rows["prediction"]).tolist()
    assert ("auprc_deletion" in whole) == planted
    ends = np.cumsum(texts.lengths)
    for place in range(24) if planted else ():
        marks = torch.tensor(texts.evidence[ends[place] - texts.lengths[place] : ends[place]] > 0)
        expected = binary_average_precision(
            torch.tensor(scores["scores_occlusion_by_size"][place]), marks.int()
        )
        assert whole["auprc_deletion"][place] == pytest.approx(float(expected), abs=1e-5)
