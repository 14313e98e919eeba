"""Tables of a study as declared in `texts.yaml`, with groups as rows and measures as columns."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from attnlight.figures.methods import method_words
from attnlight.figures.tables import Table, number, to_csv
from attnlight.report.study import groups
from attnlight.report.study.changepoints import LOSSES, NO_CHANGEPOINT, find_changepoints
from attnlight.report.study.estimates import DISTANCE, JS, KL_ELEMENTS, KL_ROW, TAU, Estimates
from attnlight.report.study.frame import ACCURACY, GUIDED_BY_BASE, ROAR, Runs, Study
from attnlight.report.study.groups import BEST, IMITATION, SEEDS, TRAINED, UNIFORM, Spec
from attnlight.report.study.texts import text, texts
from attnlight.report.study.verdict import collapse_note, selection
from attnlight.statistics import bootstrap

TEXT = "text"  # the readout
DASH = number(float("nan"))
_HEAD, _BASE = f"{JS}_heads_", "base: "
_GAP = (0.35, 0.6)  # mean JS above that of imitation and below that of a diverged adversary


class Line(NamedTuple):
    """A row of a table."""

    labels: Sequence[str]  # its first cells, which name it
    runs: Runs  # the runs whose means it shows
    group: str = ""  # name of these runs in comparisons
    against: str = ""  # in a row of differences the group that is subtracted; else empty
    subject: str = ""  # subject of the comparison
    cells: Mapping[str, str] = {}  # text of the columns that are not measures of the runs


def study_tables(estimates: Estimates) -> dict[str, Table]:
    """Every table of a study by the stem of its files.

    A table is included if a run of its roles is planned, a column of the base or of KL if the study has its
    measure.
    """
    study, fields = estimates.study, _notes(estimates)
    lines, measures = _lines(study) | _lines_by_base(estimates), {*estimates.measures}
    measures |= {*study.measures} - {KL_ROW, KL_ELEMENTS}
    specs = {(s.group, s.against, s.subject, s.measure): s for s in groups.specs(study)}
    tables = {}
    kind = "taggers" if "nll_gold" in measures else "classifiers"
    for table in texts()["tables"][kind] if measures & {"nll_gold", study.quality} else ():
        if table["roles"] and not any(len(study.planned(role)) for role in table["roles"]):
            continue
        columns: dict[str, str] = {}
        for name, heading in table["columns"].items():
            names = [name.replace("quality", study.quality)]
            for measure in estimates.heads if name == "heads" else names:
                given = not measure.startswith((_BASE, KL_ROW))
                if given or measure.removeprefix(_BASE) in measures:
                    default = texts()["headings"].get(measure, measure.replace(_HEAD, "head "))
                    columns.setdefault(measure, (heading or default).format(**fields))
        rows = [
            [*line.labels, *(_cell(estimates, specs, line, column) for column in columns)]
            for kind in table["rows"]
            for line in lines[kind]
        ]
        note = [table["note"].format(**fields), *groups.missing(study, table["roles"])]
        if study.facts["readout"] == TEXT and fields["text_readout"] not in note[0]:
            note.insert(1, fields["text_readout"])
        head, title = [*table["names"], *columns.values()], table["title"].format(**fields)
        tables[table["stem"]] = Table(title, head, rows, " ".join(" ".join(note).split()))
    return tables


def _cell(
    estimates: Estimates, specs: Mapping[tuple[str, str, str, str], Spec], line: Line, column: str
) -> str:
    """A cell of a row; a difference is looked up by groups, subject and measure."""
    if column in line.cells:
        return line.cells[column]
    if column == "seeds":
        of_base = line.runs["guide"].isin(GUIDED_BY_BASE).all()
        units = line.runs["base" if of_base else "model"].nunique()
        guided = "" if units == len(line.runs) else f" (guided by {units})"
        return DASH if line.against else f"{len(line.runs)}{guided}"
    if column.startswith("less ") or line.against:
        against, measure = line.against, column
        if not against:
            other, measure = column.removeprefix("less "), estimates.study.quality
            against = TRAINED if other == "trained" else groups.guide_name(estimates.study, other)
        spec = specs.get((line.group, against, line.subject, measure))
        if spec is None or line.group == against:
            return DASH
        return str(estimates.estimate(spec.runs, measure, spec.against_runs))
    if column in DISTANCE and "base" in set(line.runs["role"]):
        return DASH  # a base has no distance from itself
    return str(estimates.estimate(line.runs, column))


def _lines(study: Study) -> dict[str, list[Line]]:
    """Rows of the first base's groups, by their key in `texts.yaml`."""
    named = groups.named_groups(study)
    lines = {name: [Line([name], runs)] for name, runs in named.items()}
    lines["imitation"] = [Line(["imitation control (λ = 0)"], named[IMITATION])]
    label = f" ({groups.term_name(*study.selected)})" if study.selected else ""
    lines["best of each term"] = [Line([f"best adversary{label}"], named[BEST])]
    for term, lam in study.best.items():
        if study.selected and term != study.selected[0]:
            label = f"best of its term ({groups.term_name(term, lam)})"
            runs = study.finished("adversary", base=study.bases[0], term=term, lam=lam)
            lines["best of each term"].append(Line([label], runs))
    for label, group, against in (
        ("uniform less trained", UNIFORM, TRAINED),
        ("best less λ = 0", BEST, IMITATION),
        ("best less other seeds", BEST, SEEDS),
    ):
        lines[label] = [Line([label], named[group], group, against)]
    lines["models"] = [Line([name], runs, name) for _, name, runs in groups.models(study)]
    lines["variants"] = lines["models"][1:]  # without the bases, from which distances are measured
    lines["guides"] = []
    for context, by_guide in groups.guides(study).items():
        subject = groups.guided_name(study, context)
        for guide, runs in by_guide.items():
            label = groups.guide_name(study, guide, "name") + (f", {subject}" if context else "")
            group = groups.guide_name(study, guide)
            lines["guides"].append(Line([label], runs, group, subject=subject))
    return lines


def _lines_by_base(estimates: Estimates) -> dict[str, list[Line]]:
    """Rows of each base: other seeds, adversaries by lambda, changepoints of their losses."""
    study = estimates.study
    lines: dict[str, list[Line]] = {"bases": [], "seeds of bases": [], "cells": [], "bends": []}
    for base in study.bases:
        base_runs, seeds = study.finished("base", base=base), study.finished("seed", base=base)
        names = (study.quality, "search_js", "worst_js")
        cells = {f"{_BASE}{name}": str(estimates.estimate(base_runs, name)) for name in names}
        lines["bases"].append(Line([base], seeds, cells=cells))
        lines["seeds of bases"] += [Line([SEEDS, base], seeds)] * bool(len(seeds))
        for term, lam, runs in groups.cells(study, base):
            chosen = base == study.bases[0] and (term, lam) == study.selected
            name = groups.term_name(term, lam) + "; chosen on validation" * chosen
            name += "" if lam else "; imitation control"
            counted = len(runs) and not study.runs.at[base, "threshold_error"]
            cells = {"collapsed": f"{runs['collapsed'].sum()} of {len(runs)}" if counted else DASH}
            epochs = runs["epochs"].fillna(runs["epoch"] + 1).dropna()
            if len(epochs):
                low, middle, high = epochs.quantile([0, 0.5, 1])
                spread = "" if low == high else f" ({low:g} to {high:g})"
                cells["epochs"] = f"{middle:g}{spread}"
            lines["cells"].append(Line([name, base], runs, cells=cells))
        for changepoint in find_changepoints(estimates, base) if study.losses else []:
            cells = {"runs": str(len(changepoint.runs)), "shown": "too few points"}
            if changepoint.fits is not None:
                best = changepoint.fits.preferred
                cells |= {f"BIC of {f.shape}": f"{f.bic - best.bic:.1f}" for f in changepoint.fits}
                cells["shown"] = changepoint.shape
                if changepoint.shape != NO_CHANGEPOINT:
                    taus = [estimates.estimate(runs, TAU).signed for runs in changepoint.sides]
                    cells |= {"at JS": number(best.place), "change": number(best.change)}
                    cells |= dict(zip(("tau up to it", "tau beyond"), taus, strict=True))
            labels = [changepoint.points, base, LOSSES[changepoint.measure]]
            lines["bends"].append(Line(labels, changepoint.runs, cells=cells))
    bases, by_method = study.finished("base"), groups.removals(study)
    lines["removals"] = [Line(["nothing", "0 %"], bases, cells={"less random": DASH})]
    for method, (_, *path) in ((name, curve.items()) for name, curve in by_method.items()):
        for share, runs in path:
            random = by_method.get("random", {}).get(share, runs.iloc[:0])
            less = DASH if random is runs else estimates.estimate(runs, ACCURACY, random)
            labels = [method_words(method), f"{100 * share:g} %"]
            lines["removals"].append(Line(labels, runs, cells={"less random": str(less)}))
    return lines


def _notes(estimates: Estimates) -> dict[str, str]:
    """Fields of titles, headings and notes."""
    study, base = estimates.study, estimates.study.bases[0]
    fields = groups.words(study) | {"base": base, "selection": selection(study)}
    fields["resamples"] = f"{bootstrap.RESAMPLES:,}"
    fields["epochs"] = "epochs" if study.runs["epochs"].notna().any() else "epoch chosen"
    several = "{0}: {1}" if len(study.bases) > 1 else "{1}"
    planned = [base for base in study.bases if groups.cells(study, base)]
    notes = [several.format(base, collapse_note(study, base)) for base in planned]
    gaps, (low, high) = [], _GAP
    for term, path in sorted(groups.lambda_paths(study, base).items()):
        means = [estimates.estimate(runs, JS).mean for lam, runs in path.items() if lam > 0]
        if max(means) >= high and not any(low < mean < high for mean in means):
            gaps.append(text("answers", "gap", term=groups.term_name(term), low=low, high=high))
    fields |= {"collapses": " ".join(notes), "gaps": " ".join(gaps)}
    shown = {"search": "worst_js" in study.measures, "alone": "tokens" in groups.guides(study)}
    shown["kl"] = KL_ELEMENTS in estimates.measures
    infinite = np.isinf(study.measures.reindex(columns=[KL_ROW, KL_ELEMENTS])).any(axis=1)
    fields["infinite"] = f"{infinite.sum():,}"
    for name, note in texts()["notes"].items():
        fields[name] = note.format(**fields) if shown.get(name, True) else ""
    return fields


def estimates_csv(estimates: Estimates) -> str:
    """Every mean of the tables as CSV in full precision, empty where undefined."""
    study, first = estimates.study, estimates.study.bases[0]
    by_role, cells = [], []
    for base in study.bases:
        for name, role in (("base", "base"), ("seeds", "seed")):
            by_role.append((name, base, study.finished(role, base=base)))
        for term, lam, runs in groups.cells(study, base):
            cells.append((f"adversary-{term}-{lam:g}", base, runs))
    for method, path in groups.removals(study).items():
        cells += [(f"{ROAR}-{method}-{share:g}", first, runs) for share, runs in path.items()]
    _, *others = ((key, first, runs) for key, _, runs in groups.models(study) if key != "seeds")
    rows = [
        (name, base, measure, *estimates.estimate(runs, measure)[:-1])
        for name, base, runs in [*by_role, *others, *cells]
        for measure in estimates.measures
    ]
    return to_csv(["group", "base", "measure", "mean", "std", "low", "high", "seeds"], rows)
