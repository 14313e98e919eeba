"""The verdict card judged on docs/known_answers.md, by loops over the archived answers."""

import importlib
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml

from attnlight.studies.plan import plan
from attnlight.studies.spec import read_studies
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
    rows: list[dict[str, str]] = pd.read_parquet(build.CARDS).astype(str).to_dict("records")
    return rows


def tally(rows: list[dict[str, str]]) -> dict[str, int]:
    """How many of some answers follow, do not, are decided, right and a wrong yes."""
    found = dict.fromkeys(("follow", "do not", "decided", "wrong", "wrong yes"), 0)
    for row in rows:
        least, most = BOUNDS[row["judged_by"]]
        label, answer = float(row[row["judged_by"]]), row["answer"]
        if most < label < least:
            continue
        found["follow"] += label >= least
        found["do not"] += label <= most
        found["decided"] += answer in ("yes", "no")
        found["wrong"] += (answer, label >= least) in (("yes", False), ("no", True))
        found["wrong yes"] += answer == "yes" and label <= most
    return found


def require(row: dict[str, str], labelled: int, found: dict[str, int]) -> None:
    """The row of the page prints these counts."""
    decided, mislead = found["decided"], found["do not"]
    right = decided - found["wrong"]
    assert (row["follow"], row["do not"]) == (str(found["follow"]), str(mislead))
    assert row["decided"] == f"{decided / labelled:.2f} ({decided} of {labelled})"
    assert row["right"] == f"{right / decided:.2f} ({right} of {decided})"
    wrong = found["wrong yes"]
    assert row["wrong yes"] == f"{wrong / mislead:.2f} ({wrong} of {mislead})"


def test_shares_of_answers_by_a_loop() -> None:
    """Of each line and label, and of both lines, the shares that the page prints."""
    chosen: dict[tuple[str, str], list[dict[str, str]]] = {}
    for row in archived():
        line = {"ranks": "ranks by importance", "smallest_set": "smallest set"}[row["line"]]
        spoken = row | {"judged_by": row["speaks_of"]}
        chosen.setdefault((line, row["judged_by"]), []).append(row)
        chosen.setdefault(("both, by answer", ""), []).append(row)
        if row["answer"] != "not applicable":
            chosen.setdefault(("both, by answer, where applicable", ""), []).append(row)
        chosen.setdefault(("both, by answer", "what the card speaks of"), []).append(spoken)
    shown = {(row["line"], row["label of"]): row for row in rows_of("cards")}
    assert shown.keys() == chosen.keys() | {("both, by checkpoint", ""), ("aim", "")}
    for key, rows in chosen.items():
        found = tally(rows)
        require(shown[key], found["follow"] + found["do not"], found)


def test_shares_of_checkpoints_by_a_loop() -> None:
    """A checkpoint is decided by one of its lines, and right if none of them is wrong."""
    by_checkpoint: dict[tuple[str, ...], list[dict[str, str]]] = {}
    for row in archived():
        by_checkpoint.setdefault((row["setting"], row["treatment"], row["seed"]), []).append(row)
    total, labelled = dict.fromkeys(tally([]), 0), 0
    for rows in by_checkpoint.values():
        assert {row["line"] for row in rows} == {"ranks", "smallest_set"}
        found = tally(rows)
        labelled += found["follow"] + found["do not"] > 0
        for name, count in found.items():
            total[name] += count > 0
    shown = next(row for row in rows_of("cards") if row["line"] == "both, by checkpoint")
    require(shown, labelled, total)


def test_all_are_of_the_study_and_none_is_of_the_known_answers() -> None:
    points = trained.Checkpoints(pd.read_parquet(build.CHECKPOINTS))
    known = {tuple(row) for row in points.all[["setting", "treatment", "seed"]].to_numpy().tolist()}
    expected = {
        (*study.condition.split("-"), run.seed)
        for study in read_studies(DOCS.parent / "configs/studies/verdict_card.yaml")
        for run in plan(study)
    }
    found = {(row["setting"], row["treatment"], int(row["seed"])) for row in archived()}
    assert len(archived()) == 2 * len(found)
    assert found == expected
    assert not found & known
    for row in archived():
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
    """Two checkpoints: of one the tests of the card, of the other nothing."""
    run = tmp_path / "verdict_card-short_1_none-plain/base-s8"
    (tmp_path / "verdict_card-short_1_none-plain/base-s9").mkdir(parents=True)
    size, random = 100, np.random.default_rng(0)
    keys = {"index": np.arange(size), "position": np.zeros(size, np.int64)}
    base = 0.5 + 0.01 * random.random(size)
    names = ("attention", *(f"{x}_by_size" for x in ("input_gradient", "integrated_gradients")))
    methods = {
        name: {"name": name.removesuffix("_by_size"), "signed": False}
        for name in (*names, "occlusion_by_size")
    }
    more = {"methods": methods, "replacement": "delete", "keep_opposing": True}
    flips = {"minimal_count": 1.0, "removed_count_attention_unopposed": 5.0}
    tests: dict[str, dict[str, Any]] = {
        "faithfulness": {f"excess_comprehensiveness_{name}": base for name in methods},
        "decision_flip": flips | {"never_flips_minimal": 0.0, "length": 20},
        "measured_use": {"agreement_states": 0.9, "agreement_words": 0.2},
        "state_token_agreement": {"hidden_token_attribution": 0.5, "tau_erasure_deletion": 0.1},
    }
    for test, values in tests.items():
        target = run / f"records/test/{test}.parquet"
        rows = {x: np.full(size, y) if np.isscalar(y) else y for x, y in values.items()}
        rows |= keys | {"prediction": np.zeros(size, np.int64)}
        given = more if test == "faithfulness" else {}
        write_record(target, rows, test=test, stage="test", measures=[], **given)
    (run / "fit.yaml").write_text(yaml.safe_dump({}))
    return tmp_path


def test_the_archive_has_answers_with_what_they_are_judged_against(runs: Path) -> None:
    target = runs / "cards.parquet"
    (left_out,) = cards.archive_cards(runs, target)
    assert "base-s9 has not all tests" in left_out
    ranks, smallest = pd.read_parquet(target).to_dict("records")
    assert (ranks["seed"], ranks["line"], ranks["answer"]) == (8, "ranks", "yes")
    assert (ranks["judged_by"], ranks["words"], ranks["value"]) == ("words", 0.2, 1.0)
    assert (smallest["line"], smallest["answer"], smallest["texts"]) == ("smallest_set", "no", 100)
    assert (smallest["judged_by"], smallest["states"]) == ("states", 0.9)
    both = cards.judged(cards.graded(pd.read_parquet(target)))
    assert (both["follow"], both["do not"]) == (1, 1)
    assert (both["decided"], both["right"]) == ("1.00 (2 of 2)", "0.00 (0 of 2)")
    assert both["wrong yes"] == "1.00 (1 of 1)"


def test_what_the_page_says_of_the_answers() -> None:
    """Aims by checkpoint; no wrong yes; one wrong answer of the first line; the second on states."""
    shown = {row["line"]: row for row in rows_of("cards") if not row["label of"]}

    def met(line: str) -> bool:
        shares = [float(shown[line][name].split()[0]) for name in ("decided", "right", "wrong yes")]
        return shares[0] >= 0.8 and shares[1] >= 0.9 and shares[2] <= 0.05

    lines = ("both, by checkpoint", "both, by answer", "both, by answer, where applicable")
    assert [*map(met, lines)] == [True, False, True]
    assert tally(archived())["wrong yes"] == 0
    assert tally([row for row in archived() if row["line"] == "ranks"])["wrong"] == 1
    on_states = [r for r in archived() if (r["line"], r["judged_by"]) == ("smallest_set", "states")]
    labelled = {r["answer"] for r in on_states if float(r["states"]) <= 0.65}
    assert not labelled & {"yes", "no"}
    assert "yes" not in {r["answer"] for r in on_states if float(r["states"]) >= 0.8}
