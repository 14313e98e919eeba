"""Sentences of studies whose answers are known."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from attnlight.report.study import read_study
from attnlight.report.study.estimates import Estimates
from attnlight.report.study.verdict import to_markdown, verdicts
from tests.report.study.fake import FakeStudy, whole


@pytest.fixture(scope="module", autouse=True)
def enough() -> Iterator[None]:
    """As many resamples as an interval of no difference needs to hold 0."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("attnlight.report.study.estimates.RESAMPLES", 400)
        yield


def answers(fake: FakeStudy, folder: Path) -> list[list[str]]:
    study = read_study(fake.write(folder))
    return [list(verdict.sentences) for verdict in verdicts(Estimates(study))]


def compared(uniform: float, base: float, seeds: int = 5, texts: int = 200) -> FakeStudy:
    """Base and uniform attention alone."""
    fake = FakeStudy(texts=texts)
    fake.add("base-s0", "base", base)
    for seed in range(seeds):
        fake.add(f"seed-b0-s{seed + 1}", "seed", base, 0.25)
        fake.add(f"uniform-s{seed}", "uniform", uniform, 0.3)
    return fake


def diverging(best: float, control: float, seed: float = 0.27, seeds: int = 5) -> FakeStudy:
    """A base, its seeds, lambda 0 and one adversary."""
    fake = FakeStudy(texts=60)
    fake.add("base-s0", "base")
    for k in range(seeds):
        fake.add(f"seed-b0-s{k + 1}", "seed", 0.8, seed)
        for lam, js in ((0.0, control), (0.01, best)):
            told: dict[str, Any] = {"term": "kl", "lambda": lam}
            fake.add(f"adversary-kl-l{lam:g}-s{k}", "adversary", 0.8, js, **told)
    fake.head["selected"] = {"run": "adversary-kl-l0.01-s0", "term": "kl", "lambda": 0.01}
    return fake


def guided(right: dict[str, float], seeds: int = 5) -> FakeStudy:
    """A base and guided MLPs."""
    fake = FakeStudy(texts=200)
    fake.add("base-s0", "base")
    for guide, share in right.items():
        for seed in range(seeds):
            fake.add(f"guide-{guide}-s{seed}", "guide", share, guide=guide)
    return fake


class TestNeeded:
    def test_attention_is_needed(self, tmp_path: Path) -> None:
        fake = compared(0.6, 0.85)
        (sentence,) = answers(fake, tmp_path)[0]
        study = read_study(tmp_path)
        found = Estimates(study).difference(
            study.finished("uniform"), study.architecture(study.bases[0]), "f1"
        )
        ends = f"{-found.mean:.3f} [{-found.high:.3f}, {-found.low:.3f}]"
        assert found.high < 0
        assert sentence.startswith(
            f"Attention is needed here: without it F1 of positive falls by {ends}."
        )
        assert "with uniform attention (5 seeds)" in sentence
        assert "with trained attention (6 seeds)" in sentence

    def test_attention_is_not_shown_to_be_needed(self, tmp_path: Path) -> None:
        (sentence,) = answers(compared(0.8, 0.8), tmp_path)[0]
        assert sentence.startswith("Attention is not shown to be needed here")
        assert "an interval that holds 0" in sentence

    def test_uniform_attention_is_better(self, tmp_path: Path) -> None:
        (sentence,) = answers(compared(0.85, 0.6), tmp_path)[0]
        assert sentence.startswith("Attention is not needed here: with uniform attention")

    def test_too_few_seeds_license_no_sentence(self, tmp_path: Path) -> None:
        (sentence,) = answers(compared(0.6, 0.9, seeds=4), tmp_path)[0]
        start = "Inconclusive: 4 and 5 trained models (5 per side required). F1 of positive: 0."
        assert sentence.startswith(start)
        assert "needed" not in sentence

    def test_without_uniform_runs(self, tmp_path: Path) -> None:
        fake = compared(0.6, 0.8)
        for run in fake.runs:
            run["state"] = "failed" if run["role"] == "uniform" else run["state"]
        found = answers(fake, tmp_path)
        assert found[0] == ["No answer: no finished run of uniform attention."]
        assert any(s.startswith("Not finished: 5 of 5 runs with uniform") for s in found[-1])


class TestBeyond:
    def test_beyond_seeds_and_imitation(self, tmp_path: Path) -> None:
        _, seeds, control, price = answers(diverging(0.6, 0.2), tmp_path)[1]
        assert seeds.startswith(
            "The divergence of this base's adversary is beyond seed variance, by 0.3"
        )
        assert "with the best adversary (5 seeds)" in seeds
        assert control.startswith(
            "The divergence of this base's adversary is beyond what imitation alone gives, by 0.39"
        )
        assert price.startswith("Beside λ = 0 its predictions are")

    def test_not_shown_beyond_seed_variance(self, tmp_path: Path) -> None:
        _, seeds, control, _ = answers(diverging(0.27, 0.1), tmp_path)[1]
        assert "is not shown to be beyond seed variance: it differs by" in seeds
        assert "within" not in seeds
        assert "beyond what imitation alone gives" in control

    def test_below_seed_variance(self, tmp_path: Path) -> None:
        _, seeds, *_ = answers(diverging(0.2, 0.1, seed=0.4), tmp_path)[1]
        assert seeds.startswith(
            "The divergence of this base's adversary is below seed variance, by 0.1"
        )

    def test_too_few_seeds(self, tmp_path: Path) -> None:
        _, seeds, control, _ = answers(diverging(0.6, 0.2, seeds=3), tmp_path)[1]
        for sentence in (seeds, control):
            assert sentence.startswith("Inconclusive against")
            assert "beyond" not in sentence

    def test_no_adversary(self, tmp_path: Path) -> None:
        chosen, seeds, *_ = answers(compared(0.8, 0.8), tmp_path)[1]
        assert chosen == "No adversary is chosen yet."
        assert seeds == (
            "Against seed variance there is no answer: no finished run of the best adversary."
        )


class TestGuiding:
    def test_guides_that_carry_information(self, tmp_path: Path) -> None:
        right = {"uniform": 0.7, "base": 0.9, "shuffled": 0.6, "adversary": 0.75}
        base, uniform, *informed = answers(guided(right), tmp_path)[2]
        who = "The attention of this base's adversary guides an MLP"
        assert base.startswith(f"{who} worse than the attention of this base")
        assert uniform.startswith(f"{who} better than uniform")
        assert [s.partition(":")[0] for s in informed] == [
            "The attention of this base carries information to an MLP",
            "The attention of this base's adversary carries information to an MLP",
        ]

    @pytest.mark.parametrize(
        ("adversary", "said"),
        [
            (0.5, "guides an MLP worse than the shuffled weights"),
            (0.7, "is not shown to carry information to an MLP"),
        ],
    )
    def test_no_better_than_shuffled(self, adversary: float, said: str, tmp_path: Path) -> None:
        right = {"uniform": 0.7, "base": 0.9, "shuffled": 0.7, "adversary": adversary}
        *_, sentence = answers(guided(right), tmp_path)[2]
        assert sentence.startswith(f"The attention of this base's adversary {said}")
        assert ("an interval that holds 0" in sentence) == (adversary == 0.7)

    def test_five_perceptrons_of_one_adversary_are_one_case(self, tmp_path: Path) -> None:
        """IMDb's study: F1 falls by .3 or more in each of five, and nothing is claimed."""
        fake = guided({"uniform": 0.85, "base": 0.9, "shuffled": 0.7, "adversary": 0.4})
        for run in fake.runs:
            if run["guide"] == "adversary":
                run["told_by"] = "adversary-kl-l0.05-s0"
        base, uniform, informed, adversary = answers(fake, tmp_path)[2]
        for sentence in (base, uniform, adversary):
            assert sentence.startswith("Inconclusive")
            assert ": 1 and 5 trained models (5 per side required)" in sentence
            assert "5 seeds, guided by 1 model" in sentence
            assert "worse" not in sentence
        assert informed.startswith("The attention of this base carries information")

    def test_no_shown_difference(self, tmp_path: Path) -> None:
        right = {"uniform": 0.75, "base": 0.9, "shuffled": 0.7, "adversary": 0.75}
        _, uniform, *_ = answers(guided(right), tmp_path)[2]
        assert "is not shown to guide an MLP better or worse than uniform attention" in uniform

    def test_no_claim_without_the_shuffled_guide(self, tmp_path: Path) -> None:
        found = answers(guided({"base": 0.9, "adversary": 0.5}), tmp_path)[2]
        assert not any("carry information" in sentence for sentence in found)
        assert found[1].startswith("Against uniform attention there is no answer")
        assert found[-1].endswith(
            "no finished run of the attention of this base shuffled within each text."
        )

    def test_too_few_seeds(self, tmp_path: Path) -> None:
        right = {"uniform": 0.7, "base": 0.9, "shuffled": 0.6, "adversary": 0.5}
        found = answers(guided(right, seeds=2), tmp_path)[2]
        assert all(sentence.startswith("Inconclusive") for sentence in found)
        own = (
            "Inconclusive on the attention of this base: 2 and 2 trained models (5 per side "
            "required). F1 of positive differs from that with shuffled weights by 0.3"
        )
        assert any(sentence.startswith(own) for sentence in found)


def test_markdown_holds_every_sentence(tmp_path: Path) -> None:
    study = read_study(whole(seeds=2, bases=1, texts=20).write(tmp_path))
    found = verdicts(Estimates(study))
    text = to_markdown(study.name, found)
    assert text.startswith("# fake\n\n## Is attention needed here?\n\n* Inconclusive")
    for verdict in found:
        for sentence in verdict.sentences:
            assert f"* {sentence}\n" in text
    assert "What is missing" not in text
