"""Deceptive attention (Pruthi et al. 2020) beside the published cells, and its figure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from attnlight.figures.style import MUTED, PALETTE, canvas
from attnlight.figures.tables import estimate
from attnlight.statistics.bootstrap import defined_mean
from attnlight.statistics.seed_bootstrap import resampled_means
from results_page import NAMES
from results_page.archive import Archive, planned
from results_page.cells import measured
from results_page.tables import Row, column_mean, over_seeds

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_NAMES = NAMES["pruthi"]
CORPORA: dict[str, str] = _NAMES["corpora"]
_REASONS = "reasons"  # the study of the cells that are missed, in settings of the released code
_ENCODERS: dict[str, str] = _NAMES["encoders"]
REMOVED = "removed"
# A cell is missed if its accuracy or its mass is further than this from the published one.
_TOLERANCES = {"accuracy": 0.02, "mass": 0.05}


class Condition(NamedTuple):
    """A condition of a study: its words, parts (lambda or `removed`), planned seeds, vocabulary."""

    words: Row
    corpus: str
    encoder: str
    weight: str
    seeds: int
    all_words: bool


def conditions(*studies: str) -> Iterator[tuple[str, Condition]]:
    """The conditions of studies, with the name of the folder of their runs.

    A study of one corpus has its name; the names of the conditions of `reasons` begin with theirs.
    """
    for name in studies:
        for key, given in planned(f"pruthi_{name}"):
            words = key if name == _REASONS else f"{name}_{key}"
            corpus, encoder, weight = words.rsplit("_", 2)
            weight, seeds = {"01": "0.1"}.get(weight, weight), len(given["base"]["seeds"])
            labels = {"corpus": CORPORA[corpus], "model": _ENCODERS[encoder], "λ": weight}
            all_words = "data" in given.get("options", {})
            condition = Condition(labels, corpus, encoder, weight, seeds, all_words)
            yield f"pruthi_{name}-{key}", condition


MODELS, REASONS = dict(conditions(*CORPORA)), dict(conditions(_REASONS))
DECEIVED = [name for name, model in MODELS.items() if model.weight != REMOVED]


def deception(archive: Archive) -> Iterator[Row]:
    """Accuracy and mass of every archived condition, beside the published cells and the misses."""
    for name, model in MODELS.items():
        if name not in archive:
            continue
        accuracy = measured(archive[name], "accuracy")
        published = archive.published["pruthi"][model.corpus][name.partition("-")[2]]
        row = model.words | {
            "seeds": f"{len(archive[name].seeds)} of {model.seeds}",
            "accuracy": over_seeds(accuracy),
            "published#accuracy": published["accuracy"],
        }
        means = {"accuracy": float(accuracy[0].mean())}
        if model.weight != REMOVED:
            columns = archive[name].test("impermissible_mass")
            mass = defined_mean(columns["mass"])
            row["mass, mean over seeds"] = estimate(column_mean(columns, "mass"), "{:.2g}".format)
            row["largest seed"] = f"{mass.max():.2g}"
            row["published#mass"] = published["mass"]
            row["chance"] = float(defined_mean(columns["chance"])[0])
            row |= {x: over_seeds(resampled_means(columns[y])) for x, y in _NAMES["erased"].items()}
            means["mass"] = float(mass.mean())
        misses = []
        for measure, ours in means.items():
            # Of `<x` only more than x is a miss.
            difference = ours - float(published[measure].removeprefix("<"))
            if abs(difference) > _TOLERANCES[measure] and (
                difference > 0 or not published[measure].startswith("<")
            ):
                misses.append(f"{measure} {difference:+.3f}")
        yield row | {"missed": ", ".join(misses) or "none"}


def reasons(archive: Archive) -> Iterator[Row]:
    """Missed cells beside the same model in settings of the released code, with single seeds."""
    for name, model in REASONS.items():
        ours = f"pruthi_{model.corpus}-{model.encoder}_{model.weight}"
        if name not in archive or ours not in archive:
            continue
        measure = "accuracy" if model.weight == REMOVED else "mass"
        published = archive.published["pruthi"][model.corpus][ours.partition("-")[2]][measure]
        before, after = (
            measured(archive[x], "accuracy")[0]
            if measure == "accuracy"
            else defined_mean(archive[x].test("impermissible_mass")["mass"])
            for x in (ours, name)
        )
        inside = after.min() <= float(published) <= after.max()
        yield model.words | {
            "changed": "vectors, words" if model.all_words else "vectors",
            "measure": measure,
            "ours": float(before.mean()),
            "released setting": float(after.mean()),
            "lowest and highest seed": f"{after.min():.3f} to {after.max():.3f}",
            "seeds": f"{len(after)} of {model.seeds}",
            "published": published,
            "within the seeds": "yes" if inside else "**no**",
        }


def draw(archive: Archive) -> Figure | None:
    """Accuracy against mass on a logarithmic axis, a point per seed; None without archived runs."""
    names = [name for name in DECEIVED if name in archive]
    corpora = [corpus for corpus in CORPORA if any(MODELS[n].corpus == corpus for n in names)]
    if not names:
        return None
    weights = list(dict.fromkeys(MODELS[name].weight for name in names))
    markers = dict(zip(_ENCODERS, "os", strict=True))
    with canvas(0.6 + 2.4 * len(corpora)) as figure:
        panels: NDArray[Any] = figure.subplots(len(corpora), 1, squeeze=False)[:, 0]
        for axes, corpus in zip(panels, corpora, strict=True):
            for name in (name for name in names if MODELS[name].corpus == corpus):
                model, columns = MODELS[name], archive[name].test("impermissible_mass")
                mass, accuracy = (defined_mean(columns[key]) for key in ("mass", "accuracy"))
                style = {"color": PALETTE[weights.index(model.weight)], "ms": 5, "alpha": 0.8}
                label = f"{_ENCODERS[model.encoder]}, λ = {model.weight}"
                axes.plot(mass, accuracy, markers[model.encoder], label=label, **style)
            for encoder, line in zip(_ENCODERS, ("dotted", "dashed"), strict=True):
                removed = f"pruthi_{corpus}-{encoder}_{REMOVED}"
                if removed in archive:
                    level = float(np.mean(measured(archive[removed], "accuracy")[0]))
                    label = f"{_ENCODERS[encoder]}, trained without them"
                    axes.axhline(level, color=MUTED, linestyle=line, linewidth=1, label=label)
            axes.set(xscale="log", xlabel="Attention on impermissible tokens", ylabel="Accuracy")
            axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")  # there is no mathtext
            axes.set_title(CORPORA[corpus])
    return figure
