"""The verdicts of a study: comparisons with their outcomes, and the sentences drawn from them.

A claim needs five trained models on each side of its comparison and an interval without 0.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

import numpy as np

from attnlight.figures.tables import number
from attnlight.report.study import changepoints, groups
from attnlight.report.study.estimates import JS, NLL_BASE, TAU, Estimate, Estimates
from attnlight.report.study.frame import Study
from attnlight.report.study.groups import BEST, CONTROL, IMITATION, SEEDS, TABLE, Spec
from attnlight.report.study.texts import capital, text

MIN_MODELS = 5  # trained models on each side of a claim
# Mean JS on validation that the chosen adversary should reach (Wiegreffe & Pinter, section 4).
MIN_JS = 0.4
ABOVE, BELOW, NOT_SHOWN, TOO_FEW, NO_RUNS = "above", "below", "not shown", "too few", "no runs"
# What the divergence of the best adversary is compared with, in its sentences.
BASELINES = {SEEDS: "seed variance", IMITATION: "imitation alone"}


class Comparison(NamedTuple):
    """A comparison with its outcome."""

    spec: Spec  # the two groups
    estimate: Estimate  # their difference with its interval
    sides: tuple[Estimate, Estimate]  # the estimates of both groups
    # The difference is `above` or `below` 0 or `not shown`, or a side has `too few` models or `no
    # runs`.
    outcome: str
    # Fields of its sentence in `texts.yaml`; empty if it is in a table only.
    fields: dict[str, object]

    def sentence(self, **more: str) -> str:
        """The comparison in words."""
        return text("outcomes", self.spec.question, self.outcome, **self.fields, **more)


def compare_groups(estimates: Estimates) -> list[Comparison]:
    """Every comparison of a study with its outcome."""
    found, mean = [], estimates.estimate
    for spec in groups.specs(estimates.study):
        sides = mean(spec.runs, spec.measure), mean(spec.against_runs, spec.measure)
        difference = mean(spec.runs, spec.measure, spec.against_runs)
        found.append(judge(spec, difference, sides, estimates.study.words.quality))
    return found


def judge(
    spec: Spec, difference: Estimate, sides: tuple[Estimate, Estimate], quality: str = ""
) -> Comparison:
    """The comparison of two groups with its outcome and the fields of its sentence."""
    fewest = min(side.seeds for side in sides)
    outcome = ABOVE if difference.low > 0 else BELOW if difference.high < 0 else NOT_SHOWN
    if fewest < MIN_MODELS:
        outcome = TOO_FEW if len(spec.runs) and len(spec.against_runs) else NO_RUNS
    if spec.question == TABLE:
        return Comparison(spec, difference, sides, outcome, {})
    means, counts, lacking = [], [], []
    compared = (spec.group, spec.runs), (spec.against, spec.against_runs)
    for side, (name, runs) in zip(sides, compared, strict=True):
        models = runs["model"].nunique()
        guided = f", guided by {models} model{'' if models == 1 else 's'}"
        count = f"{len(runs)} seed{'' if len(runs) == 1 else 's'}"
        counts.append(count + guided * (models < len(runs)))
        means.append(f"{number(side.mean)} with {name} ({counts[-1]})")
        lacking += [] if len(runs) else [name]
    negated = difference._replace(mean=-difference.mean, low=-difference.high, high=-difference.low)
    units = f"{sides[0].seeds} and {sides[1].seeds} trained models ({MIN_MODELS} per side required)"
    fields = spec._asdict() | {
        "quality": quality,
        "baseline": BASELINES.get(spec.against, spec.against),
        "difference": difference.signed,
        "size": (difference if difference.mean >= 0 else negated).signed,
        "both": f"{'Mean JS' if spec.measure == JS else capital(quality)}: {', '.join(means)}.",
        "count": counts[0],
        "units": units,
        "lacking": f"no finished run of {' nor of '.join(lacking)}.",
    }
    return Comparison(spec, difference, sides, outcome, fields)


def verdicts(
    estimates: Estimates, comparisons: Sequence[Comparison] | None = None
) -> dict[str, list[str]]:
    """The sentences that answer each question, from the comparisons of `compare_groups`."""
    study, base = estimates.study, estimates.study.bases[0]
    compared: dict[str, list[Comparison]] = defaultdict(list)
    for comparison in compare_groups(estimates) if comparisons is None else comparisons:
        compared[comparison.spec.question].append(comparison)
    answers: dict[str, Iterable[str]] = {
        "needed": [*(c.sentence() for c in compared["needed"]), *_heads(compared["head"])],
        "beyond": _beyond(estimates, compared["divergence"], compared["price"]),
    }
    if study.losses:
        no_adversary = [text("answers", "no_adversary")]
        bends = changepoints.find_changepoints(estimates, base, each_term=False)
        answers["lost"] = [*_lost(compared["lost"])] or no_adversary
        answers["collapsed"] = collapses = [collapse_note(study, base)]
        for term, path in groups.lambda_paths(study, base).items():
            if study.runs.at[base, "threshold_error"]:
                break  # of which the note says why
            counts = [(lam, len(runs), runs["collapsed"].sum()) for lam, runs in path.items()]
            where = [f"{count} of {runs} at λ = {lam:g}" for lam, runs, count in counts if count]
            total, found = sum(runs for _, runs, _ in counts), ", ".join(where) or "none"
            collapses.append(f"{groups.term_name(term)}, of {total} runs: {found}.")
        answers["safe"] = [*map(changepoints.changepoint_sentence, bends)] or no_adversary
        answers["ranked"] = _ranked(estimates, compared["ranked"])
    by_question = {text("questions", name): list(sentences) for name, sentences in answers.items()}
    for context in groups.guides(study):
        name = groups.guided_name(study, context)
        guided = [c for c in (*compared["guides"], *compared["informs"]) if c.spec.subject == name]
        by_question[text("questions", "guides", subject=name)] = [c.sentence() for c in guided]
    lacking = groups.missing(study)
    return by_question | ({text("questions", "missing"): lacking} if lacking else {})


def _heads(comparisons: Sequence[Comparison]) -> Iterator[str]:
    """Which heads are needed, in one sentence on all of them."""
    by_head = {c.spec.group.split()[1]: c for c in comparisons if c.outcome != NO_RUNS}
    if by_head:
        too_few = [c for c in by_head.values() if c.outcome == TOO_FEW]
        fallen = [head for head, c in by_head.items() if c.outcome == BELOW]
        first = next(iter(sorted(too_few, key=lambda c: len(c.spec.runs)) or by_head.values()))
        each = ", ".join(f"{c.estimate.signed} (head {head})" for head, c in by_head.items())
        outcome = TOO_FEW if too_few else BELOW if fallen else NOT_SHOWN
        yield text("heads", outcome, **first.fields, each=each, fallen=", ".join(fallen))


def _beyond(
    estimates: Estimates, divergences: Sequence[Comparison], price: Sequence[Comparison]
) -> Iterator[str]:
    """How the best adversary was chosen, its divergence, and its price (TVD and lost quality)."""
    yield selection(estimates.study)
    yield from (c.sentence() for c in divergences)
    if all(c.outcome != NO_RUNS for c in price):
        tvd, quality = price
        yield text("answers", "price", tvd=tvd.estimate.signed, **quality.fields)
    best = divergences[0].spec.runs
    if len(best) and len(estimates.heads) > 1:
        means = [number(estimates.estimate(best, measure).mean) for measure in estimates.heads]
        each = ", ".join(f"{mean} (head {head})" for head, mean in enumerate(means))
        yield f"By head, the mean JS of the best adversary is {each}."


def selection(study: Study) -> str:
    """How the best adversary was chosen, and whether it reached the paper's divergence."""
    best = groups.named_groups(study)[BEST]
    if study.selected is None or not len(best):
        return text("answers", "unchosen" if study.selected is None else "unfinished")
    reached = best["validation_attention_js"].mean()
    fields = groups.words(study) | {"term": groups.term_name(study.selected[0])}
    name = "fell_short" if reached < MIN_JS else "chosen"  # NaN if not recorded
    return text("answers", name, **fields, min_js=MIN_JS)


def _lost(comparisons: Sequence[Comparison]) -> Iterator[str]:
    """For each term the smallest lambda that loses quality, or why that is inconclusive."""
    for _, grouped in groupby(comparisons, lambda c: c.spec.subject):
        by_lambda = list(grouped)
        lowest = min(by_lambda, key=lambda c: c.estimate.mean)
        first = next((c for c in by_lambda if c.outcome == BELOW), by_lambda[0])
        if any(c.outcome in (TOO_FEW, NO_RUNS) for c in by_lambda):
            first = min(by_lambda, key=lambda c: len(c.spec.runs))
        elif first.outcome == ABOVE:
            first = first._replace(outcome=NOT_SHOWN)
        lam = first.spec.group.rpartition(" ")[2]
        yield first.sentence(lam=lam, lowest=text("answers", "lowest", **lowest.fields))


def collapse_note(study: Study, base: str) -> str:
    """The criterion for a collapsed adversary of a base, or why it cannot be determined."""
    base_row = study.runs.loc[base]
    if base_row["threshold_error"]:
        return f"Which runs collapsed is unknown: {base_row['threshold_error']}."
    fields = {name: number(base_row[name]) for name in ("threshold", "ignorant")}
    return text("answers", "collapsed", **fields, **groups.words(study))


def _ranked(estimates: Estimates, comparisons: Sequence[Comparison]) -> Iterator[str]:
    """Tau of attention with the base's, and its change at the changepoint of the loss."""
    named = groups.named_groups(estimates.study)
    labels = {SEEDS: SEEDS, CONTROL: f"imitation ({CONTROL})", BEST: BEST}
    taus = {name: estimates.estimate(named[group], TAU) for group, name in labels.items()}
    defined = [f"{tau} with {name}" for name, tau in taus.items() if not np.isnan(tau.mean)]
    if not defined:
        yield text("answers", "unranked")
        return
    yield f"Tau of attention with the base's: {', '.join(defined)}."
    yield from (c.sentence() for c in comparisons)
    bend = changepoints.find_changepoint(estimates, estimates.study.bases[0], NLL_BASE)
    if bend.sides:
        up_to, after = (estimates.estimate(runs, TAU).signed for runs in bend.sides)
        yield f"Up to the {bend.shape} of the loss tau is {up_to}, beyond it {after}."
