"""SST by a pretrained MiniLM beside a BiLSTM: accuracy, every test, and all layers at once."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from attnlight.figures import erasure
from attnlight.figures.erasure import SCORES
from attnlight.statistics import seeds_then_instances
from results_page import NAMES, cells
from results_page.archive import Archive, Experiment
from results_page.tables import Row, interval

_NAMES = NAMES["minilm"]
MODELS: dict[str, str] = _NAMES["models"]
STUDIES = ("minilm_pooled", "minilm_last")  # archived whole, too
# Places of tables that the study of the last layer, which has adversaries alone, leaves empty.
LEFT_OUT = tuple(
    f"minilm_last_{name}" for name in ("table2", "table3", "table4", "seeds", "verdict")
)
_ABLATIONS = ("uniform", "shuffled", "off")
_RANKINGS = (*SCORES, "random_first", "minimal")
WORDS: dict[str, Row] = {name: {"model": words} for name, words in MODELS.items()}


def serrano_smith(archive: Archive) -> Iterator[Row]:
    """Decisions that the first item of each ranking flips, and the fraction until one flips.

    The fraction of a text whose decision a ranking never flips is 1.
    """
    for name, words in MODELS.items():
        runs, fractions = archive[name], {}
        found: Row = {"model": words, "seeds": len(runs.seeds)}
        for x in SCORES:
            flips = cells.mean_of(cells.columns(runs, "single_erasure"), f"flip_top_{x}")
            found[f"first item, {erasure.WORDS[x]}"] = flips
        for ranking in _RANKINGS:
            fractions[ranking] = _removed(runs, "removed_fraction", ranking, "one")
            found[f"removed, {erasure.WORDS[ranking]}"] = cells.mean_of(fractions, ranking)
            if ranking in SCORES:
                never = {"flips": _removed(runs, "never_flips", ranking, "column")}
                found[f"never, {erasure.WORDS[ranking]}"] = cells.mean_of(never, "flips")
        less = seeds_then_instances(fractions["attention"] - fractions["gradient"], bounds=(-1, 1))
        yield found | {"removed, attention less gradient": interval(less, 3)}


def _removed(
    runs: Experiment, measure: str, ranking: str, never: erasure.NeverFlipPolicy
) -> NDArray[np.float64]:
    """A measure of a ranking in each run, (S, n)."""
    columns = {x: y for x, y in cells.columns(runs, "decision_flip").items() if x != "index"}
    rows = ({x: y[seed] for x, y in columns.items()} for seed in range(len(runs.seeds)))
    return np.stack([erasure.removed(one, measure, ranking, never) for one in rows])


def control(archive: Archive) -> Iterator[Row]:
    """TVD and flipped decisions when heads of the last layer, or of all, lose their attention."""
    columns = archive["minilm_last"].test("head_ablation", partial=True)
    for ablation in _ABLATIONS:
        row: dict[str, object] = {"attention becomes": ablation, "texts": len(columns["index"])}
        for measure, heading in _NAMES["moved"].items():
            for part, where in _NAMES["parts"].items():
                name = f"{measure}_{part}_{ablation}"
                row[f"{heading}, {where}"] = cells.mean_of(columns, name)
        less = {"less": columns[f"tvd_all_{ablation}"] - columns[f"tvd_last_{ablation}"]}
        yield row | {"TVD, all less last": cells.mean_of(less, "less")}
