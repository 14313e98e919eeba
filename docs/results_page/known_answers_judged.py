"""The verdict card judged on kinds of evidence set aside, and which kinds of models may get a yes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd
import yaml
from scipy.stats import binomtest

from attnlight.report.verdict.estimate import digest
from results_page.known_answers import BOUNDS, planned
from results_page.known_answers_cards import FLAGS, by_kind, counts, flags
from results_page.known_answers_kinds import (
    ANSWERS,
    CONSTANT,
    FITTED,
    KEYS,
    NO,
    SENTENCE,
    STUDY,
    TRUTHS,
)
from results_page.scoring import Scored
from results_page.tables import DASH, Row, table

MODELS = ("none", "recurrent", "convolutional", "hierarchical", "transformer", "pairs")
LICENCE = {"followers": 20, "others": 20, "kinds_of_followers": 5, "kinds_of_others": 5}
AIMS = {"followers": 12, "others": 20, "decided": 0.6, "right": 0.9, "yes of followers": 0.5}
MOST_WRONG_YES = 0.05
# Asked by the generator's swaps alone: by construction a model follows as well that attends to the evidence
# and uses other words beside it. To withhold a yes from it is no error that misleads.
USEFUL = "yes of followers"
HEAD = "# Written by docs/build_known_answers.py: kinds of models whose card was judged on known answers.\n"
Found = dict[str, tuple[int, int]]


def judgeable(cards: pd.DataFrame, model: str = "") -> pd.DataFrame:
    """The cards of a kind of model, or of all, without models that do not beat their majority class."""
    of_model = (cards["model"] == model) | (not model)
    return cards[(cards["case"] != "majority") & of_model]


def fitted(rows: pd.DataFrame, column: str, truth: str) -> pd.Series:
    """Yes and no of a number, by the threshold of the kinds that are not set aside; "" without these."""
    seen = rows[~rows["aside"]]
    marks = flags(seen[truth], seen[NO])
    if not marks["follows"].any():
        return pd.Series("", rows.index)
    labelled = marks["follows"] | marks["misleads"]
    values = np.where(labelled, seen[column].astype(np.float64), np.nan)
    scored = Scored(values, marks["follows"].to_numpy(bool), np.zeros(len(seen), np.int64))
    margin = (rows[column].astype(np.float64) - scored.threshold()) * scored.sign()
    return pd.Series(np.select([margin >= 0, margin < 0], ["yes", "no"], ""), rows.index)


def judgement(rows: pd.DataFrame, truth: str, numbers: Iterable[str] = FITTED) -> dict[str, Found]:
    """What is judged on the kinds that are set aside, by what answers: answers, rules and `numbers`.

    A number counts and of how many: `followers` and `others` of all, the shares of `counts`.
    """
    answers = {name: rows[name] for name in (*ANSWERS, *CONSTANT)}
    answers |= {name: fitted(rows, name, truth) for name in numbers}
    found = {}
    for name, answer in answers.items():
        marks = flags(rows[truth], answer)[rows["aside"]]
        sizes = (int(marks[flag].sum()) for flag in FLAGS[:2])
        groups = zip(("followers", "others"), sizes, strict=True)
        found[name] = {x: (size, len(marks)) for x, size in groups} | dict(counts(marks))
    return found


def missed(judged: Mapping[str, Found], name: str) -> list[str]:
    """The aims that an answer misses."""
    found = judged[name]
    reached = {x: k if x in LICENCE else k / max(n, 1) for x, (k, n) in found.items()}
    best = max(k / max(n, 1) for k, n in (judged[rule]["right"] for rule in CONSTANT))
    fails = [x for x, bound in AIMS.items() if not reached[x] >= bound]
    fails += ["wrong yes"] * (not reached["wrong yes"] <= MOST_WRONG_YES)
    return fails + ["better"] * (not reached["right"] > best)


def shown(found: tuple[int, int]) -> str:
    """A share with its Wilson interval of 95 % and its counts."""
    if not found[1]:
        return DASH
    low, high = binomtest(*found).proportion_ci(method="wilson")
    return f"{found[0] / found[1]:.2f} [{low:.2f}, {high:.2f}] ({found[0]} of {found[1]})"


def judgements(cards: pd.DataFrame, truth: str) -> Iterator[Row]:
    """The judgement of each kind of model by a truth, missed aims in bold."""
    for model in (*MODELS, ""):
        rows = judgeable(cards, model)
        row: Row = {"model": model or "all"}
        if not rows["aside"].any():
            yield row | {"what answers": "no checkpoint is trained"}
            continue
        judged = judgement(rows, truth)
        for name, found in judged.items():
            fails = missed(judged, name) if name in ANSWERS else []
            cells = {x: str(y[0]) if x in LICENCE else shown(y) for x, y in found.items()}
            cells["better"] = ("no" if "better" in fails else "yes") if name in ANSWERS else ""
            title = (ANSWERS | CONSTANT).get(name, f"`{name}`, threshold")
            bold = {x: f"**{y}**" if x in fails else y for x, y in cells.items()}
            yield row | {"what answers": title} | bold
            row = {"model": ""}
    aims = {x: f"at least {bound:g}" for x, bound in AIMS.items()}
    better = {"wrong yes": f"at most {MOST_WRONG_YES:g}", "better": "than both constant rules"}
    yield {"model": "", "what answers": "aim", **aims, **better}


def licences(cards: pd.DataFrame) -> dict[str, Row]:
    """By kind of model its counts, the fewer by either truth, its judgement, and its licence."""
    found = {}
    for model in MODELS:
        rows, sizes = judgeable(cards, model), []
        judged: dict[str, dict[str, list[Any]]] = {}
        for truth in TRUTHS:
            marks, of_truth = flags(rows[truth], rows[NO]), judgement(rows, truth, ())
            kinds = [rows["kind"][marks[flag]] for flag in FLAGS[:2]]
            sizes.append([*map(len, kinds), *(x.nunique() for x in kinds)])
            judged[truth] = {"missed": ["all"]}
            if rows["aside"].any():
                shares = {x: [*y] for x, y in of_truth[SENTENCE].items()}
                judged[truth] = {**shares, "missed": missed(of_truth, SENTENCE)}
        fewest = dict(zip(LICENCE, map(min, *sizes), strict=True))
        enough = all(fewest[name] >= least for name, least in LICENCE.items())
        spared = {"evidence": {USEFUL}}
        met = not any({*judged[x]["missed"]} - spared.get(x, set()) for x in TRUTHS)
        found[model] = {**fewest, "judgement": judged, "licensed": enough and met}
    return found


def licence_text(cards: pd.DataFrame) -> str:
    """The content of licences.yaml: of the rules that made all cards set aside, else of none."""
    rules = [*cards["rules"][cards["aside"]].unique()] or [digest()]
    content = {"rules": rules[0] if len(rules) == 1 else None} | licences(cards)
    return HEAD + yaml.safe_dump(content, sort_keys=False, default_flow_style=None)


def licence_sentences(cards: pd.DataFrame) -> str:
    """A sentence on each kind of model: whether it has a licence, or what it lacks."""
    text = ""
    for model, entry in licences(cards).items():
        lacks = [
            f"{entry[x]} {x.replace('_', ' ')} ({least} needed)" for x, least in LICENCE.items()
        ]
        for truth, words in TRUTHS.items():
            fails = ", ".join(entry["judgement"][truth]["missed"])
            lacks += [f"aims missed {words}: {fails}"] if fails else []
        verb = "has a licence" if entry["licensed"] else "**has no licence**"
        text += f"* `{model}` {verb}: {'; '.join(lacks)}.\n"
    return text


def state(cards: pd.DataFrame, plan: Counter[str]) -> str:
    """How many of the planned checkpoints are archived, which are missing, and which are not judged."""
    if cards.empty:
        return f"No run of `configs/studies/{STUDY}.yaml` is archived: all are missing.\n"
    missing = Counter[str]()
    for name, count in (plan - Counter(cards[[*KEYS[:3]]].agg("-".join, axis=1))).items():
        missing[name.split("-")[0]] += count
    names = ", ".join(f"`{kind}` ({count})" for kind, count in missing.items())
    return (
        f"{len(cards)} of {plan.total()} planned checkpoints are archived"
        f"{f'; missing are {names}' if names else ''}. Set aside are {cards['aside'].sum()}, of "
        f"{cards['kind'][cards['aside']].nunique()} kinds. {(cards['case'] == 'majority').sum()} "
        f"predict no better than their majority class and are not judged.\n"
    )


def differing(cards: pd.DataFrame) -> Iterator[Row]:
    """The checkpoints of which the two truths say different things, by kind and treatment."""
    says, (high, low) = cards[[*KEYS, *TRUTHS]], BOUNDS["words"]
    for truth, words in TRUTHS.items():
        values = cards[truth]
        cases = [values >= high, values <= low, values.notna()]
        says[words] = np.select(cases, ["follows", "does not", "between"], "undefined")
    apart = says[says["by construction"] != says["by resampling"]]
    names = [*KEYS[:3], *TRUTHS.values()]
    for values, part in apart.groupby(names):
        row: Row = dict(zip(names, values, strict=True)) | {"checkpoints": len(part)}
        yield row | {f"{words}, mean": part[truth].mean() for truth, words in TRUTHS.items()}


def kind_blocks(cards: pd.DataFrame) -> dict[str, str]:
    """The parts of the page on the rules of today, by the name of their place."""
    blocks = {"kinds_state": state(cards, planned(STUDY))}
    blocks["kinds_licences"] = licence_sentences(cards)
    apart = [*differing(cards)]
    blocks["kinds_differ"] = (
        table(apart, 5) if apart or cards.empty else "They differ on no checkpoint.\n"
    )
    return blocks | judged_blocks(cards, "kinds")


def judged_blocks(cards: pd.DataFrame, name: str) -> dict[str, str]:
    """The judgement of a version, by the name of its place, which begins with `name`."""
    blocks = {}
    rows = judgeable(cards).assign(line=cards["model"], answer=cards[SENTENCE])
    rows = rows[rows["rules"].isin(rows["rules"][rows["aside"]])]  # others have a former version's
    rows["kind"] += np.where(rows["aside"], " (set aside)", "")
    trained = {x: x for x in MODELS if (rows["model"] == x).any()}
    for truth in TRUTHS:
        blocks[f"{name}_{truth}"] = table(judgements(cards, truth), 2)
        marks = rows.join(flags(rows[truth], rows[SENTENCE]))
        blocks[f"{name}_by_{truth}"] = table(by_kind(marks, trained, "kind"))
    return blocks
