"""Quality of classifiers and taggers, and the effect of shuffling attention on predictions."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from attnlight.problems import problem_class
from attnlight.records import read_metadata
from attnlight.statistics.bootstrap import resampled_ratios
from attnlight.statistics.seed_bootstrap import Resampled
from results_page import NAMES, cells, planted
from results_page.archive import Archive, Experiment
from results_page.tables import BINS, CLASSES, Row, over_seeds

_NAMES = NAMES["predictions"]
TEXT: dict[str, str] = _NAMES["texts"]
MEASURES: dict[str, str] = _NAMES["measures"]
_EDGES = (0.25, 0.5, 0.75)  # of `BINS`
TAGGERS: dict[str, list[str]] = _NAMES["taggers"]
_SHUFFLED = "attention_permutation"
MINILM: dict[str, Row] = {x: {"model": words} for x, words in NAMES["minilm"]["models"].items()}
OF_MINILM = ("minilm_pooled", "minilm_last")  # studies of which the bases are archived, too


def accuracy(archive: Archive) -> Iterator[Row]:
    """Our figures and the published ones."""
    sources = {"here": "here"} | archive.published["sources"]
    for name, corpus in TEXT.items():
        texts, runs = np.bincount(archive[name].test("predictions")["label"]), archive[name]
        ours = {"texts": texts, "seeds": len(runs.seeds)}
        ours |= {measure: over_seeds(cells.measured(runs, measure)) for measure in MEASURES}
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
                for curve, words in _NAMES["curves"].items():
                    row[f"{words}, chosen"] = curves.at[epoch, curve]
                    row[f"last#{words}"] = curves[curve].iat[-1]
            else:
                row["epoch chosen"] = f"{epoch + 1} of {len(curves)}"
                row["validation accuracy"] = curves.at[epoch, "accuracy"]
                row["validation AUROC"] = curves.at[epoch, "auroc"]
                for measure, words in MEASURES.items():
                    row[f"test {words}"] = cells.measured(archive[name], measure)[0][place]
            yield row


# Models whose attention is shuffled.
SHUFFLED: dict[str, Row] = {x: {"corpus": words} for x, words in (TEXT | planted.MODELS).items()}


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


def ablations(archive: Archive) -> Iterator[Row]:
    """TVD and flipped decisions when heads of the last layer of MiniLM, or of all, lose attention."""
    columns = cells.columns(archive["minilm_last"], "head_ablation")
    for ablation in ("uniform", "shuffled", "off"):
        row: Row = {"attention becomes": ablation, "texts": len(columns["index"])}
        for measure, heading in NAMES["minilm"]["moved"].items():
            for part, where in NAMES["minilm"]["parts"].items():
                name = f"{measure}_{part}_{ablation}"
                row[f"{heading}, {where}"] = cells.mean_of(columns, name)
        less = {"less": columns[f"tvd_all_{ablation}"] - columns[f"tvd_last_{ablation}"]}
        yield row | {"TVD, all less last": cells.mean_of(less, "less")}
