"""Tables of a study: those of Wiegreffe & Pinter, or every group by every measure there is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

import numpy as np

from attnlight.report.study import groups
from attnlight.report.study.estimates import (
    DISTANCE,
    JS,
    PREDICTION,
    TAU,
    TVD,
    Estimates,
    seeds_cell,
    to_csv,
)
from attnlight.report.study.frame import ACCURACY, F1
from attnlight.report.study.groups import BEST, CONTROL, IMITATION, SEEDS, TRAINED, UNIFORM
from attnlight.report.study.shapes import LOSSES, NO_BEND, Bend, find_bends, find_collapses
from attnlight.report.study.texts import text, texts
from attnlight.report.study.verdict import selection
from attnlight.report.tables import Table, number

if TYPE_CHECKING:
    from attnlight.report.study.frame import Runs, Study

TEXT = "text"  # the readout
_DASH = number(float("nan"))
_GAP = (0.35, 0.6)  # mean JS between an imitation's and that of an adversary that got away


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
        self._pairs = {
            (s.group, s.against, s.measure, s.about): s for s in groups.specs(self.study)
        }
        self._prediction = [
            self.study.quality,
            *(m for m in PREDICTION[1:] if m != self.study.quality),
        ]
        self._short = [self.study.quality, TVD, JS]

    def all(self) -> dict[str, Table]:
        """Every table by the stem of its files."""
        papers = (self.table2, self.table3, self.table4, self.seeds, self.adversaries)
        whole = (self.models, self.distances, self.adversaries, self.adversary_distances)
        every = (*whole, self.heads, self.segments) if self.study.losses else papers
        return {make.__name__: make() for make in every}

    def table2(self) -> Table:
        """Base and uniform attention."""
        measures = list(dict.fromkeys((self.study.quality, ACCURACY)))
        compared = {
            TRAINED: self.study.architecture(self.base),
            UNIFORM: groups.uniforms(self.study),
        }
        less = [self._less(UNIFORM, TRAINED, measure) for measure in measures]
        rows = [*self._rows(compared, measures), ["uniform less trained", _DASH, *less]]
        return self._grid("table2", rows, self._names(measures))

    def table3(self) -> Table:
        """Models whose attention is given, by whose it is."""
        quality = [self.study.quality]
        rows = []
        for context in groups.contexts(self.study):
            for name, runs in groups.guides(self.study, context).items():
                where = f", {groups.reader(self.study, context)}" if context else ""
                known = [f"{groups.whose(self.study, name)}{where}", seeds_cell(runs)]
                less = [self._less_guide(name, o, context) for o in ("uniform", "shuffled")]
                rows.append([*known, *self._cells(runs, quality), *less])
        return self._grid("table3", rows, self._names(quality))

    def table4(self) -> Table:
        """The adversary that validation chose, between what bounds it on either side."""
        study, selected = self.study, self.study.selected
        term = selected[0] if selected else None
        name = f"best adversary ({groups.words_of(*selected)})" if selected else "best adversary"
        compared = {
            TRAINED: study.architecture(self.base),
            SEEDS: study.finished("seed", base=self.base),
            UNIFORM: groups.uniforms(study),
            "imitation control (λ = 0)": study.controls(self.base, term),
            name: groups.chosen(study),
        }
        for other, lam in study.best.items():
            if selected and other != term:
                runs = study.finished("adversary", base=self.base, term=other, lam=lam)
                compared[f"best of its term ({groups.words_of(other, lam)})"] = runs
        rows = self._rows(compared, self._short)
        rows[0][3:] = [_DASH, _DASH]  # the base is no distance from itself
        for words, against in ((CONTROL, IMITATION), (SEEDS, SEEDS)):
            less = [self._less(BEST, against, measure) for measure in self._short]
            rows.append([f"best less {words}", _DASH, *less])
        return self._grid("table4", rows, self._names(self._short), selection(study))

    def seeds(self) -> Table:
        """How far another seed is from each base, and how far attention over the base could be."""
        bounds = [m for m in ("search_js", "worst_js") if m in self.study.measures]
        rows = []
        for base in self.study.bases:
            own, other = self.study.itself(base), self.study.finished("seed", base=base)
            first, *most = self._cells(own, [self.study.quality, *bounds])
            rows.append([base, str(len(other)), first, *self._cells(other, self._short), *most])
        said = text("notes", "search") if bounds else ""
        return self._grid("seeds", rows, self._names(bounds), said)

    def models(self) -> Table:
        """What bases, uniform attention, other seeds and probes predict."""
        rows = [
            [
                name,
                seeds_cell(runs),
                *self._cells(runs, self._prediction),
                self._less(name, TRAINED),
            ]
            for name, runs in groups.models(self.study)
        ]
        alone = groups.ALONE in groups.contexts(self.study)
        said = text("notes", "alone") if alone else ""
        return self._grid("models", rows, self._names(self._prediction), said)

    def distances(self) -> Table:
        """How far uniform attention, other seeds and probes are from the base."""
        _, *variants = groups.models(self.study)  # the bases are no distance from themselves
        rows = [[name, seeds_cell(runs), *self._cells(runs, DISTANCE)] for name, runs in variants]
        return self._grid("distances", rows, self._names(DISTANCE))

    def adversaries(self) -> Table:
        """What adversaries of every base, term and lambda predict, and how training went."""
        study, losses = self.study, self.study.losses
        measures = self._prediction if losses else self._short
        epochs = "epochs" if study.runs["epochs"].notna().any() else "epoch chosen"
        between, said = (
            [],
            [text("notes", "losses" if losses else "near", instance=study.words.instance)],
        )
        for base in study.bases:
            collapse, own = find_collapses(study, base), groups.cells(study, base)
            if losses and own:
                said.append(f"{base}: " * (len(study.bases) > 1) + collapse.note)
            for cell in own:
                epoch = cell.runs["epochs"] if epochs == "epochs" else cell.runs["epoch"] + 1
                share = [collapse.share(cell.runs)] if losses else []
                between.append([*share, median_and_range(epoch.dropna())])
        said += [selection(study) if losses else "Epochs count from 1.", *gaps(self.estimates)]
        head = [*(["collapsed"] if losses else []), epochs, *self._names(measures)]
        return self._grid("adversaries", self._by_lambda(measures, between), head, " ".join(said))

    def adversary_distances(self) -> Table:
        """How far adversaries of every base, attention term and lambda are from their base."""
        rows = self._by_lambda(DISTANCE)
        return self._grid("adversary_distances", rows, self._names(DISTANCE))

    def heads(self) -> Table:
        """How far each head of other seeds and adversaries is from the base's."""
        measures = head_measures(self.study)
        seeds = {base: self.study.finished("seed", base=base) for base in self.study.bases}
        rows = [
            [SEEDS, base, str(len(runs)), *self._cells(runs, measures)]
            for base, runs in seeds.items()
            if len(runs)
        ]
        head = [f"head {head}" for head in range(self.study.heads)]
        return self._grid("heads", rows + self._by_lambda(measures), head)

    def segments(self) -> Table:
        """Line, kink and jump of each loss against mean JS, a point a run."""
        rows = [
            self._segments(base, bend)
            for base in self.study.bases
            if groups.cells(self.study, base)
            for bend in find_bends(self.estimates, base, find_collapses(self.study, base))
        ]
        return self._grid("segments", rows, [])

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

    def _by_lambda(
        self, measures: Sequence[str], between: Sequence[Sequence[str]] | None = None
    ) -> list[list[str]]:
        """A row for each planned cell of each base, with some cells between name and means."""
        every = [cell for base in self.study.bases for cell in groups.cells(self.study, base)]
        rows = []
        for cell, more in zip(every, between or [[]] * len(every), strict=True):
            best = cell.base == self.base and (cell.term, cell.lam) == self.study.selected
            mark = "; chosen on validation" if best else ""
            mark = mark if cell.lam else "; imitation control"
            known = [f"{cell.name}{mark}", cell.base, str(len(cell.runs)), *more]
            rows.append([*known, *self._cells(cell.runs, measures)])
        return rows

    def _rows(self, compared: dict[str, Runs], measures: Sequence[str]) -> list[list[str]]:
        """Name, number of seeds and means of some groups."""
        return [[n, str(len(runs)), *self._cells(runs, measures)] for n, runs in compared.items()]

    def _less(self, group: str, against: str, measure: str | None = None, about: str = "") -> str:
        """A difference that the study compares; a dash where it does not."""
        spec = self._pairs.get((group, against, measure or self.study.quality, about))
        if spec is None:
            return _DASH
        return str(self.estimates.difference(spec.runs, spec.other, spec.measure))

    def _less_guide(self, guide: str, other: str, context: str | None) -> str:
        sides = (groups.told(self.study, guide), groups.told(self.study, other))
        about = groups.reader(self.study, context)
        return _DASH if guide == other else self._less(*sides, about=about)

    def _cells(self, runs: Runs, measures: Sequence[str]) -> list[str]:
        return [str(self.estimates.of(runs, measure)) for measure in measures]

    def _names(self, measures: Sequence[str]) -> list[str]:
        quality = self.study.words.quality
        return [quality if name == F1 else text("headings", name) for name in measures]

    def _grid(self, stem: str, rows: list[list[str]], head: Sequence[str], said: str = "") -> Table:
        """A table with its title, head and note from `texts.yaml`.

        Args:
            stem: Stem of its files.
            rows: Its rows.
            head: Names of the columns that depend on the study.
            said: What else its note says.
        """
        study, known = self.study, texts()["tables"][stem]
        words = asdict(study.words) | {
            "base": self.base,
            "cells": self.estimates.note,
            "said": said,
        }
        words |= {name: note.format(**words) for name, note in texts()["notes"].items()}
        names = [[name.format(**words)] if name != "*" else head for name in known["head"]]
        note = known["note"].format(**words).strip()
        more = study.facts["readout"] == TEXT and words["text_readout"] not in note
        notes = [note, *([words["text_readout"]] if more else [])]
        notes += groups.missing(study, known["roles"])
        return Table.of(known["title"], [n for part in names for n in part], rows, " ".join(notes))


def estimates_csv(estimates: Estimates) -> str:
    """Every mean of the tables as CSV, numbers in full."""
    study = estimates.study
    measures = [study.quality, ACCURACY, TVD, JS]
    if study.losses:
        measures = [study.quality, *PREDICTION[1:], *DISTANCE, *head_measures(study)]
    return to_csv(groups.every_group(study), list(dict.fromkeys(measures)), estimates)


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
    own = [c for c in groups.cells(study, study.bases[0]) if len(c.runs) and c.lam > 0]
    for term in sorted({cell.term for cell in own if cell.term}):
        means = [estimates.of(cell.runs, JS).mean for cell in own if cell.term == term]
        if max(means) >= _GAP[1] and not any(_GAP[0] < mean < _GAP[1] for mean in means):
            yield (
                f"No lambda of {groups.term_name(term)} has a mean JS between {_GAP[0]:g} and "
                f"{_GAP[1]:g}."
            )
