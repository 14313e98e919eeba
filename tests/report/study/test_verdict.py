"""Sentences of studies whose answers are known."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from attnlight.report.study import read_study
from attnlight.report.study.estimates import Estimates
from attnlight.report.study.texts import text
from attnlight.report.study.verdict import verdicts
from tests.report.study.fake import (
    FakeStudy,
    FakeTagging,
    FakeTexts,
    add_adversary,
    add_probes,
    whole_tagger,
)
from tests.report.study.naive import mean, measure

NEEDED, BEYOND, LOST, COLLAPSED, SAFE, RANKED, MISSING = (
    text("questions", name)
    for name in ("needed", "beyond", "lost", "collapsed", "safe", "ranked", "missing")
)
QUALITY = {FakeTexts: "F1 of positive", FakeTagging: "chunk F1"}
GUIDED = {FakeTexts: "an MLP", FakeTagging: "a probe with the base's encoder"}
CLUSTER = {FakeTexts: "text", FakeTagging: "sentence"}


@pytest.fixture(scope="module", autouse=True)
def enough() -> Iterator[None]:
    """As many resamples as an interval of no difference needs to hold 0."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("attnlight.report.study.estimates.RESAMPLES", 400)
        yield


@pytest.fixture(params=[FakeTexts, FakeTagging])
def kind(request: pytest.FixtureRequest) -> type[FakeStudy]:
    """The study of a classifier, and that of a tagger."""
    found: type[FakeStudy] = request.param
    return found


def answers(fake: FakeStudy, folder: Path) -> dict[str, list[str]]:
    study = read_study(fake.write(folder))
    return verdicts(Estimates(study))


def start(kind: type[FakeStudy], quality: float = 0.9) -> Any:
    """A base alone."""
    fake = FakeTexts(200) if kind is FakeTexts else FakeTagging(80, heads=1)
    add(fake, "base-s0", "base", quality)
    return fake


def add(fake: Any, name: str, role: str, quality: float, **entry: Any) -> None:
    """A run of about this F1."""
    known = {"right": quality} if isinstance(fake, FakeTexts) else {"f1": quality}
    fake.add(name, role, **known, **entry)


def compared(kind: type[FakeStudy], uniform: float, base: float, seeds: int = 5) -> FakeStudy:
    """Base and uniform attention alone."""
    fake = start(kind, base)
    for seed in range(seeds):
        add(fake, f"seed-b0-s{seed + 1}", "seed", base, js=0.25)
        add(fake, f"uniform-s{seed}", "uniform", uniform, js=0.3)
    return fake  # type: ignore[no-any-return]


def diverging(
    kind: type[FakeStudy], best: float, control: float, seed: float = 0.27, seeds: int = 5
) -> FakeStudy:
    """A base, its seeds, lambda 0 and one adversary."""
    fake = start(kind, 0.8)
    for k in range(seeds):
        add(fake, f"seed-b0-s{k + 1}", "seed", 0.8, js=seed)
        for lam, js in ((0.0, control), (0.01, best)):
            told: dict[str, Any] = {"term": "kl", "lambda": lam}
            add(fake, f"adversary-kl-l{lam:g}-s{k}", "adversary", 0.8, js=js, **told)
    fake.head["selected"] = {"run": "adversary-kl-l0.01-s0", "term": "kl", "lambda": 0.01}
    return fake  # type: ignore[no-any-return]


def js_of(fake: FakeStudy, start: str) -> float:
    """Mean JS over the runs whose name starts so."""
    return mean(
        [measure(fake, name, "attention_js") for name in fake.rows if name.startswith(start)]
    )


def guided(kind: type[FakeStudy], right: dict[str, float], seeds: int = 5) -> FakeStudy:
    """A base and guided models, each guided by a model of its own."""
    fake = start(kind)
    for guide, share in right.items():
        for seed in range(seeds):
            told = {"guide": guide, "told_by": f"{guide}-s{seed}"}
            add(fake, f"guide-{guide}-s{seed}", "guide", share, js=0.2, **told)
    return fake  # type: ignore[no-any-return]


def guiding(fake: FakeStudy, folder: Path) -> list[str]:
    """What is said of the guided models."""
    name = next(name for kind, name in GUIDED.items() if isinstance(fake, kind))
    return answers(fake, folder)[text("questions", "guides", subject=name)]


class TestNeeded:
    def test_attention_is_needed(self, kind: type[FakeStudy], tmp_path: Path) -> None:
        fake = compared(kind, 0.6, 0.85)
        (sentence,) = answers(fake, tmp_path)[NEEDED]
        study = read_study(tmp_path)
        found = Estimates(study).estimate(
            study.finished("uniform"), "f1", study.finished("base", "seed")
        )
        ends = f"{-found.mean:.3f} [{-found.high:.3f}, {-found.low:.3f}]"
        assert found.high < 0
        assert sentence.startswith(
            f"Attention is needed here: without it {QUALITY[kind]} falls by {ends}."
        )
        assert "with uniform attention (5 seeds)" in sentence
        assert "with trained attention (6 seeds)" in sentence

    def test_attention_is_not_shown_to_be_needed(
        self, kind: type[FakeStudy], tmp_path: Path
    ) -> None:
        (sentence,) = answers(compared(kind, 0.8, 0.8), tmp_path)[NEEDED]
        assert sentence.startswith("Attention is not shown to be needed here")
        assert "an interval that contains 0" in sentence

    def test_uniform_attention_is_better(self, kind: type[FakeStudy], tmp_path: Path) -> None:
        (sentence,) = answers(compared(kind, 0.85, 0.6), tmp_path)[NEEDED]
        assert sentence.startswith("Attention is not needed here: with uniform attention")

    def test_too_few_seeds_license_no_sentence(self, kind: type[FakeStudy], tmp_path: Path) -> None:
        (sentence,) = answers(compared(kind, 0.6, 0.9, seeds=4), tmp_path)[NEEDED]
        start = "Inconclusive: 4 and 5 trained models (5 per side required)."
        name = QUALITY[kind]
        assert sentence.startswith(f"{start} {name[0].upper()}{name[1:]}: 0.")
        assert "needed" not in sentence

    def test_without_uniform_runs(self, kind: type[FakeStudy], tmp_path: Path) -> None:
        fake = compared(kind, 0.6, 0.8)
        for run in fake.runs:
            run["state"] = "failed" if run["role"] == "uniform" else run["state"]
        found = answers(fake, tmp_path)
        assert found[NEEDED] == ["No answer: no finished run of uniform attention."]
        assert any(s.startswith("Not finished: 5 of 5 runs with uniform") for s in found[MISSING])


class TestBeyond:
    def test_beyond_seeds_and_imitation(self, kind: type[FakeStudy], tmp_path: Path) -> None:
        fake = diverging(kind, 0.6, 0.2)
        _, seeds, control, price = answers(fake, tmp_path)[BEYOND]
        best, other, zero = (
            js_of(fake, name) for name in ("adversary-kl-l0.01", "seed", "adversary-kl-l0-")
        )
        assert seeds.startswith(
            "The divergence of this base's adversary is beyond seed variance, by "
            f"{best - other:.3f} ["
        )
        assert "with the best adversary (5 seeds)" in seeds
        assert control.startswith(
            "The divergence of this base's adversary is beyond imitation alone, by "
            f"{best - zero:.3f} ["
        )
        assert price.startswith("Compared with λ = 0, its predictions are")

    def test_not_shown_beyond_seed_variance(self, kind: type[FakeStudy], tmp_path: Path) -> None:
        _, seeds, control, _ = answers(diverging(kind, 0.27, 0.1), tmp_path)[BEYOND]
        assert "is not shown to be beyond seed variance: it differs by" in seeds
        assert "within" not in seeds
        assert "beyond imitation alone" in control

    def test_below_seed_variance(self, kind: type[FakeStudy], tmp_path: Path) -> None:
        fake = diverging(kind, 0.2, 0.1, seed=0.4)
        _, seeds, *_ = answers(fake, tmp_path)[BEYOND]
        less = js_of(fake, "seed") - js_of(fake, "adversary-kl-l0.01")
        assert seeds.startswith(
            f"The divergence of this base's adversary is below seed variance, by {less:.3f} ["
        )

    def test_too_few_seeds(self, kind: type[FakeStudy], tmp_path: Path) -> None:
        _, seeds, control, _ = answers(diverging(kind, 0.6, 0.2, seeds=3), tmp_path)[BEYOND]
        for sentence in (seeds, control):
            assert sentence.startswith("Inconclusive against")
            assert "beyond" not in sentence

    def test_no_adversary(self, kind: type[FakeStudy], tmp_path: Path) -> None:
        chosen, seeds, *_ = answers(compared(kind, 0.8, 0.8), tmp_path)[BEYOND]
        assert chosen == "No adversary is chosen yet."
        assert seeds == ("No answer against seed variance: no finished run of the best adversary.")


class TestGuiding:
    def test_guides_that_carry_information(self, kind: type[FakeStudy], tmp_path: Path) -> None:
        right = {"uniform": 0.7, "base": 0.9, "shuffled": 0.6, "adversary": 0.75}
        base, uniform, *informed = guiding(guided(kind, right), tmp_path)
        who = f"The attention of this base's adversary guides {GUIDED[kind]}"
        assert base.startswith(f"{who} worse than the attention of this base")
        assert uniform.startswith(f"{who} better than uniform")
        assert [s.partition(":")[0] for s in informed] == [
            f"The attention of {owner} carries information to {GUIDED[kind]}"
            for owner in ("this base", "this base's adversary")
        ]

    @pytest.mark.parametrize(
        ("adversary", "said"),
        [
            (0.5, "guides {} worse than the shuffled weights"),
            (0.7, "is not shown to carry information to {}"),
        ],
    )
    def test_no_better_than_shuffled(
        self, kind: type[FakeStudy], adversary: float, said: str, tmp_path: Path
    ) -> None:
        right = {"uniform": 0.7, "base": 0.9, "shuffled": 0.7, "adversary": adversary}
        *_, sentence = guiding(guided(kind, right), tmp_path)
        said = said.format(GUIDED[kind])
        assert sentence.startswith(f"The attention of this base's adversary {said}")
        assert ("an interval that contains 0" in sentence) == (adversary == 0.7)

    def test_five_perceptrons_of_one_adversary_are_one_case(
        self, kind: type[FakeStudy], tmp_path: Path
    ) -> None:
        """IMDb's study: F1 falls by .3 or more in each of five, and nothing is claimed."""
        fake = guided(kind, {"uniform": 0.85, "base": 0.9, "shuffled": 0.7, "adversary": 0.4})
        for run in fake.runs:
            if run["guide"] == "adversary":
                run["told_by"] = "adversary-kl-l0.05-s0"
        base, uniform, informed, adversary = guiding(fake, tmp_path)
        for sentence in (base, uniform, adversary):
            assert sentence.startswith("Inconclusive")
            assert ": 1 and 5 trained models (5 per side required)" in sentence
            assert "5 seeds, guided by 1 model" in sentence
            assert "worse" not in sentence
        assert informed.startswith("The attention of this base carries information")

    def test_no_shown_difference(self, kind: type[FakeStudy], tmp_path: Path) -> None:
        right = {"uniform": 0.75, "base": 0.9, "shuffled": 0.7, "adversary": 0.74}
        _, uniform, *_ = guiding(guided(kind, right), tmp_path)
        said = f"is not shown to guide {GUIDED[kind]} better or worse than uniform attention"
        assert said in uniform

    def test_no_claim_without_the_shuffled_guide(
        self, kind: type[FakeStudy], tmp_path: Path
    ) -> None:
        found = guiding(guided(kind, {"base": 0.9, "adversary": 0.5}), tmp_path)
        assert not any("carry information" in sentence for sentence in found)
        assert found[1].startswith("No answer against uniform attention")
        own = f"the attention of this base shuffled within each {CLUSTER[kind]}"
        assert found[-1].endswith(f"no finished run of {own}.")

    def test_too_few_seeds(self, kind: type[FakeStudy], tmp_path: Path) -> None:
        right = {"uniform": 0.7, "base": 0.9, "shuffled": 0.6, "adversary": 0.5}
        found = guiding(guided(kind, right, seeds=2), tmp_path)
        assert all(sentence.startswith("Inconclusive") for sentence in found)
        own = (
            "Inconclusive on the attention of this base: 2 and 2 trained models (5 per side "
            f"required). {QUALITY[kind]} differs from that with shuffled weights by 0."
        )
        assert any(s.lower().startswith(own.lower()) for s in found)


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


def single_heads(uniform: float, base: float, seeds: int = 5) -> FakeTagging:
    """Base and single uniform heads, of which head 1 costs as much as all."""
    fake = FakeTagging(80, heads=2)
    fake.add("base-s0", "base", base)
    for seed in range(seeds):
        fake.add(f"seed-b0-s{seed + 1}", "seed", base, 0.2, 0.2)
        fake.add(f"uniform-s{seed}", "uniform", uniform, 0.3, 0.3, tau=None)
        for head, f1 in enumerate((base, uniform)):
            fake.add(f"uniform-h{head}-s{seed}", "uniform", f1, 0.3, 0.3, head=head)
    return fake


class TestHeads:
    def test_attention_and_the_heads_that_are_needed(self, tmp_path: Path) -> None:
        fake = single_heads(0.7, 0.9)
        whole_model, heads = answers(fake, tmp_path)[NEEDED]
        assert whole_model.startswith("Attention is needed here: without it chunk F1 falls by 0.")
        assert heads.startswith(
            "Chunk F1 falls without head 1. With one head uniform and the others"
        )
        trained = mean([measure(fake, n, "f1") for n in fake.rows if n.startswith(("b", "seed"))])
        alone = mean([measure(fake, f"uniform-h1-s{seed}", "f1") for seed in range(5)])
        assert f"{alone - trained:.3f} [" in heads

    def test_no_head_is_shown_to_be_needed(self, tmp_path: Path) -> None:
        said = answers(single_heads(0.9, 0.9), tmp_path)[NEEDED]
        assert said[0].startswith("Attention is not shown to be needed here")
        assert said[1].startswith("Chunk F1 is not shown to fall without any single head.")

    def test_too_few_seeds_license_no_sentence(self, tmp_path: Path) -> None:
        for sentence in answers(single_heads(0.7, 0.9, seeds=3), tmp_path)[NEEDED]:
            assert sentence.startswith("Inconclusive")
            assert ": 3 and 4 trained models (5 per side required). " in sentence


class TestAlong:
    def test_the_least_lambda_with_a_loss(self, tmp_path: Path) -> None:
        fake = along({0.0: 0.9, 0.01: 0.9, 0.1: 0.8, 1.0: 0.7})
        (said,) = answers(fake, tmp_path)[LOST]
        assert said.startswith("KL: λ = 0.1 is the smallest λ at which chunk F1 is below that at λ")
        assert "The lowest chunk F1 is that of KL, λ = 1; it differs" in said

    def test_nothing_is_lost(self, tmp_path: Path) -> None:
        (said,) = answers(along({0.0: 0.9, 0.01: 0.9, 0.1: 0.9}), tmp_path)[LOST]
        assert said.startswith("KL: chunk F1 is not shown to be below that at λ = 0 for any λ.")

    def test_a_loss_needs_seeds(self, tmp_path: Path) -> None:
        (said,) = answers(along({0.0: 0.9, 0.1: 0.7}, seeds=3), tmp_path)[LOST]
        assert said.startswith(
            "Inconclusive on KL: 3 and 3 trained models (5 per side required). The lowest"
        )
        assert "least at which" not in said

    def test_without_a_control_there_is_no_answer(self, tmp_path: Path) -> None:
        found = answers(along({0.1: 0.7}), tmp_path)
        assert found[LOST] == ["KL: no answer, no finished run of λ = 0."]
        assert "no run of it has a finite loss" in found[COLLAPSED][0]

    def test_rankings_beyond_seeds(self, tmp_path: Path) -> None:
        fake = along({0.0: 0.9, 0.1: 0.7})
        said = answers(fake, tmp_path)[RANKED]
        seeds = mean([measure(fake, f"seed-b0-s{k}", "attention_tau") for k in range(1, 6)])
        assert said[0].startswith(f"Tau of attention with the base's: {seeds:.3f} ± ")
        assert said[1].startswith(
            "This base's adversary ranks words less like the base than other seeds do"
        )

    @pytest.mark.parametrize(
        ("target", "criterion"), [("tokens", "chunk F1"), ("marked", "macro F1")]
    )
    def test_how_the_best_was_chosen(self, tmp_path: Path, target: str, criterion: str) -> None:
        fake = along({0.0: 0.9, 0.1: 0.7})
        fake.head["target"] = target
        assert answers(fake, tmp_path)[BEYOND][0] == (
            "The best adversary is chosen on validation: of the lambdas of KL with a mean JS of at "
            f"least 0.4, the one with the highest {criterion}."
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
        found = answers(whole_tagger(sentences=30), tmp_path)
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
        fake = whole_tagger(sentences=30)
        fake.runs[0]["ignorant"] = 1.9
        found = answers(fake, tmp_path)
        assert found[COLLAPSED][1:] == [
            "KL, of 39 runs: none.",
            "KL (released scale), of 24 runs: none.",
        ]
        assert len(found[SAFE]) == 2
        assert all("two levels and no kink" in said for said in found[SAFE])
        assert all(said.endswith(": no safe point.") for said in found[SAFE])


class TestContexts:
    @pytest.mark.parametrize(("seeds", "few"), [(5, False), (2, True)])
    def test_each_way_of_reading_has_its_answer(
        self, tmp_path: Path, seeds: int, few: bool
    ) -> None:
        fake = FakeTagging(400)
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
        assert MISSING not in answers(whole_tagger(sentences=8), tmp_path)
