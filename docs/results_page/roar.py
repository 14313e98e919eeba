"""Accuracy of models that are trained without the words that a method ranks first: the study `roar`."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import torch
import yaml
from numpy.typing import NDArray
from torch.nn.utils.rnn import pad_sequence

from attnlight.data.planted import PlantedSpec
from attnlight.figures.methods import method_words
from attnlight.functional import average_precision
from attnlight.records.parquet import read_table
from attnlight.report.study import read_study
from attnlight.report.study.frame import FINISHED
from attnlight.statistics import seeds_then_instances
from results_page import NAMES
from results_page.known_answers import write_rows
from results_page.tables import DASH, Row, interval

Values = NDArray[np.float64]
Methods = dict[str, Values]  # values of each seed and text (S, n), by method
ARCHIVE = Path(__file__).parents[1] / "results/roar.parquet"
_CORPORA: dict[str, str] = NAMES["real_text"]["corpora"]
METHODS: dict[str, str] = NAMES["roar"]
_padded = partial(pad_sequence, batch_first=True)  # lists as one tensor, (n, N)


def archive_roar(runs: Path, target: Path = ARCHIVE) -> None:
    """Write a row for each finished run below the folder of the study.

    A row has corpus, method and share of the removed words, seed, and for each test text whether its
    class is predicted (`correct`); of whole planted texts also the AUPRC of each method's ranking.
    """
    rows = []
    for path in sorted(runs.glob("roar-*/study.json")):
        study = read_study(path.parent)
        correct = study.measures["label"] == study.measures["prediction"]
        for name, run in study.runs[study.runs["state"] == FINISHED].iterrows():
            whole = run["role"] == "base"
            method, share = ("nothing", 0.0) if whole else (run["method"], run["share"])
            row = {"corpus": study.corpus, "method": METHODS.get(method, method), "share": share}
            row |= {"seed": run["seed"], "correct": correct.loc[name].to_numpy()}
            planted = whole and study.corpus == "planted"
            rows.append(row | (_auprc(path.parent / str(name)) if planted else {}))
    write_rows(rows, ("corpus", "method", "share", "seed"), target)


def _auprc(run: Path) -> Row:
    """AUPRC of the planted evidence by each method's ranking, of every test text."""
    data = yaml.safe_load((run / "fit.yaml").read_text(encoding="utf-8"))["data"]["init_args"]
    given = {name: x for name, x in data.items() if name in PlantedSpec.__match_args__}
    (texts,) = PlantedSpec(**given).draw(2, data["test_size"])
    marks = np.split(texts.evidence > 0, np.cumsum(texts.lengths)[:-1])
    marked, mask = (_padded([torch.tensor(f(x)) for x in marks]) for f in (np.array, np.ones_like))
    columns = read_table(run / "records/test/saliency_agreement.parquet").to_pandas()
    scores = {y: _padded([*map(torch.tensor, columns[f"scores_{x}"])]) for x, y in METHODS.items()}
    return {f"auprc_{x}": average_precision(y, marked, mask).numpy() for x, y in scores.items()}


def measures(corpus: str) -> tuple[dict[tuple[str, float], Values], Methods, Methods]:
    """Whether the class is predicted, loss and AUPRC, of each seed and text (S, n).

    Returns:
        Whether it is, by method and share of the removed words; by method, the loss beyond random
        removal of the same seed, mean over shares; and, of planted texts, the AUPRC.
    """
    runs = pd.read_parquet(ARCHIVE).query(f"corpus == '{corpus}'")
    groups = runs.groupby(["method", "share"])["correct"]
    right = {(str(x), float(y)): np.stack([*own]).astype(float) for (x, y), own in groups}
    shares = [share for method, share in right if method == "random"]
    less = {
        method: np.mean([right["random", x] - right[method, x] for x in shares], 0)
        for method in METHODS.values()
    }
    auprc = runs[runs["method"] == "nothing"].filter(like="auprc_").dropna()
    return right, less, {x: np.stack([*auprc[f"auprc_{x}"]]) for x in less if len(auprc)}


def accuracies(_: object) -> Iterator[Row]:
    """Accuracy by the method that chose the removed words, and their share."""
    for corpus in ("planted", "sst"):
        found, beyond, _ = measures(corpus)
        for method in ("nothing", *beyond, "random"):
            row = {"corpus": _CORPORA[corpus], "words removed by": method_words(method)}
            for share in sorted({share for _, share in found}):
                values = found.get((method, share))
                mean = None if values is None else seeds_then_instances(values, bounds=(0, 1))
                row[f"{100 * share:g} %"] = DASH if mean is None else interval(mean, 3)
            less = beyond.get(method)
            loss = DASH if less is None else interval(seeds_then_instances(less), 3)
            yield row | {"mean loss beyond random": loss}
