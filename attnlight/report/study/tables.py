"""Tables of a study, as `texts.yaml` declares them: groups as rows, measures as columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from attnlight.report.study import groups
from attnlight.report.study.estimates import DISTANCE, JS, TAU, Estimates
from attnlight.report.study.groups import BEST, IMITATION, SEEDS, TRAINED, UNIFORM, Spec
from attnlight.report.study.shapes import LOSSES, NO_BEND, find_bends
from attnlight.report.study.texts import text, texts
from attnlight.report.study.verdict import collapse_note, selection
from attnlight.report.tables import Table, number

if TYPE_CHECKING:
    from attnlight.report.study.frame import Runs, Study

TEXT = "text"  # the readout
DASH = number(float("nan"))
_HEAD, _BASE = f"{JS}_heads_", "base: "
_GAP = (0.35, 0.6)  # mean JS between an imitation's and that of an adversary that got away


class Line(NamedTuple):
    """A row of a table.

    Attributes:
        labels: The cells that name it.
        runs: The runs whose means it tells.
        group: What comparisons call these runs.
        against: The group whose means are taken off, in a row of differences; else empty.
        about: What else names a comparison.
        cells: Text of the columns that are no measures of the runs.
    """

    labels: Sequence[str]
    runs: Runs
    group: str = ""
    against: str = ""
    about: str = ""
    cells: Mapping[str, str] = {}


def study_tables(estimates: Estimates) -> dict[str, Table]:
    """Every table of a study by the stem of its files.

    A table stands where the study has the measure that it needs and not the one for which others
    stand instead; a column of the base where the study has its measure.
    """
    study, known = estimates.study, _notes(estimates)
    every, held = _lines(study) | _lines_by_base(estimates), {*estimates.measures, *study.measures}
    specs = {(s.group, s.against, s.about, s.measure): s for s in groups.specs(study)}
    found = {}
    for table in texts()["tables"]:
        if table.get("needs", study.quality) not in held or table.get("unless") in held:
            continue
        columns: dict[str, str] = {}
        for name, heading in table["columns"].items():
            own = [name.replace("quality", study.quality)]
            for one in estimates.heads if name == "heads" else own:
                if not one.startswith(_BASE) or one.removeprefix(_BASE) in held:
                    default = texts()["headings"].get(one, one.replace(_HEAD, "head "))
                    columns.setdefault(one, (heading or default).format(**known))
        rows = [
            [*line.labels, *(_cell(estimates, specs, line, column) for column in columns)]
            for kind in table["rows"]
            for line in every[kind]
        ]
        note = [table["note"].format(**known), *groups.missing(study, table["roles"])]
        if study.facts["readout"] == TEXT and known["text_readout"] not in note[0]:
            note.insert(1, known["text_readout"])
        head, title = [*table["names"], *columns.values()], table["title"].format(**known)
        found[table["stem"]] = Table(title, head, rows, " ".join(" ".join(note).split()))
    return found


def _cell(
    estimates: Estimates, specs: Mapping[tuple[str, str, str, str], Spec], line: Line, column: str
) -> str:
    """A cell of a row; differences are those that are compared, by their names and measure."""
    if column in line.cells:
        return line.cells[column]
    if column == "seeds":
        units = line.runs["model"].nunique()
        guided = "" if units == len(line.runs) else f" (guided by {units})"
        return DASH if line.against else f"{len(line.runs)}{guided}"
    if column.startswith("less ") or line.against:
        against, measure = line.against, column
        if not against:
            other, measure = column.removeprefix("less "), estimates.study.quality
            against = TRAINED if other == "trained" else groups.guide_name(estimates.study, other)
        spec = specs.get((line.group, against, line.about, measure))
        if spec is None or line.group == against:
            return DASH
        return str(estimates.of(spec.runs, measure, spec.other))
    if column in DISTANCE and "base" in set(line.runs["role"]):
        return DASH  # a base is no distance from itself
    return str(estimates.of(line.runs, column))


def _lines(study: Study) -> dict[str, list[Line]]:
    """Rows of the first base's groups, by what a table calls them."""
    named = groups.named(study)
    found = {name: [Line([name], runs)] for name, runs in named.items()}
    found["imitation"] = [Line(["imitation control (λ = 0)"], named[IMITATION])]
    label = f" ({groups.term_name(*study.selected)})" if study.selected else ""
    found["best of each term"] = [Line([f"best adversary{label}"], named[BEST])]
    for term, lam in study.best.items():
        if study.selected and term != study.selected[0]:
            label = f"best of its term ({groups.term_name(term, lam)})"
            runs = study.finished("adversary", base=study.bases[0], term=term, lam=lam)
            found["best of each term"].append(Line([label], runs))
    for label, group, against in (
        ("uniform less trained", UNIFORM, TRAINED),
        ("best less λ = 0", BEST, IMITATION),
        ("best less other seeds", BEST, SEEDS),
    ):
        found[label] = [Line([label], named[group], group, against)]
    found["models"] = [Line([name], runs, name) for _, name, runs in groups.models(study)]
    found["variants"] = found["models"][1:]  # bases are no distance from themselves
    found["guides"] = []
    for context, by_guide in groups.guides(study).items():
        about = groups.guided_name(study, context)
        for guide, runs in by_guide.items():
            label = groups.guide_name(study, guide, "name") + (f", {about}" if context else "")
            group = groups.guide_name(study, guide)
            found["guides"].append(Line([label], runs, group, about=about))
    return found


def _lines_by_base(estimates: Estimates) -> dict[str, list[Line]]:
    """Rows of each base: its other seeds, its adversaries by lambda, bends of their losses."""
    study = estimates.study
    found: dict[str, list[Line]] = {"bases": [], "seeds of bases": [], "cells": [], "bends": []}
    for base in study.bases:
        own, seeds = study.finished("base", base=base), study.finished("seed", base=base)
        of_base = (study.quality, "search_js", "worst_js")
        cells = {f"{_BASE}{measure}": str(estimates.of(own, measure)) for measure in of_base}
        found["bases"].append(Line([base], seeds, cells=cells))
        found["seeds of bases"] += [Line([SEEDS, base], seeds)] * bool(len(seeds))
        for term, lam, runs in groups.cells(study, base):
            chosen = base == study.bases[0] and (term, lam) == study.selected
            name = groups.term_name(term, lam) + "; chosen on validation" * chosen
            name += "" if lam else "; imitation control"
            told = len(runs) and not study.runs.at[base, "unknown"]
            cells = {"collapsed": f"{runs['collapsed'].sum()} of {len(runs)}" if told else DASH}
            epochs = runs["epochs"].fillna(runs["epoch"] + 1).dropna()
            if len(epochs):
                low, middle, high = epochs.quantile([0, 0.5, 1])
                spread = "" if low == high else f" ({low:g} to {high:g})"
                cells["epochs"] = f"{middle:g}{spread}"
            found["cells"].append(Line([name, base], runs, cells=cells))
        for bend in find_bends(estimates, base) if study.losses else []:
            cells = {"runs": str(len(bend.runs)), "shown": "too few points"}
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
    known = groups.words(study) | {"base": base, "selection": selection(study)}
    known["resamples"] = f"{estimates.resamples:,}"
    known["epochs"] = "epochs" if study.runs["epochs"].notna().any() else "epoch chosen"
    several = "{0}: {1}" if len(study.bases) > 1 else "{1}"
    planned = [base for base in study.bases if groups.cells(study, base)]
    notes = [several.format(base, collapse_note(study, base)) for base in planned]
    gaps, (low, high) = [], _GAP
    for term, path in sorted(groups.paths(study, base).items()):
        means = [estimates.of(runs, JS).mean for lam, runs in path.items() if lam > 0]
        if max(means) >= high and not any(low < mean < high for mean in means):
            gaps.append(text("answers", "gap", term=groups.term_name(term), low=low, high=high))
    known |= {"collapses": " ".join(notes), "gaps": " ".join(gaps)}
    there = {"search": "worst_js" in study.measures, "alone": "tokens" in groups.guides(study)}
    for name, note in texts()["notes"].items():
        known[name] = note.format(**known) if there.get(name, True) else ""
    return known


def estimates_csv(estimates: Estimates) -> str:
    """Every mean of the tables as CSV, numbers in full and empty where undefined."""
    import pandas as pd

    study, first = estimates.study, estimates.study.bases[0]
    every, cells = [], []
    for base in study.bases:
        for name, role in (("base", "base"), ("seeds", "seed")):
            every.append((name, base, study.finished(role, base=base)))
        for term, lam, runs in groups.cells(study, base):
            cells.append((f"adversary-{term}-{lam:g}", base, runs))
    _, *others = ((key, first, runs) for key, _, runs in groups.models(study) if key != "seeds")
    rows = [
        (name, base, measure, *estimates.of(runs, measure))
        for name, base, runs in [*every, *others, *cells]
        for measure in estimates.measures
    ]
    head = ["group", "base", "measure", "mean", "std", "low", "high", "seeds"]
    return str(pd.DataFrame(rows, columns=head).to_csv(index=False, lineterminator="\n"))
