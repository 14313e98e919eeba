"""`attnlight report`: one page, tables and figures from the records of a run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from attnlight.arguments import VerbParser
from attnlight.errors import InputError

if TYPE_CHECKING:
    from attnlight.report.page import Places

DESCRIPTION = """\
Write one self-contained HTML page, summary tables (CSV and Markdown) and figures (SVG, PDF and
PNG) from the records that `attnlight fit`, `validate` and `test` left in a run folder; of the folder
of a study its tables, figures and verdicts. Nothing is evaluated again."""
EPILOG = """\
Without --output the page and the tables go to RUN/report/, the figures to RUN/figures/. With it
both go to DIR, or, for several runs, to DIR/<experiment>/<run>/. All of a study goes to where
its page goes."""


def parser() -> VerbParser:
    """The arguments of the command."""
    arguments = VerbParser("report", description=DESCRIPTION, epilog=EPILOG)
    arguments.add_argument(
        "runs",
        metavar="RUN",
        nargs="+",
        type=Path,
        help="checkpoints/<experiment>/<run>, or checkpoints/<study>",
    )
    arguments.add_argument("--output", metavar="DIR", type=Path, help="write here instead")
    return arguments


def main(argv: list[str]) -> int:
    """Write the report of each run and print where it is.

    Args:
        argv: The arguments after `report`.

    Raises:
        InputError: A run folder is missing, holds no records or a damaged file.
    """
    options = parser().parse_args(argv)
    for run, places in zip(options.runs, _places(options.runs, options.output), strict=True):
        print(_write(run, places))
    return 0


def _write(folder: Path, places: Places) -> Path:
    """The page of a run, or of a study."""
    if (folder / "study.json").is_file():
        from attnlight.report.study import write_study

        return write_study(folder, places.page)[0]
    from attnlight.report.page import write_report

    return write_report(folder, places)


def _places(runs: list[Path], output: Path | None) -> list[Places]:
    from attnlight.report.page import Places

    if output is None:
        return [Places(run / "report", run / "figures") for run in runs]
    folders = [output.joinpath(*run.resolve().parts[-2:]) for run in runs]
    if len(runs) == 1:
        folders = [output]
    if len(set(folders)) < len(folders):
        raise InputError(f"two runs would be written to one folder of {output}; name each once.")
    return [Places(folder, folder / "figures") for folder in folders]
