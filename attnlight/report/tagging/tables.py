"""Tables of a tagger's study: models, adversaries by lambda, heads, and the shape of their loss."""

from __future__ import annotations

from collections.abc import Sequence

from attnlight.report.grids import Grid
from attnlight.report.study.estimates import ACCURACY, F1, GUIDED, JS, TVD, Runs, seeds_cell, to_csv
from attnlight.report.study.lambdas import gaps, median_and_range, selection, words_of
from attnlight.report.study.missing import missing
from attnlight.report.study.plan import StudyRun
from attnlight.report.study.sentences import signed
from attnlight.report.tables import number
from attnlight.report.tagging.bends import LOSSES, NO_BEND, Bend, find_bends
from attnlight.report.tagging.collapse import find_collapses
from attnlight.report.tagging.estimates import (
    AGREEMENT,
    DISTANCE,
    JS_MEAN,
    NLL_BASE,
    NLL_GOLD,
    NOTE,
    PREDICTION,
    SHARE,
    TAU,
    TaggingEstimates,
    head_measure,
)
from attnlight.report.tagging.groups import ROLES, cells, groups, models
from attnlight.report.tagging.reading import ALONE, OF_TEXT, TEXT, TaggingStudy

_DASH = number(float("nan"))
_HEADS = {
    ACCURACY: "accuracy",
    NLL_GOLD: "NLL, gold",
    NLL_BASE: "NLL, base",
    JS: "JS",
    JS_MEAN: "JS of head mean",
    SHARE: "share of largest",
    TVD: "TVD",
    AGREEMENT: "agreement",
    TAU: "tau",
}
_LOSSES = (
    "NLL: negative log-likelihood in nats a token, of the gold labels and of those that the base "
    "predicts."
)
_DISTANCES = (
    "Distances are from the base, means over test tokens. JS: Jensen-Shannon divergence of "
    "attention (nats, 0 to 0.693), the mean over heads after each was matched with one of the "
    "base's; that of the mean over heads; and as a share of the largest that any attention could "
    "have. TVD: total variation distance of the predictions (0 to 1). Agreement: share of tokens "
    "with the base's label. Tau: Kendall's tau-b of attention with the base's."
)


def tables(study: TaggingStudy, estimates: TaggingEstimates) -> dict[str, Grid]:
    """Every table by the stem of its files."""
    return {
        "models": models_table(study, estimates),
        "distances": distances_table(study, estimates),
        "adversaries": adversaries_table(study, estimates),
        "adversary_distances": adversary_distances_table(study, estimates),
        "heads": heads_table(study, estimates),
        "segments": segments_table(study, estimates),
    }


def models_table(study: TaggingStudy, estimates: TaggingEstimates) -> Grid:
    """What bases, uniform attention, other seeds and probes predict."""
    measures = _prediction(study)
    trained = study.architecture(study.bases[0])
    rows = []
    for name, runs in models(study):
        less = _DASH if _among(runs, trained) else str(estimates.difference(runs, trained, F1))
        rows.append([name, seeds_cell(runs), *_cells(estimates, runs, measures), less])
    said = (
        f"{_LOSSES} Less trained: difference of {study.f1} from {study.bases[0].name} and its other "
        f"seeds. A probe is given its attention. {GUIDED}"
    )
    if study.planned("guide", context=ALONE):
        said += f" A probe that reads each token alone has the text readout. {OF_TEXT}"
    return Grid(
        "Trained and uniform attention, other seeds and probes",
        ["model", "seeds", *_headings(study, measures), f"{study.f1}, less trained"],
        rows,
        _note(study, said, "base", "uniform", "seed", "guide"),
    )


def distances_table(study: TaggingStudy, estimates: TaggingEstimates) -> Grid:
    """How far uniform attention, other seeds and probes are from the base."""
    _, *variants = models(study)  # the bases are no distance from themselves
    rows = [[name, seeds_cell(runs), *_cells(estimates, runs, DISTANCE)] for name, runs in variants]
    said = f"{_DISTANCES} It is undefined for uniform attention, which ranks nothing."
    return Grid(
        "How far each model is from its base",
        ["model", "seeds", *_headings(study, DISTANCE)],
        rows,
        _note(study, said, "uniform", "seed", "guide"),
    )


def adversaries_table(study: TaggingStudy, estimates: TaggingEstimates) -> Grid:
    """What adversaries of every base, attention term and lambda predict, and how many collapsed."""
    measures, rows, notes = _prediction(study), [], []
    for base in study.bases:
        own = cells(study, base)
        if not own:
            continue
        collapse = find_collapses(study, base)
        notes.append(f"{base.name}: {collapse.note}" if len(study.bases) > 1 else collapse.note)
        for _, term, lam, runs in own:
            name = f"{words_of(term, lam)}{_mark(study, base, term, lam)}"
            epochs = median_and_range([run.epochs for run in runs if run.epochs is not None])
            known = [base.name, str(len(runs)), collapse.share(runs), epochs]
            rows.append([name, *known, *_cells(estimates, runs, measures)])
    head = ["term", "base", "seeds", "collapsed", "epochs", *_headings(study, measures)]
    said = " ".join([_LOSSES, *notes, selection(study), *gaps(study, estimates)])
    return Grid("Adversaries by lambda", head, rows, _note(study, said, "adversary"))


def adversary_distances_table(study: TaggingStudy, estimates: TaggingEstimates) -> Grid:
    """How far adversaries of every base, attention term and lambda are from their base."""
    return Grid(
        "How far adversaries are from their base, by lambda",
        ["term", "base", "seeds", *_headings(study, DISTANCE)],
        _by_lambda(study, estimates, DISTANCE),
        _note(study, _DISTANCES, "adversary"),
    )


def heads_table(study: TaggingStudy, estimates: TaggingEstimates) -> Grid:
    """How far each head of other seeds and adversaries is from the base's."""
    measures = [head_measure(head) for head in range(study.heads)]
    rows = []
    for base in study.bases:
        seeds = study.finished("seed", base=base.name)
        if seeds:
            found = _cells(estimates, seeds, measures)
            rows.append(["other seeds", base.name, str(len(seeds)), *found])
    return Grid(
        "JS of each head",
        ["model", "base", "seeds", *(f"head {head}" for head in range(study.heads))],
        rows + _by_lambda(study, estimates, measures),
        _note(study, "Heads are the base's, each matched with one of the model's."),
    )


def segments_table(study: TaggingStudy, estimates: TaggingEstimates) -> Grid:
    """Line, kink and jump of each loss against mean JS, a point a run."""
    rows = [
        _segments(study, estimates, base, bend)
        for base in study.bases
        if cells(study, base)
        for bend in find_bends(study, estimates, base, find_collapses(study, base))
    ]
    said = (
        "Each run is a point: mean JS of its attention across, its loss up, both on the test split, "
        "with those of λ = 0. BIC: how much more than the least of the three. A kink or jump is "
        "shown where it is less by more than 10 than any other shape's (very strong evidence; Kass "
        "& Raftery, 1995). Change: of the slope at a kink, of the level at a jump. Tau: of attention "
        "with the base's, mean over the runs up to the bend and beyond it. Runs that share a seed "
        "are not independent, for which BIC makes no allowance."
    )
    head = ["points", "base", "loss", "runs", "BIC of line", "of kink", "of jump", "shown", "at JS"]
    return Grid(
        "Do the losses bend: line, kink or jump",
        [*head, "change", "tau up to it", "tau beyond"],
        rows,
        _and_more(study, said, ["adversary"]),
    )


def estimates_csv(study: TaggingStudy, estimates: TaggingEstimates) -> str:
    """Every mean of the tables as CSV, numbers in full."""
    heads = [head_measure(head) for head in range(study.heads)]
    return to_csv(groups(study), [*_prediction(study), *DISTANCE, *heads], estimates)


def _segments(
    study: TaggingStudy, estimates: TaggingEstimates, base: StudyRun, bend: Bend
) -> list[str]:
    known = [bend.points, base.name, LOSSES[bend.measure], str(len(bend.runs))]
    if bend.fits is None:
        return [*known, *[_DASH] * 3, "too few points", *[_DASH] * 4]
    fits = bend.fits
    bics = [f"{fit.bic - fits.preferred.bic:.1f}" for fit in fits]
    if bend.shape == NO_BEND:
        return [*known, *bics, NO_BEND, *[_DASH] * 4]
    tau = [signed(estimates.of(runs, TAU)) for runs in bend.sides]
    bent = fits.preferred
    return [*known, *bics, bend.shape, number(bent.place), number(bent.change), *tau]


def _by_lambda(
    study: TaggingStudy, estimates: TaggingEstimates, measures: Sequence[str]
) -> list[list[str]]:
    return [
        [
            f"{words_of(cell.term, cell.lam)}{_mark(study, base, cell.term, cell.lam)}",
            base.name,
            str(len(cell.runs)),
            *_cells(estimates, cell.runs, measures),
        ]
        for base in study.bases
        for cell in cells(study, base)
    ]


def _mark(study: TaggingStudy, base: StudyRun, term: str | None, lam: float) -> str:
    if lam == 0:
        return "; imitation control"
    chosen = base == study.bases[0] and (term, lam) == study.selected
    return "; chosen on validation" if chosen else ""


def _prediction(study: TaggingStudy) -> Sequence[str]:
    """Measures of a prediction: where there are no chunks F1 is accuracy, and told once."""
    return PREDICTION if study.chunks else [name for name in PREDICTION if name != F1]


def _headings(study: TaggingStudy, measures: Sequence[str]) -> list[str]:
    return [study.f1 if name == F1 else _HEADS[name] for name in measures]


def _cells(estimates: TaggingEstimates, runs: Runs, measures: Sequence[str]) -> list[str]:
    return [str(estimates.of(runs, measure)) for measure in measures]


def _among(runs: Runs, trained: Runs) -> bool:
    """Whether a difference from the trained models would be one from themselves."""
    return bool(set(_names(runs)) & set(_names(trained)))


def _names(runs: Runs) -> list[str]:
    return [run.name for run in runs]


def _note(study: TaggingStudy, said: str, *roles: str) -> str:
    return _and_more(study, f"Cells: {NOTE}. {said}", roles)


def _and_more(study: TaggingStudy, said: str, roles: Sequence[str]) -> str:
    """With what the text readout means, where it does, and what is missing."""
    text = [OF_TEXT] if study.readout == TEXT and OF_TEXT not in said else []
    return " ".join([said, *text, *missing(study, roles, ROLES)])
