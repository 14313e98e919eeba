"""The tables of Serrano & Smith's claims: what is compared, with its test, interval and verdict."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from attnlight.report.erasure import SCORES, WORDS, flipped_by_all, sooner, steps
from attnlight.report.tables import percent, probability, shares
from attnlight.statistics.bootstrap import MeanInterval
from attnlight.statistics.paired import holm, mcnemar, paired_wilcoxon
from results_page.claims import (
    FAILS,
    GRADIENTS,
    HOLDS,
    NEVER,
    OPEN,
    Judged,
    encoder_steps,
    fractions,
    judge_all,
    judge_falling,
    judge_first,
    judge_half,
    judge_mass,
    judge_par,
    judge_sooner,
    ratio_to_attention,
)
from results_page.posthoc import shown
from results_page.serrano import Tested
from results_page.tables import DASH, table


def claims_table(found: Sequence[Tested]) -> str:
    """How often each claim holds, here and in the paper."""
    by_claim: dict[tuple[str, ...], Counter[str]] = {}
    for one in judge_all(found):
        never = DASH if one.never is None else NEVER[one.never]
        counts = by_claim.setdefault((one.claim, never, one.published), Counter())
        counts["cases"] += one.verdict != DASH
        counts[HOLDS] += one.verdict.startswith(HOLDS)
        counts[FAILS] += one.verdict.startswith(FAILS)
        counts[OPEN] += OPEN in one.verdict
    columns = ("cases", HOLDS, FAILS, OPEN)
    rows = [[*words, *(str(counts[x]) for x in columns)] for words, counts in by_claim.items()]
    head = ["claim", "texts that never flip", "in the paper", "cases", HOLDS, FAILS]
    return table([*head, "of these open"], rows, words=2)


def sooner_table(found: Sequence[Tested]) -> str:
    """Shares of texts that the gradient, neither or attention flips with fewer items."""
    p_values = holm([_wilcoxon(tested) for tested in found])
    rows = []
    for tested, p in zip(found, p_values, strict=True):
        cells = sooner(tested.removal, "gradient", "attention")
        counts = shares(list(cells.T), tested.removal)
        encoded = tested.model.encoder != "none"
        rows.append(
            [
                *tested.model.words,
                f"{counts[0].defined:,}",
                percent(counts[0]),
                judge_half(tested).verdict if encoded else DASH,
                *map(percent, counts[1:]),
                _shown(ratio_to_attention(tested, "gradient")),
                judge_sooner(tested).verdict if encoded else DASH,
                probability(p),
                _shown(ratio_to_attention(tested, "gradient_x_attention")),
            ]
        )
    head = ["corpus", "model", "texts", "gradient sooner", "claim: over half", "as soon"]
    head += ["attention sooner", "ratio", "claim: at least 1.6", "p"]
    return table([*head, f"ratio of {WORDS['gradient_x_attention']} to attention"], rows, words=2)


def par_table(found: Sequence[Tested]) -> str:
    """Boxes of the fraction removed by attention and by the gradient without an encoder."""
    rows = []
    for tested in found:
        for never in NEVER:
            if tested.model.encoder == "none":
                boxes = fractions(tested, never)
                judged = judge_par(tested, never)
                cells = [_box(values) for values in boxes]
                texts = f"{len(boxes[0]):,}"
                words = [*tested.model.words, NEVER[never]]
                rows.append([*words, texts, *cells, _shown(judged.found), judged.verdict])
    head = ["corpus", "model", "texts that never flip", "texts", "attention", "gradient"]
    return table([*head, "above the gradient's box", "claim"], rows, words=3)


def _box(values: NDArray[np.float64]) -> str:
    if not len(values):
        return DASH
    low, middle, high = np.quantile(values, [0.25, 0.5, 0.75])
    return f"{middle:.2f} ({low:.2f} to {high:.2f})"


def _wilcoxon(tested: Tested) -> float:
    rows = tested.removal
    kept = flipped_by_all(rows)
    counts = [np.where(kept, steps(rows, name), np.nan) for name in ("gradient", "attention")]
    return paired_wilcoxon(*counts).p_value


def falling_table(found: Sequence[Tested]) -> str:
    """Differences of the fraction removed between encoders, for each ranking."""
    rows = []
    for step in encoder_steps(found):
        for never, words in NEVER.items():
            judged = [judge_falling(step, name, never) for name in SCORES]
            rows.append([*step.words, words, *_with_verdicts(judged)])
    head = ["corpus", "models", "texts that never flip", "texts"]
    head += [x for name in SCORES for x in (WORDS[name], "claim")]
    return table(head, rows, words=3)


def first_table(found: Sequence[Tested]) -> str:
    """Decisions that change without the first item of each ranking, in per cent."""
    flips = [[tested.erasure[f"flip_top_{score}"] for score in SCORES] for tested in found]
    p_values = holm([mcnemar(columns[2], columns[0]).p_value for columns in flips])
    rows = []
    for tested, columns, p in zip(found, flips, p_values, strict=True):
        means = shares(columns, tested.erasure)
        judged = [judge_first(tested, name) for name in GRADIENTS]
        cells = [x for one in judged for x in (percent(one.found), one.verdict)]
        texts = f"{means[0].defined:,}"
        rows.append([*tested.model.words, texts, *map(percent, means), *cells, probability(p)])
    head = ["corpus", "model", "texts", *(WORDS[score] for score in SCORES)]
    head += ["gradient less attention", "claim: fewer"]
    return table([*head, "product less attention", "claim: more", "p"], rows, words=2)


def lighter_table(found: Sequence[Tested]) -> str:
    """Attention removed by attention less that by either gradient ranking, medians."""
    rows = []
    for tested in found:
        for never, words in NEVER.items():
            judged = [judge_mass(tested, name, never) for name in GRADIENTS]
            rows.append([*tested.model.words, words, *_with_verdicts(judged)])
    head = ["corpus", "model", "texts that never flip", "texts"]
    head += [x for name in GRADIENTS for x in (WORDS[name], "claim")]
    return table(head, rows, words=3)


def _with_verdicts(judged: Sequence[Judged]) -> list[str]:
    """Number of texts, then each estimate with its verdict."""
    cells = [x for one in judged for x in (_shown(one.found, 3), one.verdict)]
    return [f"{judged[0].found.defined:,}", *cells]


def _shown(found: MeanInterval, places: int = 2) -> str:
    return DASH if np.isnan(found.mean) else shown(found, places).replace("inf", "∞")
