"""Training for honest attention: what it changes of each measure, paired by seed and text.

The rule was fixed before a difference was looked at: one is shown if its p-value, adjusted over the measures
of its condition (Holm), is at most 0.05. `names.yaml` has the measures with the sign that is better.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from attnlight.figures.erasure import removed
from attnlight.figures.tables import probability
from attnlight.report.study.frame import read_study
from attnlight.statistics import seeds_then_instances
from attnlight.statistics.paired import holm
from attnlight.statistics.seed_bootstrap import SeedInterval, t_half_width
from attnlight.storage.files import write_text
from results_page import NAMES
from results_page.archive import Archive, Condition, Experiment, conditions
from results_page.cells import columns, mean_of
from results_page.claims import FAILS, HOLDS, OPEN
from results_page.findings import Cell, Cells, Places, Sentences, Tables
from results_page.importance import reliability
from results_page.papers import AGREES, DIFFERS, NOT_SHOWN, SHARE
from results_page.real_text import NOT_RUN, paired
from results_page.tables import DASH, Row, interval, number

_NAMES = NAMES["honest"]
CONDITIONS: dict[str, str] = _NAMES["conditions"]
MEASURES: dict[str, dict[str, list[Any]]] = {
    study: {measure: of for measure, of in measures.items() if of}
    for study, measures in _NAMES["measures"].items()
}
MODELS, NEWSGROUPS, BABI, PLANTED = (
    conditions(study, rf"{study}-(?P<condition>\w+)", CONDITIONS) for study in MEASURES
)
TESTED = MODELS | NEWSGROUPS | BABI  # all but planted texts
_PLACES = {"honest_20_newsgroups_sports": " on 20 Newsgroups", "honest_babi_1": " on bAbI 1"}
ITSELF: dict[str, str] = _NAMES["with_itself"]
ADVERSARIES = "adversaries.csv"  # beside the archived runs of a condition
BETTER, FAITHFUL, CLAIM = "claim: better", "faithful", "claim: faithful"
_LEVEL, _NEAR = 0.05, 0.1
_NOTHING = SeedInterval(np.nan, np.nan, np.nan, ())
_P_VALUES = np.geomspace(1e-9, 1, 10_001)


def values(runs: Experiment, test: str, column: str) -> NDArray[np.float64]:
    """A measure of each run and text, (S, n); the share removed is 1 where a decision never flips."""
    found = columns(runs, test)
    if test == "predictions":
        return np.asarray(found["prediction"] == found["label"], np.float64)
    if test == "decision_flip":
        return removed(found, "removed_fraction", "attention", "one")
    return np.asarray(found[column], np.float64)


def p_value(less: SeedInterval) -> float:
    """The least p whose interval of level 1 - p over three seeds or more is without 0, to 0.2 %."""
    from scipy.stats import norm, t

    if (freedom := len(less.values) - 1) < 2:
        return np.nan
    seeds, levels = t_half_width(np.array(less.values)), (_P_VALUES / 2, _LEVEL / 2)
    texts = np.sqrt(max((less.high - less.mean) ** 2 - seeds**2, 0))
    student, normal = (np.divide(*map(of.isf, levels)) for of in (t(freedom), norm()))
    ends = np.hypot(seeds * student, texts * normal)
    return float(_P_VALUES[min((ends >= abs(less.mean)).sum(), len(ends) - 1)])


def differences(archive: Archive, models: Mapping[str, Condition] = MODELS) -> Iterator[Row]:
    """Each measure of each condition less that of the condition that it is compared with."""
    for name, model in models.items():
        study, _, condition = name.partition("-")
        if condition == "plain":
            continue
        other = f"{study}-{_NAMES['compared'].get(condition, 'plain')}"
        both = [*paired({x: archive[x] for x in (name, other) if x in archive}).values()]
        less = dict.fromkeys(MEASURES[study], _NOTHING)
        for measure, (test, column, *_) in MEASURES[study].items() if both else ():
            less[measure] = seeds_then_instances(
                np.subtract(*(values(runs, test, column) for runs in both))
            )
        adjusted = holm([p_value(mean) for mean in less.values()])
        for (measure, mean), p in zip(less.items(), adjusted, strict=True):
            word = HOLDS if mean.mean * MEASURES[study][measure][2] > 0 else FAILS
            word = word if p <= _LEVEL else OPEN if both else NOT_RUN
            row = model.words | {"measure": measure, "seeds": len(mean.values)}
            row |= {
                "difference": interval(mean, 3) if both else NOT_RUN,
                "p (Holm)": probability(p),
            }
            yield row | {BETTER: word}


def summary(archive: Archive, models: Mapping[str, Condition] = MODELS) -> Iterator[Row]:
    """What is shown of each condition, and whether three quarters of the measures of faithfulness gain."""
    faithful = {x for of in MEASURES.values() for x, y in of.items() if FAITHFUL in y}
    place = _PLACES.get(next(iter(models)).partition("-")[0], "")
    for condition, of in groupby(differences(archive, models), key=lambda row: row["condition"]):
        rows = [*of]
        said = [[x["measure"] for x in rows if x[BETTER] == word] for word in (HOLDS, FAILS)]
        better, worse, least = *(len(faithful & {*x}) for x in said), SHARE * len(faithful)
        row = {"condition": condition, "seeds": rows[0]["seeds"]}
        row |= {
            x: ", ".join(y) or "nothing" for x, y in zip(("better", "worse"), said, strict=True)
        }
        few = FAILS if len(faithful) - worse < least else OPEN
        verdict = (HOLDS if better >= least else few) if row["seeds"] else NOT_RUN
        words = f"{condition}{place}, {better} of {len(faithful)} better and {worse} worse:"
        yield row | ({FAITHFUL: words, CLAIM: verdict} if models is not PLANTED else {})


def agreement(archive: Archive, models: Mapping[str, Condition] = MODELS) -> Iterator[Row]:
    """Tau of attention with each score, and its ceiling: the lesser agreement of both between seeds."""
    words_of = {name: model.words for name, model in models.items() if name in archive}
    for name, row in zip(words_of, reliability(archive, words_of, ITSELF), strict=True):
        found = columns(archive[name], "saliency_agreement")
        own, *others = (row.pop(words) or DASH for words in ITSELF.values())
        row["attention with itself"] = own
        for (key, words), other in zip([*ITSELF.items()][1:], others, strict=True):
            row[f"tau with {words}"] = mean_of(found, key.replace("tau", "tau_attention"))
            row[f"ceiling#{words}"] = number(min(Cell(own).value, Cell(other).value), 2)
        yield row


def archive_adversaries(study: Path, target: Path) -> None:
    """Write the mean divergence and the mean TVD of each adversary of a condition, if it has any."""
    found = read_study(study)
    runs = found.finished("adversary")[["lam", "seed"]]
    columns, by_run = ["attention_js", "prediction_tvd"], found.measures.groupby("run")
    means = by_run[columns].mean()
    if "tokens" in found.measures:  # a row has the sums over the words of a sentence
        means = by_run[columns].sum().div(by_run["tokens"].sum(), axis=0)
    if len(runs):
        write_text(target, runs.join(means).to_csv(index=False, float_format="%.6g"))


def adversaries(archive: Archive, models: Mapping[str, Row] | None = None) -> Iterator[Row]:
    """How far adversaries of each condition end from its attention and its predictions, by lambda."""
    own = {name: MODELS[name].words for name in [*MODELS][:8]}  # the others have none
    for name, words in (own if models is None else models).items():
        row = words | {"seeds": 0, "JS, λ = 0": DASH, "TVD, λ = 0": DASH}
        row |= {"JS, λ = 0.17": NOT_RUN, "TVD, λ = 0.17": DASH}
        found = (path := archive.root / name / ADVERSARIES).is_file()
        for weight, runs in pd.read_csv(path).groupby("lam") if found else ():
            row["seeds"] = len(runs)
            for column, heading in {"attention_js": "JS", "prediction_tvd": "TVD"}.items():
                each = SeedInterval(runs[column].mean(), np.nan, np.nan, (*runs[column],))
                row[f"{heading}, λ = {weight:g}"] = interval(each, 3)
        yield row


def sentences(t: Tables) -> Sentences:
    """What survives of the claims, and what each condition changes."""
    c, claims = Cells(t, "honest_findings"), t.rows("claims_honest")
    for key, word in {"survive": AGREES, "fail": DIFFERS, "open": NOT_SHOWN}.items():
        each = [row["claim"] for row in claims if row["outcome"] == word]
        yield c.say(key, each="; ".join(each) or "none", count=len(each), claims=len(claims))
    for place in ("honest", "honest_newsgroups", "honest_babi"):
        table = f"{place}_states"
        known = {x["condition"]: Cell(x["published 2"]) for x in t.rows(table)}
        found = {x: t.cell(table, "conicity", x) for x, of in known.items() if of.value > 0}
        near = sum(abs(x.value - known[name].value) <= _NEAR for name, x in found.items())
        figures = ", ".join(f"{name} {x} ({known[name].number})" for name, x in found.items())
        c = Cells(t, f"{place}_findings")
        yield c.say("conicity", near=near, count=len(found), each=figures)
    shown = [x for x in t.rows("honest_planted") if x[BETTER] == HOLDS]
    raised = {
        words: ", ".join(x["condition"] for x in shown if x["measure"] == f"use of {words}")
        for words in ("words", "states")
    }
    yield Cells(t, "honest_planted_findings").say(
        "answer", **{x: y or "nothing" for x, y in raised.items()}
    )
    for place in ("honest", "honest_newsgroups", "honest_babi", "honest_planted"):
        of = place if place == "honest_planted" else f"{place}_differences"
        c = Cells(t, f"{place}_findings")
        for row in (x for x in t.rows(f"{place}_summary") if x["seeds"] != "0"):
            price = t.cell(of, "difference", row["condition"], "accuracy")
            yield c.say("condition", **row, price=price)


PLACES: Places = (sentences,)
