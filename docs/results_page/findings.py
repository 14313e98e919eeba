"""What the page finds in its tables: the sentences of `findings.md.jinja` that its tables bear out."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from results_page.cells import Cell, Tables

# Studies of classifiers in the order of the page.
STUDIES = {
    "wiegreffe_pinter_sst": "SST with random vectors",
    "wiegreffe_pinter_sst_vectors": "SST with trained vectors",
    "wiegreffe_pinter_sst_phrases": "SST with phrases",
    "wiegreffe_pinter_20_newsgroups_sports": "20 Newsgroups",
    "wiegreffe_pinter_imdb": "IMDb",
}
_ANSWERS = {
    "Attention is needed here": "shown to be needed",
    "Attention is not needed here": "shown not to be needed",
    "Attention is not shown to be needed here": "not shown to be needed",
}
_REFUSED = re.compile(r"<!-- refused: (.*?) -->", re.DOTALL)
_WRAPPED: dict[str, Any] = {"width": 105, "break_long_words": False, "break_on_hyphens": False}
# What the conditions of sentences ask of the rows and cells of a table.
_FILTERS: dict[str, Callable[..., Any]] = {
    "all": all,
    "cell": Cell,
    "share": lambda text: int(text.split()[0]) / int(text.split()[-1]),
    "figures": lambda row, start: [Cell(x).value for x in list(row.values())[start:] if x],
    "less": lambda rows, a, b: all(float(row[a]) < float(row[b]) for row in rows),
    "below": lambda one, other: all(a < b for a, b in zip(one, other, strict=False)),
}
_TESTS = {"starting": str.startswith, "ending": str.endswith, "holding": str.__contains__}


def findings(tables: Tables) -> dict[str, str]:
    """The sentences of each place: a paragraph, or a list where its name ends in `findings`."""
    folder = FileSystemLoader(Path(__file__).parent)
    environment = Environment(loader=folder, undefined=StrictUndefined, autoescape=False)
    environment.filters |= _FILTERS
    environment.tests |= _TESTS
    template, found = environment.get_template("findings.md.jinja"), {}
    for place, block in template.blocks.items():
        said: list[str] = []

        def add(holds: bool, caller: Callable[[], str], said: list[str] = said) -> str:
            said.append(claim(holds, " ".join(caller().split())))
            return ""

        names = {"row": tables.row, "rows": tables.rows, "cell": tables.cell, "cells": tables.cells}
        names |= {"answer": partial(answer, tables), "needed": partial(needed, tables)}
        "".join(block(template.new_context(names | {"claim": add})))
        lines = [("* ", one) for one in said] if place.endswith("s") else [("", " ".join(said))]
        found[place] = wrapped(lines)
    return found


def claim(holds: bool, sentence: str) -> str:
    """A sentence, or a mark in its place that the page does not show and a check refuses.

    Args:
        holds: Whether the tables bear the sentence out.
        sentence: The sentence, its figures taken from the tables.
    """
    return sentence if holds else f"<!-- refused: {sentence} -->"


def refused(page: str) -> list[str]:
    """The sentences of a page that its records do not bear out."""
    return [" ".join(found.split()) for found in _REFUSED.findall(page)]


def wrapped(lines: Iterable[tuple[str, str]]) -> str:
    """Lines, each after its mark, wrapped at the page's width."""
    filled = (
        textwrap.fill(f"{mark}{text}", subsequent_indent=" " * len(mark), **_WRAPPED)
        for mark, text in lines
    )
    return "".join(f"{text}\n" for text in filled)


def answer(tables: Tables, study: str) -> str:
    """What a study's first verdict says of attention: a value of `_ANSWERS`, or that seeds are few."""
    said = re.match(r"\* \*\*.*?\?\*\* ([^:.]*)", tables.blocks[f"{study}_verdict"])
    return _ANSWERS.get(said[1] if said else "", "without enough seeds to say")


def needed(tables: Tables) -> str:
    """On which corpora of classification attention is needed."""
    by_answer: dict[str, list[str]] = {}
    for study, words in STUDIES.items():
        by_answer.setdefault(answer(tables, study), []).append(words)
    found = [
        f"{said} on {' and '.join([', '.join(names[:-1]), names[-1]] if names[1:] else names)}"
        for said, names in by_answer.items()
    ]
    return f"Over the studies of classification attention is {'; '.join(found)}."
