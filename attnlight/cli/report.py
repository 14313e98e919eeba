"""`attnlight report`: one page, tables and figures from the records of a run."""

from pathlib import Path

from attnlight.cli.arguments import VerbParser
from attnlight.errors import InputError
from attnlight.storage.files import require_no_links_out

DESCRIPTION = """\
Write one self-contained HTML page, summary tables (CSV and Markdown) and figures (SVG, PDF and
PNG) from the records that `attnlight fit`, `validate` and `test` wrote into a run folder; for a
study's folder, its tables, figures and verdicts. Several runs are also compared: one page, table and
figure of the headline measure of each test, with paired tests. Nothing is evaluated again."""
EPILOG = """\
Without --output the page and the tables go to RUN/report/, the figures to RUN/figures/. With it
both go to DIR, or, for several runs, to DIR/<experiment>/<run>/. A comparison goes to
comparison/ in the report of the first run, or to DIR. All files of a study go into one folder:
STUDY/report/ or DIR."""


def main(argv: list[str]) -> int:
    """Write the report of each run or study; print what its cards answer, and the path of its page."""
    parser = VerbParser("report", description=DESCRIPTION, epilog=EPILOG)
    places = "checkpoints/<experiment>/<run>, or checkpoints/<study>"
    parser.add_argument("runs", metavar="RUN", nargs="+", type=Path, help=places)
    parser.add_argument("--output", metavar="DIR", type=Path, help="write here instead")
    options = parser.parse_args(argv)
    output, runs = options.output, options.runs
    folders = [output or run / "report" for run in runs]
    if output and len(runs) > 1:
        folders = [output.joinpath(*run.resolve().parts[-2:]) for run in runs]
        if len(set(folders)) < len(folders):
            raise InputError(
                f"two runs would be written to one folder of {output}; name each once."
            )
    for run, folder in zip(runs, folders, strict=True):
        if output is None:
            require_no_links_out(run)
        if (run / "study.json").is_file():
            from attnlight.report.study import write_study

            print(write_study(run, folder)[0])
        else:
            from attnlight.report.page import write_report

            print(write_report(run, folder if output else None, print))
    compared = [run for run in runs if not (run / "study.json").is_file()]
    if len(compared) > 1:
        from attnlight.report.compare import write_comparison

        page = write_comparison(compared, output or compared[0] / "report" / "comparison")
        if page is not None:
            print(page)
    return 0
