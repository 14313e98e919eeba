"""`attnlight explain`: what attention and other scores say of single texts."""

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from typing import Any

from attnlight.api.explain import METHODS, explain
from attnlight.cli.arguments import VerbParser
from attnlight.cli.shorthand import plain_value
from attnlight.errors import InputError
from attnlight.report.explanation import on_terminal
from attnlight.storage.files import write_text

DESCRIPTION = """\
Predict texts, and show what attention and other scores say of their words: the smallest set of words
whose erasure from attention changes the decision, and the most different attention that gives the
same prediction. For pairs, TEXT is the passage."""
EPILOG = """\
attnlight explain sst "a gripping, funny film"
attnlight explain checkpoints/sst_bilstm/seed0 "a gripping, funny film"
attnlight explain RUN --file texts.txt --methods occlusion,lrp --json
attnlight explain sst "a gripping, funny film" --html page.html

Without TEXT and --file, lines of standard input are read."""

_PAGE = "explanation.html"


def main(argv: list[str]) -> int:
    """Print the explanation of each text."""
    parser = VerbParser("explain", description=DESCRIPTION, epilog=EPILOG)
    add = parser.add_argument
    named = (
        "a run, a checkpoint, a folder or org/name of Hugging Face, or a shipped model, such as sst"
    )
    add("run", metavar="RUN", help=named)
    add("texts", metavar="TEXT", nargs="*", help="a text")
    add("--file", metavar="FILE", type=Path, help="a file with a text in each line")
    add("--query", help="for pairs: the query of all texts")
    classes = "the classes that a text may be answered with (default: all)"
    add("--candidates", metavar="CLASS,...", help=classes)
    named = "attribution methods, or mappings of their options (default: %(default)s)"
    add("--methods", metavar="NAME,...", default=",".join(METHODS), help=named)
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print JSON")
    page = f"write a page on which attention can be changed, NAME.html (default: {_PAGE})"
    form.add_argument("--html", metavar="FILE", type=Path, help=page)
    # What follows --html is a text, unless it names a page.
    given = [
        f"--html={_PAGE}" if word == "--html" and not following.endswith(".html") else word
        for word, following in pairwise([*argv, ""])
    ]
    options = parser.parse_args(given)
    texts = options.texts
    if options.file is not None or not texts:
        try:
            content = sys.stdin.read() if options.file is None else options.file.read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            place = options.file or "standard input"
            raise InputError(f"{place} is not readable: {error}.") from error
        texts = [*texts, *filter(str.strip, content.splitlines())]
    queries = None if options.query is None else [options.query] * len(texts)
    candidates = options.candidates and [options.candidates.split(",")] * len(texts)
    methods = plain_value("--methods", options.methods)
    found = explain(options.run, texts, methods, queries, candidates)
    if options.json:
        print(json.dumps(list(map(asdict, found)), indent=1))
    elif options.html is not None:
        columns = {"text": texts, "query": queries, "candidates": candidates}
        write_text(options.html, _page(options.run, columns, methods, found[0].verdict))
        print(options.html)
    else:
        print(on_terminal(found))
    return 0


def _page(
    model: str, columns: Mapping[str, Any], methods: Sequence[Any], verdict: str | None
) -> str:
    """A page of texts, of whose columns some may be None, from a record of them."""
    from attnlight.api.run import run
    from attnlight.report.run import trained_run
    from attnlight.report.what_if import what_if_page

    given = {name: column for name, column in columns.items() if column}
    options = {"max_instances": None, "leave_one_out": False, "methods": list(methods)}
    results = run(model, given, [{"class_path": "attnlight.callbacks.Texts", "init_args": options}])
    return what_if_page("Explanations", [trained_run(results.folder)], verdict)
