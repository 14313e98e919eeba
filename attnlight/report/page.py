"""Writes the page, tables and figures of a run."""

import platform
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib.metadata import version
from pathlib import Path
from textwrap import fill
from typing import Any

from markupsafe import Markup
from matplotlib.figure import Figure

from attnlight import __version__
from attnlight.data.progress import progress
from attnlight.figures import describe, draw, figure_rows, tables
from attnlight.figures.style import inline_svg, save_figure
from attnlight.figures.tables import to_csv
from attnlight.report.citations import citations
from attnlight.report.curves import curve_figures
from attnlight.report.differences import shown_differences
from attnlight.report.first_text import first_text
from attnlight.report.headlines import Headline, headline
from attnlight.report.markup import render
from attnlight.report.method_rows import TESTS, method_rows
from attnlight.report.run import VERBS, Run, StoredRecord, load_run, require_one_run
from attnlight.report.run_description import commands, describe_run
from attnlight.report.summary import RecordSummary, summarise, to_texts
from attnlight.report.texts import choose_texts, link_column, text_name
from attnlight.report.verdict.card import verdict_of
from attnlight.report.verdict.commands import command_of, from_here
from attnlight.report.verdict.ranks import TEST
from attnlight.report.verdict.rows import rows_of
from attnlight.report.what_if import BYTES, text_address, texts_of_run, what_if
from attnlight.storage.files import write_text


def write_report(
    folder: Path, output: Path | None = None, show: Callable[[str], object] | None = None
) -> Path:
    """Write the report of one run and return the path of its page.

    Without `output` it goes to `report` and `figures` in the run folder. `show` is called with the
    sentence of each verdict card, in 80 columns.

    Raises:
        InputError: The folder has no records, a damaged file or records of several runs.
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
    facts = describe_run(run, summaries)
    headlines = {summary.record: headline(summary) for summary in summaries}
    classes = facts["Classes"] or None
    verdicts = {corpus: verdict_of(run, corpus) for corpus in run.test_metrics}
    texts = {
        corpus: _texts(run, corpus, classes, headlines, verdict.methods)
        for corpus, verdict in verdicts.items()
    }
    anchors = {summary.record: f"test-{n}" for n, summary in enumerate(summaries, start=1)}
    splits = dict.fromkeys((record.corpus, record.stage) for record in anchors)
    for corpus, verdict in verdicts.items():
        verdict.write(target, corpus)
        if show is not None:
            said = f"{corpus and f'On {corpus}: '}{verdict.sentence} {verdict.scope}"
            show(fill(said.rstrip(), 80))
    tested = [record.corpus for record in headlines if record.stage == "test"]
    first = next((corpus for corpus in run.test_metrics if corpus in tested), "")
    own = {record: x for record, x in headlines.items() if x and record.corpus == first}
    stage = "test" if tested else "val"
    page = render(
        "run.html.jinja",
        title="/".join(folder.resolve().parts[-2:]),
        run=run,
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
        methods=_methods(run, target),
        curves=[
            _picture(figure, Path("val", f"curves-{test}"), figures, caption)
            | {"title": "The task" if test == "metrics" else describe(test).title}
            for test, (figure, caption) in progress(curve_figures(run).items(), "curves")
        ],
        texts=texts,
        what_if=what_if({corpus: [each["what_if"]] for corpus, each in texts.items()}),
        first=first,
        corpora=sorted(run.test_metrics, key=lambda corpus: corpus != first),
        verdicts=verdicts,
        rows={
            corpus: rows_of(verdict.lines, verdict.items) for corpus, verdict in verdicts.items()
        },
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
    methods: Sequence[str],
) -> dict[str, Any]:
    """Texts of a corpus for the page, some of them by record, and what to show."""
    files = {stage: run.texts(stage, corpus) for stage in (*VERBS, "predict")}
    chosen = {
        record: found
        for record, first in headlines.items()
        if first and record.corpus == corpus and files[record.stage].path.is_file()
        if (found := choose_texts(record.file, first.column, files[record.stage]))
    }
    stage = next((stage for stage in VERBS if any(r.stage == stage for r in chosen)), None)
    chosen = {record: found for record, found in chosen.items() if record.stage == stage}
    # The page begins with a text of the test that decides, where there is one.
    deciding = min(chosen, key=lambda record: record.test != TEST, default=None)
    cases = None if deciding is None else chosen[deciding]
    file = files["predict" if stage is None else stage]
    needed = {index for found in chosen.values() for index, _ in found.rows}
    return {
        "chosen": chosen,
        "first": first_text(file, classes, cases, methods),
        "recorded": 0 if stage is None else int(file.metadata["rows"]),
        "differences": {
            record: shown_differences(record.file, found, file) for record, found in chosen.items()
        },
        "citations": {
            record: citations(record.file, file, found.rows, classes)
            for record, found in chosen.items()
        },
        "what_if": texts_of_run(run, corpus, needed, BYTES // len(run.test_metrics), stage),
        "command": command_of(from_here(run.folder), corpus, "texts"),
        "address": partial(text_address, corpus=corpus),
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
        citations=texts["citations"].get(record, []),
        address=texts["address"],
    )


def _methods(run: Run, target: Path) -> dict[tuple[str, str], Markup]:
    """Rows of attribution methods by corpus and stage, of the splits that have any."""
    splits: dict[tuple[str, str], dict[str, StoredRecord]] = {}
    for record in run.records:
        splits.setdefault((record.corpus, record.stage), {})[record.test] = record
    sections = {}
    for (corpus, stage), records in splits.items():
        found = method_rows({test: record.file for test, record in records.items()})
        missing = {}
        for test in (test for test in TESTS if test not in records):
            if test != "sanity":
                missing[test] = command_of(run.folder, corpus, test, verb=VERBS[stage])
            elif stage == "test" and not corpus:
                missing[test] = shlex.join(["attnlight", "sanity", str(run.folder)])
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
