"""Quality of classifiers and taggers, and the effect of shuffling attention on predictions."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from attnlight.problems import problem_class
from attnlight.records import read_metadata
from attnlight.statistics.bootstrap import resampled_ratios
from attnlight.statistics.seed_bootstrap import Resampled
from results_page import cells
from results_page.archive import Archive, Experiment
from results_page.measures import resampled_quantile
from results_page.planted import NAMES
from results_page.tables import BINS, CLASSES, Row, mean_over_seeds, over_seeds

TEXT = {
    "sst_bilstm": "SST, sentences",
    "sst_phrases_bilstm": "SST, with phrases",
    "imdb_bilstm": "IMDb, 7 to 399 words",
}
MEASURES = {"accuracy": "accuracy", "f1": "F1 of the positive class", "auroc": "AUROC"}
# Curves on validation, and their names on the page.
_CURVES = {
    "accuracy": "accuracy",
    "auroc": "AUROC",
    "predictions/max_attention": "maximum attention",
    "attention_permutation/median_tvd": "median TVD",
    "attention_permutation/flip_rate": "flip rate",
}
_EDGES = (0.25, 0.5, 0.75)  # of `BINS`
_FEW, _POS = "words, four suffixes, case", "words, four suffixes, case, POS tags"
# Model and input features of each tagger.
TAGGERS = {
    "conll2000_study": ("`study`: the released encoder", _POS),
    "conll2000_study_no_pos": ("`study`", _FEW),
    "conll2000_residual": ("`residual`: affine, with the token's own path", _POS),
    "conll2000_text": ("`text`: affine, heads alone", _POS),
    "conll2000_bilstm": ("BiLSTM below `residual`", f"{_FEW}, characters, POS tags"),
}
_SHUFFLED = "attention_permutation"


def accuracy(archive: Archive) -> Iterator[Row]:
    """Our figures and the published ones."""
    sources = {"here": "here"} | archive.published["sources"]
    for name, corpus in TEXT.items():
        texts, runs = np.bincount(archive[name].test("predictions")["label"]), archive[name]
        ours = {"texts": texts, "seeds": len(runs.seeds)}
        ours |= {measure: cells.quality(measure)(runs) for measure in MEASURES}
        theirs = archive.published["accuracy"].get(name, {})
        for source, figures in {"here": ours, **theirs}.items():
            yield {
                "corpus": corpus if source == "here" else "",
                "from": sources[source],
                "test texts, negative / positive": " / ".join(
                    map("{:,}".format, figures.get("texts", ()))
                )
                or None,
                "seeds": figures.get("seeds"),
                **{words: figures.get(key) for key, words in MEASURES.items()},
            }


def runs(archive: Archive, *, last: bool = False) -> Iterator[Row]:
    """Every run: results of the epoch chosen on validation, on the test split.

    With `last` results of the chosen and of the last epoch, both on validation.
    """
    for name, corpus in TEXT.items():
        for place, seed in enumerate(archive[name].seeds):
            curves, epoch = archive[name].curves.loc[seed], archive[name].chosen[seed]
            row = {"corpus": "" if place else corpus, "seed": seed}
            if last:
                row["epoch, chosen / last"] = f"{epoch + 1} / {len(curves)}"
                for curve, words in _CURVES.items():
                    row[f"{words}, chosen"] = curves.at[epoch, curve]
                    row[f"last#{words}"] = curves[curve].iat[-1]
            else:
                row["epoch chosen"] = f"{epoch + 1} of {len(curves)}"
                row["validation accuracy"] = curves.at[epoch, "accuracy"]
                row["validation AUROC"] = curves.at[epoch, "auroc"]
                for measure, words in MEASURES.items():
                    row[f"test {words}"] = cells.measured(archive[name], measure)[0][place]
            yield row


permutation = partial(
    cells.by_model,
    models={name: {"corpus": words} for name, words in (TEXT | NAMES).items()},
    cells={
        "texts": cells.cell(_SHUFFLED, "index", len),
        "maximum attention, mean": cells.cell(_SHUFFLED, "max_attention", mean_over_seeds),
        "median TVD, median over texts": cells.cell(
            _SHUFFLED, "median_tvd", lambda tvd: over_seeds(resampled_quantile(tvd))
        ),
        "median TVD, mean over texts": cells.cell(_SHUFFLED, "median_tvd", mean_over_seeds),
        "flip rate, mean": cells.cell(_SHUFFLED, "flip_rate", mean_over_seeds),
    },
)


def bins(archive: Archive) -> Iterator[Row]:
    """Medians by bin of maximum attention and predicted class, a column per seed."""
    for name, published in archive.published["median_tvd"].items():
        columns = archive[name].test(_SHUFFLED)
        places = np.digitize(columns["max_attention"], _EDGES)
        for predicted, place in np.ndindex(len(CLASSES), len(BINS)):
            members = (columns["prediction"] == predicted) & (places == place)
            row: dict[str, object] = {
                "corpus": "" if place else TEXT[name],
                "predicted": "" if place else CLASSES[predicted],
                "maximum attention": BINS[place],
                "Jain & Wallace": published[predicted][place],
            }
            for run, seed in enumerate(archive[name].seeds):
                tvd = columns["median_tvd"][run][members[run]]
                median = f"{np.median(tvd):.3f} ({len(tvd):,})" if len(tvd) else None
                row[f"here, seed {seed}"] = median
            yield row


def chunk_f1(experiment: Experiment) -> Resampled:
    """Chunk F1 of each run, 2 x correct / (predicted + gold), observed and by resample."""
    columns = experiment.test("predictions")
    classes = read_metadata(experiment.folders[0] / "records/test/predictions.parquet")["classes"]
    label, starts = columns["label"], np.flatnonzero(np.diff(columns["index"], prepend=-1))
    chunks, counts = problem_class("tagging").chunks, []
    for prediction in columns["prediction"]:
        found = chunks(label, prediction, starts, classes, "tokens")
        assert found is not None
        gold, predicted, correct = found
        counts_by_token = np.stack([2.0 * correct, np.add(gold, predicted, dtype=float)])
        counts.append(np.add.reduceat(counts_by_token, starts, axis=1))
    numerators, denominators = np.stack(counts, axis=2)
    return resampled_ratios(numerators, denominators)


def chunking(archive: Archive) -> Iterator[Row]:
    """Chunk F1 of taggers on the development sentences and on CoNLL-2000's official test split."""
    (base,) = archive.published["chunk_f1"]["models"]["trained attention"]
    for name, (model, reads) in TAGGERS.items():
        columns = archive[name].test("predictions")
        best = archive[name].curves["f1"].groupby("seed").max()
        yield {
            "model": model,
            "reads": reads,
            "seeds": len(best),
            "F1, development": best.mean(),
            "F1, test": over_seeds(chunk_f1(archive[name])),
            "token accuracy, test": (columns["prediction"] == columns["label"]).mean(),
            "paper": base if name == "conll2000_study" else None,
        }
