"""The verdict card judged on docs/known_answers.md, by loops over the archived answers."""

import csv
import importlib
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml

from tests.kept import DOCS, PLACE, page
from tests.report.fake import write_record

cards = page("known_answers_cards")
trained = page("known_answers")
build = importlib.import_module("build_known_answers")
BLOCKS = dict(PLACE.findall((DOCS / "known_answers.md").read_text("utf-8")))
BOUNDS = {"words": (0.7, 0.5), "states": (0.8, 0.65)}  # as the page says


def rows_of(block: str) -> list[dict[str, str]]:
    head, _, *body = (
        [cell.strip() for cell in line[1:-2].split(" | ")]
        for line in BLOCKS[block].splitlines()
        if line.startswith("|")
    )
    return [dict(zip(head, row, strict=True)) for row in body]


def archived() -> list[dict[str, str]]:
    with build.CARDS.open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_shares_by_a_loop() -> None:
    """Of each line and label, of both lines, the shares that the page prints."""
    chosen: dict[tuple[str, str], list[dict[str, str]]] = {}
    for row in archived():
        line = {"ranks": "ranks by importance", "smallest_set": "smallest set"}[row["line"]]
        spoken = row | {"judged_by": row["speaks_of"]}
        chosen.setdefault((line, row["judged_by"]), []).append(row)
        chosen.setdefault(("both", ""), []).append(row)
        chosen.setdefault(("both", "what the card speaks of"), []).append(spoken)
    shown = {(row["line"], row["label of"]): row for row in rows_of("cards")}
    assert shown.keys() == chosen.keys() | {("aim", "")}
    for key, rows in chosen.items():
        follow = mislead = decided = right = wrong_yes = 0
        for row in rows:
            least, most = BOUNDS[row["judged_by"]]
            label, answer = float(row[row["judged_by"]]), row["answer"]
            if most < label < least:
                continue
            follow += label >= least
            mislead += label <= most
            decided += answer in ("yes", "no")
            right += (answer, label >= least) in (("yes", True), ("no", False))
            wrong_yes += answer == "yes" and label <= most
        labelled = follow + mislead
        assert shown[key]["follow"] == str(follow)
        assert shown[key]["do not"] == str(mislead)
        assert shown[key]["decided"] == f"{decided / labelled:.2f} ({decided} of {labelled})"
        assert shown[key]["right"] == f"{right / decided:.2f} ({right} of {decided})"
        assert shown[key]["wrong yes"] == f"{wrong_yes / mislead:.2f} ({wrong_yes} of {mislead})"


def test_all_are_set_aside_and_have_the_labels_of_the_archive() -> None:
    points = trained.Checkpoints.read(build.CHECKPOINTS)
    known = points.aside.set_index(["setting", "treatment", "seed"])
    rows = archived()
    assert len({(r["setting"], r["treatment"], r["seed"], r["line"]) for r in rows}) == len(rows)
    for row in rows:
        found = known.loc[(row["setting"], row["treatment"], int(row["seed"]))]
        for label in BOUNDS:
            assert float(row[label]) == found[f"measured_use/agreement_{label}"]
        assert row["judged_by"] == ("words" if row["line"] == "ranks" else row["speaks_of"])


def test_counts_by_setting() -> None:
    for row in rows_of("cards_settings"):
        for name, line in {"ranks by importance": "ranks", "smallest set": "smallest_set"}.items():
            for group in ("follows", "does not"):
                counts: dict[str, int] = {}
                for one in archived():
                    least, most = BOUNDS[one["judged_by"]]
                    label = float(one[one["judged_by"]])
                    inside = label >= least if group == "follows" else label <= most
                    if (one["setting"], one["line"]) == (row["setting"], line) and inside:
                        counts[one["answer"]] = counts.get(one["answer"], 0) + 1
                said = row[f"{name}: {group}"]
                parts = [part.partition(" ") for part in said.split(", ") if said != "–"]  # noqa: RUF001
                assert {answer: int(count) for count, _, answer in parts} == counts


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """Two checkpoints set aside: of one the tests of the card, of the other nothing."""
    run = tmp_path / "known_answers-short_1_none-plain/base-s8"
    size, random = 100, np.random.default_rng(0)
    keys = {"index": np.arange(size), "position": np.zeros(size, np.int64)}
    base = 0.5 + 0.01 * random.random(size)
    names = ("attention", *(f"{x}_by_size" for x in ("input_gradient", "integrated_gradients")))
    methods = {
        name: {"name": name.removesuffix("_by_size"), "signed": False}
        for name in (*names, "occlusion_by_size")
    }
    tests: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
        "faithfulness": (
            {f"excess_comprehensiveness_{name}": base for name in methods},
            {"methods": methods, "replacement": "delete"},
        ),
        "decision_flip": (
            {
                "minimal_count": np.ones(size),
                "removed_count_attention": np.full(size, 5.0),
                "never_flips_minimal": np.zeros(size),
                "length": np.full(size, 20),
            },
            {},
        ),
        "state_token_agreement": (
            {
                "hidden_token_attribution": np.full(size, 0.5),
                "tau_erasure_deletion": np.full(size, 0.1),
            },
            {},
        ),
    }
    for test, (rows, more) in tests.items():
        target = run / f"records/test/{test}.parquet"
        rows = {**keys, "prediction": np.zeros(size, np.int64), **rows}
        write_record(target, rows, test=test, stage="test", measures=[], **more)
    (run / "fit.yaml").write_text(yaml.safe_dump({}))
    return tmp_path


def test_the_archive_has_answers_with_what_they_are_judged_against(runs: Path) -> None:
    frame = pd.DataFrame(
        [
            {"setting": "short_1_none", "treatment": "plain", "seed": seed}
            | {trained.LABELS["states"]: 0.9, trained.LABELS["words"]: 0.2, "decision_flip/x": 1.0}
            for seed in (0, 8, 9)
        ]
    )
    target = runs / "cards.csv"
    (left_out,) = cards.archive_cards(runs, trained.Checkpoints(frame), target)
    assert "base-s9 has not all tests" in left_out
    ranks, smallest = pd.read_csv(target).to_dict("records")
    assert (ranks["seed"], ranks["line"], ranks["answer"]) == (8, "ranks", "yes")
    assert (ranks["judged_by"], ranks["words"], ranks["value"]) == ("words", 0.2, 1.0)
    assert (smallest["line"], smallest["answer"], smallest["texts"]) == ("smallest_set", "no", 100)
    assert (smallest["judged_by"], smallest["states"]) == ("states", 0.9)
    both = cards.judged(pd.read_csv(target))
    assert (both["follow"], both["do not"]) == (1, 1)
    assert (both["decided"], both["right"]) == ("1.00 (2 of 2)", "0.00 (0 of 2)")
    assert both["wrong yes"] == "1.00 (1 of 1)"


def test_what_the_page_says_of_the_ranks() -> None:
    """No follower gets a no, and all wrong yes but one are of two kinds of model."""
    wrong = []
    for row in archived():
        follows, misleads = float(row["words"]) >= 0.7, float(row["words"]) <= 0.5
        if row["line"] == "ranks" and (follows or misleads):
            assert not (follows and row["answer"] == "no")
            if misleads and row["answer"] == "yes":
                wrong.append((row["setting"], row["treatment"][:7]))
    known = [("short_1_none", "deceive"), ("short_10_bilstm", "plain")]
    assert len([one for one in wrong if one not in known]) == 1
    assert {*known} <= {*wrong}
