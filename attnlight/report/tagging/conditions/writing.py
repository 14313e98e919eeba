"""From the folders of a study's conditions to the comparison of them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from attnlight.report.study.files import Drawing, write_files
from attnlight.report.study.page import Head
from attnlight.report.tagging.conditions.figure import CAPTION, draw_exclusivity
from attnlight.report.tagging.conditions.reading import read_conditions
from attnlight.report.tagging.conditions.tables import exclusivity_tables, runs_csv
from attnlight.report.tagging.conditions.verdict import exclusivity_verdicts


def write_exclusivity(folders: Mapping[str, Path], output: Path) -> list[Path]:
    """Compare how exclusive attention is under the conditions of a tagger's study.

    Args:
        folders: The folder of each condition, with its `study.json` and `study.parquet`, by name.
            Conditions that are not collected yet are told as missing.
        output: Where to write; the comparison's title is its name.

    Returns:
        The files, the page first.

    Raises:
        InputError: No condition is collected, a file is damaged or cannot be written, or two
            conditions have one target, readout and choice of features.
    """
    conditions, absent = read_conditions(folders)
    first = conditions[0].study
    lead = (
        "Is tagging more exclusive than classification? One encoder, three targets of the same "
        "sentences: how different attention can be trained to be at a given cost."
    )
    facts = {
        "Experiment": first.experiment,
        "Corpus": first.corpus,
        "Conditions": ", ".join(one.name for one in conditions),
    }
    figure = draw_exclusivity(conditions)
    title = "Attention's divergence at a given cost"
    drawings = [] if figure is None else [Drawing(title, "curves", figure, CAPTION)]
    return write_files(
        output,
        Head(output.resolve().name, "conditions of a study", lead, facts),
        exclusivity_verdicts(conditions, absent),
        exclusivity_tables(conditions),
        drawings,
        ("runs.csv", runs_csv(conditions)),
    )
