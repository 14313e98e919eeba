"""One page that holds everything: no script, no link to anything outside itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from attnlight.report.describe import commands, facts, sentence, versions
from attnlight.report.figures import describe
from attnlight.report.grids import Grid
from attnlight.report.markup import isolated, visible_controls, without_controls
from attnlight.report.metrics import Metrics
from attnlight.report.runs import Run
from attnlight.report.stylesheet import STYLESHEET
from attnlight.report.tables import Line, RecordSummary, interval, number

_SPLITS = {"test": "test split", "val": "validation split"}
_MOST_CLASSES = 6  # columns; more go below each other, folded


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
        summary: Its measures.
        picture: Its figure, where its test has one.
        grids: Its test's own tables.
        tables: Where these also are, relative to the folder of the page.
    """

    summary: RecordSummary
    picture: Picture | None
    grids: Sequence[Grid] = ()
    tables: str = ""


def build_page(run: Run, sections: Sequence[Section], curves: Sequence[Picture]) -> str:
    """The whole page as HTML; all that came from files is escaped."""
    summaries = [section.summary for section in sections]
    title = escape(without_controls(run.name))
    body = [
        _header(run, summaries),
        _metrics(run.metrics),
        *(_stage(stage, sections) for stage in _SPLITS),
        *(_corpus(name, metrics, sections) for name, metrics in run.others.items()),
        _curves(curves),
        _reproduction(run, summaries),
    ]
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta http-equiv="Content-Security-Policy" '
        "content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
        f"<title>{title} · attnlight</title>\n<style>\n{STYLESHEET}</style>\n</head>\n"
        f"<body>\n{''.join(body)}</body>\n</html>\n"
    )


def _header(run: Run, summaries: Sequence[RecordSummary]) -> str:
    experiment, _, name = run.name.rpartition("/")
    entries = "".join(
        f"<dt>{isolated(name)}</dt><dd>{', '.join(map(isolated, values))}</dd>\n"
        for name, values in facts(run, summaries)
    )
    tested = any(part.record.place == "test" for part in summaries)
    warning = "" if tested else '<p class="partial">Not tested yet: run `attnlight test`.</p>\n'
    return (
        f"<h1>{isolated(experiment)} <small>{isolated(name)}</small></h1>\n"
        f'<p class="lead">{isolated(sentence(run, summaries))} Does its attention explain its '
        f"predictions?</p>\n{warning}<dl>\n{entries}</dl>\n"
    )


def _corpus(name: str, metrics: Metrics, sections: Sequence[Section]) -> str:
    """What was measured on a corpus that the model was not trained on."""
    shares = {
        section.summary.record.stage: float(section.summary.metadata.get("unknown_words", 0))
        for section in sections
        if section.summary.record.corpus == name
    }
    unknown = ", ".join(f"{share:.1%} of the {_SPLITS[s]}" for s, share in shares.items())
    return (
        f"<h2>On another corpus: {isolated(name)}</h2>\n"
        '<p class="note">The model was not trained on it. Its texts are encoded by the model\'s own '
        f"tokenizer; unknown words are {unknown}.</p>\n"
        + _metrics(metrics, "h3")
        + "".join(_stage(stage, sections, name) for stage in _SPLITS)
    )


def _stage(stage: str, sections: Sequence[Section], corpus: str = "") -> str:
    place = (stage, corpus)
    records = [section.summary.record for section in sections]
    chosen = [s for s, r in zip(sections, records, strict=True) if (r.stage, r.corpus) == place]
    if not chosen:
        return ""
    where = f" of {isolated(corpus)}" if corpus else ""
    return (
        f"<h2>On the {_SPLITS[stage]}{where}</h2>\n"
        '<p class="note">Each measure is a mean over instances, with a 95 % interval from 1,000 '
        "bootstrap resamples of the texts; n is the number of instances where it is defined. "
        "Classes are those that the model predicted.</p>\n"
        + "".join(_section(section) for section in chosen)
    )


def _section(section: Section) -> str:
    part, known = section.summary, describe(section.summary.record.test)
    mark = (
        f'<p class="partial">Partial record: {part.rows:,} instances, not the whole split.</p>\n'
        if part.partial
        else ""
    )
    if part.non_finite:
        mark += (
            '<p class="partial">Not measured, for their logits or attention are not finite: '
            f"{part.non_finite:,} instances.</p>\n"
        )
    about = " · ".join(filter(None, [isolated(known.source), f"{part.rows:,} instances"]))
    return (
        f"<section>\n<h3>{isolated(known.title)}</h3>\n"
        + (f"<p>{isolated(known.question)}</p>\n" if known.question else "")
        + f'<p class="source">{about}</p>\n{mark}'
        + _summary_table(part)
        + (_figure(section.picture) if section.picture else "")
        + _grids(section)
        + "</section>\n"
    )


def _summary_table(part: RecordSummary) -> str:
    classes = sorted({line.predicted for line in part.lines if line.predicted is not None})
    if not part.lines:
        return '<p class="note">This record holds no measures.</p>\n'
    if len(classes) <= _MOST_CLASSES:
        return _pivot(part, [None, *classes])
    rows = "".join(
        f'<tr><th scope="row"><code>{isolated(line.measure)}</code>'
        f"<small>{isolated(part.class_name(line.predicted))}</small></th>{_cell(line, 'mean')}</tr>\n"
        for line in part.lines
        if line.predicted is not None
    )
    return (
        _pivot(part, [None])
        + f"<details><summary>By predicted class ({len(classes)})</summary>\n"
        + f"<table><tbody>\n{rows}</tbody></table></details>\n"
    )


def _pivot(part: RecordSummary, groups: Sequence[int | None]) -> str:
    """One row for each measure, one column for each group of rows."""
    words = describe(part.record.test).measures
    names = ["all" if g is None else part.class_name(g) for g in groups]
    head = "".join(f'<th scope="col">{isolated(name)}</th>' for name in names)
    lines = {(line.measure, line.predicted): line for line in part.lines}
    rows = "".join(
        f'<tr><th scope="row"><code>{isolated(measure)}</code>'
        f"<small>{isolated(words.get(measure, ''))}</small></th>"
        + "".join(_cell(lines[measure, g], n) for g, n in zip(groups, names, strict=True))
        + "</tr>\n"
        for measure in dict.fromkeys(line.measure for line in part.lines)
    )
    return (
        f'<div class="scroll"><table>\n<thead><tr><th scope="col">measure</th>{head}</tr></thead>\n'
        f"<tbody>\n{rows}</tbody></table></div>\n"
    )


def _cell(line: Line, label: str) -> str:
    return (
        f'<td data-label="{escape(without_controls(label))}">{number(line.mean)}'
        f"<small>{interval(line)}</small><small>n = {line.defined:,}</small></td>"
    )


def _figure(picture: Picture) -> str:
    return (
        f'<figure><div class="scroll">{picture.svg}</div>\n'
        f"<figcaption>{isolated(picture.caption)} <br>Also <code>{isolated(picture.files)}</code>."
        "</figcaption></figure>\n"
    )


def _grids(section: Section) -> str:
    if not section.grids:
        return ""
    files = f'<p class="note">Also <code>{isolated(section.tables)}</code>.</p>\n'
    return "".join(grid.to_html() for grid in section.grids) + files


def _metrics(metrics: Metrics, level: str = "h2") -> str:
    if not metrics.test:
        return ""
    rows = "".join(
        f'<tr><th scope="row"><code>{isolated(name)}</code></th><td>{number(value)}</td></tr>\n'
        for name, value in metrics.test.items()
    )
    return (
        f"<{level}>The task itself</{level}>\n"
        '<p class="note">Metrics that the task logged on the test split.</p>\n'
        f'<table class="metrics"><tbody>\n{rows}</tbody></table>\n'
    )


def _curves(curves: Sequence[Picture]) -> str:
    if not curves:
        return ""
    return "<h2>While training</h2>\n" + "".join(_figure(picture) for picture in curves)


def _reproduction(run: Run, summaries: Sequence[RecordSummary]) -> str:
    lines = "\n".join(map(isolated, commands(run, summaries)))
    found = "".join(
        f"<dt>{isolated(name)}</dt><dd>{isolated(value)}</dd>\n" for name, value in versions(run)
    )
    config = (
        "<details><summary>Configuration (fit.yaml)</summary>\n"
        f"<pre><code>{escape(visible_controls(run.config_text))}</code></pre></details>\n"
        if run.config_text
        else ""
    )
    return f"<h2>To repeat it</h2>\n<pre><code>{lines}</code></pre>\n<dl>\n{found}</dl>\n{config}"
