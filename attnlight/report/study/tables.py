"""Wiegreffe & Pinter's tables 2, 3 and 4 of a study, its seeds and its grid of lambdas."""

from __future__ import annotations

from collections.abc import Sequence

from attnlight.report.grids import Grid
from attnlight.report.study.estimates import (
    ACCURACY,
    F1,
    GUIDED,
    JS,
    NOTE,
    TVD,
    Estimates,
    seeds_cell,
    to_csv,
)
from attnlight.report.study.groups import GUIDES, chosen, grid, groups, guides, uniforms
from attnlight.report.study.lambdas import gaps, median_epoch, selection, words_of
from attnlight.report.study.missing import missing
from attnlight.report.study.plan import StudyRun
from attnlight.report.study.reading import Study
from attnlight.report.tables import number

CONTROL = "imitation control (λ = 0)"
_DASH = number(float("nan"))
_DISTANCES = (
    "TVD: total variation distance from the base's prediction (0 to 1). JS: Jensen-Shannon "
    "divergence from the base's attention (nats, 0 to 0.693)."
)


def tables(study: Study, estimates: Estimates) -> dict[str, Grid]:
    """Every table by the stem of its files."""
    return {
        "table2": table2(study, estimates),
        "table3": table3(study, estimates),
        "table4": table4(study, estimates),
        "seeds": seeds_table(study, estimates),
        "adversaries": adversaries_table(study, estimates),
    }


def table2(study: Study, estimates: Estimates) -> Grid:
    """Base and uniform attention."""
    base, uniform = study.architecture(study.bases[0]), uniforms(study)
    rows = []
    for name, runs in (("trained attention", base), ("uniform attention", uniform)):
        found = [str(estimates.of(runs, measure)) for measure in (F1, ACCURACY)]
        rows.append([name, str(len(runs)), *found])
    less = [str(estimates.difference(uniform, base, measure)) for measure in (F1, ACCURACY)]
    rows.append(["uniform less trained", _DASH, *less])
    return Grid(
        "Trained and uniform attention (Wiegreffe & Pinter's table 2)",
        ["model", "seeds", study.f1, "accuracy"],
        rows,
        _note(study, "Trained: the first base and its seed variants.", "base", "uniform", "seed"),
    )


def table3(study: Study, estimates: Estimates) -> Grid:
    """Multilayer perceptrons whose attention is given, by whose it is."""
    by_guide = guides(study)
    rows = []
    for name, runs in by_guide.items():
        against = [
            _DASH if name == other else str(estimates.difference(runs, by_guide.get(other, []), F1))
            for other in ("uniform", "shuffled")
        ]
        cells = [seeds_cell(runs), str(estimates.of(runs, F1))]
        rows.append([GUIDES.get(name, name), *cells, *against])
    return Grid(
        "A multilayer perceptron guided by attention (Wiegreffe & Pinter's table 3)",
        ["attention", "seeds", study.f1, "less uniform", "less shuffled"],
        rows,
        _note(study, f"Less: difference of the mean F1. {GUIDED}", "guide"),
    )


def table4(study: Study, estimates: Estimates) -> Grid:
    """The adversary that validation chose, between what bounds it on either side."""
    base, best = study.bases[0], chosen(study, study.bases[0])
    control = study.controls(base, study.selected[0] if study.selected else None)
    seeds = study.finished("seed", base=base.name)
    name = f"best adversary ({words_of(*study.selected)})" if study.selected else "best adversary"
    compared = {
        "trained attention": study.architecture(base),
        "other seeds": seeds,
        "uniform attention": uniforms(study),
        CONTROL: control,
        name: best,
    }
    for term, lam in study.best.items():
        if study.selected and term != study.selected[0]:
            runs = study.finished("adversary", base=base.name, term=term, lam=lam)
            compared[f"best of its term ({words_of(term, lam)})"] = runs
    rows = [[words, *_distances(estimates, runs)] for words, runs in compared.items()]
    # The base is no distance from itself.
    rows[0][3:] = [_DASH, _DASH]
    for other, runs in (("λ = 0", control), ("other seeds", seeds)):
        found = [str(estimates.difference(best, runs, measure)) for measure in (F1, TVD, JS)]
        rows.append([f"best less {other}", _DASH, *found])
    said = f"{_DISTANCES} {selection(study)}"
    return Grid(
        "The best adversary (Wiegreffe & Pinter's table 4)",
        ["model", "seeds", study.f1, "TVD", "JS"],
        rows,
        _note(study, said, "base", "uniform", "seed", "adversary"),
    )


def seeds_table(study: Study, estimates: Estimates) -> Grid:
    """How far another seed is from each base, and how far attention over the base could be."""
    rows = []
    for base in study.bases:
        own, seeds = [base] if base.finished else [], study.finished("seed", base=base.name)
        cells = [estimates.of(own, F1), *(estimates.of(seeds, m) for m in (F1, TVD, JS))]
        bounds = [estimates.of(own, measure) for measure in ("search_js", "worst_js")]
        rows.append([base.name, str(len(seeds)), *map(str, [*cells, *bounds])])
    said = (
        f"{_DISTANCES} JS by search and largest JS: of attention over the base's own encoder that "
        "keeps each prediction to epsilon, as Jain & Wallace's search finds it and exactly."
    )
    head = ["base", "seeds", f"{study.f1}, base", "other seeds", "TVD", "JS", "JS by search"]
    return Grid(
        "Other seeds of each base", [*head, "largest JS"], rows, _note(study, said, "base", "seed")
    )


def adversaries_table(study: Study, estimates: Estimates) -> Grid:
    """Every lambda of every term and base."""
    rows = []
    for base, term, lam, runs in grid(study):
        mark = "; imitation control" if lam == 0 else ""
        if base == study.bases[0] and (term, lam) == study.selected:
            mark = "; chosen on validation"
        cells = [str(estimates.of(runs, measure)) for measure in (F1, TVD, JS)]
        rows.append(
            [f"{words_of(term, lam)}{mark}", base.name, str(len(runs)), median_epoch(runs), *cells]
        )
    head = ["term", "base", "seeds", "epoch chosen", study.f1, "TVD", "JS"]
    said = " ".join([_DISTANCES, "Epochs count from 1.", *gaps(study, estimates)])
    return Grid("Adversaries by lambda", head, rows, _note(study, said, "adversary"))


def estimates_csv(study: Study, estimates: Estimates) -> str:
    """Every mean of the tables as CSV, numbers in full."""
    return to_csv(groups(study), (F1, ACCURACY, TVD, JS), estimates)


def _distances(estimates: Estimates, runs: Sequence[StudyRun]) -> list[str]:
    return [str(len(runs)), *(str(estimates.of(runs, measure)) for measure in (F1, TVD, JS))]


def _note(study: Study, said: str, *roles: str) -> str:
    return " ".join([f"Cells: {NOTE}.", said, *missing(study, roles)])
