"""The page of a study: no script, and links to nothing but the report's own files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

from attnlight.report.grids import Grid
from attnlight.report.page import Picture
from attnlight.report.study.reading import ROLES, Study
from attnlight.report.study.verdict import Verdict
from attnlight.report.stylesheet import STYLESHEET


@dataclass(frozen=True)
class Shown:
    """A figure on the page with its heading and the stem of its files beside the page."""

    title: str
    stem: str
    picture: Picture


def build_page(
    study: Study,
    verdicts: Sequence[Verdict],
    grids: Mapping[str, Grid],
    figures: Sequence[Shown],
) -> str:
    """The whole page as HTML; all that came from files is escaped.

    Args:
        study: The study.
        verdicts: What it shows.
        grids: Its tables by the stem of their files.
        figures: Its figures.
    """
    body = [
        _header(study),
        "<h2>What it shows</h2>\n",
        *map(_verdict, verdicts),
        f'<p class="note">Also {_link("verdict.md")}.</p>\n<h2>Tables</h2>\n',
        *(grid.to_html() + _files(stem, ("csv", "md", "tex")) for stem, grid in grids.items()),
        f'<p class="note">Every mean in full: {_link("estimates.csv")}.</p>\n',
        "<h2>Figures</h2>\n" if figures else "",
        *map(_figure, figures),
    ]
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta http-equiv="Content-Security-Policy" '
        "content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
        f"<title>{escape(study.name)} · attnlight</title>\n<style>\n{STYLESHEET}</style>\n</head>\n"
        f"<body>\n{''.join(body)}</body>\n</html>\n"
    )


def _header(study: Study) -> str:
    runs = [f"{len(study.finished(r))} of {len(study.planned(r))} {r}" for r in ROLES]
    facts = {
        "Experiment": study.experiment,
        "Corpus": study.corpus,
        "Classes": ", ".join(study.classes),
        "Test texts": f"{len(study.label):,}",
        "Finished runs": ", ".join(runs),
    }
    entries = "".join(f"<dt>{k}</dt><dd>{escape(v)}</dd>\n" for k, v in facts.items() if v)
    return (
        f"<h1>{escape(study.name)} <small>study</small></h1>\n"
        '<p class="lead">Is attention not explanation? Models trained from one base, after '
        f"Wiegreffe &amp; Pinter (2019).</p>\n<dl>\n{entries}</dl>\n"
    )


def _verdict(verdict: Verdict) -> str:
    sentences = "".join(f"<p>{escape(sentence)}</p>\n" for sentence in verdict.sentences)
    return f"<h3>{escape(verdict.question)}</h3>\n{sentences}"


def _figure(shown: Shown) -> str:
    return (
        f"<h3>{escape(shown.title)}</h3>\n"
        f'<figure><div class="scroll">{shown.picture.svg}</div>\n'
        f"<figcaption>{escape(shown.picture.caption)}</figcaption></figure>\n"
        + _files(shown.stem, ("svg", "pdf", "png"))
    )


def _files(stem: str, endings: Sequence[str]) -> str:
    links = ", ".join(_link(f"{stem}.{ending}") for ending in endings)
    return f'<p class="note">Also {links}.</p>\n'


def _link(file: str) -> str:
    return f'<a href="{escape(file)}">{escape(file)}</a>'
