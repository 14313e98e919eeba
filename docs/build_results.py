"""Build docs/results.md from the records in docs/results.

    python docs/build_results.py            write the tables into the page
    python docs/build_results.py --check    fail where the page and the records differ
    python docs/build_results.py --keep checkpoints
                                            take over the runs below checkpoints/ first

What stands between `<!-- NAME: begin -->` and `<!-- NAME: end -->` is written here, from the records
alone; so is every sentence that claims something of them. One that its tables no longer bear out is
left out and named, and the command fails until docs/results_page/findings.md.jinja says something
else. The other prose of the page is its own.
"""

from __future__ import annotations

import argparse
import difflib
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from operator import eq
from pathlib import Path

import yaml
from results_page import claims, importance, planted, predictions, serrano, studies
from results_page.findings import Tables, findings, refused
from results_page.keeping import keep_all
from results_page.kept import Kept
from results_page.tables import Row, table
from results_page.targets import targets

from attnlight.errors import InputError
from attnlight.files import write_text

HERE = Path(__file__).parent
PAGE, RECORDS = HERE / "results.md", HERE / "results"
_PLACE = re.compile(r"(<!-- (\w+): begin -->\n).*?(<!-- \2: end -->)", re.DOTALL)

# The rows of tables, and how many of its columns are aligned left.
TABLES: dict[str, tuple[Callable[[Kept], Iterable[Row]], int]] = {
    "accuracy": (predictions.accuracy, 2),
    "seeds": (predictions.runs, 1),
    "epochs": (partial(predictions.runs, last=True), 1),
    "permutation": (predictions.permutation, 1),
    "bins": (predictions.bins, 3),
    "planted": (planted.accuracy, 1),
    "evidence": (planted.evidence, 3),
    "minimal": (planted.minimal, 1),
    "tau": (importance.correlation, 3),
    "adversary": (importance.adversaries, 4),
    "reliability": (importance.reliability, 3),
    "arms": (importance.arms, 2),
    "tau_epochs": (importance.by_epoch, 3),
    "scale": (importance.by_scale, 1),
    "chunking": (predictions.chunking, 2),
    "serrano_accuracy": (serrano.accuracy, 2),
    "several_classes": (serrano.several_classes, 2),
}


def blocks(records: Path) -> dict[str, str]:
    """Every table of the page, and the sentences on them, by the name of its place.

    Raises:
        InputError: Records are missing or do not belong together.
    """
    published = yaml.safe_load((records / "published.yaml").read_text(encoding="utf-8"))
    kept = Kept(records, published)
    found = {name: table(rows(kept), left) for name, (rows, left) in TABLES.items()}
    found |= claims.serrano_tables(serrano.read_models(kept), published)
    found |= studies.study_blocks(records / studies.FOLDER, published)
    found["targets"] = table(targets(kept, Tables(found)), 2)
    return found | findings(found)


def fill(page: str, found: Mapping[str, str]) -> str:
    """The page with each table in its place.

    Raises:
        InputError: The page has no place for a table, or one that no table belongs to.
    """
    places = sorted(place[2] for place in _PLACE.finditer(page))
    if places != sorted(found):
        raise InputError(f"the page has places for {places}; the tables are {sorted(found)}.")
    return _PLACE.sub(lambda place: f"{place[1]}\n{found[place[2]]}\n{place[3]}", page)


def put(
    path: Path, found: Mapping[str, str], check: bool, same: Callable[[str, str], bool] = eq
) -> int:
    """Write what belongs in each place of a page, or with `check` print where the page differs.

    Returns:
        1 where it differs, by `same`, or the records refuse a sentence.
    """
    page = path.read_text(encoding="utf-8")
    wanted = fill(page, found)
    for sentence in refused(wanted):
        print(f"The records do not bear out: {sentence}", file=sys.stderr)
    if not check:
        write_text(path, wanted)
    elif not same(page, wanted):
        held, right = (text.splitlines(keepends=True) for text in (page, wanted))
        sys.stdout.writelines(difflib.unified_diff(held, right, f"docs/{path.name}", "its records"))
        return 1
    return 1 if refused(wanted) else 0


def main(argv: Sequence[str] | None = None) -> int:
    """Build or check the page; 1 where it differs from its records or they refuse a sentence."""
    parser = argparse.ArgumentParser(description="Build docs/results.md from its records.")
    parser.add_argument("--check", action="store_true", help="compare, write nothing")
    parser.add_argument("--keep", type=Path, metavar="RUNS", help="take over these runs first")
    arguments = parser.parse_args(argv)
    if arguments.keep is not None:
        print("".join(f"{line}\n" for line in keep_all(arguments.keep, RECORDS)), end="")
    return put(PAGE, blocks(RECORDS), arguments.check)


if __name__ == "__main__":
    sys.exit(main())
