"""Writes the page, tables and figures of a run."""

from __future__ import annotations

import platform
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnlight import __version__
from attnlight.data.progress import progress
from attnlight.figures import describe, draw, figure_rows, tables
from attnlight.figures.style import inline_svg, save_figure
from attnlight.figures.tables import Table, to_csv
from attnlight.records import SCORES
from attnlight.report.curves import curve_figures
from attnlight.report.differences import shown_differences
from attnlight.report.headlines import Headline, headline
from attnlight.report.markup import render
from attnlight.report.method_rows import TESTS, method_rows
from attnlight.report.run import VERBS, Run, StoredRecord, load_run, require_one_run
from attnlight.report.summary import RecordSummary, summarise, to_texts
from attnlight.report.texts import LAYERS, choose_texts, link_column, shown_texts, text_name
from attnlight.report.verdict.card import Verdict, verdict_of
from attnlight.report.what_if import BYTES, text_address, texts_of_run, what_if
from attnlight.storage.files import read_yaml, write_text
from attnlight.storage.shipped import shipped_configs

if TYPE_CHECKING:
    from markupsafe import Markup
    from matplotlib.figure import Figure


def write_report(
    folder: Path,
    output: Path | None = None,
    show: Callable[[Table | Verdict], object] | None = None,
) -> Path:
    """Write the report of one run and return the path of its page.

    Args:
        folder: The run folder.
        output: Where to write; None: `report` and `figures` in the run folder.
        show: Called with the verdict card, and with the attribution methods of each split that has
            any, in 80 columns.

    Raises:
        InputError: The folder is missing, has no records, a damaged file or records of several
            runs, or a file cannot be written.
    """
    target, figures = output or folder / "report", (output or folder) / "figures"
    run = load_run(folder)
    for corpus in run.test_metrics:
        stored = [*run.records, *run.epoch_records]
        files = [run.texts(stage, corpus) for stage in (*VERBS, "predict")]
        shown = [file for file in files if file.path.is_file()]
        require_one_run([*(r.file for r in stored if r.corpus == corpus), *shown])
    summaries = [summarise(record) for record in progress(run.records, "records")]
    versions = {
        "attnlight": [__version__],
        "Python": [platform.python_version()],
        **{name: [version(name)] for name in ("numpy", "matplotlib", "torch", "lightning")},
        "configuration written by": re.findall(r"\A# (.*==.*)", run.config_text),
    }
    sentence, facts = describe_run(run, summaries)
    headlines = {summary.record: headline(summary) for summary in summaries}
    classes = facts["Classes"] or None
    texts = {corpus: _texts(run, corpus, classes, headlines) for corpus in run.test_metrics}
    anchors = {summary.record: f"test-{n}" for n, summary in enumerate(summaries, start=1)}
    splits = dict.fromkeys((record.corpus, record.stage) for record in anchors)
    verdicts = {corpus: verdict_of(run, corpus) for corpus in run.test_metrics}
    for corpus, verdict in verdicts.items():
        verdict.write(target, corpus)
        (show or (lambda _: None))(verdict)
    own = {record: found for record, found in headlines.items() if found and not record.corpus}
    stage = "test" if any(record.stage == "test" for record in own) else "val"
    page = render(
        "run.html.jinja",
        title="/".join(folder.resolve().parts[-2:]),
        run=run,
        sentence=sentence,
        facts=facts,
        summaries=summaries,
        answers={record: found.says for record, found in own.items() if record.stage == stage},
        anchors=anchors,
        splits={split: f"split-{n}" for n, split in enumerate(splits, start=1)},
        titles={record.test: describe(record.test).title for record in anchors},
        sections={
            summary.record: _section(
                summary,
                target,
                figures,
                anchor=anchors[summary.record],
                headline=headlines[summary.record],
                texts=texts[summary.record.corpus],
            )
            for summary in progress(summaries, "figures of tests")
        },
        methods=_methods(run, target, show or (lambda _: None)),
        curves=[
            _picture(figure, Path("val", f"curves-{test}"), figures, caption)
            | {"title": "The task" if test == "metrics" else describe(test).title}
            for test, (figure, caption) in progress(curve_figures(run).items(), "curves")
        ],
        texts=texts,
        what_if=what_if({corpus: [each["what_if"]] for corpus, each in texts.items()}),
        verdicts=verdicts,
        commands=commands(run, summaries),
        versions=versions,
    )
    for ending, text in to_texts(summaries).items():
        write_text(target / f"summary.{ending}", text)
    write_text(target / "index.html", page)
    return target / "index.html"


def _texts(
    run: Run,
    corpus: str,
    classes: Sequence[str] | None,
    headlines: Mapping[StoredRecord, Headline | None],
) -> dict[str, Any]:
    """Texts of a corpus for the page: `shown`, `chosen` and `differences` by record, and what to show."""
    files = {stage: run.texts(stage, corpus) for stage in (*VERBS, "predict")}
    chosen = {
        record: found
        for record, first in headlines.items()
        if first and record.corpus == corpus and files[record.stage].path.is_file()
        if (found := choose_texts(record.file, first.column, files[record.stage]))
    }
    stage = next((stage for stage in VERBS if any(r.stage == stage for r in chosen)), None)
    chosen = {record: found for record, found in chosen.items() if record.stage == stage}
    if stage is None:
        file, recorded = files["predict"], 0
        shown = shown_texts(file, classes)
    else:
        file, recorded = files[stage], int(files[stage].metadata["rows"])
        rows = [row for found in chosen.values() for row in found.rows]
        shown = shown_texts(file, classes, rows)
    needed = {index for found in chosen.values() for index, _ in found.rows}
    columns = file.columns if shown else {}
    present = {"attention", *columns, *(name.removeprefix(SCORES) for name in columns)}
    missing = set.intersection(*(set(text.lacking) for text in shown)) if shown else set()
    return {
        "shown": shown,
        "chosen": chosen,
        "recorded": recorded,
        "differences": {
            record: shown_differences(record.file, found, file) for record, found in chosen.items()
        },
        "what_if": texts_of_run(run, corpus, needed, BYTES // len(run.test_metrics), stage),
        "anchor": f"texts-{list(run.test_metrics).index(corpus) + 1}",
        "layers": {
            layer: name
            for layer, name in LAYERS.items()
            if layer in present and name not in missing
        },
    }


def _section(
    summary: RecordSummary,
    target: Path,
    figures: Path,
    *,
    anchor: str,
    headline: Headline | None,
    texts: Mapping[str, Any],
) -> Markup:
    """A record on the page; writes its figure and tables if the record has all measures."""
    record, description = summary.record, describe(summary.record.test)
    stem = f"tables/{record.folder_name}-{record.test}"
    picture, test_tables = None, []
    # Archived runs, as in docs/results, have only some columns of each record.
    if set(summary.metadata.get("measures", ())) <= record.file.columns.keys():
        rows, note = figure_rows(record.file, description.columns)
        chosen = texts["chosen"].get(record)
        shown = chosen.rows if chosen else []
        links = {row: text_address(row, record.corpus) for row in shown}
        linked = rows | {"link": link_column(rows, list(links))}
        figure = draw(record.test, linked, summary.metadata.get("classes"), summary.metadata)
        if figure is not None:
            caption = f"{description.caption} {note}".rstrip()
            of_page = [(address, text_name(row)) for row, address in links.items()]
            place = Path(record.folder_name, record.test)
            picture = _picture(figure, place, figures, caption, of_page)
        test_tables = tables(record.test, rows, summary.metadata.get("classes"), summary.metadata)
    for number, table in enumerate(test_tables, start=1):
        table.write(target / f"{stem}-{number}")
    return render(
        "section.html.jinja",
        summary=summary,
        description=description,
        picture=picture,
        tables=test_tables,
        files=f"{stem}-*.{{md,csv,tex}}",
        anchor=anchor,
        headline=headline,
        chosen=texts["chosen"].get(record),
        recorded=texts["recorded"],
        differences=texts["differences"].get(record, {}),
        address=partial(text_address, corpus=record.corpus),
    )


def _methods(
    run: Run, target: Path, show: Callable[[Table], object]
) -> dict[tuple[str, str], Markup]:
    """Rows of attribution methods by corpus and stage, of the splits that have any."""
    splits: dict[tuple[str, str], dict[str, StoredRecord]] = {}
    for record in run.records:
        splits.setdefault((record.corpus, record.stage), {})[record.test] = record
    sections = {}
    for (corpus, stage), records in splits.items():
        found = method_rows({test: record.file for test, record in records.items()})
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
            table.write(target / f"{stem}-{number}")
        heads = found.pairs[0] if found.pairs else {"measure": ""}
        pairs = to_csv(heads, (pair.values() for pair in found.pairs))
        write_text(target / f"{stem}-pairs.csv", pairs)
        files = (f"{stem}-*.{{md,csv,tex}}", f"{stem}-pairs.csv")
        sections[corpus, stage] = render("methods.html.jinja", tables=written, files=files)
        show(found.terminal_table())
    return sections


def _picture(
    figure: Figure, stem: Path, folder: Path, caption: str, links: Sequence[tuple[str, str]] = ()
) -> dict[str, str]:
    """Save a figure and return its `svg`, `caption` and `files` for the page."""
    save_figure(figure, folder / stem)
    svg = inline_svg(figure, "-".join(stem.parts), caption, links)
    if "<a " in svg:
        caption += " Hollow points lead to the texts of their instances."
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
        net = _config_value(model, "init_args", "net")
        named = {option: _class(_config_value(net, option)) for option in ("encoder", "attention")}
        settings = ", ".join(f"{option} {name}" for option, name in named.items() if name)
        model_text += f" ({settings})" if settings else ""
    corpus = corpus_name(data)
    tested = "no record of the test split yet"
    if sizes := {s.metadata["rows"] for s in summaries if s.record.folder_name == "test"}:
        amount = f"{'up to ' if len(sizes) > 1 else ''}{max(sizes):,}"
        tested = f"tested on {amount} instances of the test split"
    metadata = [summary.metadata for summary in summaries]
    facts = {
        "Model": [_class(model)],
        "Corpus": [corpus, *([_class(data)] if _class(data) != corpus else [])],
        "Classes": next((entry["classes"] for entry in metadata if entry.get("classes")), []),
        "Seed": [str(run.configs["fit"].get("seed_everything", ""))],
        "Checkpoint": sorted({entry.get("checkpoint") or "" for entry in metadata}),
        "Partial records": sorted({p.record.test for p in summaries if p.metadata.get("partial")}),
    }
    sentence = f"{model_text}{f', trained on {corpus}' if corpus else ''}; {tested}."
    return sentence, {name: [value for value in values if value] for name, values in facts.items()}


def corpus_name(data: object) -> str:
    """The name of a corpus: its hub id or path, else of the shipped data file that has its options.

    Args:
        data: The `data` of a configuration with all options.

    Returns:
        The name of the file with the most options among those that agree in all of theirs; the class
        if there is none; "" without a class.
    """
    options = [_config_value(data, "init_args", option) for option in ("path", "name")]
    if any(isinstance(value, str) for value in options):
        return " ".join(value for value in options if isinstance(value, str))
    found = _class(data), 0
    for name, path in shipped_configs().items():
        shipped = read_yaml(path) if name.startswith("data/") and _class(data) else {}
        arguments = shipped.get("init_args") or {}
        given = _config_value(data, "init_args")
        agree = _class(shipped) == _class(data) and _contains(given, arguments)
        if agree and len(arguments) > found[1]:
            found = name.removeprefix("data/"), len(arguments)
    return found[0]


def _contains(config: object, part: object) -> bool:
    """Whether a configuration has all values of another one, nested ones included."""
    if not isinstance(part, dict):
        return config == part
    return isinstance(config, dict) and all(
        name in config and _contains(config[name], value) for name, value in part.items()
    )


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
        lacking = [name for name in test_names if name.replace("_", "") not in attached]
        line += ["--tests", ",".join(lacking)] if lacking else []
        line += ["--ckpt_path", str(run.folder / checkpoint)] if checkpoint else []
        lines.append(line)
    lines.append(["report", str(run.folder)])
    return [shlex.join(["attnlight", *line]) for line in lines]
