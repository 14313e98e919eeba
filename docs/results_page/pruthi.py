"""Deceptive attention (Pruthi et al. 2020) beside the published cells, and its figure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from attnlight.figures.style import MUTED, PALETTE, canvas
from attnlight.figures.tables import estimate
from attnlight.statistics.bootstrap import defined_mean
from attnlight.statistics.seed_bootstrap import resampled_means
from results_page import NAMES
from results_page.archive import Archive, Experiment, conditions
from results_page.cells import measured
from results_page.real_text import NOT_RUN
from results_page.tables import Row, column_mean, over_seeds

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_NAMES = NAMES["pruthi"]
CORPORA: dict[str, str] = _NAMES["corpora"]
_ENCODERS: dict[str, str] = _NAMES["encoders"]
REMOVED = "removed"
_WORDS = CORPORA | _ENCODERS | {"01": "0.1"}
_NAME = (
    r"pruthi_(?:reasons-)?(?P<corpus>pronoun|occupation|sst_wiki)[-_](?P<model>none|bilstm)_"
    rf"(?P<λ>{REMOVED}|01|0|1)"
)
# A cell is missed if its accuracy or its mass is further than this from the published one.
_TOLERANCES = {"accuracy": 0.02, "mass": 0.05}
MODELS = {x: y for z in CORPORA for x, y in conditions(f"pruthi_{z}", _NAME, _WORDS).items()}
REASONS = conditions("pruthi_reasons", _NAME, _WORDS)  # missed cells in the released settings
MINILM = {
    name: condition
    for corpus in CORPORA
    for name, condition in conditions(
        f"pruthi_{corpus}_minilm",
        r"pruthi_(?P<corpus>\w+)_minilm-(?P<flow>[a-z]+)_(?P<score>max|)_?(?P<λ>01|0|1)",
        _WORDS | _NAMES["scores"],
    ).items()
}
DECEIVED = [name for name, model in MODELS.items() if model.words["λ"] != REMOVED]


def deception(archive: Archive) -> Iterator[Row]:
    """Accuracy and mass of every archived condition, beside the published cells and the misses."""
    for name in (name for name in MODELS if name in archive):
        accuracy = measured(archive[name], "accuracy")
        corpus, _, model = name.removeprefix("pruthi_").partition("-")
        published = archive.published["pruthi"][corpus][model]
        row = archive.words(name, MODELS[name])
        row |= {"accuracy": over_seeds(accuracy), "published#accuracy": published["accuracy"]}
        means = {"accuracy": float(accuracy[0].mean())}
        if name in DECEIVED:
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
            far = abs(difference) > _TOLERANCES[measure]
            if far and (difference > 0 or not published[measure].startswith("<")):
                misses.append(f"{measure} {difference:+.3f}")
        yield row | {"missed": ", ".join(misses) or "none"}


def of_minilm(archive: Archive) -> Iterator[Row]:
    """The same of each planned condition of a MiniLM, beside the published cells of a BERT."""
    for name, model in MINILM.items():
        corpus, _, condition = name.removeprefix("pruthi_").partition("_minilm-")
        flow, *parts = condition.split("_")
        cell = "_".join(["bert", *(["mean"] if parts[0] != "max" else []), *parts])
        published = archive.published["pruthi_bert"][corpus][cell] if flow == "restricted" else {}
        row = model.words | {"seeds": f"0 of {model.seeds}", "accuracy": NOT_RUN}
        row |= {f"published#{x}": published.get(x) for x in ("accuracy", "mass")}
        order = ("accuracy", "published#accuracy", "mass, mean over seeds", "largest seed")
        row = dict.fromkeys((*model.words, "seeds", *order, "published#mass", "chance")) | row
        if name in archive:
            row |= archive.words(name, model)
            columns = archive[name].test("impermissible_mass")
            row["accuracy"] = over_seeds(measured(archive[name], "accuracy"))
            row["mass, mean over seeds"] = estimate(column_mean(columns, "mass"), "{:.2g}".format)
            row["largest seed"] = f"{defined_mean(columns['mass']).max():.2g}"
            row["chance"] = float(defined_mean(columns["chance"])[0])
        yield row


def _by_seed(runs: Experiment, measure: str) -> NDArray[np.float64]:
    """Accuracy or mass of each run, (S,)."""
    if measure == "accuracy":
        return measured(runs, "accuracy")[0]
    return np.asarray(defined_mean(runs.test("impermissible_mass")["mass"]))


def reasons(archive: Archive) -> Iterator[Row]:
    """Missed cells beside the same model in settings of the released code, with single seeds."""
    of_ours = {name.removeprefix("pruthi_").replace("-", "_"): name for name in MODELS}
    for name, model in REASONS.items():
        ours = of_ours[name.partition("-")[2]]
        if name not in archive or ours not in archive:
            continue
        measure = "mass" if ours in DECEIVED else "accuracy"
        corpus, _, words = ours.removeprefix("pruthi_").partition("-")
        published = archive.published["pruthi"][corpus][words][measure]
        before, after = (_by_seed(archive[x], measure) for x in (ours, name))
        inside = after.min() <= float(published) <= after.max()
        yield model.words | {
            "changed": "vectors, words" if "data" in model.options else "vectors",
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
    models = {name: MODELS[name].words for name in MODELS if name in archive}
    corpora = list(dict.fromkeys(models[x]["corpus"] for x in DECEIVED if x in models))
    if not corpora:
        return None
    weights = list(dict.fromkeys(models[name]["λ"] for name in models))
    markers = dict(zip(_ENCODERS.values(), ("o", "s"), strict=True))
    lines = dict(zip(_ENCODERS.values(), ("dotted", "dashed"), strict=True))
    with canvas(0.6 + 2.4 * len(corpora)) as figure:
        panels = figure.subplots(len(corpora), 1, squeeze=False)[:, 0]
        for corpus, axes in zip(corpora, panels, strict=True):
            for name, words in models.items():
                encoder, weight = words["model"], words["λ"]
                if words["corpus"] != corpus:
                    continue
                accuracy = _by_seed(archive[name], "accuracy")
                if weight == REMOVED:
                    label = f"{encoder}, trained without them"
                    style = {"color": MUTED, "linestyle": lines[encoder], "linewidth": 1}
                    axes.axhline(float(accuracy.mean()), label=label, **style)
                    continue
                style = {"color": PALETTE[weights.index(weight)], "ms": 5, "alpha": 0.8}
                label = f"{encoder}, λ = {weight}"
                mass = _by_seed(archive[name], "mass")
                axes.plot(mass, accuracy, markers[encoder], label=label, **style)
            axes.set(xscale="log", xlabel="Attention on impermissible tokens", ylabel="Accuracy")
            axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")  # there is no mathtext
            axes.set_title(corpus)
    return figure
