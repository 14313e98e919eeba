"""Build docs/known_answers.md: every test on models whose answer is known.

    python docs/build_known_answers.py            run the tests and write the tables into the page
    python docs/build_known_answers.py --check    run the tests; fail where the page differs
    python docs/build_known_answers.py --keep checkpoints
                                                  archive the study known_answers below it first
    python docs/build_known_answers.py --cards checkpoints
                                                  archive the cards of the study known_kinds first

Scores of the trained models come from docs/results/known_answers.parquet, the judgement of the verdict card
from known_answers_kinds.parquet beside it. The kinds of models that may get a yes from the card are written
to attnlight/report/verdict/licences.yaml, the figure to docs/figures.

The prose of the page is written by hand; the tables between `<!-- NAME: begin -->` and
`<!-- NAME: end -->` are written by this script.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from build_results import put
from known_models import MODELS, batches, classifier
from numpy.typing import NDArray
from results_page import NAMES
from results_page import known_answers as trained
from results_page import known_answers_kinds as kinds
from results_page.known_answers import Checkpoints, planned
from results_page.known_answers_cards import card_blocks
from results_page.known_answers_judged import (
    judged_blocks,
    kind_blocks,
    licence_sentences,
    licence_text,
)
from results_page.known_answers_tables import draw_scores, trained_blocks
from results_page.tables import Row, interval, number, table
from scipy.stats import mannwhitneyu

from attnlight import callbacks
from attnlight.api.run import run
from attnlight.attribution import ATTRIBUTIONS
from attnlight.figures import describe
from attnlight.records import read_record
from attnlight.statistics.bootstrap import bootstrap_means
from attnlight.storage.files import write_text

Measures = Mapping[tuple[str, str], pd.DataFrame]
HERE = Path(__file__).parent
PAGE, FIGURE = HERE / "known_answers.md", HERE / "figures/known_answers.png"
CHECKPOINTS = HERE / "results/known_answers.parquet"
CARDS = HERE / "results/known_answers_cards.parquet"
KINDS = HERE / "results/known_answers_kinds.parquet"
LICENCES = HERE.parent / "attnlight/report/verdict/licences.yaml"
TESTS = (  # all tests of a single model
    *("AdversarialAttention", "AttentionPermutation", "DecisionFlip"),
    *("ImportanceCorrelation", "SingleErasure"),
)
OF_METHODS = ("faithfulness", "plausibility")  # tests of attribution methods
# There is no file of scores, and the models have no layers of attention.
# There is no file of scores or heads; the models have no layers of attention, no contexts and no answers.
_NEED_MORE = {"external", "learned_heads", "answer_attention", "context_cite"}
_NEED_MORE |= {"rollout", "gradient_rollout", "attention_flow", "value_zeroing", "alti"}
METHODS = [  # of the package, not those that a program has defined beside them
    name
    for name, kind in ATTRIBUTIONS.items()
    if kind.__module__.startswith("attnlight.") and name not in _NEED_MORE
]
MEASURES: dict[str, str] = NAMES["known_answers_tables"]["measures"]  # of attribution methods
EFFECT = 0.9  # minimum area under the ROC curve over texts for a measure to tell D from F
_NUMBER = re.compile(r"-?\d+\.\d{4}")
_ROUNDING = 5e-4
_DIGITS = 5  # of a value; further digits would order equal texts by rounding error
# With identical items, erasing one changes nothing: its measures are rounding error.
_OF_ONE_ERASURE = re.compile(r"_loo$|^outdone_")


def measure_all() -> dict[tuple[str, str], pd.DataFrame]:
    """Run the tests with default settings, and all attribution methods, on each model.

    Returns:
        By a test's name in snake case and one of its measures, the value of each text under each
        model, NaN where undefined.
    """
    tests = [getattr(callbacks, name)() for name in TESTS]
    tests += [callbacks.Faithfulness(METHODS), callbacks.Plausibility(METHODS)]
    by_measure: dict[tuple[str, str], dict[str, NDArray[np.float64]]] = {}
    for model in MODELS:
        results = run(classifier(model), batches(model), tests)
        for path in sorted(results.folder.glob("records/test/*.parquet")):
            record = read_record(path)
            for measure in record.metadata["measures"]:
                values = record.columns[measure].astype(np.float64).round(_DIGITS)
                if model.kind == "R" and _OF_ONE_ERASURE.search(measure):
                    values[:] = np.nan
                by_measure.setdefault((path.stem, measure), {})[model.name] = values
    return {key: pd.DataFrame(by_model) for key, by_model in by_measure.items()}


def blocks(by_measure: Measures) -> dict[str, str]:
    """Mean and interval of each measure on each model, and which measures tell F from D.

    The effect is the area under the ROC curve of D against the nearest F, with D on the same side
    of all three: the probability that D's value of a text is larger (for a measure that is smaller
    under D, smaller), ties half. 0.5 is no effect; NaN if a model has no value.
    """
    means: dict[tuple[str, str], Row] = {}
    for key, values in by_measure.items():
        found = bootstrap_means(values.to_numpy(), values.index.to_numpy())
        means[key] = {x: interval(mean, 4) for x, mean in zip(values, found, strict=True)}
    rows: list[Row] = []
    measures: dict[str, tuple[list[str], list[str]]] = {}  # by title: those that tell, the others
    for (test, measure), values in by_measure.items():
        if test in OF_METHODS:
            continue
        (off,), on = (
            [values[model.name].dropna() for model in MODELS if model.kind == kind] for kind in "DF"
        )
        effect = np.nan
        if all(map(len, (off, *on))):
            areas = [mannwhitneyu(off, x).statistic / (len(off) * len(x)) for x in on]
            effect = max(min(areas), 1 - max(areas))
        title, tells = describe(test).title, effect >= EFFECT
        row = {"test": "" if title in measures else title, "measure": f"`{measure}`"}
        last = {"AUROC": number(effect, 4), "tells F from D": "yes" if tells else "**no**"}
        rows.append(row | means[test, measure] | last)
        measures.setdefault(title, ([], []))[not tells].append(f"`{measure}`")
    verdict = ""
    for title, both in measures.items():
        verbs = ("tells F from D by", "does not tell them apart by")
        clauses = [f"{x}: {', '.join(y)}" for x, y in zip(verbs, both, strict=True) if y]
        verdict += f"* **{title}** {'; '.join(clauses)}.\n"
    of_methods = {measure: row for (test, measure), row in means.items() if test in OF_METHODS}
    methods: list[Row] = []
    for name, heading in MEASURES.items():
        known = [method for method in METHODS if f"{name}_{method}" in of_methods]
        for method in known:
            row = {"measure": heading if method == known[0] else "", "method": f"`{method}`"}
            methods.append(row | of_methods[f"{name}_{method}"])
    return {"measures": table(rows, 2), "verdict": verdict, "methods": table(methods, 2)}


def agree(page: str, other: str) -> bool:
    """Whether two pages agree up to rounding differences between processors."""
    if _NUMBER.sub("", page) != _NUMBER.sub("", other):
        return False
    pairs = zip(_NUMBER.findall(page), _NUMBER.findall(other), strict=True)
    return all(abs(float(left) - float(right)) <= _ROUNDING for left, right in pairs)


def main(argv: Sequence[str] | None = None) -> int:
    """Build or check the page; 1 if it differs from the results of the tests."""
    parser = argparse.ArgumentParser(description="Build docs/known_answers.md.")
    parser.add_argument("--check", action="store_true", help="compare, write nothing")
    parser.add_argument("--keep", type=Path, metavar="RUNS", help="archive these runs first")
    parser.add_argument("--cards", type=Path, metavar="RUNS", help="archive their cards first")
    arguments = parser.parse_args(argv)
    for runs, module, target, row_of in (
        (arguments.keep, trained, CHECKPOINTS, trained.means_of),
        (arguments.cards, kinds, KINDS, kinds.card_of),
    ):
        if runs:
            print(*trained.archive(runs, target, module.STUDY, module.KEYS, row_of), sep="\n")
    points, total = Checkpoints(pd.read_parquet(CHECKPOINTS)), planned().total()
    cards = kinds.read_cards(KINDS)
    stale = not LICENCES.exists() or LICENCES.read_text("utf-8") != licence_text(cards)
    if not arguments.check:
        write_text(LICENCES, licence_text(cards))
        draw_scores(points, FIGURE)
    elif stale:
        print(f"{LICENCES.name} differs from the judgement of the card")
    content = {**blocks(measure_all()), **trained_blocks(points, total)}
    content |= {**card_blocks(CARDS), **kind_blocks(cards)}
    for version in (4, 5):
        former = kinds.read_cards(KINDS, version)
        content |= judged_blocks(former, f"kinds_{version}")
    content["kinds_5_licences"] = licence_sentences(former)
    return put([PAGE], content, arguments.check, agree) or int(arguments.check and stale)


if __name__ == "__main__":
    torch.set_num_threads(1)  # sums differ in the last digit from those of several threads
    sys.exit(main())
