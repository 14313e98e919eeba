"""The verdict card: its answers on models of known answers, and its numbers by loops over texts."""

import csv
import importlib
import io
import json
import re
import shlex
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from numpy.typing import NDArray
from torch.utils.data import DataLoader, Subset

import attnlight
from attnlight.api.recording import build_tests
from attnlight.data.selection import choose
from attnlight.errors import InputError
from attnlight.figures.methods import METHODS as METHODS_IN_WORDS
from attnlight.report.compare import write_comparison
from attnlight.report.verdict import claims as verdict_claims
from attnlight.report.verdict.card import Line, Verdict, verdict_of
from attnlight.report.verdict.claims import ANSWERS, Draft, Estimate, rules
from tests.commands import ROOT
from tests.kept import page
from tests.report.fake import write_record

page("known_answers")  # puts docs on the path
models = importlib.import_module("known_models")
BY_NAME = {model.name: model for model in models.MODELS}
RULES = rules()["lines"]
NAMES = ["ranks", "smallest_set", "uniqueness", "notices", "words"]
METHODS = ("attention", *(f"{name}_by_size" for name in RULES["ranks"]["methods"][::-1]))


@cache
def hand_built(
    name: str, batch_size: int = 64, backwards: bool = False, texts: int = models.TEXTS
) -> Verdict:
    given = models.loader(BY_NAME[name])
    some = Subset(given.dataset, range(texts))
    batches = DataLoader(some, batch_size, collate_fn=given.collate_fn)
    tests = build_tests("card")[:: -1 if backwards else 1]
    return attnlight.run(models.KnownTask(BY_NAME[name]), list(batches), tests).verdict()


@pytest.mark.parametrize(
    ("model", "ranks", "smallest_set", "said"),
    [
        ("F3", "yes", "yes", "times as much"),
        ("D", "no", "no", "less than random deletion"),
        ("R", "not shown", "not applicable", ""),
    ],
)
def test_models_of_known_answers(model: str, ranks: str, smallest_set: str, said: str) -> None:
    card = hand_built(model)
    assert [line.name for line in card.lines] == NAMES
    answers = [ranks, smallest_set, "caution", "not calibrated for this kind of model"]
    assert [line.answer for line in card.lines] == [*answers, "yes"], "there is no encoder"
    assert card["uniqueness"].p is None
    assert said in card["ranks"].says
    assert "words" in card["ranks"].question
    assert (card["smallest_set"].texts, card["ranks"].share) == (models.TEXTS, 0.5)
    assert max(map(len, str(card).splitlines())) <= 80
    assert not re.search(r"nan|None|\{|\}", str(card))


def test_neither_batches_nor_the_order_of_tests_change_it() -> None:
    card, other = (hand_built("D", *given, texts=40) for given in ((64, False), (17, True)))
    assert str(other) == str(card)
    for line in card.lines:
        for name in ("value", "low", "high", "p"):
            expected, found = getattr(line, name), getattr(other[line.name], name)
            assert found == (None if expected is None else pytest.approx(expected, abs=1e-9))


Rows = dict[str, NDArray[Any]]


def write(
    folder: Path, test: str, rows: Mapping[str, Any], stage: str = "test", **more: Any
) -> None:
    """A record of a run; one row for each text unless `index` is given."""
    size = len(next(iter(rows.values())))
    keys = {"index": np.arange(size), "position": np.zeros(size, np.int64)}
    whole = keys | {"prediction": np.zeros(size, np.int64)} | dict(rows)
    about = {"stage": stage, "partial": False, "checkpoint_hash": "abc", "corpus": "v2-x"} | more
    write_record(folder / f"records/{stage}/{test}.parquet", whole, test=test, measures=[], **about)


def comprehensiveness(
    texts: int = 400, ratio: float = 0.6, noise: float = 0.1, seed: int = 0
) -> Rows:
    """Noisy rows: attention gains `ratio` of what occlusion does, the others less than that."""
    random = np.random.default_rng(seed)
    shares = {
        "attention": ratio,
        "input_gradient_by_size": 0.7,
        "integrated_gradients_by_size": 0.9,
        "occlusion_by_size": 1,
    }
    base = random.random(texts) / 4
    rows = {f"comprehensiveness_{name}": 0.4 * share + base for name, share in shares.items()}
    rows = {name: values + noise * random.normal(size=texts) for name, values in rows.items()}
    gains = {f"excess_{name}": values - base for name, values in rows.items()}
    return rows | gains | {"comprehensiveness_random": base}


def spec(label: str) -> dict[str, Any]:
    return {"name": label.removesuffix("_by_size"), "signed": False}


ALL = {name: spec(name) for name in METHODS}


def ranks(folder: Path, rows: Rows, stage: str = "test", **more: Any) -> Line:
    """The card's line of rankings, after a record of faithfulness is written."""
    settings = {"methods": ALL, "replacement": "delete", "keep_opposing": True}
    write(folder, "faithfulness", rows, stage, **{**settings, **more})
    return verdict_of(folder)["ranks"]


def by_loop(rows: Rows, texts: NDArray[np.int64], best: str) -> tuple[float, list[float]]:
    """rho of some texts and its bootstrap replicates, a text at a time."""
    gains = {
        name: rows[f"comprehensiveness_{name}"] - rows["comprehensiveness_random"]
        for name in ("attention", best)
    }
    random, replicates = np.random.default_rng(0), []
    for _ in range(1_000):
        drawn = [texts[place] for place in random.integers(0, len(texts), len(texts))]
        sums = [sum(float(gains[name][text]) for text in drawn) for name in gains]
        replicates.append(sums[0] / sums[1])
    observed = [sum(float(values[text]) for text in texts) for values in gains.values()]
    return observed[0] / observed[1], replicates


class TestRanks:
    def test_ratio_and_interval_on_the_half_that_did_not_choose(self, tmp_path: Path) -> None:
        rows = comprehensiveness(61, noise=0.3)
        line = ranks(tmp_path, rows)
        first = choose(np.arange(61), 30, 0)
        means = {name: rows[f"comprehensiveness_{name}"][first].mean() for name in METHODS[1:]}
        best = max(means, key=lambda name: means[name])
        judged = np.array([text for text in range(61) if text not in first])
        value, replicates = by_loop(rows, judged, best)
        assert line.value == pytest.approx(value)
        assert (line.low, line.high) == pytest.approx(np.quantile(replicates, [0.025, 0.975]))
        assert line.texts == 31
        assert f"{value:.2f}" in line.says
        gain = np.mean(rows[f"excess_comprehensiveness_{best}"][judged])
        assert f"({METHODS_IN_WORDS[best.removesuffix('_by_size')]}, by {gain:.2f};" in line.says

    def test_the_other_half_does_not_choose(self, tmp_path: Path) -> None:
        """A method that is best on the judged half alone is not the reference."""
        rows = comprehensiveness(100, noise=0.0)
        judged = ~np.isin(np.arange(100), choose(np.arange(100), 50, 0))
        rows["excess_comprehensiveness_input_gradient_by_size"][judged] += 5
        assert ranks(tmp_path, rows).value == pytest.approx(0.6)

    def test_validation_chooses_and_all_texts_judge(self, tmp_path: Path) -> None:
        rows, on_validation = comprehensiveness(100), comprehensiveness(50, noise=0.0)
        on_validation["excess_comprehensiveness_input_gradient_by_size"] += 1
        ranks(tmp_path, rows)
        line = ranks(tmp_path, on_validation, "val")
        value, _ = by_loop(rows, np.arange(100), "input_gradient_by_size")
        assert line.value == pytest.approx(value)
        assert line.texts == 100
        assert "chosen on the validation split" in line.says
        assert ranks(tmp_path, on_validation, "val", checkpoint_hash="other").texts == 50

    @pytest.mark.parametrize("answer", ["yes", "in part", "no", "not shown"])
    def test_answers_by_interval(self, tmp_path: Path, answer: str) -> None:
        given = {"yes": [(0.95, 0.1)], "in part": [(0.65, 0.1)], "no": [(0.3, 0.1), (-0.3, 0.1)]}
        for ratio, noise in given.get(answer, [(0.8, 0.1), (0.5, 0.1), (0.9, 2.0)]):
            line = ranks(tmp_path, comprehensiveness(ratio=ratio, noise=noise))
            assert line.answer == answer
            low, high = float(line.low or np.nan), float(line.high or np.nan)
            sides = {"yes": low >= 0.8, "no": high < 0.5, "in part": low >= 0.5 and high < 0.8}
            assert [name for name, holds in sides.items() if holds] == [answer] * (answer in sides)

    def test_a_reference_without_effect_or_few_texts_show_nothing(self, tmp_path: Path) -> None:
        random = np.random.default_rng(0)
        names = [f"excess_comprehensiveness_{name}" for name in METHODS]
        line = ranks(tmp_path, {name: 0.1 * random.normal(size=200) for name in names})
        assert (line.answer, line.value) == ("not shown", None)
        assert "too little to compare" in line.says
        line = ranks(tmp_path, comprehensiveness(58, ratio=1.0, noise=0.0))
        assert (line.answer, line.texts) == ("not shown", 29)
        assert "Fewer than 30" in line.says

    @pytest.mark.parametrize(
        "settings",
        [
            *({"methods": {n: spec(n) for n in METHODS if n != lacking}} for lacking in METHODS),
            *({"methods": ALL | {n: spec(n) | {"signed": True}}} for n in METHODS[1:]),
            {"replacement": "attention"},  # erasure from attention is no deletion
            {"keep_opposing": False},
        ],
    )
    def test_methods_and_settings_that_it_needs(self, tmp_path: Path, settings: Any) -> None:
        assert ranks(tmp_path, comprehensiveness(), **settings).answer == "not measured"

    @pytest.mark.parametrize(("texts", "shown"), [(29, True), (30, False)])
    def test_a_class_that_no_deletion_lowers(self, tmp_path: Path, texts: int, shown: bool) -> None:
        """Where the best ranking has no effect in enough texts of one class, the others do not answer."""
        rows = comprehensiveness(400, ratio=0.95) | {"prediction": np.zeros(400, np.int64)}
        judged = np.setdiff1d(np.arange(400), choose(np.arange(400), 200, 0))[:texts]
        rows["prediction"][judged] = 1
        for name in METHODS:
            gain = f"excess_comprehensiveness_{name}"
            rows[gain][judged] = 0.01 * np.resize([0.5, 1.5], texts) - 1e-6
        line = ranks(tmp_path, rows, classes=["dull", "fine"])
        assert line.answer == ("yes" if shown else "not shown")
        assert ('In the texts predicted as "fine"' in line.says) != shown

    def test_rows_without_all_methods_do_not_count(self, tmp_path: Path) -> None:
        rows = comprehensiveness(100)
        rows["excess_comprehensiveness_occlusion_by_size"][::2] = np.nan
        line = ranks(tmp_path, rows)
        kept = np.arange(1, 100, 2)
        judged = np.setdiff1d(kept, choose(kept, 25, 0))
        value, _ = by_loop(rows, judged, "occlusion_by_size")
        assert line.value == pytest.approx(value)
        assert (line.texts, line.share) == (25, 0.25)


def flips(texts: int = 300, seed: int = 0) -> Rows:
    """Texts of 10 items; some never flip, in some only attention does not, in some all must go."""
    random = np.random.default_rng(seed)
    least = random.choice([1.0, 2, 5, 6, 9, 10], texts, p=[0.4, 0.3, 0.1, 0.1, 0.05, 0.05])
    removed = np.minimum(least + random.choice([0, 1, 2, 4], texts), 10)
    removed[random.random(texts) < 0.03] = np.nan
    never = random.random(texts) < 0.1
    least[never], removed[never] = np.nan, np.nan
    return erased(least, removed)


def erased(least: NDArray[np.float64], removed: NDArray[np.float64]) -> Rows:
    """Texts of 10 items with the smallest count of items that flips and that of attention."""
    rows = {"minimal_count": least, "removed_count_attention_unopposed": removed}
    return rows | {"never_flips_minimal": 1.0 * np.isnan(least), "length": np.full(len(least), 10)}


def share_by_loop(rows: Rows) -> tuple[float, float, int]:
    """Share of the texts that count where attention is near the minimum; of nearly all; their number."""
    near, counted, nearly_all = 0, 0, 0
    names = ("minimal_count", "removed_count_attention_unopposed", "length")
    for least, removed, length in zip(*(rows[name] for name in names), strict=True):
        if least >= 0.9 * length:
            nearly_all += 1
        elif least > 0:  # not where nothing flips
            counted += 1
            near += bool(removed - least <= max(1, least / 4))
    return near / counted, nearly_all / (counted + nearly_all), counted


def smallest_set(folder: Path, rows: Rows, **more: Any) -> Line:
    """The card's line of smallest sets, after a record of flips is written."""
    write(folder, "decision_flip", rows, **more)
    return verdict_of(folder)["smallest_set"]


class TestSmallestSet:
    def test_share_by_a_loop(self, tmp_path: Path) -> None:
        rows = flips()
        line = smallest_set(tmp_path, rows)
        share, nearly_all, counted = share_by_loop(rows)
        assert nearly_all < 0.2
        assert line.value == pytest.approx(share)
        assert (line.texts, line.share) == (counted, counted / 300)
        error = (share * (1 - share) / counted) ** 0.5  # of a binomial share
        low, high = float(line.low or np.nan), float(line.high or np.nan)
        assert high - low == pytest.approx(2 * 1.96 * error, rel=0.1)
        assert line.answer == "not shown" if low < 0.5 else "in part"

    @pytest.mark.parametrize(("miss", "answer"), [(0.05, "yes"), (0.35, "in part"), (0.8, "no")])
    def test_answers(self, tmp_path: Path, miss: float, answer: str) -> None:
        missed = np.arange(400) % 100 < 100 * miss
        rows = erased(np.full(400, 2.0), 2.0 + 4 * missed)
        assert smallest_set(tmp_path, rows).answer == answer

    def test_not_applicable(self, tmp_path: Path) -> None:
        """Where nearly all must go, where the minimum is unknown, and where nothing flips."""
        rows = flips()
        rows["minimal_count"][:100], rows["never_flips_minimal"][:100] = 9, 0
        unknown = {name: np.full(50, np.nan) for name in flips()} | {"length": np.full(50, 10)}
        never = unknown | {"never_flips_minimal": np.ones(50)}
        said = {"": rows, "not affine": unknown, "No erasure changes any decision.": never}
        for words, given in said.items():
            line = smallest_set(tmp_path, given)
            assert (line.answer, line.p) == ("not applicable", None)
            assert words in line.says
            expected = pytest.approx(share_by_loop(rows)[1]) if given is rows else None
            assert line.value == expected

    @pytest.mark.parametrize(("flipping", "answer"), [(9, "not applicable"), (10, "yes")])
    def test_a_class_that_rarely_flips(self, tmp_path: Path, flipping: int, answer: str) -> None:
        """Of 50 texts of one class a fifth must flip before nearly all is erased."""
        for others in (np.nan, 9.0):  # they never flip, or by nine items of ten
            least = np.full(400, 2.0)
            least[flipping:50] = others
            rows = erased(least, least) | {"prediction": (np.arange(400) < 50) * 1}
            line = smallest_set(tmp_path, rows, classes=["no"])
            assert line.answer == answer
            if answer == "not applicable":
                assert "Of the texts predicted as class 1" in line.says
                assert (line.value, line.texts) == (pytest.approx(flipping / 50), 50)

    def test_each_head_of_a_tagger_by_itself(self, tmp_path: Path) -> None:
        """Tokens of a sentence are one text, and a head's minimum is its own."""
        heads = [flips(200, seed) for seed in (1, 2)]
        names = [name for name in heads[0] if name != "length"]
        both = {f"{n}_by_head": np.stack([rows[n] for rows in heads], axis=1) for n in names}
        keys = {"index": np.arange(200) // 4, "position": np.arange(200) % 4}
        line = smallest_set(tmp_path, {**both, **flips(200, 3), **keys})
        found = [share_by_loop(rows) for rows in heads]
        total = sum(counted for _, _, counted in found)
        assert line.value == pytest.approx(sum(s * n for s, _, n in found) / total)
        assert line.texts == 50
        assert "of each head alone" in line.says


class TestUniqueness:
    def rows(self, exact: bool = True) -> Rows:
        share = np.linspace(0.5, 1, 101)
        upper = 0.6 * share + 0.1 * (not exact)
        return {"worst_share": share, "worst_js": 0.6 * share, "upper_js": upper}

    @pytest.mark.parametrize("exact", [True, False])
    def test_is_a_caution_with_its_number(self, tmp_path: Path, exact: bool) -> None:
        write(tmp_path, "adversarial_attention", self.rows(exact), epsilon=0.05)
        line = verdict_of(tmp_path)["uniqueness"]
        assert (line.answer, line.value) == ("caution", pytest.approx(0.75))
        assert ("at least 75 %" in line.says) != exact
        assert "at most 0.05" in line.says
        assert line.missing == "No adversary was trained from it."

    def test_variants_that_were_trained(self, tmp_path: Path) -> None:
        run = tmp_path / "checkpoints/e/base"
        write(run, "adversarial_attention", self.rows(), epsilon=0.01)
        adversary, seed = "AdversarialVariant", "SeedVariant"
        trained = [(adversary, 0.1, 0.6, 0.2), (adversary, 0.01, 0.4, 0.04)]
        trained += [(adversary, 0.001, 0.2, 0.01), (adversary, 0, 0.5, 0.01)]  # the last imitates
        trained += [(seed, None, 0.1, 0.03), (seed, None, 0.2, 0.03)]
        trained += [("UniformVariant", None, 0.9, 0.0)]  # of another base
        for number, (kind, weight, js, tvd) in enumerate(trained):
            folder = tmp_path / f"checkpoints/variants/{number}"
            rows = {"attention_js": np.full(20, js), "prediction_tvd": np.full(20, tvd)}
            other = kind == "UniformVariant"
            base = tmp_path / "checkpoints/e/other" if other else run / "best.ckpt"
            write(folder, "base_divergence", rows, base=str(base))
            arguments = {} if weight is None else {"lambda_": weight}
            model = {"class_path": f"attnlight.tasks.{kind}", "init_args": arguments}
            (folder / "fit.yaml").write_text(yaml.safe_dump({"model": model}))
        broken = tmp_path / "checkpoints/variants/broken/records/test/base_divergence.parquet"
        broken.parent.mkdir(parents=True)
        broken.write_bytes(b"no parquet")
        line = verdict_of(run)["uniqueness"]
        assert line.answer == "caution"
        assert line.missing == (
            "Of the 3 adversaries trained from it, 2 predict alike (mean total variation distance at "
            "most 0.05). The furthest of these is at a JS divergence of 0.40 from its attention, 2 "
            "other seeds are at 0.15."
        )


def decider(**more: Any) -> dict[str, Any]:
    """An entry as docs/build_known_answers.py writes it."""
    entry = {"test": "decision_flip", "measure": "removed_fraction_attention", "label": "states"}
    entry |= {"follows": "below", "threshold": 0.5, "held_out_auc": [0.9, 0.85, 0.95]}
    return entry | more


class TestNotices:
    def card(self, folder: Path, *deciders: dict[str, Any], **model: Any) -> Verdict:
        kind = {"problem": "classification", "net": {"encoder": "bilstm"}} | model
        values = np.random.default_rng(0).normal(0.6, 0.05, 200)
        rows = {"removed_fraction_attention": values, **flips(200)}
        write(folder, "decision_flip", rows, model=kind)
        file = folder / "deciders.yaml"
        file.write_text(yaml.safe_dump({"version": 1, "deciders": list(deciders)}))
        return verdict_of(folder, deciders=file)

    @pytest.mark.parametrize("follows", ["below", "above"])
    @pytest.mark.parametrize("threshold", [0.5, 0.6, 0.7])
    def test_side_of_the_threshold(self, tmp_path: Path, threshold: float, follows: str) -> None:
        """The measure is 0.6; the decider names the side at which attention is followed."""
        line = self.card(tmp_path, decider(threshold=threshold, follows=follows))["notices"]
        noticed = (threshold < 0.6) == (follows == "below")
        answer = "not shown" if threshold == 0.6 else "noticed" if noticed else "not noticed"
        assert line.answer == answer
        assert line.value == pytest.approx(0.6, abs=0.02)
        side = {"below": "above", "above": "below"}[follows]
        assert f"{side} {threshold} is misleading attention" in line.says
        assert "area under ROC of 0.90" in line.says

    def test_other_kinds_are_not_calibrated(self, tmp_path: Path) -> None:
        problems = ("pairs", "tagging", "tests.tasks.sentences.Sentences")
        nets = ({"encoder": "transformer"}, {}, {"encoder": "none", "hierarchical": True})
        kinds: list[dict[str, Any]] = [{"problem": name} for name in problems]
        kinds += [{"net": net} for net in nets]
        cards = [self.card(tmp_path, decider(), **model) for model in kinds]
        cards.append(self.card(tmp_path))  # without deciders
        answers = {card["notices"].answer for card in cards}
        assert answers == {"not calibrated for this kind of model"}

    def test_the_best_that_was_scored_against_what_the_card_speaks_of(self, tmp_path: Path) -> None:
        weak = decider(threshold=0.9, held_out_auc=[0.86, 0.81, 0.9])
        of_words = decider(threshold=0.9, label="words", held_out_auc=[0.99, 0.98, 1.0])
        line = self.card(tmp_path, weak, of_words, decider())["notices"]
        assert line.answer == "noticed"
        write(tmp_path, "state_token_agreement", agreeing(np.full(60, 0.95), 0.4))
        card = self.card(tmp_path, weak, of_words, decider())
        assert card["words"].answer == "yes"
        assert card["notices"].answer == "not noticed"
        assert "use of words" in card["notices"].says

    def test_a_decider_whose_test_is_missing(self, tmp_path: Path) -> None:
        missing = decider(test="attention_permutation", measure="flip_rate")
        (tmp_path / "fit.yaml").write_text("{}\n")
        line = self.card(tmp_path, missing)["notices"]
        assert line.answer == "not measured"
        assert line.command.endswith(" --tests attention_permutation")


def agreeing(tau: NDArray[np.float64], own: float) -> Rows:
    """Texts with these taus of erasure and deletion; all give this share to their own words."""
    return {"tau_erasure_deletion": tau, "hidden_token_attribution": np.full(len(tau), own)}


class TestWords:
    def card(self, folder: Path, tau: NDArray[np.float64], own: float, **more: Any) -> Verdict:
        write(folder, "state_token_agreement", agreeing(tau, own), **more)
        return verdict_of(folder)

    @pytest.mark.parametrize(
        ("tau", "own", "answer"),
        [(0.9, 0.3, "yes"), (0.8, 0.3, "not shown"), (0.4, 0.9, "no"), (0.0, 1.0, "yes")],
    )
    def test_decide_what_the_lines_speak_of(
        self, tmp_path: Path, tau: float, own: float, answer: str
    ) -> None:
        card = self.card(tmp_path, tau + 0.05 * np.random.default_rng(0).normal(size=100), own)
        items = "words" if answer == "yes" else "states"
        assert card["words"].answer == answer
        assert f"smallest set of {items} that" in card["smallest_set"].question
        assert card["ranks"].question == RULES["ranks"]["question"][items]

    def test_sentences_are_called_so_and_may_be_undefined(self, tmp_path: Path) -> None:
        hierarchical = {"net": {"hierarchical": True}}
        card = self.card(tmp_path, np.full(50, 0.9), 1.0, model=hierarchical)
        assert "rank the sentences by importance" in card["ranks"].question
        assert "word" not in str(card)
        line = self.card(tmp_path, np.full(50, np.nan), np.nan)["words"]
        assert (line.answer, line.value) == ("not shown", None)
        assert line.says == "Its number is undefined in all texts."


def test_holm_over_the_lines(tmp_path: Path) -> None:
    """Answers agree with p-values adjusted by hand, and with the intervals that are shown."""
    shown = set()
    for seed, ratio in enumerate(np.linspace(0.7, 1.0, 12)):
        folder, random = tmp_path / str(seed), np.random.default_rng(seed)
        ranks(folder, comprehensiveness(120, ratio, 0.25, seed))
        write(folder, "decision_flip", flips(120, seed))
        rows = agreeing(0.9 + 0.3 * random.normal(size=60), 0.5)
        write(folder, "state_token_agreement", rows)
        card = verdict_of(folder)
        claims = [line for line in card.lines if line.p is not None]
        assert [line.name for line in claims] == ["ranks", "smallest_set", "words"]
        for line in claims:
            first, last, p = (float(x or np.nan) for x in (line.low, line.high, line.p))
            low, high = (RULES[line.name][name] for name in ("no_below", "yes_from"))
            holds = last < low or first >= high or (first >= low and last < high)
            assert holds == (line.answer != "not shown")
            if abs(p - 0.05) > 0.01:  # p-values are multiples of 2 / 1,001
                assert holds == (p < 0.05)
            shown.add((line.name, line.answer))
    assert {("ranks", "yes"), ("ranks", "not shown"), ("words", "yes")} <= shown


def test_after_a_claim_that_fails_none_is_made_with_less_confidence() -> None:
    """Two p-values of 0.03 and 0.04: Holm rejects neither, although 0.04 alone would be rejected."""

    def draft(name: str, outside: int) -> Draft:
        replicates = np.where(np.arange(1_000) < outside, 0.7, 0.9)
        return Draft(name, ANSWERS, estimate=Estimate(0.9, replicates, 500), bounds=(0.5, 0.8))

    claims = verdict_claims.tested([draft("words", 19), draft("ranks", 14)])
    assert claims["ranks"].answer == claims["words"].answer == "not shown"
    assert claims["words"].interval[0] == 0.7  # at 97.5 %, as of two claims
    alone = verdict_claims.tested([draft("words", 19)])["words"]
    assert (alone.answer, alone.interval) == ("yes", (0.9, 0.9))


class TestCaveat:
    """What stands above the lines: a model at its majority class, and rows that are not finite."""

    @staticmethod
    def labelled(better: int, texts: int = 60, tokens: int = 1, seed: int = 0) -> Rows:
        """Labels, mostly of class 1, and predictions that gain `better` of the other rows."""
        random = np.random.default_rng(seed)
        label = random.permutation(np.resize([1, 1, 1, 0, 2], texts * tokens))
        others = np.flatnonzero(label != 1)
        prediction = np.ones_like(label)
        prediction[others[:better]] = label[others[:better]]
        prediction[np.flatnonzero(label == 1)[:3]] = 0
        keys = {"index": np.repeat(np.arange(texts), tokens)}
        keys["position"] = np.tile(np.arange(tokens), texts)
        return {"label": label, "prediction": prediction, **keys}

    @pytest.mark.parametrize(("better", "tokens"), [(4, 1), (20, 1), (9, 3)])
    def test_majority_class_by_a_loop(self, tmp_path: Path, better: int, tokens: int) -> None:
        """Difference of accuracy and share, paired, of resampled texts with all their tokens."""
        rows = self.labelled(better, tokens=tokens)
        write(tmp_path, "predictions", rows, classes=["bad", "good", "mixed"])
        texts, largest = 60, np.bincount(rows["label"]).argmax()
        of_text: list[list[int]] = [[] for _ in range(texts)]
        columns = (rows[name] for name in ("index", "label", "prediction"))
        for text, label, found in zip(*columns, strict=True):
            of_text[text].append(int(found == label) - int(label == largest))
        random, replicates = np.random.default_rng(0), []
        for _ in range(1_000):
            drawn = [x for text in random.integers(0, texts, texts) for x in of_text[text]]
            replicates.append(sum(drawn) / len(drawn))
        low, high = np.quantile(replicates, [0.025, 0.975])
        assert (low <= 0) == (better != 20)
        accuracy = np.mean(rows["prediction"] == rows["label"])
        share = np.mean(rows["label"] == largest)
        expected = (
            "As far as 60 texts can tell, the model predicts no better than its majority class: its "
            f'accuracy is {accuracy:.2f}, that of always saying "{["bad", "good", "mixed"][largest]}" '
            f"{share:.2f} (difference {accuracy - share:.2f} [{low:.2f}, {high:.2f}])."
        )
        assert verdict_of(tmp_path).caveat == expected * (better != 20)

    def test_few_texts_and_texts_without_labels_show_nothing(self, tmp_path: Path) -> None:
        for texts in (29, 30):
            write(tmp_path, "predictions", self.labelled(0, texts))
            assert bool(verdict_of(tmp_path).caveat) == (texts == 30)
        rows = self.labelled(0)
        for given in ({"prediction": rows["prediction"]}, rows | {"label": np.full(60, -100)}):
            write(tmp_path, "predictions", given)
            assert verdict_of(tmp_path).caveat == ""

    @pytest.mark.parametrize("broken", [0, 3, 200])
    def test_rows_that_are_not_finite(self, tmp_path: Path, broken: int) -> None:
        """Where no row is finite, the lines say so and ask for nothing; others leave such rows out."""
        tests = {"faithfulness": comprehensiveness(200), "decision_flip": flips(200)}
        tests["adversarial_attention"] = TestUniqueness().rows()
        tests["state_token_agreement"] = agreeing(np.full(200, 0.9), 0.9)
        settings: dict[str, Any] = {"epsilon": 0.01, "replacement": "delete", "keep_opposing": True}
        settings["methods"] = ALL
        for test, rows in tests.items():
            prediction = np.where(np.arange(len(next(iter(rows.values())))) < broken, -1, 0)
            write(tmp_path, test, rows | {"prediction": prediction}, **settings)
        card = verdict_of(tmp_path)
        answers = {line.answer for line in card.lines if line.name != "notices"}
        assert "not measured" not in answers
        assert (answers == {"not finite"}) == (broken == 200)
        some = "The logits or attention of {} 200 instances are not finite{}."
        said = {0: "", 3: some.format("3 of", ": the lines leave them out")}
        assert card.caveat == said.get(broken, some.format("all", ""))
        if broken == 200:
            assert not any(line.command for line in card.lines)
            assert "adversary" not in str(card)


class TestWithoutRecords:
    def test_says_that_nothing_was_measured(self, tmp_path: Path) -> None:
        card = verdict_of(tmp_path)
        answers = {line.name: line.answer for line in card.lines}
        assert answers.pop("notices") == "not calibrated for this kind of model"
        assert set(answers.values()) == {"not measured"}
        assert all(line.texts == 0 for line in card.lines)
        assert 'attnlight.run(model, data, tests="card")' in str(card)

    def test_a_run_is_told_what_to_run(self, tmp_path: Path) -> None:
        (tmp_path / "fit.yaml").write_text("model: {class_path: attnlight.tasks.ChunkTagger}\n")
        card = verdict_of(tmp_path)
        assert card["ranks"].command == f"attnlight test {tmp_path} --tests card"
        command = shlex.split(ranks(tmp_path, comprehensiveness(), methods={}).command)
        option, methods = command[5].split("=")
        assert command[:5] == ["attnlight", "test", str(tmp_path), "--tests", "faithfulness"]
        assert option == "--trainer.callbacks.methods"
        given = [one if isinstance(one, str) else one["name"] for one in json.loads(methods)]
        assert given == [name.removesuffix("_by_size") for name in METHODS]
        options = ["keep_opposing=True", "max_instances=500"]
        assert command[6:] == [*(f"--trainer.callbacks.{o}" for o in options), "--overwrite"]
        option = "--trainer.callbacks.unopposed=True"
        expected = f"attnlight test {tmp_path} --tests decision_flip {option}"
        assert verdict_of(tmp_path)["smallest_set"].command == expected

    def test_on_another_corpus(self, tmp_path: Path) -> None:
        (tmp_path / "fit.yaml").write_text("{}\n")
        ranks(tmp_path, comprehensiveness())
        card = verdict_of(tmp_path, "reviews")
        assert card["ranks"].answer == "not measured"
        command = f"attnlight test -c {tmp_path / 'test-reviews.yaml'} --tests card"
        assert card["ranks"].command == command
        assert card.heading.endswith("On reviews.")

    def test_records_of_two_checkpoints_are_refused(self, tmp_path: Path) -> None:
        ranks(tmp_path, comprehensiveness(), checkpoint="best.ckpt")
        write(tmp_path, "decision_flip", flips(), checkpoint="best.ckpt", checkpoint_hash="other")
        with pytest.raises(InputError, match="different versions of best"):
            verdict_of(tmp_path)


def test_the_same_words_in_the_file_and_for_loggers(tmp_path: Path) -> None:
    ranks(tmp_path, comprehensiveness())
    card = verdict_of(tmp_path)
    card.write(tmp_path / "report")
    written = json.loads((tmp_path / "report/verdict.json").read_text("utf-8"))
    assert written["checkpoint"] == "abc"
    assert [line["text"] for line in written["lines"]] == list(map(str, card.lines))
    said = card.summary()
    assert said["verdict/ranks_value"] == card["ranks"].value
    assert "verdict/words_value" not in said
    for line in card.lines:
        assert said[f"verdict/{line.name}_text"] == str(line)
        assert said[f"verdict/{line.name}_answer"] == line.answer
        assert " ".join(str(line).split()) in " ".join(str(card).split())


def test_the_guide_has_the_rules() -> None:
    text = (ROOT / "docs/guide.md").read_text(encoding="utf-8")
    text = text.split("## The verdict card\n")[1].split("\n## ")[0]
    _, *lines = (line.strip("|") for line in text.splitlines() if line.startswith("| "))
    rows = [[cell.strip() for cell in line.split("|")] for line in lines]
    for row, rule in zip(rows, RULES.values(), strict=True):
        claims = "yes_from" in rule
        bounds = ("at least {yes_from:g}", "below {no_below:g}") if claims else ("", "")
        assert row[1:3] == [bound.format(**rule) for bound in bounds]
    smallest, said = RULES["smallest_set"], " ".join(text.split())
    for sentence in (
        f"at most {smallest['slack_items']} item or {100 * smallest['slack_share']:g} %",
        f"minimum is {100 * smallest['nearly_all']:g} % of their items",
        f"over {100 * smallest['most_nearly_all']:g} %, the line is *not applicable*",
        f"where under {100 * smallest['least_flips']:g} % of the texts of a predicted class",
        f"predicted class of at least {rules()['least_texts']} texts",
        f"fewer than {rules()['least_texts']} texts",
        f"less than {RULES['ranks']['least_effect']:g} over random",
        f"together at {100 * (1 - rules()['level']):g} %",
    ):
        assert sentence in said
    for method in RULES["ranks"]["methods"]:
        assert METHODS_IN_WORDS[method] in rows[0][3]


def test_cards_side_by_side(tmp_path: Path) -> None:
    folders = [tmp_path / name / "run" for name in ("a", "b")]
    for folder, ratio in zip(folders, (0.3, 0.95), strict=True):
        ranks(folder, comprehensiveness(ratio=ratio))
        write(folder, "predictions", {"label": np.zeros(20, np.int64)})
    assert write_comparison(folders, tmp_path / "out")
    text = (tmp_path / "out/tables/cards.csv").read_text(encoding="utf-8")
    head, first, *rest = csv.reader(io.StringIO(text))
    assert head == ["line", "a/run", "b/run"]
    values = [verdict_of(folder)["ranks"].value or 0.0 for folder in folders]
    assert first[1:] == [f"no {values[0]:.2f}", f"yes {values[1]:.2f}"]
    assert [row[1:] for row in rest[:2]] == [["not measured"] * 2] * 2
