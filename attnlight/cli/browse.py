"""`attnlight browse`: a page of a run's texts on which a reader changes attention."""

import sys
import webbrowser
from pathlib import Path

from attnlight.cli.arguments import VerbParser
from attnlight.errors import InputError
from attnlight.storage.files import require_no_links_out, write_text
from attnlight.storage.model_folder import require_run_or_tested

DESCRIPTION = """\
Write a page of the texts that `attnlight test RUN --tests texts` recorded, or `attnlight predict`, and
open it: search and sort texts, change the attention of a word, and see what the model predicts. Two runs
stand side by side on the texts that both have."""
EPILOG = """\
attnlight browse checkpoints/sst_bilstm/seed0
attnlight browse RUN RUN2 --output both.html

Nothing is evaluated again. The page is RUN/report/browse.html of the first run. It is one file without
requests, and is opened only from a terminal."""


def main(argv: list[str]) -> int:
    """Write the page, print its path, and open it if this is a terminal."""
    parser = VerbParser("browse", description=DESCRIPTION, epilog=EPILOG)
    add, places = parser.add_argument, "checkpoints/<experiment>/<run>, at most two"
    add("runs", metavar="RUN", nargs="+", type=Path, help=places)
    add("--output", metavar="FILE", type=Path, help="write the page here")
    options = parser.parse_args(argv)
    from attnlight.report.run import trained_run
    from attnlight.report.what_if import what_if_page

    if len(options.runs) > 2:
        raise InputError(f"{len(options.runs)} runs are named; the page shows one or two.")
    for run in options.runs:
        require_run_or_tested(run)
    if options.output is None:
        require_no_links_out(options.runs[0])
    page = options.output or options.runs[0] / "report" / "browse.html"
    title = " and ".join("/".join(run.resolve().parts[-2:]) for run in options.runs)
    write_text(page, what_if_page(title, [trained_run(run) for run in options.runs]))
    print(page)
    if sys.stdout.isatty():
        webbrowser.open(page.resolve().as_uri())
    return 0
