"""Tables of a study: those of Wiegreffe & Pinter, or every group by every measure there is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from attnlight.report.grids import Grid
from attnlight.report.study.estimates import (
    AGREEMENT,
    DISTANCE,
    GUIDED,
    JS,
    JS_MEAN,
    NLL_BASE,
    NLL_GOLD,
    PREDICTION,
    SHARE,
    TAU,
    TVD,
    Estimates,
    seeds_cell,
    to_csv,
)
from attnlight.report.study.frame import ACCURACY, F1
from attnlight.report.study.groups import (
    ALONE,
    BEST,
    CONTROL,
    IMITATION,
    OWNERS,
    SEEDS,
    TRAINED,
    UNIFORM,
    cells,
    chosen,
    contexts,
    every_group,
    guides,
    missing,
    models,
    reader,
    specs,
    term_name,
    told,
    uniforms,
    words_of,
)
from attnlight.report.study.shapes import LOSSES, NO_BEND, Bend, find_bends, find_collapses
from attnlight.report.study.verdict import selection
from attnlight.report.tables import number

if TYPE_CHECKING:
    from attnlight.report.study.frame import Runs, Study

TEXT = "text"  # the readout
OF_TEXT = "With the text readout a token reaches its own tag only through its attention to itself."
_DASH = number(float("nan"))
_GAP = (0.35, 0.6)  # mean JS between an imitation's and that of an adversary that got away
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
    "worst_js": "largest JS",
    "search_js": "JS by search",
}
_LOSSES = (
    "NLL: negative log-likelihood in nats a token, of the gold labels and of those that the base "
    "predicts."
)
_NEAR = (
    "TVD: total variation distance from the base's prediction (0 to 1). JS: Jensen-Shannon "
    "divergence from the base's attention (nats, 0 to 0.693)."
)
_DISTANCES = (
    "Distances are from the base, means over test tokens. JS: Jensen-Shannon divergence of "
    "attention (nats, 0 to 0.693), the mean over heads after each was matched with one of the "
    "base's; that of the mean over heads; and as a share of the largest that any attention could "
    "have. TVD: total variation distance of the predictions (0 to 1). Agreement: share of tokens "
    "with the base's label. Tau: Kendall's tau-b of attention with the base's."
)
_SEARCH = (
    "JS by search and largest JS: of attention over the base's own encoder that keeps each "
    "prediction to epsilon, as Jain & Wallace's search finds it and exactly."
)
_SEGMENTS = (
    "Each run is a point: mean JS of its attention across, its loss up, both on the test split, "
    "with those of λ = 0. BIC: how much more than the least of the three. A kink or jump is shown "
    "where it is less by more than 10 than any other shape's (very strong evidence; Kass & Raftery, "
    "1995). Change: of the slope at a kink, of the level at a jump. Tau: of attention with the "
    "base's, mean over the runs up to the bend and beyond it. Runs that share a seed are not "
    "independent, for which BIC makes no allowance."
)


class Tables:
    """The tables of a study.

    Where it holds the losses of its models, every group is told by every measure; otherwise
    Wiegreffe & Pinter's tables 2, 3 and 4.

    Args:
        estimates: Estimates of the study.
    """

    def __init__(self, estimates: Estimates) -> None:
        self.study, self.estimates = estimates.study, estimates
        self.base = self.study.bases[0]
        self._pairs = {(s.group, s.against, s.measure, s.about): s for s in specs(self.study)}
        self._prediction = [m for m in PREDICTION if m in (self.study.quality, *_HEADS)]
        self._short = [self.study.quality, TVD, JS]

    def all(self) -> dict[str, Grid]:
        """Every table by the stem of its files."""
        if not self.study.losses:
            papers = (self.table2, self.table3, self.table4, self.seeds, self.adversaries)
            return {make.__name__: make() for make in papers}
        whole = (self.models, self.distances, self.adversaries, self.adversary_distances)
        return {make.__name__: make() for make in (*whole, self.heads, self.segments)}

    def table2(self) -> Grid:
        """Base and uniform attention."""
        measures = list(dict.fromkeys((self.study.quality, ACCURACY)))
        compared = {TRAINED: self.study.architecture(self.base), UNIFORM: uniforms(self.study)}
        rows = [[name, str(len(g)), *self._cells(g, measures)] for name, g in compared.items()]
        less = [self._less(UNIFORM, TRAINED, measure) for measure in measures]
        return Grid(
            "Trained and uniform attention (Wiegreffe & Pinter's table 2)",
            ["model", "seeds", *self._names(measures)],
            [*rows, ["uniform less trained", _DASH, *less]],
            self._note("Trained: the first base and its seed variants.", "base", "uniform", "seed"),
        )

    def table3(self) -> Grid:
        """Models whose attention is given, by whose it is."""
        guided = self.study.words.guided.partition(" ")[2]
        rows = [
            [
                f"{self._whose(name, guided)}{f', {reader(self.study, c)}' if c else ''}",
                *(seeds_cell(runs), *self._cells(runs, [self.study.quality])),
                *(self._less_guide(name, other, c) for other in ("uniform", "shuffled")),
            ]
            for c in contexts(self.study)
            for name, runs in guides(self.study, c).items()
        ]
        return Grid(
            f"A given attention guides {self.study.words.guided} (Wiegreffe & Pinter's table 3)",
            ["attention", "seeds", self.study.words.quality, "less uniform", "less shuffled"],
            rows,
            self._note(f"Less: difference of the mean {self._quality}. {GUIDED}", "guide"),
        )

    def table4(self) -> Grid:
        """The adversary that validation chose, between what bounds it on either side."""
        study, base, selected = self.study, self.base, self.study.selected
        name = f"best adversary ({words_of(*selected)})" if selected else "best adversary"
        compared = {
            SEEDS: study.finished("seed", base=base),
            UNIFORM: uniforms(study),
            "imitation control (λ = 0)": study.controls(base, selected[0] if selected else None),
            name: chosen(study),
        }
        for term, lam in study.best.items():
            if selected and term != selected[0]:
                runs = study.finished("adversary", base=base, term=term, lam=lam)
                compared[f"best of its term ({words_of(term, lam)})"] = runs
        trained = study.architecture(base)
        own = [str(len(trained)), *self._cells(trained, [study.quality])]
        rows = [[TRAINED, *own, _DASH, _DASH]]  # the base is no distance from itself
        rows += [
            [words, str(len(g)), *self._cells(g, self._short)] for words, g in compared.items()
        ]
        for words, other in ((CONTROL, IMITATION), (SEEDS, SEEDS)):
            less = [self._less(BEST, other, measure) for measure in self._short]
            rows.append([f"best less {words}", _DASH, *less])
        return Grid(
            "The best adversary (Wiegreffe & Pinter's table 4)",
            ["model", "seeds", *self._names(self._short)],
            rows,
            self._note(f"{_NEAR} {selection(study)}", "base", "uniform", "seed", "adversary"),
        )

    def seeds(self) -> Grid:
        """How far another seed is from each base, and how far attention over the base could be."""
        bounds = [m for m in ("search_js", "worst_js") if m in self.study.measures]
        rows = []
        for base in self.study.bases:
            own, other = self.study.itself(base), self.study.finished("seed", base=base)
            first, *quality = self._cells(own, [self.study.quality, *bounds])
            rows.append([base, str(len(other)), first, *self._cells(other, self._short), *quality])
        head = ["base", "seeds", f"{self.study.words.quality}, base", "other seeds", "TVD", "JS"]
        said = f"{_NEAR} {_SEARCH}" if bounds else _NEAR
        return Grid(
            "Other seeds of each base",
            [*head, *self._names(bounds)],
            rows,
            self._note(said, "base", "seed"),
        )

    def models(self) -> Grid:
        """What bases, uniform attention, other seeds and probes predict."""
        quality = self.study.words.quality
        rows = [
            [name, seeds_cell(g), *self._cells(g, self._prediction), self._less(name, TRAINED)]
            for name, g in models(self.study)
        ]
        said = (
            f"{_LOSSES} Less trained: difference of {quality} from {self.base} and its other seeds. "
            f"A probe is given its attention. {GUIDED}"
        )
        if ALONE in contexts(self.study):
            said += f" A probe that reads each token alone has the text readout. {OF_TEXT}"
        return Grid(
            "Trained and uniform attention, other seeds and probes",
            ["model", "seeds", *self._names(self._prediction), f"{quality}, less trained"],
            rows,
            self._note(said, "base", "uniform", "seed", "guide"),
        )

    def distances(self) -> Grid:
        """How far uniform attention, other seeds and probes are from the base."""
        _, *variants = models(self.study)  # the bases are no distance from themselves
        said = f"{_DISTANCES} It is undefined for uniform attention, which ranks nothing."
        return Grid(
            "How far each model is from its base",
            ["model", "seeds", *self._names(DISTANCE)],
            [[name, seeds_cell(runs), *self._cells(runs, DISTANCE)] for name, runs in variants],
            self._note(said, "uniform", "seed", "guide"),
        )

    def adversaries(self) -> Grid:
        """What adversaries of every base, term and lambda predict, and how training went."""
        study, losses = self.study, self.study.losses
        measures = self._prediction if losses else self._short
        epochs = "epochs" if study.runs["epochs"].notna().any() else "epoch chosen"
        between, notes = [], [_LOSSES] if losses else [_NEAR, "Epochs count from 1."]
        for base in study.bases:
            collapse, own = find_collapses(study, base), cells(study, base)
            if losses and own:
                mark = f"{base}: " if len(study.bases) > 1 else ""
                notes.append(f"{mark}{collapse.note}")
            for cell in own:
                epoch = cell.runs["epochs"] if epochs == "epochs" else cell.runs["epoch"] + 1
                share = [collapse.share(cell.runs)] if losses else []
                between.append([*share, median_and_range(epoch.dropna())])
        said = [*notes, *([selection(study)] if losses else []), *gaps(self.estimates)]
        collapsed = ["collapsed"] if losses else []
        return Grid(
            "Adversaries by lambda",
            ["term", "base", "seeds", *collapsed, epochs, *self._names(measures)],
            self._by_lambda(measures, between),
            self._note(" ".join(said), "adversary"),
        )

    def adversary_distances(self) -> Grid:
        """How far adversaries of every base, attention term and lambda are from their base."""
        return Grid(
            "How far adversaries are from their base, by lambda",
            ["term", "base", "seeds", *self._names(DISTANCE)],
            self._by_lambda(DISTANCE),
            self._note(_DISTANCES, "adversary"),
        )

    def heads(self) -> Grid:
        """How far each head of other seeds and adversaries is from the base's."""
        measures = head_measures(self.study)
        rows = [
            ["other seeds", base, str(len(runs)), *self._cells(runs, measures)]
            for base in self.study.bases
            if len(runs := self.study.finished("seed", base=base))
        ]
        return Grid(
            "JS of each head",
            ["model", "base", "seeds", *(f"head {head}" for head in range(self.study.heads))],
            rows + self._by_lambda(measures),
            self._note("Heads are the base's, each matched with one of the model's."),
        )

    def segments(self) -> Grid:
        """Line, kink and jump of each loss against mean JS, a point a run."""
        rows = [
            self._segments(base, bend)
            for base in self.study.bases
            if cells(self.study, base)
            for bend in find_bends(self.estimates, base, find_collapses(self.study, base))
        ]
        head = ["points", "base", "loss", "runs", "BIC of line", "of kink", "of jump", "shown"]
        return Grid(
            "Do the losses bend: line, kink or jump",
            [*head, "at JS", "change", "tau up to it", "tau beyond"],
            rows,
            self._and_more(_SEGMENTS, "adversary"),
        )

    @property
    def _quality(self) -> str:
        return "F1" if self.study.quality == F1 else self.study.words.quality

    def _less(self, group: str, against: str, measure: str | None = None, about: str = "") -> str:
        """A difference that the study compares; a dash where it does not."""
        spec = self._pairs.get((group, against, measure or self.study.quality, about))
        if spec is None:
            return _DASH
        return str(self.estimates.difference(spec.runs, spec.other, spec.measure))

    def _less_guide(self, guide: str, other: str, context: str | None) -> str:
        if guide == other:
            return _DASH
        sides = (told(self.study, guide), told(self.study, other))
        return self._less(*sides, about=reader(self.study, context))

    def _whose(self, guide: str, guided: str) -> str:
        shuffled = f"the base's, shuffled within each {self.study.words.cluster}"
        words = {name: f"{owner}'s" for name, owner in OWNERS.items()}
        words |= {"shuffled": shuffled, "learned": f"learned by the {guided} itself"}
        return words.get(guide, guide)

    def _by_lambda(
        self, measures: Sequence[str], between: Sequence[Sequence[str]] | None = None
    ) -> list[list[str]]:
        """A row for each planned cell of each base, with some cells between name and means."""
        every = [cell for base in self.study.bases for cell in cells(self.study, base)]
        rows = []
        for cell, more in zip(every, between or [[]] * len(every), strict=True):
            best = cell.base == self.base and (cell.term, cell.lam) == self.study.selected
            mark = "; chosen on validation" if best else ""
            mark = mark if cell.lam else "; imitation control"
            known = [f"{cell.name}{mark}", cell.base, str(len(cell.runs)), *more]
            rows.append([*known, *self._cells(cell.runs, measures)])
        return rows

    def _segments(self, base: str, bend: Bend) -> list[str]:
        known = [bend.points, base, LOSSES[bend.measure], str(len(bend.runs))]
        if bend.fits is None:
            return [*known, *[_DASH] * 3, "too few points", *[_DASH] * 4]
        bent = bend.fits.preferred
        known += [f"{fit.bic - bent.bic:.1f}" for fit in bend.fits]
        if bend.shape == NO_BEND:
            return [*known, NO_BEND, *[_DASH] * 4]
        tau = [self.estimates.of(runs, TAU).signed for runs in bend.sides]
        return [*known, bend.shape, number(bent.place), number(bent.change), *tau]

    def _cells(self, runs: Runs, measures: Sequence[str]) -> list[str]:
        return [str(self.estimates.of(runs, measure)) for measure in measures]

    def _names(self, measures: Sequence[str]) -> list[str]:
        return [self.study.words.quality if name == F1 else _HEADS[name] for name in measures]

    def _note(self, said: str, *roles: str) -> str:
        """What a cell is, and what else is to be said, with what is missing of some roles."""
        return self._and_more(f"Cells: {self.estimates.note}. {said}", *roles)

    def _and_more(self, said: str, *roles: str) -> str:
        readout = self.study.facts["readout"] == TEXT and OF_TEXT not in said
        return " ".join([said, *([OF_TEXT] if readout else []), *missing(self.study, roles)])


def estimates_csv(estimates: Estimates) -> str:
    """Every mean of the tables as CSV, numbers in full."""
    study = estimates.study
    measures = [study.quality, ACCURACY, TVD, JS]
    if study.losses:
        measures = [study.quality, *PREDICTION[1:], *DISTANCE, *head_measures(study)]
    return to_csv(every_group(study), list(dict.fromkeys(measures)), estimates)


def head_measures(study: Study) -> list[str]:
    """For each head of the base, how far the attention that is matched with it is from it."""
    return [f"attention_js_heads_{head}" for head in range(study.heads)]


def median_and_range(numbers: Sequence[float]) -> str:
    """The median with the least and largest; a dash where there is none."""
    if not len(numbers):
        return _DASH
    middle, low, high = f"{np.median(numbers):g}", min(numbers), max(numbers)
    return middle if low == high else f"{middle} ({low:g} to {high:g})"


def gaps(estimates: Estimates) -> Iterator[str]:
    """Whether the grid jumps over the middle: a sentence for each term where it does."""
    study = estimates.study
    own = [cell for cell in cells(study, study.bases[0]) if len(cell.runs) and cell.lam > 0]
    for term in sorted({cell.term for cell in own if cell.term}):
        means = [estimates.of(cell.runs, JS).mean for cell in own if cell.term == term]
        if max(means) >= _GAP[1] and not any(_GAP[0] < mean < _GAP[1] for mean in means):
            yield f"No lambda of {term_name(term)} has a mean JS between {_GAP[0]:g} and {_GAP[1]:g}."
