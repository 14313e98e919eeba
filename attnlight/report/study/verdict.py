"""What a study shows: comparisons with their outcomes, and the sentences that follow from them.

A sentence claims something of trained models, so each side of its comparison needs five of them:
with fewer the numbers are told and no claim is made. The model is what the sentence is about, such
as the adversary, of which several guided perceptrons are one case. What is compared with one base
says "of this base". An interval that holds 0 shows nothing in either direction, and the sentence
says that and no more.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from attnlight.report.study import groups
from attnlight.report.study.estimates import JS, NLL_BASE, TAU, Estimate, Estimates
from attnlight.report.study.groups import BEST, CONTROL, IMITATION, SEEDS, TABLE, Spec
from attnlight.report.study.shapes import bend_sentence, find_bend, find_bends
from attnlight.report.study.texts import capital, text
from attnlight.report.tables import number

if TYPE_CHECKING:
    from attnlight.report.study.frame import Study

FEWEST = 5  # trained models on each side of a claim
REACHED = 0.4  # mean JS that an adversary needs to be chosen (Wiegreffe & Pinter, section 4)
ABOVE, BELOW, NOT_SHOWN, TOO_FEW, NO_RUNS = "above", "below", "not shown", "too few", "no runs"
LEVELS = {SEEDS: "seed variance", IMITATION: "what imitation alone gives"}


class Row(NamedTuple):
    """A comparison with its outcome.

    Attributes:
        spec: What is compared.
        estimate: The difference with its interval.
        sides: That of the group, and of the one which it is compared with.
        outcome: Of the difference: `above` or `below` 0, `not shown`, `too few` models on a side,
            or `no runs` on one.
        words: What its sentence may name; empty where none tells it.
    """

    spec: Spec
    estimate: Estimate
    sides: tuple[Estimate, Estimate]
    outcome: str
    words: dict[str, object]

    def sentence(self, **more: str) -> str:
        """The comparison in words."""
        return text("outcomes", self.spec.question, self.outcome, **self.words, **more)


def rows(estimates: Estimates) -> list[Row]:
    """Every comparison of a study with its outcome."""
    found = []
    for spec in groups.specs(estimates.study):
        less = estimates.of(spec.runs, spec.measure, spec.other)
        sides = estimates.of(spec.runs, spec.measure), estimates.of(spec.other, spec.measure)
        found.append(judge(spec, less, sides, estimates.study.words.quality))
    return found


def judge(spec: Spec, found: Estimate, sides: tuple[Estimate, Estimate], quality: str = "") -> Row:
    """The comparison of two sides, found to differ so, with its outcome and words for it."""
    fewest = min(side.seeds for side in sides)
    outcome = ABOVE if found.low > 0 else BELOW if found.high < 0 else NOT_SHOWN
    if fewest < FEWEST:
        outcome = TOO_FEW if fewest else NO_RUNS
    if spec.question == TABLE:
        return Row(spec, found, sides, outcome, {})
    means, counts, lacking = [], [], []
    compared = (spec.group, spec.runs), (spec.against, spec.other)
    for side, (name, runs) in zip(sides, compared, strict=True):
        guided = f", guided by {side.seeds} model{'' if side.seeds == 1 else 's'}"
        count = f"{len(runs)} seed{'' if len(runs) == 1 else 's'}"
        counts.append(count + guided * (side.seeds < len(runs)))
        means.append(f"{number(side.mean)} with {name} ({counts[-1]})")
        lacking += [] if len(runs) else [name]
    turned = found._replace(mean=-found.mean, low=-found.high, high=-found.low)
    words = spec._asdict() | {
        "quality": quality,
        "level": LEVELS.get(spec.against, spec.against),
        "less": found.signed,
        "size": (found if found.mean >= 0 else turned).signed,
        "both": f"{'Mean JS' if spec.measure == JS else capital(quality)}: {', '.join(means)}.",
        "count": counts[0],
        "units": f"{sides[0].seeds} and {sides[1].seeds} trained models ({FEWEST} per side required)",
        "lacking": f"no finished run of {' nor of '.join(lacking)}.",
    }
    return Row(spec, found, sides, outcome, words)


def verdicts(estimates: Estimates, found: Sequence[Row] | None = None) -> dict[str, list[str]]:
    """The sentences that answer each of a study's questions, from its comparisons: `rows`."""
    study, base, by = estimates.study, estimates.study.bases[0], defaultdict(list)
    for row in rows(estimates) if found is None else found:
        by[row.spec.question].append(row)
    answers: dict[str, Iterable[str]] = {
        "needed": [*(row.sentence() for row in by["needed"]), *_heads(by["head"])],
        "beyond": _beyond(estimates, by["divergence"], by["price"]),
    }
    if study.losses:
        without = [text("answers", "no_adversary")]
        answers["lost"] = [*_lost(by["lost"])] or without
        answers["collapsed"] = _collapsed(study)
        answers["safe"] = [*map(bend_sentence, find_bends(estimates, base, each=False))] or without
        answers["ranked"] = _ranked(estimates, by["ranked"])
    said = {text("questions", name): list(sentences) for name, sentences in answers.items()}
    for context in groups.guides(study):
        name = groups.guided_name(study, context)
        own = [row for row in (*by["guides"], *by["informs"]) if row.spec.about == name]
        said[text("questions", "guides", about=name)] = [row.sentence() for row in own]
    lacking = groups.missing(study)
    return said | ({text("questions", "missing"): lacking} if lacking else {})


def _heads(found: Sequence[Row]) -> Iterator[str]:
    """Which heads are needed, in one sentence on all of them."""
    held = {row.spec.group.split()[1]: row for row in found if row.outcome != NO_RUNS}
    if held:
        few = [row for row in held.values() if row.outcome == TOO_FEW]
        fallen = [head for head, row in held.items() if row.outcome == BELOW]
        first = min(few, key=lambda row: len(row.spec.runs)) if few else next(iter(held.values()))
        each = ", ".join(f"{row.estimate.signed} (head {head})" for head, row in held.items())
        outcome = TOO_FEW if few else BELOW if fallen else NOT_SHOWN
        yield text("heads", outcome, **first.words, each=each, fallen=", ".join(fallen))


def _beyond(estimates: Estimates, found: Sequence[Row], price: Sequence[Row]) -> Iterator[str]:
    """How the best adversary was chosen, what it reached and, without a claim, the price."""
    yield selection(estimates.study)
    yield from (row.sentence() for row in found)
    if all(row.outcome != NO_RUNS for row in price):
        tvd, quality = price
        yield text("answers", "price", tvd=tvd.estimate.signed, **quality.words)
    best = found[0].spec.runs
    if len(best) and len(estimates.heads) > 1:
        means = [number(estimates.of(best, measure).mean) for measure in estimates.heads]
        each = ", ".join(f"{mean} (head {head})" for head, mean in enumerate(means))
        yield f"By head the mean JS of the best adversary is {each}."


def selection(study: Study) -> str:
    """How the best adversary was chosen, and whether it is what the paper asks for."""
    best = groups.named(study)[BEST]
    if study.selected is None or not len(best):
        return text("answers", "unchosen" if study.selected is None else "unfinished")
    reached = best["validation_attention_js"].mean()
    known = groups.words(study) | {"term": groups.term_name(study.selected[0])}
    name = "fell_short" if reached < REACHED else "chosen"  # NaN where the study does not say
    return text("answers", name, **known, reached=REACHED)


def _lost(found: Sequence[Row]) -> Iterator[str]:
    """Of each term the least lambda that loses quality, where there are seeds enough to say."""
    for _, of_term in groupby(found, lambda row: row.spec.about):
        own = list(of_term)
        lowest = min(own, key=lambda row: row.estimate.mean)
        first = next((row for row in own if row.outcome == BELOW), own[0])
        if any(row.outcome in (TOO_FEW, NO_RUNS) for row in own):
            first = min(own, key=lambda row: len(row.spec.runs))
        elif first.outcome == ABOVE:
            first = first._replace(outcome=NOT_SHOWN)
        lam = first.spec.group.rpartition(" ")[2]
        yield first.sentence(lam=lam, lowest=text("answers", "lowest", **lowest.words))


def collapse_note(study: Study, base: str) -> str:
    """When an adversary of a base is said to have collapsed, or why that cannot be told."""
    own = study.runs.loc[base]
    if own["unknown"]:
        return f"Which runs collapsed cannot be told: {own['unknown']}."
    known = {name: number(own[name]) for name in ("threshold", "ignorant")}
    return text("answers", "collapsed", **known, **groups.words(study))


def _collapsed(study: Study) -> Iterator[str]:
    """When an adversary collapsed, and by term how many did at which lambda."""
    base = study.bases[0]
    yield collapse_note(study, base)
    if not study.runs.at[base, "unknown"]:
        for term, path in groups.paths(study, base).items():
            fallen = [(lam, len(runs), runs["collapsed"].sum()) for lam, runs in path.items()]
            where = [f"{count} of {runs} at λ = {lam:g}" for lam, runs, count in fallen if count]
            whole = sum(len(runs) for runs in path.values())
            yield f"{groups.term_name(term)}, of {whole} runs: {', '.join(where) or 'none'}."


def _ranked(estimates: Estimates, found: Sequence[Row]) -> Iterator[str]:
    named = groups.named(estimates.study)
    levels = {SEEDS: SEEDS, CONTROL: f"imitation ({CONTROL})", BEST: BEST}
    taus = {name: estimates.of(named[group], TAU) for group, name in levels.items()}
    held = [f"{tau} with {name}" for name, tau in taus.items() if not np.isnan(tau.mean)]
    if not held:
        yield text("answers", "unranked")
        return
    yield f"Tau of attention with the base's: {', '.join(held)}."
    yield from (row.sentence() for row in found)
    bend = find_bend(estimates, estimates.study.bases[0], NLL_BASE)
    if bend.sides:
        up_to, after = (estimates.of(runs, TAU).signed for runs in bend.sides)
        yield f"Up to the {bend.shape} of the loss tau is {up_to}, beyond it {after}."
