"""From a run folder to its page, tables and figures."""

from __future__ import annotations

import platform
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from attnlight import __version__
from attnlight.compatibility import section
from attnlight.files import write_text
from attnlight.report.curves import Point, draw_curves
from attnlight.report.figures import (
    Description,
    columns,
    describe,
    draw,
    figure_rows,
    is_whole,
    tables,
)
from attnlight.report.markup import render
from attnlight.report.run import Run, StoredRecord, load_run, require_one_run
from attnlight.report.style import inline_svg, save_figure
from attnlight.report.summary import RecordSummary, summarise, to_csv, to_markdown
from attnlight.report.tables import Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_VERBS = {"test": "test", "val": "validate"}
_SPLITS = {"test": "test split", "val": "validation split"}
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


@dataclass(frozen=True)
class Section:
    """A record with what its test shows of it.

    Attributes:
        known: What is known of the test.
        summary: Its measures.
        picture: Its figure, where its test has one.
        tables: Its test's own tables.
        files: Where these also are, relative to the folder of the page.
    """

    known: Description
    summary: RecordSummary
    picture: Picture | None = None
    tables: Sequence[Table] = ()
    files: str = ""


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
    for corpus in ("", *run.others):
        stored = [*run.records, *run.epochs]
        require_one_run([record.path for record in stored if record.corpus == corpus])
    sections = [_section(record, places) for record in run.records]
    epochs = [summarise(record, by_class=False) for record in run.epochs]
    page = build_page(run, sections, _curves(run, epochs, places))
    summaries = [section.summary for section in sections]
    write_text(places.page / "summary.csv", to_csv(summaries))
    write_text(places.page / "summary.md", to_markdown(summaries))
    write_text(places.page / "index.html", page)
    return places.page / "index.html"


def _section(record: StoredRecord, places: Places) -> Section:
    summary, known = summarise(record), describe(record.test)
    if not is_whole(record.path):
        return Section(known, summary)
    rows, note = figure_rows(record.path, columns(record.test))
    figure = draw(record.test, rows, summary.classes)
    picture = None
    if figure is not None:
        caption = f"{known.caption} {note}".rstrip()
        picture = _picture(figure, Path(record.place, record.test), places, caption)
    stem = Path("tables", f"{record.place}-{record.test}")
    found = tables(record.test, rows, summary.classes)
    for number, table in enumerate(found, start=1):
        write_table(table, places.page / f"{stem}-{number}")
    return Section(known, summary, picture, found, f"{stem.as_posix()}-*.{{md,csv,tex}}")


def write_table(table: Table, stem: Path) -> None:
    """Write a table as Markdown, CSV and LaTeX; `stem` is the path without an ending."""
    for ending, text in table.to_texts().items():
        write_text(stem.with_name(f"{stem.name}.{ending}"), text)


def _curves(run: Run, epochs: Sequence[RecordSummary], places: Places) -> list[Picture]:
    """The task's metrics by epoch, then those of each test."""
    curves: dict[str, dict[str, list[Point]]] = {"metrics": {}}
    captions = {"metrics": "What the task logged on the validation split after each epoch."}
    for name, logged in run.metrics.curves.items():
        curves["metrics"][name] = [Point(*point) for point in logged.items()]
    for part in epochs:
        test = part.record.test
        captions[test] = (
            f"{describe(test).title}: mean of each measure on the validation split after each "
            "epoch; the band is its 95 % bootstrap interval."
        )
        for line in part.lines:
            point = Point(part.record.epoch or 0, line.mean, line.low, line.high)
            curves.setdefault(test, {}).setdefault(line.measure, []).append(point)
    return [
        _picture(draw_curves(found), Path("val", f"curves-{name}"), places, captions[name])
        for name, found in curves.items()
        if found
    ]


def _picture(figure: Figure, stem: Path, places: Places, caption: str) -> Picture:
    save_figure(figure, places.figures / stem)
    svg = inline_svg(figure, "-".join(stem.parts), caption)
    return Picture(svg, caption, f"{(Path('figures') / stem).as_posix()}.{{svg,pdf,png}}")


def build_page(run: Run, sections: Sequence[Section], curves: Sequence[Picture]) -> str:
    """The whole page as HTML; all that came from files is escaped."""
    summaries = [section.summary for section in sections]
    corpora = []
    for corpus, metrics in {"": run.metrics, **run.others}.items():
        of_corpus = [section for section in sections if section.summary.record.corpus == corpus]
        splits = {
            words: [section for section in of_corpus if section.summary.record.stage == stage]
            for stage, words in _SPLITS.items()
        }
        unknown = [
            f"{float(found[-1].summary.metadata.get('unknown_words', 0)):.1%} of the {split}"
            for split, found in splits.items()
            if found
        ]
        corpora.append((corpus, metrics, ", ".join(unknown), splits))
    return render(
        "run.html.jinja",
        title=run.name,
        run=run,
        sentence=sentence(run, summaries),
        facts=facts(run, summaries),
        is_tested=any(part.record.place == "test" for part in summaries),
        corpora=corpora,
        most_classes=_MOST_CLASSES,
        curves=curves,
        commands=commands(run, summaries),
        versions=[(name, [words]) for name, words in versions(run)],
    )


def sentence(run: Run, summaries: Sequence[RecordSummary]) -> str:
    """What was trained on which corpus, and what it was tested on."""
    trained = _class(run.config, "model") or "A model whose configuration is not in the run folder"
    settings = [f"{k} {v}" for k, v in _settings(run.config, "model", "encoder", "attention")]
    if settings and _class(run.config, "model"):
        trained += f" ({', '.join(settings)})"
    source = [value for _, value in _settings(run.config, "data", "path", "name")]
    corpus = " ".join(source) or _class(run.config, "data")
    tested = "no record of the test split yet"
    if sizes := {part.rows for part in summaries if part.record.place == "test"}:
        amount = f"{'up to ' if len(sizes) > 1 else ''}{max(sizes):,}"
        tested = f"tested on {amount} instances of the test split"
    return f"{trained}{f', trained on {corpus}' if corpus else ''}; {tested}."


def facts(run: Run, summaries: Sequence[RecordSummary]) -> list[tuple[str, list[str]]]:
    """What identifies the run: names, and the values of each."""
    found = [
        ("Model", [_class(run.config, "model")]),
        ("Corpus", [_class(run.config, "data")]),
        ("Classes", next((part.classes for part in summaries if part.classes), [])),
        ("Seed", [str(run.config.get("seed_everything", ""))]),
        ("Checkpoint", sorted({_checkpoint(part) for part in summaries})),
        ("Partial records", sorted({part.record.test for part in summaries if part.partial})),
    ]
    given = [(name, [value for value in values if value]) for name, values in found]
    return [(name, values) for name, values in given if values]


def _checkpoint(part: RecordSummary) -> str:
    return str(part.metadata.get("checkpoint") or "")


def _class(config: Mapping[str, Any], part: str) -> str:
    """Last part of the class path of `model` or `data`."""
    held = config.get(part)
    path = held.get("class_path") if isinstance(held, dict) else held
    return path.rpartition(".")[2] if isinstance(path, str) else ""


def _settings(config: Mapping[str, Any], part: str, *names: str) -> Iterator[tuple[str, str]]:
    """Those of the named constructor arguments that the configuration gives."""
    held = config.get(part)
    arguments = held.get("init_args") if isinstance(held, dict) else None
    if part == "model" and isinstance(held, dict):
        arguments = (section(held).get("init_args") or {}).get("net")
    for name in names:
        value = arguments.get(name) if isinstance(arguments, dict) else None
        if isinstance(value, dict):
            value = _class({name: value}, name)
        if isinstance(value, str):
            yield name, value


def commands(run: Run, summaries: Sequence[RecordSummary]) -> list[str]:
    """Command lines that repeat the run beside itself, its evaluations, and this report."""
    lines = []
    if run.config:
        experiment, _, name = run.name.rpartition("/")
        again = ["--experiment", experiment, "--run", f"{name}-again"]
        lines.append(["fit", "-c", str(run.folder / "fit.yaml"), *again])
        lines += _evaluations(run, summaries)
    lines.append(["report", str(run.folder)])
    return [shlex.join(["attnlight", *line]) for line in lines]


def _evaluations(run: Run, summaries: Sequence[RecordSummary]) -> Iterator[list[str]]:
    """One for each checkpoint that was tested or validated."""
    tests: dict[tuple[str, str, str], list[str]] = {}
    for part in summaries:
        key = _VERBS[part.record.stage], part.record.corpus, _checkpoint(part)
        tests.setdefault(key, []).append(part.record.test)
    for (verb, corpus, checkpoint), names in tests.items():
        own = f"{verb}-{corpus}" if corpus else verb
        if corpus and own not in run.configs:
            continue  # nothing says where that corpus is
        trainer = run.configs.get(own, {}).get("trainer")
        callbacks = trainer.get("callbacks") if isinstance(trainer, dict) else None
        listed = callbacks if isinstance(callbacks, list) else [callbacks]
        attached = {_class({"": callback}, "").lower() for callback in listed}
        config = own if own in run.configs else "fit"
        line = [verb, "-c", str(run.folder / f"{config}.yaml")]
        for name in names:
            if name.replace("_", "") not in attached:
                line += ["-c", f"configs/tests/{name}.yaml"]
        yield line + (["--ckpt_path", str(run.folder / checkpoint)] if checkpoint else [])


def versions(run: Run) -> list[tuple[str, str]]:
    """Versions that wrote the report, and those that the configuration names."""
    found = [("attnlight", __version__), ("Python", platform.python_version())]
    for package in _PACKAGES:
        try:
            found.append((package, version(package)))
        except PackageNotFoundError:
            continue
    header = run.config_text.partition("\n")[0]
    if header.startswith("# ") and "==" in header:
        found.append(("configuration written by", header[2:]))
    return found
