"""Build docs/results.md from the records in docs/results.

    python docs/build_results.py            write the tables into the page
    python docs/build_results.py --check    fail where the page and the records differ
    python docs/build_results.py --keep checkpoints
                                            archive the runs below checkpoints/ first, and draw
                                            docs/figures/pruthi.png

This script writes the tables between `<!-- NAME: begin -->` and `<!-- NAME: end -->` and every
sentence about them, from the records alone. A sentence that its tables no longer support is left out and
printed, and the command fails until docs/results_page/findings.md.jinja is changed. The other prose
of the page is written by hand.
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
from results_page import (
    claims,
    importance,
    pairs,
    planted,
    predictions,
    pruthi,
    saliency,
    serrano,
    studies,
)
from results_page.archive import Archive
from results_page.archive_runs import archive_runs
from results_page.findings import Tables, findings, refused
from results_page.tables import Row, table
from results_page.targets import targets

from attnlight.errors import InputError
from attnlight.files import write_text
from attnlight.report.style import figure_bytes

HERE = Path(__file__).parent
PAGE, RECORDS = HERE / "results.md", HERE / "results"
_PLACE = re.compile(r"(<!-- (\w+): begin -->\n).*?(<!-- \2: end -->)", re.DOTALL)

# Each table's rows, and the number of its columns that are aligned left.
TABLES: dict[str, tuple[Callable[[Archive], Iterable[Row]], int]] = {
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
    "pairs_runs": (pairs.spent, 4),
    "pairs": (pairs.readings, 4),
    "pairs_evidence": (pairs.evidence, 4),
    "pairs_reasons": (pairs.reasons, 4),
    "snli_size": (pairs.sizes, 1),
    "saliency_runs": (partial(pairs.spent, models=saliency.MODELS), 2),
    "saliency_faithfulness": (saliency.faithfulness, 2),
    "saliency_truth": (saliency.truth, 1),
    "saliency_right": (saliency.right_and_faithful, 3),
    "saliency_plausibility": (saliency.plausibility, 2),
    "saliency_states": (saliency.states, 2),
    "saliency_cost": (saliency.cost, 1),
    "saliency_complete": (saliency.completeness, 2),
    "saliency_sanity": (saliency.sanity, 3),
    "pruthi": (pruthi.deception, 3),
    "pruthi_reasons": (pruthi.reasons, 5),
}


def blocks(records: Path) -> dict[str, str]:
    """Every table of the page, and the sentences about them, by the name of its place.

    Raises:
        InputError: Records are missing or inconsistent.
    """
    published = yaml.safe_load((records / "published.yaml").read_text(encoding="utf-8"))
    archive = Archive(records, published)
    content = {name: table(rows(archive), left) for name, (rows, left) in TABLES.items()}
    content |= claims.serrano_tables(serrano.read_models(archive), published)
    content |= studies.study_blocks(records / studies.FOLDER, published)
    content["targets"] = table(targets(archive, Tables(content)), 2)
    return content | findings(content)


def fill(page: str, content: Mapping[str, str]) -> str:
    """The page with each table in its place.

    Raises:
        InputError: The page has no place for a table, or no table for a place.
    """
    places = sorted(place[2] for place in _PLACE.finditer(page))
    if places != sorted(content):
        raise InputError(f"the page has places for {places}; the tables are {sorted(content)}.")
    return _PLACE.sub(lambda place: f"{place[1]}\n{content[place[2]]}\n{place[3]}", page)


def put(
    path: Path, content: Mapping[str, str], check: bool, same: Callable[[str, str], bool] = eq
) -> int:
    """Write the content of each place of a page, or with `check` print the differences.

    Returns:
        1 if the page differs, by `same`, or the records do not support a sentence.
    """
    page = path.read_text(encoding="utf-8")
    expected = fill(page, content)
    for sentence in refused(expected):
        print(f"The records do not support: {sentence}", file=sys.stderr)
    if not check:
        write_text(path, expected)
    elif not same(page, expected):
        lines = (text.splitlines(keepends=True) for text in (page, expected))
        sys.stdout.writelines(difflib.unified_diff(*lines, f"docs/{path.name}", "its records"))
        return 1
    return 1 if refused(expected) else 0


def main(argv: Sequence[str] | None = None) -> int:
    """Build or check the page; 1 if it differs from its records or a sentence is unsupported."""
    parser = argparse.ArgumentParser(description="Build docs/results.md from its records.")
    parser.add_argument("--check", action="store_true", help="compare, write nothing")
    parser.add_argument("--keep", type=Path, metavar="RUNS", help="archive these runs first")
    arguments = parser.parse_args(argv)
    if arguments.keep is not None:
        print("".join(f"{line}\n" for line in archive_runs(arguments.keep, RECORDS)), end="")
        published = yaml.safe_load((RECORDS / "published.yaml").read_text(encoding="utf-8"))
        if (figure := pruthi.draw(Archive(RECORDS, published))) is not None:
            (HERE / "figures/pruthi.png").write_bytes(figure_bytes(figure, "png"))
    return put(PAGE, blocks(RECORDS), arguments.check)


if __name__ == "__main__":
    sys.exit(main())
