"""Figures of the pages, recomputed from the archived records by loops, scipy, seqeval and torchmetrics."""

import csv
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from numpy.typing import NDArray
from scipy.stats import binomtest, kendalltau, rankdata, spearmanr, t
from seqeval.metrics import f1_score
from torchmetrics.functional.classification import binary_auroc, binary_average_precision

from attnlight.data.planted import PlantedSpec
from attnlight.records import read_metadata, read_record
from attnlight.storage.files import read_yaml
from tests.kept import BLOCKS, DOCS, archived, page

modules = ("archive_runs", "findings", "importance", "pairs", "planted", "predictions")
archive_runs, findings, importance, pairs, planted, predictions = map(page, modules)
answers, pruthi, saliency, serrano = map(page, ("answers", "pruthi", "saliency", "serrano"))
translation = page("translation")
TABLES, CONFIGS = findings.Tables(BLOCKS), DOCS.parent / "configs"
SCALED = {f"{name}{importance.WIDER}": name for name in importance.SCALED}
# What the runs of Serrano & Smith's models were given beside their files in configs/experiments.
LEARNING_RATE, EPOCHS = 1e-3, {"rnn": 8, "conv": 8, "none": 15}
OTHER_EPOCHS = {"yelp_flan_conv": 15, "20_newsgroups_flan_rnn": 5, "20_newsgroups_han_rnn": 5}
AS_RELEASED = f"{pairs.STUDY}-babi_1_cnn_additive_"
TAUS = [("tau with gradient", "tau_attention_input_gradient")]
TAUS += [("tau with leave-one-out", "tau_attention_loo")]


def runs(name: str = "*") -> list[Path]:
    """The archived run folders of an experiment, by seed."""
    found = sorted(archived().glob(f"{name}/seed*/fit.yaml"))
    assert found, name
    return [path.parent for path in found]


@cache
def columns(run: Path, test: str) -> dict[str, NDArray[Any]]:
    """The columns of a record, floats in double precision."""
    found = read_record(run / f"records/test/{test}.parquet").columns
    return {x: y.astype(np.float64) if y.dtype.kind == "f" else y for x, y in found.items()}


def logged_by_test(run: Path) -> dict[str, float]:
    """What `attnlight test` logged, of all times that it was called."""
    logged: dict[str, float] = {}
    for path in sorted(run.glob("logs/version_*/metrics.csv")):
        for row in csv.DictReader(path.read_text().splitlines()):
            found = {name: float(x) for name, x in row.items() if x not in ("", "nan")}
            logged |= found if "test/accuracy" in found else {}
    return logged


def holds(saved: Any, given: Any) -> bool:
    """Whether a saved configuration says what was given; beside it, it names every default."""
    if isinstance(given, dict):
        return all(
            all(any(holds(one, part) for one in saved[name[:-1]]) for part in parts)
            if name.endswith("+")  # appended to what other files give
            else name in saved and holds(saved[name], parts)
            for name, parts in given.items()
        )
    return bool(saved == given)


def given_to(name: str) -> tuple[Any, Any, Any]:
    """Model, data and trainer as configured for an experiment or the condition of a study."""
    options: dict[str, Any] = {}
    path = CONFIGS / f"experiments/{SCALED.get(name, name)}.yaml"
    if name in pairs.MODELS:
        plan = read_yaml(CONFIGS / f"studies/{pairs.STUDY}.yaml")
        condition = plan["conditions"][name.partition("-")[2]]
        path = CONFIGS / "studies" / condition.get("experiment", plan["experiment"])
        options = condition.get("options", {})
    given = read_yaml(path)
    model, data = (read_yaml(path.parent / given[part]) for part in ("model", "data"))
    if name in SCALED:
        model["init_args"]["net"]["embedding_scale"] = 0.3
    if name in serrano.MODELS:
        model["init_args"]["optimizer"]["learning_rate"] = LEARNING_RATE
        of_corpus = 15 if name.startswith("yahoo_2topics") else EPOCHS[name.rpartition("_")[2]]
        epochs = OTHER_EPOCHS.get(name, of_corpus)
        given["trainer"]["max_epochs"] = epochs
    if name in pairs.MODELS:
        model["init_args"]["net"] |= options.get("model", {}).get("net", {})
        data["init_args"] |= options.get("data", {})
    return model, data, given["trainer"]


class TestRuns:
    def test_their_measures_have_the_means_that_the_run_logged(self) -> None:
        """torchmetrics and the tests computed these from unrounded values."""
        compared: set[str] = set()
        for run in runs():
            logged = logged_by_test(run)
            needed = archive_runs.needed(run.parent.name)
            for test in needed if logged else ():
                for name, values in columns(run, test).items():
                    theirs = float(logged.get(key := f"test/{test}/{name}", "nan"))
                    if values.ndim == 1 and not np.isnan(theirs) and not np.isnan(values).all():
                        compared.add(key)
                        ours = np.nanmean(values)
                        assert ours == pytest.approx(theirs, abs=2e-4, rel=2e-4), (run, key)
            if "test/accuracy" in logged and "predictions" in needed:
                found = columns(run, "predictions")
                right = (found["prediction"] == found["label"]).mean()
                assert right == pytest.approx(float(logged["test/accuracy"]), abs=1e-5)
        some = {f"importance_correlation/{column}" for _, column in TAUS}
        some |= {"adversarial_attention/worst_js", "decision_flip/minimal_count"}
        assert {f"test/{name}" for name in some} <= compared

    def test_they_are_of_the_commands_configuration(self) -> None:
        """Otherwise the commands on the page would no longer give these records."""
        for run in runs():
            of_study = archive_runs.OF_STUDY.search(run.parent.name)
            if run.parent.name in answers.MODELS or (
                of_study and run.parent.name not in pairs.MODELS
            ):
                continue
            saved = read_yaml(run / "fit.yaml")
            model, data, trainer = given_to(run.parent.name)
            assert holds(saved["model"], model), run
            assert holds(saved["data"], data), run
            assert holds(saved["trainer"], trainer), run
            assert saved["root"] == "checkpoints"

    def test_planted_texts_are_those_of_the_configuration(self) -> None:
        for name in planted.MODELS:
            run = runs(name)[0]
            data = read_yaml(run / "fit.yaml")["data"]["init_args"]
            fields = PlantedSpec.__dataclass_fields__
            spec = PlantedSpec(**{x: value for x, value in data.items() if x in fields})
            (texts,) = spec.draw(2, data["test_size"])
            stored = pd.read_parquet(run / "predictions.parquet")
            words = [word for text in stored["tokens"] for word in text]
            assert words == [spec.words[token] for token in texts.tokens]
            assert np.concatenate([*stored["evidence"]]).tolist() == texts.evidence.tolist()
            assert stored["label"].tolist() == texts.labels.tolist()


def means() -> Iterator[tuple[str, Mapping[str, tuple[str, ...]], str, dict[str, str]]]:
    """Tables with cells of means: words of the row of each experiment, the test, and columns."""
    tau, shuffled = "importance_correlation", "attention_permutation"
    models = {name: (*words.values(),) for name, words in importance.MODELS.items()}
    yield "tau", models, tau, dict(TAUS)
    worst = {"worst JS": "worst_js", "JS of the search": "search_js"}
    models = {name: (*words, "all") for name, words in models.items()}
    yield "adversary", models, "adversarial_attention", worst
    held = {name: x for name, x in pairs.MODELS.items() if (archived() / name).is_dir()}
    models = {name: (*map(str, model.words.values()),) for name, model in held.items()}
    babi = {name: (*models[name], "all") for name in pairs.BABI if name in held}
    yield "pairs_evidence", babi, "evidence_mass", {"AUPRC": "auprc"}
    for name in (*pairs.RESIZED, *(name for name in models if name.startswith(AS_RELEASED))):
        models.pop(name)
    yield "pairs", models, shuffled, {"median TVD": "median_tvd"}
    texts = {name: (words,) for name, words in (predictions.TEXT | planted.MODELS).items()}
    yield "permutation", texts, shuffled, {"flip rate": "flip_rate"}
    texts.pop("imdb_bilstm")
    yield "permutation", texts, shuffled, {"maximum attention": "max_attention"}
    models = {name: (row["model"],) for name, row in predictions.MINILM.items()}
    yield "minilm_jain_wallace", models, tau, dict(TAUS)
    for x in ("uniform", "shuffled", "off"):
        found = {"TVD, last layer": f"tvd_last_{x}", "TVD, all layers": f"tvd_all_{x}"}
        yield "minilm_control", {"minilm_last": (x,)}, "head_ablation", found
    for label in ("attention", "integrated_gradients"):
        names = (f"saliency-{x}" for x in ("sst_bilstm", "planted_none", "hatexplain_bilstm"))
        words = {x: (*saliency.MODELS[x].words.values(), saliency.METHODS[label]) for x in names}
        found = {"comprehensiveness": f"excess_comprehensiveness_{label}"}
        yield "saliency_faithfulness", words, "faithfulness", found
    names = (x for x in pruthi.DECEIVED if x.startswith(("pruthi_pronoun", "pruthi_occupation")))
    models = {name: (*pruthi.MODELS[name].words.values(),) for name in names}
    yield "pruthi", models, "impermissible_mass", {"deleted": "accuracy_delete"}
    kept = {name: x for name, x in translation.MODELS.items() if (archived() / name).is_dir()}
    models = {name: (*model.words.values(),) for name, model in kept.items()}
    yield "translation", models, "alignment_error", {"mass": "mass", "chance": "chance"}
    models = {name: models[name][:1] for name in translation.LEARNED if name in kept}
    found = {"attention": "error_attention", "occlusion": "error_occlusion"}
    yield "translation_errors", models, "alignment_error", found
    yield "translation_exclusive", models, shuffled, {"TVD of shuffling": "median_tvd"}


def test_cells_are_means_over_texts_and_seeds() -> None:
    """A mean over seeds of each seed's mean over the texts that it defines."""
    for table, models, test, headings in means():
        for (name, words), (heading, column) in product(models.items(), headings.items()):
            by_seed = [np.nanmean(columns(run, test)[column]) for run in runs(name)]
            cell = TABLES.cell(table, heading, *words)
            # Two decimals or three; clusters of rows weigh alike to a digit.
            step = 0.51 * 10.0 ** -len(cell.number.partition(".")[2])
            assert cell.value == pytest.approx(np.mean(by_seed), abs=step + 2e-4), (table, words)


def test_kinds_of_translated_words_are_means_of_loops() -> None:
    """The kind of each word by its label; means over its linked and over its tested words."""
    words_by_kind = read_yaml(DOCS / "results_page/german_words.yaml").items()
    kinds = {label: kind for kind, words in words_by_kind for label in words.values()}
    named = translation._NAMES["errors"]
    for row in TABLES.rows("translation_classes"):
        found: dict[str, list[float]] = {"first is aligned": [], "comprehensiveness": []}
        column = named[row["words by"]]
        for run in runs("translation_en_de-additive"):
            aligned, tested = columns(run, "alignment_error"), columns(run, "faithfulness")
            places = zip(aligned["index"], aligned["position"], strict=True)
            of = {
                place: kinds.get(label, "content words") if label > 1 else ""
                for place, label in zip(places, aligned["label"], strict=True)
            }
            for heading, record, name in (
                ("first is aligned", aligned, f"linked_{column}"),
                ("comprehensiveness", tested, f"excess_comprehensiveness_{column}"),
            ):
                rows = zip(record["index"], record["position"], record[name], strict=True)
                values = [x for index, place, x in rows if of[index, place] == row["translated"]]
                found[heading].append(float(np.nanmean(values)))
        for heading, by_seed in found.items():
            cell = findings.Cell(row[heading])
            assert cell.value == pytest.approx(np.mean(by_seed), abs=6e-3), (row, heading)


def test_a_row_of_taus_has_the_interval_of_its_seeds() -> None:
    for name, words in importance.MODELS.items():
        row = TABLES.rows("tau", *words.values())[0]
        column = TAUS[0][1]
        means = [np.nanmean(columns(run, "importance_correlation")[column]) for run in runs(name)]
        by_seed = [float(x) for x in row["each seed"].split(" / ")]
        assert by_seed == pytest.approx(means, abs=0.0051)
        if len(means) > 2:  # at least Student's t over the seeds' means
            half = t.ppf(0.975, len(means) - 1) * np.std(means, ddof=1) / np.sqrt(len(means))
            cell = findings.Cell(row["tau with gradient"])
            assert cell.low <= np.mean(means) - half + 0.0051
            assert cell.high >= np.mean(means) + half - 0.0051


def test_agreement_of_seeds_is_the_mean_over_pairs() -> None:
    for name, words in importance.MODELS.items():
        path = archived() / name / importance.AGREEMENT
        row = TABLES.rows("reliability", *words.values())[0]
        for column, heading in importance.WITH_ITSELF.items() if path.is_file() else ():
            pairs_of = pd.read_parquet(path).groupby(["first", "second"])[column].mean()
            assert float(row[heading].split()[0]) == pytest.approx(pairs_of.mean(), abs=0.0051)


@pytest.mark.parametrize("name", predictions.TEXT)
def test_auroc_is_torchmetrics(name: str) -> None:
    found = [columns(run, "predictions") for run in runs(name)]
    areas = [
        float(binary_auroc(torch.tensor(x["probabilities"][:, 1]), torch.tensor(x["label"])))
        for x in found
    ]
    cell = TABLES.cell("accuracy", "AUROC", predictions.TEXT[name], "here")
    assert cell.value == pytest.approx(np.mean(areas), abs=6e-4)


def test_evidence_is_torchmetrics_average_precision() -> None:
    # Where weights are near 0, the page ties those that rounding orders.
    for name, tied in {"planted_none": 0.0, "planted_bilstm": 0.005}.items():
        areas = []
        for run in runs(name):
            texts = pd.read_parquet(run / "predictions.parquet")
            for heads, signs in zip(texts["attention"], texts["evidence"], strict=True):
                scores, relevant = torch.tensor(heads[0].copy()), torch.tensor(signs.copy() != 0)
                if relevant.any():
                    areas.append(float(binary_average_precision(scores, relevant.int())))
        cell = TABLES.cell("evidence", "AUPRC of the model's", planted.MODELS[name], "all")
        assert cell.value == pytest.approx(np.mean(areas), abs=6e-4 + tied)


def test_chunk_f1_is_seqeval_s_and_what_the_run_logged() -> None:
    for name, (words, reads) in predictions.TAGGERS.items():
        scores = []
        for run in runs(name):
            names = read_metadata(run / "records/test/predictions.parquet")["classes"]
            frame = pd.DataFrame(columns(run, "predictions"))
            tags = frame.groupby("index")[["label", "prediction"]].agg(list)
            gold, guessed = ([[names[x] for x in row] for row in tags[part]] for part in tags)
            scores.append(f1_score(gold, guessed))
            assert scores[-1] == pytest.approx(float(logged_by_test(run)["test/f1"]), abs=1e-6)
        cell = TABLES.cell("chunking", "F1, test", words, reads)
        assert cell.value == pytest.approx(np.mean(scores), abs=6e-4)


def test_reasons_are_spearman_s_correlations() -> None:
    """The partial one correlates what linear regression on chance's rank leaves over."""
    name = f"{pairs.STUDY}-babi_1_bilstm_additive"
    found: dict[str, list[float]] = {"nothing": [], "chance": []}
    for run in runs(name):
        evidence, worst = columns(run, "evidence_mass"), columns(run, "adversarial_attention")
        js = dict(zip(worst["index"], worst["worst_js"], strict=True))  # of the texts searched
        searched = [js.get(index, np.nan) for index in evidence["index"]]
        values = [evidence["mass"], np.array(searched), evidence["chance"]]
        defined = (evidence["proven"] == 1) & ~np.isnan(values).any(axis=0)
        mass, js, chance = (x[defined] for x in values)
        found["nothing"].append(spearmanr(mass, js).statistic)
        design = np.stack([np.ones(len(mass)), rankdata(chance)], axis=1)
        ranks = [rankdata(x) for x in (mass, js)]
        left = [x - design @ np.linalg.lstsq(design, x)[0] for x in ranks]
        found["chance"].append(np.corrcoef(*left)[0, 1])
    words = (*pairs.MODELS[name].words.values(),)
    for fixed, values in found.items():
        cell = TABLES.cell("pairs_reasons", "worst JS", *words, fixed)
        assert cell.value == pytest.approx(np.mean(values), abs=0.0051)


def test_the_most_faithful_methods_find_the_evidence() -> None:
    taus, twice = [], ("random", "attention_contribution")
    labels = [x for x in saliency.METHODS if x not in twice]
    for run in (run for name in saliency.PLANTED for run in runs(name)):
        right, faith = columns(run, "plausibility"), columns(run, "faithfulness")
        known = [x for x in labels if f"auprc_{x}" in right]
        auprc = [np.nanmean(right[f"auprc_{x}"]) for x in known]
        found = [np.nanmean(faith[f"excess_comprehensiveness_{x}"]) for x in known]
        taus.append(kendalltau(auprc, found).statistic)
    cell = TABLES.cell("saliency_right", "Kendall's tau", "comprehensiveness", "all")
    assert cell.value == pytest.approx(np.mean(taus), abs=0.0051)


@pytest.mark.parametrize("name", ["yelp_han_none", "ag_news_flan_rnn"])
class TestSerrano:
    def test_removals_against_a_loop(self, name: str) -> None:
        (run,), words = runs(name), (*serrano.MODELS[name].values(),)
        rows = columns(run, "decision_flip")
        several = [x for x in range(len(rows["length"])) if rows["length"][x] > 1]
        never = {order: rows[f"never_flips_{order}"] for order in serrano.ALL}
        flipping = [x for x in several if not any(flips[x] for flips in never.values())]
        counts = {order: rows[f"removed_count_{order}"] for order in ("attention", "gradient")}
        for policy, places in (("left out", flipping), ("as 1", several)):
            row = TABLES.rows("serrano_fraction", *words, policy)[0]
            assert row["texts"] == f"{len(places):,}"
            for order, count in counts.items():
                share = [1.0 if never[order][x] else count[x] / rows["length"][x] for x in places]
                mean, median = (findings.Cell(x).value for x in row[order].split("; "))
                assert mean == pytest.approx(np.mean(share), abs=0.0051)
                assert median == pytest.approx(np.median(share), abs=0.0051)
        excess = np.mean([counts["gradient"][x] - rows["minimal_count"][x] for x in flipping])
        last = 100 * np.mean([rows["needs_all_attention"][x] for x in flipping])
        found = TABLES.cell("serrano_excess", "gradient", *words).value
        assert found == pytest.approx(excess, abs=0.0051)
        found = TABLES.cell("serrano_last", "attention", *words).value
        assert found == pytest.approx(last, abs=0.051)

    def test_first_items_are_compared_by_mcnemar_s_test(self, name: str) -> None:
        raw = []
        for model in serrano.MODELS:
            rows = columns(runs(model)[0], "single_erasure")
            first, second = rows["flip_top_gradient_x_attention"], rows["flip_top_attention"]
            only = [int((first > second).sum()), int((second > first).sum())]
            raw.append(binomtest(min(only), sum(only)).pvalue if any(only) else 1.0)
        order = np.argsort(raw)
        steps = [raw[k] * (len(raw) - i) for i, k in enumerate(order)]
        adjusted = dict(zip(order, np.minimum(np.maximum.accumulate(steps), 1), strict=True))
        p = adjusted[[*serrano.MODELS].index(name)]
        said = TABLES.rows("serrano_first", *serrano.MODELS[name].values())[0]["p"]
        assert said == ("< 0.001" if p < 0.001 else f"{p:.3f}")


def test_an_adversary_of_the_base_s_own_seed_stays_near_it() -> None:
    """As docs/results/chunking.md says of the control of lambda 0."""
    runs = pd.read_parquet(archived() / "studies/chunking_conll2000/study.parquet")
    far = runs.groupby("run")["attention_js"].mean()
    own, *others = (far[f"adversary-kl-l0-s{seed}"] for seed in range(3))
    assert own < 0.51 * min(others)
    assert own > 0.4 * max(others)
