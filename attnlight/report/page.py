"""From a run folder to its page, tables and figures."""

from __future__ import annotations

import math
import platform
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from attnlight import __version__
from attnlight.compatibility import section
from attnlight.files import write_text
from attnlight.records import record_columns
from attnlight.report.figures import columns, describe, draw, figure_rows, tables
from attnlight.report.markup import render
from attnlight.report.run import Run, load_run, require_one_run
from attnlight.report.style import (
    COLUMN_WIDTH,
    PALETTE,
    inline_svg,
    new_figure,
    save_figure,
    styled,
)
from attnlight.report.summary import RecordSummary, summarise, to_texts

if TYPE_CHECKING:
    from markupsafe import Markup
    from matplotlib.figure import Figure

# By its name, the points of each curve: epoch, value, and the ends of its interval or NaN.
Curves = dict[str, list[tuple[float, float, float, float]]]

_VERBS = {"test": "test", "val": "validate"}
_PACKAGES = ("numpy", "matplotlib", "torch", "lightning")
_MOST_CLASSES = 6  # columns; more go below each other, folded


class Places(NamedTuple):
    """Where a report goes: the folder of the page and tables, and that of the figures."""

    page: Path
    figures: Path


@dataclass(frozen=True)
class Picture:
    """A figure on the page.

    Attributes:
        svg: An `<svg>` element.
        caption: What it shows, plain text.
        files: Where it also is, relative to the folder of the figures.
    """

    svg: str
    caption: str
    files: str


def write_report(folder: Path, places: Places) -> Path:
    """Write the report of one run.

    Args:
        folder: The run folder.
        places: Where to write.

    Returns:
        The page.

    Raises:
        InputError: The folder is missing, holds no records, a damaged file or records of several
            runs, or a file cannot be written.
    """
    run = load_run(folder)
    for corpus in run.metrics:
        stored = [*run.records, *run.epochs]
        require_one_run([record.path for record in stored if record.corpus == corpus])
    summaries = [summarise(record) for record in run.records]
    page = render(
        "run.html.jinja",
        title=run.name,
        run=run,
        sentence=sentence(run, summaries),
        facts=facts(run, summaries),
        summaries=summaries,
        sections={part.record: _section(part, places) for part in summaries},
        curves=_curves(run, places),
        commands=commands(run, summaries),
        versions=[(name, [words]) for name, words in versions(run)],
    )
    for ending, text in to_texts(summaries).items():
        write_text(places.page / f"summary.{ending}", text)
    write_text(places.page / "index.html", page)
    return places.page / "index.html"


def _section(part: RecordSummary, places: Places) -> Markup:
    """A record on the page; its test's figure and tables are written too, if it is whole."""
    record, known = part.record, describe(part.record.test)
    stem = f"tables/{record.place}-{record.test}"
    picture, own = None, []
    # Of some runs, as in docs/results, a part of each record is kept.
    if set(part.metadata.get("measures", ())) <= record_columns(record.path).keys():
        rows, note = figure_rows(record.path, columns(record.test))
        figure = draw(record.test, rows, part.metadata.get("classes"))
        if figure is not None:
            caption = f"{known.caption} {note}".rstrip()
            picture = _picture(figure, Path(record.place, record.test), places, caption)
        own = tables(record.test, rows, part.metadata.get("classes"))
    for number, table in enumerate(own, start=1):
        for ending, text in table.to_texts().items():
            write_text(places.page / f"{stem}-{number}.{ending}", text)
    return render(
        "section.html.jinja",
        part=part,
        known=known,
        picture=picture,
        tables=own,
        files=f"{stem}-*.{{md,csv,tex}}",
        most_classes=_MOST_CLASSES,
    )


def _curves(run: Run, places: Places) -> list[Picture]:
    """The task's metrics by epoch, then those of each test."""
    logged = run.metrics[""].curves.items()
    curves: dict[str, Curves] = {"metrics": {}}
    for name, points in logged:
        curves["metrics"][name] = [(*point, math.nan, math.nan) for point in points.items()]
    captions = {"metrics": "What the task logged on the validation split after each epoch."}
    for record in run.epochs:
        captions[record.test] = (
            f"{describe(record.test).title}: mean of each measure on the validation split after "
            "each epoch; the band is its 95 % bootstrap interval."
        )
        for line in summarise(record, by_class=False).lines:
            point = (record.epoch or 0, line.mean, line.low, line.high)
            curves.setdefault(record.test, {}).setdefault(line.measure, []).append(point)
    return [
        _picture(_draw_curves(found), Path("val", f"curves-{name}"), places, captions[name])
        for name, found in curves.items()
        if found
    ]


def _draw_curves(curves: Curves) -> Figure:
    """One small panel for each curve, two to a row: a line with a band of its intervals."""
    from matplotlib.ticker import MaxNLocator

    rows = (len(curves) + 1) // 2
    with styled():
        figure = new_figure(COLUMN_WIDTH, 1.75 * rows + 0.2)
        panels = figure.subplots(rows, 2, squeeze=False).ravel()
        for axes in panels[len(curves) :]:
            axes.set_axis_off()
        for axes, (name, points) in zip(panels, curves.items(), strict=False):
            epochs, values, lows, highs = np.array(points, dtype=np.float64).T
            known = np.isfinite(lows)
            band = epochs[known], lows[known], highs[known]
            if known.sum() == 1:
                axes.vlines(*band, color=PALETTE[0], linewidth=1)
            elif known.any():
                axes.fill_between(*band, color=PALETTE[0], alpha=0.22, linewidth=0)
            axes.plot(epochs, values, "o-", color=PALETTE[0], markersize=3.5)
            axes.set_title(name, loc="left")
            axes.set_xlabel("Epoch")
            axes.set_xlim(epochs.min() - 0.5, epochs.max() + 0.5)
            axes.xaxis.set_major_locator(MaxNLocator(5, integer=True, min_n_ticks=1))
            axes.yaxis.set_major_locator(MaxNLocator(4))
            axes.grid(axis="y")
    return figure


def _picture(figure: Figure, stem: Path, places: Places, caption: str) -> Picture:
    save_figure(figure, places.figures / stem)
    svg = inline_svg(figure, "-".join(stem.parts), caption)
    return Picture(svg, caption, f"{(Path('figures') / stem).as_posix()}.{{svg,pdf,png}}")


def sentence(run: Run, summaries: Sequence[RecordSummary]) -> str:
    """What was trained on which corpus, and what it was tested on."""
    model, data = run.config.get("model"), run.config.get("data")
    trained = _class(model)
    if trained:
        net = _at(section(model), "init_args", "net") if isinstance(model, dict) else None
        named = {option: _class(_at(net, option)) for option in ("encoder", "attention")}
        settings = ", ".join(f"{option} {name}" for option, name in named.items() if name)
        trained += f" ({settings})" if settings else ""
    given = [_at(data, "init_args", option) for option in ("path", "name")]
    corpus = " ".join(value for value in given if isinstance(value, str)) or _class(data)
    tested = "no record of the test split yet"
    if sizes := {part.metadata["rows"] for part in summaries if part.record.place == "test"}:
        amount = f"{'up to ' if len(sizes) > 1 else ''}{max(sizes):,}"
        tested = f"tested on {amount} instances of the test split"
    trained = trained or "A model whose configuration is not in the run folder"
    return f"{trained}{f', trained on {corpus}' if corpus else ''}; {tested}."


def facts(run: Run, summaries: Sequence[RecordSummary]) -> list[tuple[str, list[str]]]:
    """What identifies the run: names, and the values of each."""
    classes = (part.metadata.get("classes") for part in summaries)
    partial = {part.record.test for part in summaries if part.metadata.get("partial")}
    found = [
        ("Model", [_class(run.config.get("model"))]),
        ("Corpus", [_class(run.config.get("data"))]),
        ("Classes", next(filter(None, classes), [])),
        ("Seed", [str(run.config.get("seed_everything", ""))]),
        ("Checkpoint", sorted({part.metadata.get("checkpoint") or "" for part in summaries})),
        ("Partial records", sorted(partial)),
    ]
    given = [(name, [value for value in values if value]) for name, values in found]
    return [(name, values) for name, values in given if values]


def _at(config: object, *keys: str) -> object:
    """The value under some keys of a configuration; None where it has none."""
    for key in keys:
        config = config.get(key) if isinstance(config, dict) else None
    return config


def _class(named: object) -> str:
    """Last part of a class path, which may be given as `class_path`; "" without one."""
    path = named if isinstance(named, str) else _at(named, "class_path")
    return path.rpartition(".")[2] if isinstance(path, str) else ""


def commands(run: Run, summaries: Sequence[RecordSummary]) -> list[str]:
    """Command lines that repeat the run beside itself, its evaluations, and this report."""
    lines = []
    tests: dict[tuple[str, str, str], list[str]] = {}
    if run.config:
        experiment, _, name = run.name.rpartition("/")
        again = ["--experiment", experiment, "--run", f"{name}-again"]
        lines.append(["fit", "-c", str(run.folder / "fit.yaml"), *again])
        for part in summaries:
            checkpoint = part.metadata.get("checkpoint") or ""
            key = _VERBS[part.record.stage], part.record.corpus, checkpoint
            tests.setdefault(key, []).append(part.record.test)
    for (verb, corpus, checkpoint), names in tests.items():
        own = f"{verb}-{corpus}" if corpus else verb
        if corpus and own not in run.configs:
            continue  # nothing says where that corpus is
        callbacks = _at(run.configs, own, "trainer", "callbacks")
        listed = callbacks if isinstance(callbacks, list) else [callbacks]
        attached = {_class(callback).lower() for callback in listed}
        line = [verb, "-c", str(run.folder / f"{own if own in run.configs else 'fit'}.yaml")]
        for name in names:
            if name.replace("_", "") not in attached:
                line += ["-c", f"configs/tests/{name}.yaml"]
        line += ["--ckpt_path", str(run.folder / checkpoint)] if checkpoint else []
        lines.append(line)
    lines.append(["report", str(run.folder)])
    return [shlex.join(["attnlight", *line]) for line in lines]


def versions(run: Run) -> list[tuple[str, str]]:
    """Versions that wrote the report, and those that the configuration names."""
    found = [("attnlight", __version__), ("Python", platform.python_version())]
    found += [(package, version(package)) for package in _PACKAGES]
    header = run.config_text.partition("\n")[0]
    if header.startswith("# ") and "==" in header:
        found.append(("configuration written by", header[2:]))
    return found
