"""Tables of a study, as `texts.yaml` declares them: which groups are rows, which measures columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, NamedTuple

from attnlight.report.study import groups
from attnlight.report.study.estimates import DISTANCE, JS, TAU, Estimates
from attnlight.report.study.groups import BEST, IMITATION, SEEDS, TRAINED, UNIFORM
from attnlight.report.study.shapes import LOSSES, NO_BEND, find_bends
from attnlight.report.study.texts import text, texts
from attnlight.report.study.verdict import collapse_note, selection
from attnlight.report.tables import Table, number

if TYPE_CHECKING:
    from attnlight.report.study.frame import Runs

TEXT = "text"  # the readout
_DASH = number(float("nan"))
_HEAD, _BASE = f"{JS}_heads_", "base: "
_GAP = (0.35, 0.6)  # mean JS between an imitation's and that of an adversary that got away


class Line(NamedTuple):
    """A row of a table.

    Attributes:
        labels: The cells that name it.
        runs: The group whose means it tells.
        less: The group whose means are taken off, in a row of differences.
        base: The base, as a group of one run, for the columns `base: <measure>`.
        cells: Text of the columns that are no measures.
    """

    labels: Sequence[str]
    runs: Runs
    less: Runs | None = None
    base: Runs | None = None
    cells: Mapping[str, str] = {}


class Tables:
    """The tables of a study.

    Args:
        estimates: Estimates of the study.
    """

    def __init__(self, estimates: Estimates) -> None:
        self.estimates, self.study = estimates, estimates.study
        self.held = {*estimates.measures, *estimates.study.measures}
        self.lines, self.known = _lines(estimates), _notes(estimates)

    def all(self) -> dict[str, Table]:
        """Every table by the stem of its files.

        A table stands where the study has the measure that it needs and not the one for which
        others stand instead.
        """
        found = {}
        for spec in texts()["tables"]:
            if spec.get("needs", self.study.quality) not in self.held:
                continue
            if spec.get("unless") not in self.held:
                columns = self._columns(spec["columns"])
                lines = [line for kind in spec["rows"] for line in self.lines[kind]]
                rows = [[*ln.labels, *(self._cell(ln, name) for name in columns)] for ln in lines]
                notes = [spec["note"].format(**self.known)]
                said = self.known["text_readout"]
                if self.study.facts["readout"] == TEXT and said not in notes[0]:
                    notes.append(said)
                notes += groups.missing(self.study, spec["roles"])
                title, head = (
                    spec["title"].format(**self.known),
                    [*spec["names"], *columns.values()],
                )
                found[spec["stem"]] = Table.of(title, head, rows, " ".join(" ".join(notes).split()))
        return found

    def _columns(self, declared: Mapping[str, str | None]) -> dict[str, str]:
        """Heading of each column, of a base where the study has its measure."""
        found: dict[str, str] = {}
        for name, heading in declared.items():
            every = [name.replace("quality", self.study.quality)]
            if name == "heads":
                every = [one for one in self.estimates.measures if one.startswith(_HEAD)]
            for one in every:
                if not one.startswith(_BASE) or one.removeprefix(_BASE) in self.held:
                    default = texts()["headings"].get(one, one.replace(_HEAD, "head "))
                    found.setdefault(one, (heading or default).format(**self.known))
        return found

    def _cell(self, line: Line, column: str) -> str:
        if column in line.cells:
            return line.cells[column]
        if column == "seeds":
            units = line.runs["model"].nunique()
            guided = "" if units == len(line.runs) else f" (guided by {units})"
            return _DASH if line.less is not None else f"{len(line.runs)}{guided}"
        if line.base is not None and column.startswith(_BASE):
            return str(self.estimates.of(line.base, column.removeprefix(_BASE)))
        if column in DISTANCE and line.less is None and "base" in set(line.runs["role"]):
            return _DASH  # a base is no distance from itself
        return str(self.estimates.of(line.runs, column, line.less))


def _lines(estimates: Estimates) -> dict[str, list[Line]]:
    """The rows of all tables by what a table calls them."""
    study, named = estimates.study, groups.named(estimates.study)
    less = {
        (spec.group, spec.against, spec.about): str(
            estimates.of(spec.runs, spec.measure, spec.other)
        )
        for spec in groups.specs(study)
        if spec.measure == study.quality
    }
    found = {name: [Line([name], runs)] for name, runs in named.items()}
    best = "best adversary"
    found["imitation"] = [Line(["imitation control (λ = 0)"], named[IMITATION])]
    label = f"{best} ({groups.term_name(*study.selected)})" if study.selected else best
    found["best of each term"] = [Line([label], named[BEST])]
    for term, lam in study.best.items():
        if study.selected and term != study.selected[0]:
            label = f"best of its term ({groups.term_name(term, lam)})"
            runs = study.finished("adversary", base=study.bases[0], term=term, lam=lam)
            found["best of each term"].append(Line([label], runs))
    for label, one, other in (
        ("uniform less trained", UNIFORM, TRAINED),
        ("best less λ = 0", BEST, IMITATION),
        ("best less other seeds", BEST, SEEDS),
    ):
        found[label] = [Line([label], named[one], named[other])]
    found["models"] = [
        Line([name], runs, cells={"less trained": less.get((name, TRAINED, ""), _DASH)})
        for _, name, runs in groups.models(study)
    ]
    found["variants"] = found["models"][1:]  # bases are no distance from themselves
    found["guides"] = []
    for context in groups.contexts(study):
        about = groups.guided_name(study, context)
        for guide, runs in groups.guides(study, context).items():
            label = groups.guide_name(study, guide, "name") + (f", {about}" if context else "")
            one, *others = (groups.guide_name(study, g) for g in (guide, "uniform", "shuffled"))
            own = [_DASH if o == one else less.get((one, o, about), _DASH) for o in others]
            cells = dict(zip(("less uniform", "less shuffled"), own, strict=True))
            found["guides"].append(Line([label], runs, cells=cells))
    return found | _lines_by_base(estimates)


def _lines_by_base(estimates: Estimates) -> dict[str, list[Line]]:
    """Rows of each base: its other seeds, its adversaries by lambda, bends of their losses."""
    study = estimates.study
    found: dict[str, list[Line]] = {"bases": [], "seeds of bases": [], "cells": [], "bends": []}
    for base in study.bases:
        own, seeds = study.finished("base", base=base), study.finished("seed", base=base)
        found["bases"].append(Line([base], seeds, base=own))
        found["seeds of bases"] += [Line([SEEDS, base], seeds)] * bool(len(seeds))
        for cell in groups.cells(study, base):
            runs, name = cell.runs, groups.term_name(cell.term, cell.lam)
            if base == study.bases[0] and (cell.term, cell.lam) == study.selected:
                name += "; chosen on validation"
            name += "" if cell.lam else "; imitation control"
            told = len(runs) and not study.runs.at[base, "unknown"]
            cells = {"collapsed": f"{runs['collapsed'].sum()} of {len(runs)}" if told else _DASH}
            every = study.runs["epochs"].notna().any()
            epochs = (runs["epochs"] if every else runs["epoch"] + 1).dropna()
            middle, low, high = epochs.median(), epochs.min(), epochs.max()
            spread = "" if low == high else f" ({low:g} to {high:g})"
            cells["epochs"] = f"{middle:g}{spread}" if len(epochs) else _DASH
            found["cells"].append(Line([name, base], runs, cells=cells))
        for bend in find_bends(estimates, base) if study.losses else []:
            cells = dict.fromkeys(("at JS", "change", "tau up to it", "tau beyond"), _DASH)
            cells |= {"runs": str(len(bend.runs)), "shown": "too few points"}
            cells |= {f"BIC of {shape}": _DASH for shape in ("line", "kink", "jump")}
            if bend.fits is not None:
                bent = bend.fits.preferred
                cells |= {f"BIC of {f.shape}": f"{f.bic - bent.bic:.1f}" for f in bend.fits}
                cells["shown"] = bend.shape
                if bend.shape != NO_BEND:
                    up_to, beyond = (estimates.of(runs, TAU).signed for runs in bend.sides)
                    cells |= {"at JS": number(bent.place), "change": number(bent.change)}
                    cells |= {"tau up to it": up_to, "tau beyond": beyond}
            labels = [bend.points, base, LOSSES[bend.measure]]
            found["bends"].append(Line(labels, bend.runs, cells=cells))
    return found


def _notes(estimates: Estimates) -> dict[str, str]:
    """What titles, headings and notes may name."""
    study, base = estimates.study, estimates.study.bases[0]
    known = {**asdict(study.words), "base": base, "guided": groups.guided(study)}
    known["label"] = groups.label_name(study)
    known |= {"resamples": f"{estimates.resamples:,}", "selection": selection(study)}
    known["epochs"] = "epochs" if study.runs["epochs"].notna().any() else "epoch chosen"
    planned = [base for base in study.bases if groups.cells(study, base)]
    several = "{0}: {1}" if len(study.bases) > 1 else "{1}"
    collapses = (several.format(base, collapse_note(study, base)) for base in planned)
    known |= {"collapses": " ".join(collapses), "gaps": " ".join(_gaps(estimates))}
    there = {
        "search": "search_js" in study.measures or "worst_js" in study.measures,
        "alone": "tokens" in groups.contexts(study),
    }
    for name, note in texts()["notes"].items():
        known[name] = note.format(**known) if there.get(name, True) else ""
    return known


def _gaps(estimates: Estimates) -> Iterator[str]:
    """Whether the grid jumps over the middle: a sentence for each term where it does."""
    study = estimates.study
    for term, path in sorted(groups.paths(study, study.bases[0]).items()):
        means = [estimates.of(cell.runs, JS).mean for cell in path if cell.lam > 0]
        if max(means) >= _GAP[1] and not any(_GAP[0] < mean < _GAP[1] for mean in means):
            low, high = (f"{end:g}" for end in _GAP)
            yield text("answers", "gap", term=groups.term_name(term), low=low, high=high)


def estimates_csv(estimates: Estimates) -> str:
    """Every mean of the tables as CSV, numbers in full and empty where undefined."""
    import pandas as pd

    study, first = estimates.study, estimates.study.bases[0]
    every = []
    for base in study.bases:
        every += [("base", base, study.finished("base", base=base))]
        every += [("seeds", base, study.finished("seed", base=base))]
    every += [
        (key, first, runs) for key, _, runs in groups.models(study) if key not in ("bases", "seeds")
    ]
    for cell in (cell for base in study.bases for cell in groups.cells(study, base)):
        every += [(f"adversary-{cell.term or 'none'}-{cell.lam:g}", cell.base, cell.runs)]
    rows = [
        (name, base, measure, *estimates.of(runs, measure))
        for name, base, runs in every
        for measure in estimates.measures
    ]
    head = ["group", "base", "measure", "mean", "std", "low", "high", "seeds"]
    return str(pd.DataFrame(rows, columns=head).to_csv(index=False, lineterminator="\n"))
