"""Build docs/known_answers.md: every test on models whose answer is known.

    python docs/build_known_answers.py            run the tests and write the tables into the page
    python docs/build_known_answers.py --check    run the tests; fail where the page differs

The prose of the page is its own; what stands between `<!-- NAME: begin -->` and `<!-- NAME: end -->`
is written here.
"""

from __future__ import annotations

import argparse
import logging
import re
import sys
import tempfile
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path

import lightning.pytorch as pl
import numpy as np
import pandas as pd
from build_results import put
from known_models import MODELS, KnownTask, loader
from numpy.typing import NDArray
from results_page.tables import interval, number, table
from scipy.stats import mannwhitneyu

from attnlight import callbacks
from attnlight.records import read_record
from attnlight.report.figures import describe
from attnlight.statistics.bootstrap import bootstrap_means

PAGE = Path(__file__).parent / "known_answers.md"
TESTS = (  # all of a single model
    *("AdversarialAttention", "AttentionPermutation", "DecisionFlip"),
    *("ImportanceCorrelation", "SingleErasure"),
)
EFFECT = 0.9  # least area under the ROC curve over texts by which a measure tells D from F
_NUMBER = re.compile(r"-?\d+\.\d{4}")
_ROUNDING = 5e-4
_DIGITS = 5  # of a value: beyond them rounding would order texts that are alike
# Where all items are alike, erasing one changes nothing: what is measured of it is rounding.
_OF_ONE_ERASURE = re.compile(r"_loo$|^outdone_")


def measure_all() -> dict[tuple[str, str], pd.DataFrame]:
    """Run the tests by their defaults on each model.

    Returns:
        By a test's name in snake case and one of its measures, the value of each text under each
        model, NaN where undefined.
    """
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    found: dict[tuple[str, str], dict[str, NDArray[np.float64]]] = {}
    for known in MODELS:
        with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            trainer = pl.Trainer(
                accelerator="cpu",
                devices=1,
                logger=False,
                inference_mode=False,
                enable_progress_bar=False,
                enable_model_summary=False,
                default_root_dir=folder,
                callbacks=[getattr(callbacks, name)(figures=False) for name in TESTS],
            )
            trainer.test(KnownTask(known), loader(known), verbose=False)
            for path in sorted((Path(folder) / "records/test").glob("*.parquet")):
                record = read_record(path)
                for measure in record.metadata["measures"]:
                    values = record.columns[measure].astype(np.float64).round(_DIGITS)
                    if known.kind == "R" and _OF_ONE_ERASURE.search(measure):
                        values[:] = np.nan
                    found.setdefault((path.stem, measure), {})[known.name] = values
    return {key: pd.DataFrame(of_models) for key, of_models in found.items()}


def blocks(found: Mapping[tuple[str, str], pd.DataFrame]) -> dict[str, str]:
    """Mean and interval of each measure on each model, and which measures tell F from D.

    What tells them apart is the area under the ROC curve of D against the nearest F, all three from
    one side: the chance that D's value of a text is the larger one (of a measure that is smaller
    under D: the smaller one), ties half. 0.5 says nothing; NaN where a model has no value.
    """
    rows, told = [], {}
    for (test, measure), values in found.items():
        (off,), on = (
            [values[model.name].dropna() for model in MODELS if model.kind == kind] for kind in "DF"
        )
        effect = np.nan
        if all(map(len, (off, *on))):
            areas = [mannwhitneyu(off, own).statistic / (len(off) * len(own)) for own in on]
            effect = max(min(areas), 1 - max(areas))
        title, tells = describe(test).title, effect >= EFFECT
        means = bootstrap_means(values.to_numpy(), values.index.to_numpy())
        rows.append(
            {"test": "" if title in told else title, "measure": f"`{measure}`"}
            | {name: interval(mean, 4) for name, mean in zip(values, means, strict=True)}
            | {"AUROC": number(effect, 4), "tells F from D": "yes" if tells else "**no**"}
        )
        told.setdefault(title, ([], []))[not tells].append(f"`{measure}`")
    verdict = ""
    for title, (apart, alike) in told.items():
        said = [f"tells F from D by: {', '.join(apart)}"] if apart else []
        said += [f"does not tell them apart by: {', '.join(alike)}"] if alike else []
        verdict += f"* **{title}** {'; '.join(said)}.\n"
    return {"measures": table(rows, 2), "verdict": verdict}


def agree(page: str, other: str) -> bool:
    """Whether two pages differ in nothing but the rounding of another processor."""
    if _NUMBER.sub("", page) != _NUMBER.sub("", other):
        return False
    pairs = zip(_NUMBER.findall(page), _NUMBER.findall(other), strict=True)
    return all(abs(float(left) - float(right)) <= _ROUNDING for left, right in pairs)


def main(argv: Sequence[str] | None = None) -> int:
    """Build or check the page; 1 where it differs from what the tests say."""
    parser = argparse.ArgumentParser(description="Build docs/known_answers.md.")
    parser.add_argument("--check", action="store_true", help="compare, write nothing")
    arguments = parser.parse_args(argv)
    return put(PAGE, blocks(measure_all()), arguments.check, agree)


if __name__ == "__main__":
    sys.exit(main())
