"""Scores on docs/known_answers.md, from tables of checkpoints whose answers are known."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from tests.kept import page
from tests.report.fake import write_record

trained, tables = page("known_answers"), page("known_answers_tables")
SETTINGS = ("short_1_none", "short_3_bilstm_4", "long_3_none_4", "long_30_none", "short_10_none")
TREATMENTS = ("plain", "random_by_token", "deceive_1")
GOOD, COPY, LOCAL = "decision_flip/good", "decision_flip/copy", "single_erasure/local"


def table(seeds: int = 10) -> pd.DataFrame:
    """Plain attention follows words and no other; one good measure, one control's copy, one local."""
    random, rows = np.random.default_rng(0), []
    for setting in (*SETTINGS, *trained.ASIDE, trained.REDUNDANT):
        for treatment in TREATMENTS:
            for seed in range(seeds):
                follows = treatment == "plain"
                label = 0.9 * follows + 0.05 * random.random()
                # Frozen attention is spread out: entropy separates half of the others.
                entropy = random.random() + 2 * (treatment == "random_by_token")
                row = {"setting": setting, "treatment": treatment, "seed": seed}
                row |= dict.fromkeys(trained.LABELS.values(), label)
                row |= {f"measured_use/{name}": 1.0 for name in trained.CONTROLS}
                row |= {f"measured_use/{x}": 0.5 for x in ("tau_states_words", "auprc")}
                row |= {"measured_use/swap_flips": 0.5, "measured_use/entropy": entropy}
                row |= {GOOD: -label + 0.01 * random.random(), COPY: entropy}
                row[LOCAL] = 1 - label if setting == SETTINGS[2] else label
                rows.append(row)
    return pd.DataFrame(rows)


@pytest.fixture(scope="module")
def points() -> Any:
    return trained.Checkpoints(table())


def test_what_is_set_aside_is_not_fitted(points: Any) -> None:
    assert set(points.fitted["setting"]) == set(SETTINGS)
    assert points.fitted["seed"].max() == trained.ASIDE_SEED - 1
    assert set(points.redundant["setting"]) == {trained.REDUNDANT}
    assert len(points.fitted) + len(points.aside) + len(points.redundant) == len(points.all)
    spoiled = table()
    aside = spoiled["setting"].isin(trained.ASIDE) | (spoiled["seed"] >= trained.ASIDE_SEED)
    spoiled.loc[aside, [GOOD, COPY, LOCAL]] = 7.0
    assert trained.Checkpoints(spoiled).held_out == points.held_out


def test_who_decides(points: Any) -> None:
    assert "words" in points.decided(GOOD)
    assert "words" not in points.decided(COPY), "it is a control under another name"
    assert points.best_control("words")[0] == "measured_use/entropy"
    assert points.held_out["words"][COPY] == points.held_out["words"]["measured_use/entropy"]
    assert "words" not in points.decided(LOCAL), "one setting reads the other way around"
    assert points.scored(LOCAL, "words").area().mean > 0.6


def test_few_checkpoints_decide_nothing() -> None:
    few = table(seeds=5)  # 25 that follow
    assert not trained.Checkpoints(few).decided(GOOD)
    places = few["setting"].isin(SETTINGS[:2])
    assert not trained.Checkpoints(pd.concat([few[places]] * 4)).decided(GOOD), "2 settings"


def test_kinds_of_what_does_not_follow(points: Any) -> None:
    kinds = points.kinds()
    treatment, setting = points.fitted["treatment"], points.fitted["setting"]
    for row in range(len(points.fitted)):
        found = [kind for kind, members in kinds.items() if members[row]]
        mixed = "bilstm" in setting[row]
        expected = {
            "plain": [],
            "random_by_token": ["frozen"],
            "deceive_1": ["displaced" if mixed else "deceit"],
        }
        assert found == expected[treatment[row]]


def test_the_page_of_any_state(points: Any) -> None:
    """With all, with one setting, with one checkpoint: every place is filled, and nothing invented."""
    one = points.all[points.all["setting"] == SETTINGS[0]]
    states = {"all": points, "setting": trained.Checkpoints(one)}
    states["checkpoint"] = trained.Checkpoints(one.head(1))
    pages = {name: tables.trained_blocks(state, 300) for name, state in states.items()}
    assert "`good`) may decide (use of states, words)" in pages["all"]["trained_sentences"]
    assert "**Single erasure** (`local`) may only rank" in pages["all"]["trained_sentences"]
    assert "not scored yet" in pages["checkpoint"]["trained_sentences"]
    for name, content in pages.items():
        assert all(text.strip() for text in content.values())
        assert "nan" not in "".join(content.values())
        assert name == "all" or "may decide" not in content["trained_sentences"]
    assert f"{len(points.all)} of 300 planned" in pages["all"]["trained_state"]


def test_which_tests_notice_each_kind(points: Any) -> None:
    """The good measure notices all kinds; what a single setting shows stays undecided."""
    deceit, displaced, frozen = tables.by_kind(points).splitlines()
    assert displaced == (
        "* **Displaced** (checkpoints: 8, settings: 1) is undecided for Decision flip 1.00, Single "
        "erasure 1.00."
    )
    for line, kind in ((deceit, "deceit"), (frozen, "frozen")):
        rate, number = points.noticed(LOCAL)[kind], points.kinds()[kind].sum()
        head, _, rest = line.partition(" is noticed by Decision flip 1.00 [1.00, 1.00]")
        assert head.startswith(f"* **{kind.capitalize()}** (checkpoints: {number}, settings: ")
        assert rest.startswith(", Single erasure") == (rate.low > 0.5)
        assert rest.startswith("; is not noticed by Single erasure") == (rate.high < 0.5)


def test_the_archive_is_of_means_over_texts(tmp_path: Path) -> None:
    values = {"good": np.array([1.0, np.nan, 3.0]), "agreement_words": np.array([0.5, 0.25, 0.0])}
    for run, state in {"base-s8": "finished", "base-s1": "failed"}.items():
        folder = tmp_path / f"known_answers-short_1_none-plain/{run}"
        for test, measure in (("decision_flip", "good"), ("measured_use", "agreement_words")):
            target = folder / f"records/test/{test}.parquet"
            write_record(target, {measure: values[measure]}, test=test, measures=[measure])
        (folder / "status.json").write_text(json.dumps({"state": state}))
    target, names = tmp_path / "found.parquet", (trained.STUDY, trained.KEYS)
    (left_out,) = trained.archive(tmp_path, target, *names, trained.means_of)
    assert "base-s1 is failed" in left_out
    (row,) = pd.read_parquet(target).to_dict("records")
    assert row == {
        "setting": "short_1_none",
        "treatment": "plain",
        "seed": 8,
        "decision_flip/good": 2.0,
        "measured_use/agreement_words": 0.25,
    }
