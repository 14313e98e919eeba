"""Sentences of studies of a tagger whose answers are known."""

from pathlib import Path
from typing import Any

import pytest

from attnlight.report.study.estimates import Estimates
from attnlight.report.study.frame import read_study
from attnlight.report.study.verdict import verdicts
from tests.report.study.fake_tagging import FakeTagging, add_adversary, add_probes, whole
from tests.report.study.naive import mean, measure

NEEDED = "Is attention needed here?"
BEYOND = "Is the adversary's divergence beyond seed variance?"
LOST = "Up to which λ is nothing lost?"
COLLAPSED = "Does training collapse?"
SAFE = "Is there a safe point?"
RANKED = "Do rankings of words change?"
MISSING = "What is missing?"


def answers(fake: FakeTagging, folder: Path) -> dict[str, list[str]]:
    study = read_study(fake.write(folder))
    return {found.question: list(found.sentences) for found in verdicts(Estimates(study))}


def compared(uniform: float, base: float, seeds: int = 5) -> FakeTagging:
    """Base, uniform attention and single uniform heads, of which head 1 costs as much as all."""
    fake = FakeTagging(80, heads=2)
    fake.add("base-s0", "base", base)
    for seed in range(seeds):
        fake.add(f"seed-b0-s{seed + 1}", "seed", base, 0.2, 0.2)
        fake.add(f"uniform-s{seed}", "uniform", uniform, 0.3, 0.3, tau=None)
        for head, f1 in enumerate((base, uniform)):
            fake.add(f"uniform-h{head}-s{seed}", "uniform", f1, 0.3, 0.3, head=head)
    return fake


def along(f1: dict[float, float], seeds: int = 5) -> FakeTagging:
    """A base, other seeds and adversaries of some F1 by lambda."""
    fake = FakeTagging(80, heads=1)
    fake.add("base-s0", "base")
    for seed in range(seeds):
        fake.add(f"seed-b0-s{seed + 1}", "seed", js=0.2, tau=0.6)
        for lam, value in f1.items():
            told: dict[str, Any] = {"term": "kl", "lambda": lam}
            js = 0.2 + 0.3 * (lam > 0)
            fake.add(f"adversary-kl-l{lam:g}-s{seed}", "adversary", value, js=js, tau=0.2, **told)
    fake.head["selected"] = {"run": "x", "term": "kl", "lambda": max(f1)}
    return fake


class TestNeeded:
    def test_attention_and_the_heads_that_are_needed(self, tmp_path: Path) -> None:
        fake = compared(0.7, 0.9)
        whole_model, heads = answers(fake, tmp_path)[NEEDED]
        assert whole_model.startswith("Attention is needed here: without it chunk F1 falls by 0.")
        assert heads.startswith("It falls without head 1. One head uniform, the others learned")
        trained = mean([measure(fake, n, "f1") for n in fake.rows if n.startswith(("b", "seed"))])
        alone = mean([measure(fake, f"uniform-h1-s{seed}", "f1") for seed in range(5)])
        assert f"{alone - trained:.3f} [" in heads

    def test_no_head_is_shown_to_be_needed(self, tmp_path: Path) -> None:
        said = answers(compared(0.9, 0.9), tmp_path)[NEEDED]
        assert said[0].startswith("Attention is not shown to be needed here")
        assert said[1].startswith("For no head it is shown to fall.")

    def test_too_few_seeds_license_no_sentence(self, tmp_path: Path) -> None:
        for sentence in answers(compared(0.7, 0.9, seeds=3), tmp_path)[NEEDED]:
            assert sentence.startswith("Inconclusive")
            assert ": 3 and 4 trained models (5 per side required). " in sentence


class TestAlong:
    def test_the_least_lambda_with_a_loss(self, tmp_path: Path) -> None:
        fake = along({0.0: 0.9, 0.01: 0.9, 0.1: 0.8, 1.0: 0.7})
        (said,) = answers(fake, tmp_path)[LOST]
        assert said.startswith("KL: λ = 0.1 is the least at which chunk F1 is below that of λ = 0")
        assert "The lowest chunk F1 is that of KL, λ = 1; it differs" in said

    def test_nothing_is_lost(self, tmp_path: Path) -> None:
        (said,) = answers(along({0.0: 0.9, 0.01: 0.9, 0.1: 0.9}), tmp_path)[LOST]
        assert said.startswith("KL: at no λ chunk F1 is shown to be below that of λ = 0.")

    def test_a_loss_needs_seeds(self, tmp_path: Path) -> None:
        (said,) = answers(along({0.0: 0.9, 0.1: 0.7}, seeds=3), tmp_path)[LOST]
        assert said.startswith(
            "Inconclusive on KL: 3 and 3 trained models (5 per side required). The lowest"
        )
        assert "least at which" not in said

    def test_without_a_control_there_is_no_answer(self, tmp_path: Path) -> None:
        found = answers(along({0.1: 0.7}), tmp_path)
        assert found[LOST] == ["KL: no answer, no finished run of λ = 0."]
        assert "no finished run of λ = 0 has a loss" in found[COLLAPSED][0]

    def test_rankings_beyond_seeds(self, tmp_path: Path) -> None:
        fake = along({0.0: 0.9, 0.1: 0.7})
        said = answers(fake, tmp_path)[RANKED]
        seeds = mean([measure(fake, f"seed-b0-s{k}", "attention_tau") for k in range(1, 6)])
        assert said[0].startswith(f"Tau of attention with the base's: {seeds:.3f} ± ")
        assert said[1].startswith(
            "The adversary of this base ranks words less like it than other seeds do"
        )

    @pytest.mark.parametrize(
        ("target", "criterion"), [("tokens", "chunk F1"), ("marked", "macro F1")]
    )
    def test_how_the_best_was_chosen(self, tmp_path: Path, target: str, criterion: str) -> None:
        fake = along({0.0: 0.9, 0.1: 0.7})
        fake.head["target"] = target
        assert answers(fake, tmp_path)[BEYOND][0] == (
            "The best adversary is chosen on validation: of those of KL with a mean JS of at least 0.4 "
            f"the one with the highest {criterion}."
        )

    def test_divergence_is_beyond_seeds(self, tmp_path: Path) -> None:
        fake = along({0.0: 0.9, 0.1: 0.7})
        said = answers(fake, tmp_path)[BEYOND]
        groups = (
            [f"adversary-kl-l0.1-s{k}" for k in range(5)],
            [f"seed-b0-s{k}" for k in range(1, 6)],
        )
        best, seeds = (mean([measure(fake, n, "attention_js") for n in group]) for group in groups)
        assert said[1].startswith(
            f"The divergence of this base's adversary is beyond seed variance, by {best - seeds:.3f} ["
        )


class TestShapes:
    def test_collapsed_runs_stand_apart(self, tmp_path: Path) -> None:
        found = answers(whole(sentences=30), tmp_path)
        assert found[COLLAPSED][1] == (
            "KL, of 39 runs: 1 of 3 at λ = 0.2848, 2 of 3 at λ = 0.5337, 3 of 3 at λ = 1."
        )
        jump, rest, *_ = found[SAFE]
        assert jump.startswith("All terms (60 runs), loss against the base's labels: a jump of 0.2")
        assert "safe point" not in jump
        assert rest.startswith("All terms, without collapsed runs (48 runs)")
        assert rest.endswith(": no safe point.")
        assert found[RANKED][-1].startswith("Up to the jump of the loss tau is 0.4")

    def test_two_levels_are_told_where_no_run_counts_as_collapsed(self, tmp_path: Path) -> None:
        fake = whole(sentences=30)
        fake.runs[0]["ignorant"] = 1.9
        found = answers(fake, tmp_path)
        assert found[COLLAPSED][1:] == [
            "KL, of 39 runs: none.",
            "KL (released scale), of 24 runs: none.",
        ]
        assert len(found[SAFE]) == 2
        assert all("two levels and no kink" in said for said in found[SAFE])
        assert all(said.endswith(": no safe point.") for said in found[SAFE])


class TestProbes:
    @pytest.mark.parametrize(("seeds", "few"), [(5, False), (2, True)])
    def test_each_way_of_reading_has_its_answer(
        self, tmp_path: Path, seeds: int, few: bool
    ) -> None:
        fake = FakeTagging(80)
        fake.add("base-s0", "base")
        add_probes(fake, seeds, ("full", "tokens", "query_key"))
        found = answers(fake, tmp_path)
        ways = ("with the base's encoder", "that reads each token alone", "whose queries and keys")
        for way in ways:
            (said,) = [
                v
                for q, v in found.items()
                if q.startswith(f"Does given attention guide a probe {way}")
            ]
            assert all(s.startswith("Inconclusive") == few for s in said)
        alone = found["Does given attention guide a probe that reads each token alone?"]
        if not few:
            assert alone[0].startswith(
                "The attention of this base's adversary guides a probe that reads each token alone "
                "worse than"
            )
            assert "carries information to a probe that reads each token alone" in alone[2]


class TestUnfinished:
    def test_a_base_alone_says_what_is_missing(self, tmp_path: Path) -> None:
        fake = FakeTagging(8)
        fake.add("base-s0", "base")
        add_adversary(fake, "kl", 0.0, 0)
        fake.runs[-1]["state"] = "failed"
        found = answers(fake, tmp_path)
        assert found[NEEDED] == ["No answer: no finished run of uniform attention."]
        assert found[SAFE] == ["No answer: no finished adversary at a λ above 0."]
        assert found[RANKED] == ["No answer: the study has no tau of attention with the base's."]
        assert found[LOST] == ["No answer: no finished adversary at a λ above 0."]
        assert "Not finished: 1 of 1 adversaries (adversary-kl-l0-s0)." in found[MISSING]
        assert "The study has no guided taggers." in found[MISSING]

    def test_a_whole_study_misses_nothing(self, tmp_path: Path) -> None:
        assert MISSING not in answers(whole(sentences=8), tmp_path)
