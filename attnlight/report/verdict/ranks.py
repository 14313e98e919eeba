"""Somers' D of attention and leave-one-out in each predicted class, the number that decides a card."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from attnlight.report.verdict.card_records import CardRecords
from attnlight.report.verdict.estimate import Estimate, Floats, Rows, rules
from attnlight.statistics.bootstrap import defined_mean

TEST = "leave_one_out_agreement"
_COLUMNS = ("somers_d_attention", "opposing_mass", "largest_effect", "log_odds", "prediction")


class ClassAgreement(NamedTuple):
    """Agreement in the texts of a predicted class.

    Attributes:
        name: The class.
        number: Its number.
        d: Somers' D.
        interval: Of `d`.
        opposing: Attention on words that speak against the prediction.
        yes_from: The least D of a yes.
        moves: Whether deletions move the prediction enough to be compared.
        orders: Whether D is as a yes asks: as large, its interval at most the rules' `slack` below.
        side: `yes`, `between`, `no`, `opposing`, `unseen` or `undecided`.
    """

    name: str
    number: int
    d: Estimate
    interval: tuple[float, float]
    opposing: Estimate
    yes_from: float
    moves: bool
    orders: bool
    side: str

    def needed(self, texts: int) -> int:
        """About how many texts would decide, by the distance of D from the nearest bound; else 0.

        None would where D is undefined: no deletion has an effect.
        """
        if math.isnan(self.d.value):
            return 0
        (low, high), rule = self.interval, rules()["ranks"]
        distance = self.d.value - self.yes_from + rule["slack"]
        if self.d.value < self.yes_from:
            distance = min(abs(self.d.value - x) for x in (rule["no_below"], self.yes_from))
        needed = texts * ((high - low) / 2 / max(distance, 1e-3)) ** 2
        digits = 10 ** max(0, math.floor(math.log10(max(needed, 1))) - 1)
        return int(math.ceil(needed / digits) * digits)


def agreements(records: CardRecords) -> list[ClassAgreement]:
    """Each predicted class of enough texts, the worst first; empty if there is none or no record."""
    if not records.has(TEST, *_COLUMNS[:4]):
        return []
    texts, (d, opposing, effect, odds, prediction) = records.columns(
        records.records[TEST], *_COLUMNS
    )
    measured = ~np.isnan(effect)  # not of a single item
    every = ((one, measured & (prediction == one)) for one in np.unique(prediction))
    least = rules()["least_texts"]
    named = [(one, rows) for one, rows in every if len(np.unique(texts[rows])) >= least]
    effects = [float(np.nanmean(effect[rows])) for _, rows in named]
    yes_from = rules()["ranks"]["yes_from_alone" if records.alone else "yes_from"]
    found = [
        _agreement(
            (records.class_name(TEST, int(one)), int(one)),
            texts[rows],
            (d[rows], opposing[rows]),
            (own, max(effects), float(defined_mean(odds[rows]))),
            yes_from,
            1 - rules()["level"] / len(named),
        )
        for (one, rows), own in zip(named, effects, strict=True)
    ]
    return sorted(found, key=lambda one: np.nan_to_num(one.d.value, nan=-np.inf))


def _agreement(
    named: tuple[str, int],
    texts: Rows,
    columns: tuple[Floats, Floats],
    effects: tuple[float, float, float],
    yes_from: float,
    confidence: float,
) -> ClassAgreement:
    """The agreement of a class, by its name and number, from D and opposing mass (r,) of its texts (r,).

    `effects` are its mean largest effect, that of the class with the largest, and its mean log odds;
    `yes_from` is the least D of a yes.
    """
    rule = rules()["ranks"]
    d, opposing = (Estimate.of(texts, values) for values in columns)
    (low, high), (least, most) = d.interval(confidence), opposing.interval(confidence)
    moves = effects[0] >= max(rule["least_effect"], rule["least_effect_share"] * effects[1])
    orders = d.value >= yes_from and low >= yes_from - rule["slack"]
    sides = {
        "unseen": not moves or d.texts < rules()["least_texts"],
        "opposing": least > rule["most_opposing"],
        "yes": orders and most <= rule["most_opposing"],
        "undecided": high >= yes_from or low < rule["no_below"] <= high,
        "no": high < rule["no_below"],
        "between": True,
    }
    side = next(side for side, holds in sides.items() if holds)
    if side in ("no", "between") and effects[0] < rule["least_effect_share"] * effects[2]:
        side, moves = "unseen", False
    return ClassAgreement(*named, d, (low, high), opposing, yes_from, moves, orders, side)


def case_of(
    classes: Sequence[ClassAgreement], words: bool, finds: bool, firsts: Sequence[bool]
) -> tuple[str, ClassAgreement]:
    """The case that the classes make, and the class that it speaks of.

    Args:
        classes: Those of `agreements`, at least one.
        words: Whether states stand for their words.
        finds: Whether the words weighed most take what a yes asks for.
        firsts: Of each class, whether they take there so much that they may be read in any order.
    """
    by_side: dict[str, ClassAgreement] = {}
    for one, first in reversed([*zip(classes, firsts, strict=True)]):  # the worst of a side is kept
        below = one.side == "no" or (one.side == "undecided" and one.interval[1] < one.yes_from)
        by_side["between" if first and below else one.side] = one
    against = by_side.get("opposing") or by_side.get("no")
    if against is None:
        for side, case in {"unseen": "unseen", "undecided": "not_decided"}.items():
            if side in by_side:
                return case, by_side[side]
    if "yes" in by_side and by_side.keys() != {"yes"}:
        reads = against is None and all(firsts)
        return "order_in_some" if reads else "some_classes", by_side["yes"]
    if "opposing" in by_side:
        return "opposing", by_side["opposing"]
    if against is not None:
        return "not_following", against
    if "between" in by_side:
        return "top_words", by_side["between"]
    if not finds:
        return "not_finding", classes[0]
    return ("yes" if words else "mixing"), classes[0]
