"""Build docs/results.md from the records in docs/results.

    python docs/build_results.py            write the tables into the page
    python docs/build_results.py --check    fail where the page and the records differ
    python docs/build_results.py --keep checkpoints
                                            take over the runs below checkpoints/ first

What stands between `<!-- NAME: begin -->` and `<!-- NAME: end -->` is written here, from the records
alone; so is every sentence that claims something of them. One that its tables no longer bear out is
left out and named, and the command fails until docs/results_page/findings.py or study_findings.py says
something else. The other prose of the page is its own.
"""

from __future__ import annotations

import argparse
import difflib
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from results_page import (
    arms,
    chunking,
    minimal,
    planted,
    posthoc,
    reliability,
    removal,
    scale,
    serrano,
    several_classes,
    studies,
    tables,
    targets,
    verdicts,
)
from results_page.cells import Tables
from results_page.findings import findings
from results_page.keeping import keep_all
from results_page.kept import Experiment
from results_page.prose import refused
from results_page.study_findings import study_findings

from attnlight.errors import InputError
from attnlight.files import write_text

HERE = Path(__file__).parent
PAGE, RECORDS = HERE / "results.md", HERE / "results"


def blocks(records: Path) -> dict[str, str]:
    """Every table of the page, and the sentences on them, by the name of its place.

    Args:
        records: The folder of the experiments.

    Raises:
        InputError: Records are missing or do not belong together.
    """
    published = yaml.safe_load((records / "published.yaml").read_text(encoding="utf-8"))
    text = {name: Experiment.read(records, name) for name in tables.TEXT}
    synthetic = {name: Experiment.read(records, name) for name in planted.NAMES}
    jain_wallace = {
        model.experiment: Experiment.read(records, model.experiment) for model in posthoc.MODELS
    }
    both_arms = {name: Experiment.read(records, name) for name in arms.NAMES}
    taggers = {name: Experiment.read(records, name) for name in chunking.NAMES}
    found = {
        "targets": targets.target_table(
            text, synthetic, both_arms, taggers, published, records / studies.FOLDER
        ),
        "accuracy": tables.accuracy_table(text, published),
        "seeds": tables.seed_table(text),
        "permutation": tables.permutation_table(text | synthetic, tables.TEXT | planted.NAMES),
        "epochs": tables.epoch_table(text),
        "bins": tables.bin_table(text, published),
        "planted": planted.accuracy_table(synthetic),
        "evidence": planted.evidence_table(synthetic),
        "tau": posthoc.correlation_table(jain_wallace, published),
        "reliability": reliability.reliability_table(jain_wallace),
        "adversary": posthoc.adversary_table(jain_wallace, published),
        "several_classes": several_classes.several_classes_table(records),
        "arms": arms.arms_table(both_arms, published),
        "tau_epochs": arms.epochs_table(
            {name: Experiment.read(records, name) for name in arms.EPOCHS}
        ),
        "minimal": minimal.minimal_table(
            {name: Experiment.read(records, name) for name in minimal.NAMES}
        ),
        "chunking": chunking.f1_table(taggers, published),
        "scale": scale.scale_table(scale.read_scales(records)),
        **serrano_blocks(records, published),
        **studies.study_blocks(records / studies.FOLDER, published),
    }
    tables_found = Tables(found)
    return found | findings(tables_found) | study_findings(tables_found)


def serrano_blocks(records: Path, published: Mapping[str, Any]) -> dict[str, str]:
    """The tables of Serrano & Smith's models, of those that were run."""
    found = serrano.read_models(records)
    return {
        "serrano_accuracy": serrano.accuracy_table(found, published),
        "serrano_claims": verdicts.claims_table(found),
        "serrano_contingency": serrano.contingency_table(found, published),
        "serrano_first": verdicts.first_table(found),
        "serrano_fraction": removal.fraction_table(found),
        "serrano_par": verdicts.par_table(found),
        "serrano_falling": verdicts.falling_table(found),
        "serrano_sooner": verdicts.sooner_table(found),
        "serrano_mass": removal.mass_table(found),
        "serrano_lighter": verdicts.lighter_table(found),
        "serrano_excess": removal.excess_table(found),
        "serrano_last": removal.last_table(found),
        "serrano_never": removal.never_table(found),
    }


def fill(page: str, found: Mapping[str, str]) -> str:
    """The page with each table in its place.

    Raises:
        InputError: The page has no place for a table, or one that no table belongs to.
    """
    places = re.findall(r"<!-- (\w+): begin -->", page)
    if sorted(places) != sorted(found):
        raise InputError(f"the page has places for {places}; the tables are {sorted(found)}.")
    for name, table in found.items():
        begin, end = f"<!-- {name}: begin -->\n", f"<!-- {name}: end -->"
        head, _, rest = page.partition(begin)
        page = head + begin + "\n" + table + "\n" + end + rest.partition(end)[2]
    return page


def main(argv: Sequence[str] | None = None) -> int:
    """Build or check the page; 1 where it differs from its records or they refuse a sentence."""
    parser = argparse.ArgumentParser(description="Build docs/results.md from its records.")
    parser.add_argument("--check", action="store_true", help="compare, write nothing")
    parser.add_argument("--keep", type=Path, metavar="RUNS", help="take over these runs first")
    arguments = parser.parse_args(argv)
    if arguments.keep is not None:
        print("".join(f"{line}\n" for line in keep_all(arguments.keep, RECORDS)), end="")
    page = PAGE.read_text(encoding="utf-8")
    wanted = fill(page, blocks(RECORDS))
    for sentence in refused(wanted):
        print(f"The records do not bear out: {sentence}", file=sys.stderr)
    if not arguments.check:
        write_text(PAGE, wanted)
    elif page != wanted:
        held, right = (text.splitlines(keepends=True) for text in (page, wanted))
        sys.stdout.writelines(difflib.unified_diff(held, right, "docs/results.md", "its records"))
        return 1
    return 1 if refused(wanted) else 0


if __name__ == "__main__":
    sys.exit(main())
