"""The tables of each kept study of a tagger, and what its conditions say together."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from attnlight.report.grids import Grid
from attnlight.report.tagging import TaggingEstimates, read_tagging_study, tables, verdicts
from attnlight.report.tagging.conditions import (
    exclusivity_tables,
    exclusivity_verdicts,
    read_conditions,
)
from results_page.grids import answers, markdown, place
from results_page.tables import DASH

_F1 = "chunk F1"
# What the curves of a study's conditions are of.
CURVES = (
    *("run", "index", "tokens", "choices", "correct", "nll_gold"),
    *("attention_js_share", "prediction_tvd"),
)


def study_blocks(folders: Sequence[Path], published: Mapping[str, Any]) -> dict[str, str]:
    """Tables and sentences of the kept studies of taggers by the name of their place on the page.

    Args:
        folders: Their folders; `<study>-<condition>` is one condition of a study.
        published: `chunk_f1` of docs/results/published.yaml.

    Returns:
        For each study `<name>_models`, `_distances`, `_adversaries`, `_adversary_distances`,
        `_heads`, `_segments` and `_verdict`; for each that has conditions `<name>_exclusivity`,
        `_tokens_less_marked` and `_verdict`.

    Raises:
        InputError: The files of a study are missing or damaged.
    """
    found: dict[str, str] = {}
    compared: dict[str, dict[str, Path]] = {}
    for folder in folders:
        condition = json.loads((folder / "study.json").read_text(encoding="utf-8"))["options"]
        if condition is None:
            blocks = _blocks(folder, published)
            found |= {f"{place(folder.name)}_{name}": text for name, text in blocks.items()}
        else:
            study = folder.name.removesuffix(f"-{condition}")
            compared.setdefault(study, {})[condition] = folder
    for study, conditions in compared.items():
        held, absent = read_conditions(conditions)
        blocks = {name: markdown(grid) for name, grid in exclusivity_tables(held).items()}
        blocks["verdict"] = answers(exclusivity_verdicts(held, absent))
        found |= {f"{place(study)}_{name}": text for name, text in blocks.items()}
    return found


def _blocks(folder: Path, published: Mapping[str, Any]) -> dict[str, str]:
    study = read_tagging_study(folder)
    estimates = TaggingEstimates(study)
    grids = tables(study, estimates)
    theirs = {
        "models": [("trained attention", published["base"])]
        + [("a probe that ignores its attention", f1) for f1 in published["probes"]],
        "adversaries": [
            (f"KL (released scale), λ = {lam:g}", f1) for lam, f1 in published["adversary"].items()
        ],
    }
    blocks = {
        name: markdown(grid, _added(grid, theirs.get(name, []))) for name, grid in grids.items()
    }
    return blocks | {"verdict": answers(verdicts(study, estimates))}


def _added(grid: Grid, theirs: Sequence[tuple[str, str]]) -> list[list[str]]:
    """Rows of a table for published figures of chunk F1."""
    return [
        [f"{name} (Yang 2020)", *(f1 if head == _F1 else DASH for head in grid.head[1:])]
        for name, f1 in theirs
    ]
