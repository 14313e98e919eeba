"""The tables of Serrano & Smith's claims: what is compared, with its test, interval and verdict."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from attnlight.functional.comparison import holm, mcnemar, paired_wilcoxon
from attnlight.functional.statistics import MeanInterval
from attnlight.report.rankings import SCORES, WORDS, percent, probability, shares
from attnlight.report.removals import flipped_by_all, sooner, steps
from results_page.claims import (
    FAILS,
    GRADIENTS,
    HOLDS,
    OPEN,
    encoder_steps,
    judge_all,
    judge_falling,
    judge_first,
    judge_mass,
    judge_sooner,
    ratio_to_attention,
)
from results_page.posthoc import shown
from results_page.serrano import Tested
from results_page.tables import DASH, table


def claims_table(found: Sequence[Tested]) -> str:
    """How often each claim holds."""
    by_claim: dict[str, Counter[str]] = {}
    for one in judge_all(found):
        counts = by_claim.setdefault(one.claim, Counter())
        counts["cases"] += one.verdict != DASH
        counts[HOLDS] += one.verdict.startswith(HOLDS)
        counts[FAILS] += one.verdict.startswith(FAILS)
        counts[OPEN] += OPEN in one.verdict
    columns = ("cases", HOLDS, FAILS, OPEN)
    rows = [[claim, *(str(counts[x]) for x in columns)] for claim, counts in by_claim.items()]
    return table(["claim", "cases", HOLDS, FAILS, "of these open"], rows)


def sooner_table(found: Sequence[Tested]) -> str:
    """Shares of texts that the gradient, neither or attention flips with fewer items."""
    p_values = holm([_wilcoxon(tested) for tested in found])
    rows = []
    for tested, p in zip(found, p_values, strict=True):
        judged = judge_sooner(tested)
        cells = sooner(tested.removal, "gradient", "attention")
        counts = shares(list(cells.T), tested.removal)
        product = ratio_to_attention(tested, "gradient_x_attention")
        rows.append(
            [
                *tested.model.words,
                f"{counts[0].defined:,}",
                *map(percent, counts),
                _shown(judged.found),
                judged.verdict,
                probability(p),
                _shown(product),
            ]
        )
    head = ["corpus", "model", "texts", "gradient sooner", "as soon", "attention sooner", "ratio"]
    head += ["claim", "p", f"ratio of {WORDS['gradient_x_attention']} to attention"]
    return table(head, rows, words=2)


def _wilcoxon(tested: Tested) -> float:
    rows = tested.removal
    kept = flipped_by_all(rows)
    counts = [np.where(kept, steps(rows, name), np.nan) for name in ("gradient", "attention")]
    return paired_wilcoxon(*counts).p_value


def falling_table(found: Sequence[Tested]) -> str:
    """Differences of the fraction removed between encoders, for each ranking."""
    rows = []
    for step in encoder_steps(found):
        judged = [judge_falling(step, name) for name in SCORES]
        texts = f"{judged[0].found.defined:,}"
        rows.append(
            [*step.words, texts, *(x for j in judged for x in (_shown(j.found, 3), j.verdict))]
        )
    head = ["corpus", "models", "texts", *(x for name in SCORES for x in (WORDS[name], "claim"))]
    return table(head, rows, words=2)


def first_table(found: Sequence[Tested]) -> str:
    """Decisions that change without the first item of each ranking, in per cent."""
    flips = [[tested.erasure[f"flip_top_{score}"] for score in SCORES] for tested in found]
    p_values = holm([mcnemar(columns[2], columns[0]).p_value for columns in flips])
    rows = []
    for tested, columns, p in zip(found, flips, p_values, strict=True):
        means = shares(columns, tested.erasure)
        judged = judge_first(tested)
        cells = [*map(percent, means), percent(judged.found), judged.verdict, probability(p)]
        rows.append([*tested.model.words, f"{means[0].defined:,}", *cells])
    head = ["corpus", "model", "texts", *(WORDS[score] for score in SCORES)]
    return table([*head, "difference", "claim", "p"], rows, words=2)


def lighter_table(found: Sequence[Tested]) -> str:
    """Attention removed by attention less that by either gradient ranking."""
    rows = []
    for tested in found:
        judged = [judge_mass(tested, name) for name in GRADIENTS]
        cells = [x for j in judged for x in (_shown(j.found, 3), j.verdict)]
        rows.append([*tested.model.words, f"{judged[0].found.defined:,}", *cells])
    head = ["corpus", "model", "texts", *(x for n in GRADIENTS for x in (WORDS[n], "claim"))]
    return table(head, rows, words=2)


def _shown(found: MeanInterval, places: int = 2) -> str:
    return DASH if np.isnan(found.mean) else shown(found, places).replace("inf", "∞")
