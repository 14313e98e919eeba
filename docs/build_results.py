"""Build docs/results.md and the pages behind it from the records in docs/results.

    python docs/build_results.py            write the tables into the pages, and draw figures
    python docs/build_results.py --check    fail where the pages and the records differ
    python docs/build_results.py --keep checkpoints
                                            archive the runs below checkpoints/ first, each in
                                            place of that of its name and seed, and draw
                                            docs/figures/pruthi.png and
                                            docs/figures/chunking_conll2000_tradeoff.png
    python docs/build_results.py --unpack FOLDER
                                            write the archived folders of runs and studies below
                                            FOLDER, where `attnlight report` can read them
    python docs/build_results.py --pack FOLDER
                                            archive unpacked folders again, after a change by hand

This script writes the tables between `<!-- NAME: begin -->` and `<!-- NAME: end -->` and every
sentence about them, from the records alone; each place is on one of `PAGES`. A sentence that its tables no
longer support is left out and printed, and the command fails until docs/results_page/findings.md is
changed. The other prose of the pages is written by hand.
"""

from __future__ import annotations

import argparse
import difflib
import re
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from operator import eq
from pathlib import Path

from results_page import (
    answers,
    cards,
    claims,
    honest,
    known_answers,
    mixing,
    papers,
    pruthi,
    read_data,
    replication,
    roar,
    sentences,
    sentences_methods,
    sentences_studies,
    serrano,
    studies,
    translation,
)
from results_page.archive import Archive
from results_page.archive_runs import archive_runs
from results_page.distributions import draw_distributions
from results_page.figures import draw_tables
from results_page.findings import Tables, findings, refused
from results_page.packed import pack, unpack
from results_page.tables import table

from attnlight.errors import InputError
from attnlight.figures.style import figure_bytes
from attnlight.storage.files import read_yaml, write_text

HERE = Path(__file__).parent
RECORDS = HERE / "results"
NAMES = (  # the front page, then those that it links to
    *("jain_wallace", "pairs", "serrano_smith", "wiegreffe_pinter", "chunking"),
    *("saliency", "real_text", "pruthi", "translation", "honest", "planted", "minilm", "answers"),
    *("replication", "commands"),
)
PAGES = (HERE / "results.md", *(RECORDS / f"{name}.md" for name in NAMES))
PLACES = (*sentences.PLACES, *sentences_studies.PLACES, *sentences_methods.PLACES)
PLACES += (*answers.PLACES, *honest.PLACES, *translation.PLACES, *mixing.PLACES)
PLACES += replication.PLACES
_PLACE = re.compile(r"(<!-- (\w+): begin -->\n).*?(<!-- \2: end -->)", re.DOTALL)

TABLES = read_data("tables")
# Tables that a study without uniform attention and guides leaves empty.
LEFT_OUT = {f"minilm_last_{x}" for x in ("table2", "table3", "table4", "seeds", "verdict")}


def build_table(archive: Archive, name: str) -> str:
    """A table of `tables.yaml`."""
    spec = dict(TABLES[name])
    left, rows = spec.pop("left"), spec.pop("rows", "cells.by_model")
    for key, of in {"rows": rows, "models": spec.get("models")}.items():
        if of:
            module, _, attribute = of.partition(".")
            spec[key] = getattr(import_module(f"results_page.{module}"), attribute)
    return table(spec.pop("rows")(archive, **spec), left)


def blocks(records: Path, runs: Path) -> dict[str, str]:
    """Every table of the pages, and the sentences about them, by the name of its place.

    Args:
        records: docs/results.
        runs: The root of the folders that are packed in it.

    Raises:
        InputError: Records are missing or inconsistent.
    """
    archive = Archive(runs, published := read_yaml(records / "published.yaml"))
    content = {name: build_table(archive, name) for name in TABLES}
    content |= claims.serrano_tables(serrano.read_models(archive), published)
    content |= studies.study_blocks(runs / studies.FOLDER, published)
    content |= papers.claim_tables(Tables(content))
    content |= replication.replication_tables(archive, Tables(content))
    content["cards"] = cards.card_table(records / "cards.parquet")
    content["honest_cards"] = cards.card_table(records / "honest_cards.parquet", honest.CONDITIONS)
    content = {place: text for place, text in content.items() if place not in LEFT_OUT}
    return content | findings(content, PLACES)


def fill(pages: Sequence[str], content: Mapping[str, str]) -> list[str]:
    """The pages with each table in its place.

    Raises:
        InputError: The pages have no place, or several, for a table, or no table for a place.
    """
    places = sorted(place[2] for page in pages for place in _PLACE.finditer(page))
    if places != sorted(content):
        raise InputError(f"the pages have places for {places}; the tables are {sorted(content)}.")
    return [
        _PLACE.sub(lambda place: f"{place[1]}\n{content[place[2]]}\n{place[3]}", page)
        for page in pages
    ]


def put(
    paths: Sequence[Path],
    content: Mapping[str, str],
    check: bool,
    same: Callable[[str, str], bool] = eq,
) -> int:
    """Write the content of each place of some pages, or with `check` print the differences.

    Returns:
        1 if a page differs, by `same`, or the records do not support a sentence.
    """
    pages = [path.read_text(encoding="utf-8") for path in paths]
    failed = 0
    for path, page, expected in zip(paths, pages, fill(pages, content), strict=True):
        for sentence in refused(expected):
            print(f"The records do not support: {sentence}", file=sys.stderr)
            failed = 1
        if not check:
            write_text(path, expected)
        elif not same(page, expected):
            old, new = (text.splitlines(keepends=True) for text in (page, expected))
            sys.stdout.writelines(difflib.unified_diff(old, new, path.name, "its records"))
            failed = 1
    return failed


def main(argv: Sequence[str] | None = None) -> int:
    """Build or check the pages; 1 if one differs from its records or a sentence is unsupported."""
    parser = argparse.ArgumentParser(description="Build the pages of results from their records.")
    parser.add_argument("--check", action="store_true", help="compare, write nothing")
    parser.add_argument("--keep", type=Path, metavar="RUNS", help="archive these runs first")
    parser.add_argument("--cards", type=Path, metavar="RUNS", help="archive their cards first")
    parser.add_argument("--unpack", type=Path, metavar="FOLDER", help="write the run folders, only")
    parser.add_argument("--pack", type=Path, metavar="FOLDER", help="archive these folders, only")
    parser.add_argument(
        "--roar", type=Path, metavar="RUNS", help="archive this study of ROAR first"
    )
    arguments = parser.parse_args(argv)
    if arguments.unpack is not None:
        unpack(RECORDS, arguments.unpack)
        return 0
    if arguments.cards is not None:
        study = "honest_sst" if any(arguments.cards.glob("honest_sst-*")) else "cards"
        target = RECORDS / ("cards.parquet" if study == "cards" else "honest_cards.parquet")
        left_out = known_answers.archive(arguments.cards, target, study, cards.KEYS, cards.card_of)
        print(*left_out, sep="\n")
    if arguments.roar is not None:
        roar.archive_roar(arguments.roar)
    if arguments.pack is not None:
        pack(arguments.pack, RECORDS)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        unpack(RECORDS, runs := Path(folder))
        if arguments.keep is not None:
            print("".join(f"{line}\n" for line in archive_runs(arguments.keep, runs)), end="")
            pack(runs, RECORDS)
            chunking = runs / studies.FOLDER / "chunking_conll2000", RECORDS / "published.yaml"
            drawn = {"chunking_conll2000_tradeoff": studies.draw_chunking(*chunking)}
            drawn |= {"pruthi": figure} if (figure := pruthi.draw(Archive(runs, {}))) else {}
            for name, figure in drawn.items():
                (HERE / f"figures/{name}.png").write_bytes(figure_bytes(figure, "png"))
        content = blocks(RECORDS, runs)
        if not arguments.check:
            draw_tables(Tables(content), HERE / "figures")
            draw_distributions(Archive(runs, {}), HERE / "figures")
    return put(PAGES, content, arguments.check)


if __name__ == "__main__":
    sys.exit(main())
