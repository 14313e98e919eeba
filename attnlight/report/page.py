"""Writes the page, tables and figures of a run."""

from __future__ import annotations

import platform
import re
import shlex
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from attnlight import __version__
from attnlight.compatibility import section
from attnlight.files import write_text
from attnlight.records import record_columns
from attnlight.report.figures import describe, draw, figure_rows, tables
from attnlight.report.markup import render
from attnlight.report.method_rows import TESTS, method_rows
from attnlight.report.run import VERBS, Run, StoredRecord, load_run, require_one_run
from attnlight.report.style import PALETTE, canvas, inline_svg, save_figure
from attnlight.report.summary import RecordSummary, summarise, to_texts
from attnlight.report.tables import Table
from attnlight.report.texts import shown_texts

if TYPE_CHECKING:
    import pandas as pd
    from markupsafe import Markup
    from matplotlib.figure import Figure


def write_report(
    folder: Path, output: Path | None = None, show: Callable[[Table], object] | None = None
) -> Path:
    """Write the report of one run and return the path of its page.

    Args:
        folder: The run folder.
        output: Where to write; None: `report` and `figures` in the run folder.
        show: Called with the attribution methods of each split, if it has any, in 80 columns.

    Raises:
        InputError: The folder is missing, has no records, a damaged file or records of several
            runs, or a file cannot be written.
    """
    target, figures = output or folder / "report", (output or folder) / "figures"
    run = load_run(folder)
    for corpus in run.test_metrics:
        stored = [*run.records, *run.epoch_records]
        require_one_run([record.path for record in stored if record.corpus == corpus])
    summaries = [summarise(record) for record in run.records]
    versions = {
        "attnlight": [__version__],
        "Python": [platform.python_version()],
        **{name: [version(name)] for name in ("numpy", "matplotlib", "torch", "lightning")},
        "configuration written by": re.findall(r"\A# (.*==.*)", run.config_text),
    }
    sentence, facts = describe_run(run, summaries)
    texts = {
        corpus: shown_texts(
            folder / f"predictions{f'-{corpus}' if corpus else ''}.parquet",
            facts["Classes"] or None,
        )
        for corpus in run.test_metrics
    }
    page = render(
        "run.html.jinja",
        title="/".join(folder.resolve().parts[-2:]),
        run=run,
        sentence=sentence,
        facts=facts,
        summaries=summaries,
        sections={summary.record: _section(summary, target, figures) for summary in summaries},
        methods=_methods(run, target, show or (lambda _: None)),
        curves=_curves(run, figures),
        texts=texts,
        commands=commands(run, summaries),
        versions=versions,
    )
    for ending, text in to_texts(summaries).items():
        write_text(target / f"summary.{ending}", text)
    write_text(target / "index.html", page)
    return target / "index.html"


def _section(summary: RecordSummary, target: Path, figures: Path) -> Markup:
    """A record on the page; writes its figure and tables if the record has all measures."""
    record, description = summary.record, describe(summary.record.test)
    stem = f"tables/{record.folder_name}-{record.test}"
    picture, test_tables = None, []
    # Archived runs, as in docs/results, have only some columns of each record.
    if set(summary.metadata.get("measures", ())) <= record_columns(record.path).keys():
        rows, note = figure_rows(record.path, description.columns)
        figure = draw(record.test, rows, summary.metadata.get("classes"), summary.metadata)
        if figure is not None:
            caption = f"{description.caption} {note}".rstrip()
            picture = _picture(figure, Path(record.folder_name, record.test), figures, caption)
        test_tables = tables(record.test, rows, summary.metadata.get("classes"), summary.metadata)
    for number, table in enumerate(test_tables, start=1):
        for ending, text in table.to_texts().items():
            write_text(target / f"{stem}-{number}.{ending}", text)
    return render(
        "section.html.jinja",
        summary=summary,
        description=description,
        picture=picture,
        tables=test_tables,
        files=f"{stem}-*.{{md,csv,tex}}",
    )


def _methods(
    run: Run, target: Path, show: Callable[[Table], object]
) -> dict[tuple[str, str], Markup]:
    """Rows of attribution methods by corpus and stage, of the splits that have any."""
    import pandas as pd

    splits: dict[tuple[str, str], dict[str, StoredRecord]] = {}
    for record in run.records:
        splits.setdefault((record.corpus, record.stage), {})[record.test] = record
    sections = {}
    for (corpus, stage), records in splits.items():
        found = method_rows({test: record.path for test, record in records.items()})
        missing = {}
        for test in (test for test in TESTS if test not in records):
            config = run.folder / f"{VERBS[stage]}-{corpus}.yaml"
            words = [VERBS[stage], *(["-c", str(config)] if corpus else [str(run.folder)])]
            words = ["attnlight", *words, "--tests", test]
            if test == "sanity":
                words = ["attnlight", "sanity", str(run.folder)]
            if test != "sanity" or (stage == "test" and not corpus):
                missing[test] = shlex.join(words)
        if not found.labels:
            continue
        stem = f"tables/{next(iter(records.values())).folder_name}-methods"
        written = found.tables(missing)
        for number, table in enumerate(written, start=1):
            for ending, text in table.to_texts().items():
                write_text(target / f"{stem}-{number}.{ending}", text)
        pairs = pd.DataFrame(found.pairs, columns=found.pairs[0] if found.pairs else ["measure"])
        write_text(target / f"{stem}-pairs.csv", pairs.to_csv(index=False, lineterminator="\n"))
        files = (f"{stem}-*.{{md,csv,tex}}", f"{stem}-pairs.csv")
        sections[corpus, stage] = render("methods.html.jinja", tables=written, files=files)
        show(found.terminal_table())
    return sections


def _curves(run: Run, figures: Path) -> list[dict[str, str]]:
    """Figures by epoch: one of the task's metrics, and one of the means of each test."""
    import pandas as pd

    captions = {"metrics": "What the task logged on the validation split after each epoch."}
    points: list[tuple[object, ...]] = []
    for name, logged in run.curves.items():
        points += [("metrics", name, *point, np.nan, np.nan) for point in logged.items()]
    for record in run.epoch_records:
        captions[record.test] = (
            f"{describe(record.test).title}: mean of each measure on the validation split after "
            "each epoch; the band is its 95 % bootstrap interval."
        )
        for (measure, _), mean in summarise(record, by_class=False).means.items():
            points.append((record.test, measure, record.epoch, *mean[:3]))
    frame = pd.DataFrame(points, columns=["test", "measure", "epoch", "mean", "low", "high"])
    return [
        _picture(_draw_curves(curves), Path("val", f"curves-{test}"), figures, captions[test])
        for test, curves in frame.groupby("test", sort=False)
    ]


def _draw_curves(curves: pd.DataFrame) -> Figure:
    """One panel for each measure, two per row: a line with a band of its intervals."""
    from matplotlib.ticker import MaxNLocator

    rows = (curves["measure"].nunique() + 1) // 2
    with canvas(1.75 * rows + 0.2) as figure:
        panels = iter(figure.subplots(rows, 2, squeeze=False).flat)
        # Rounded, so that a constant measure does not fill its panel with rounding errors.
        for name, curve in curves.round(9).groupby("measure", sort=False):
            axes = next(panels)
            band = curve.loc[np.isfinite(curve["low"]), ["epoch", "low", "high"]].to_numpy().T
            if band.shape[1] == 1:
                axes.vlines(*band, color=PALETTE[0], linewidth=1)
            elif band.size:
                axes.fill_between(*band, color=PALETTE[0], alpha=0.22, linewidth=0)
            axes.plot(curve["epoch"], curve["mean"], "o-", color=PALETTE[0], markersize=3.5)
            axes.set_title(name, loc="left")
            axes.set(xlabel="Epoch", xlim=(curve["epoch"].min() - 0.5, curve["epoch"].max() + 0.5))
            axes.xaxis.set_major_locator(MaxNLocator(5, integer=True, min_n_ticks=1))
            axes.yaxis.set_major_locator(MaxNLocator(4))
            axes.grid(axis="y")
        for axes in panels:
            axes.set_axis_off()
    return figure


def _picture(figure: Figure, stem: Path, folder: Path, caption: str) -> dict[str, str]:
    """Save a figure and return its `svg`, `caption` and `files` for the page."""
    save_figure(figure, folder / stem)
    svg = inline_svg(figure, "-".join(stem.parts), caption)
    files = f"{(Path('figures') / stem).as_posix()}.{{svg,pdf,png}}"
    return {"svg": svg, "caption": caption, "files": files}


def describe_run(run: Run, summaries: Sequence[RecordSummary]) -> tuple[str, dict[str, list[str]]]:
    """Describe the run's model, corpus and tests.

    Returns:
        A sentence, and the values of each fact, an empty list if they are not known.
    """
    model, data = (run.configs["fit"].get(name) for name in ("model", "data"))
    model_text = _class(model) or "A model whose configuration is not in the run folder"
    if _class(model) and isinstance(model, dict):
        net = _config_value(section(model), "init_args", "net")
        named = {option: _class(_config_value(net, option)) for option in ("encoder", "attention")}
        settings = ", ".join(f"{option} {name}" for option, name in named.items() if name)
        model_text += f" ({settings})" if settings else ""
    options = [_config_value(data, "init_args", option) for option in ("path", "name")]
    corpus = " ".join(value for value in options if isinstance(value, str)) or _class(data)
    tested = "no record of the test split yet"
    if sizes := {s.metadata["rows"] for s in summaries if s.record.folder_name == "test"}:
        amount = f"{'up to ' if len(sizes) > 1 else ''}{max(sizes):,}"
        tested = f"tested on {amount} instances of the test split"
    metadata = [summary.metadata for summary in summaries]
    facts = {
        "Model": [_class(model)],
        "Corpus": [_class(data)],
        "Classes": next((entry["classes"] for entry in metadata if entry.get("classes")), []),
        "Seed": [str(run.configs["fit"].get("seed_everything", ""))],
        "Checkpoint": sorted({entry.get("checkpoint") or "" for entry in metadata}),
        "Partial records": sorted({p.record.test for p in summaries if p.metadata.get("partial")}),
    }
    sentence = f"{model_text}{f', trained on {corpus}' if corpus else ''}; {tested}."
    return sentence, {name: [value for value in values if value] for name, values in facts.items()}


def _config_value(config: object, *keys: str) -> object:
    """The value under nested keys of a configuration; None if it has no such key."""
    for key in keys:
        config = config.get(key) if isinstance(config, dict) else None
    return config


def _class(named: object) -> str:
    """Last part of a class path or of a mapping's `class_path`; "" without one."""
    path = named if isinstance(named, str) else _config_value(named, "class_path")
    return path.rpartition(".")[2] if isinstance(path, str) else ""


def commands(run: Run, summaries: Sequence[RecordSummary]) -> list[str]:
    """Command lines that repeat the run under another name, its evaluations, and this report."""
    lines = []
    tests: dict[tuple[str, str, str], list[str]] = {}
    if run.configs["fit"]:
        experiment, name = run.folder.resolve().parts[-2:]
        names = ["--experiment", experiment, "--run", f"{name}-again"]
        lines.append(["fit", "-c", str(run.folder / "fit.yaml"), *names])
        for summary in summaries:
            record = summary.record
            key = VERBS[record.stage], record.corpus, summary.metadata.get("checkpoint") or ""
            tests.setdefault(key, []).append(record.test)
    for (verb, corpus, checkpoint), test_names in tests.items():
        config_name = f"{verb}-{corpus}" if corpus else verb
        if corpus and config_name not in run.configs:
            continue  # without its configuration, the path of that corpus is unknown
        callbacks = _config_value(run.configs, config_name, "trainer", "callbacks")
        listed = callbacks if isinstance(callbacks, list) else [callbacks]
        attached = {_class(callback).lower() for callback in listed}
        config = run.folder / f"{config_name if config_name in run.configs else 'fit'}.yaml"
        line = [verb, "-c", str(config)]
        for name in test_names:
            if name.replace("_", "") not in attached:
                line += ["-c", f"configs/tests/{name}.yaml"]
        line += ["--ckpt_path", str(run.folder / checkpoint)] if checkpoint else []
        lines.append(line)
    lines.append(["report", str(run.folder)])
    return [shlex.join(["attnlight", *line]) for line in lines]
