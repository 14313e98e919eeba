"""Sentences of studies whose answers are known."""

import re
from collections.abc import Iterator
from functools import cache, partial
from typing import Any

import numpy as np
import pytest

from attnlight.report.study import Study
from attnlight.report.study.estimates import Estimates
from attnlight.report.study.texts import text
from attnlight.report.study.verdict import compare_groups, verdicts
from tests.report.study.fake import (
    FakeStudy,
    FakeTagging,
    FakeTexts,
    add_probes,
    on_a_line,
    whole_tagger,
)
from tests.report.study.naive import mean, measure

# Of each kind of study the words of its sentences.
PROBE = "a probe with the base's encoder"
WORDS = {
    FakeTexts: {"quality": "F1 of positive", "guided": "an MLP", "cluster": "text"},
    FakeTagging: {"quality": "chunk F1", "guided": PROBE, "cluster": "sentence"},
}


@pytest.fixture(scope="module", autouse=True)
def enough() -> Iterator[None]:
    """As many resamples as an interval of no difference needs to hold 0."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("attnlight.statistics.bootstrap.RESAMPLES", 400)
        yield


def start(kind: type[FakeStudy], quality: float = 0.9) -> Any:
    fake = FakeTexts(200) if kind is FakeTexts else FakeTagging(80, heads=1)
    add(fake, "base-s0", "base", quality)
    return fake


def add(fake: Any, name: str, role: str, quality: float, **entry: Any) -> None:
    fake.add(name, role, **{"right" if isinstance(fake, FakeTexts) else "f1": quality}, **entry)


def compared(kind: type[FakeStudy], uniform: float, base: float, seeds: int = 5) -> Any:
    fake = start(kind, base)
    for seed in range(seeds):
        add(fake, f"seed-b0-s{seed + 1}", "seed", base, js=0.25)
        add(fake, f"uniform-s{seed}", "uniform", uniform, js=0.3)
    return fake


def without_uniform(kind: type[FakeStudy]) -> Any:
    fake = compared(kind, 0.6, 0.8)
    for run in (run for run in fake.runs if run["role"] == "uniform"):
        run["state"] = "failed"
    return fake


def diverging(
    kind: type[FakeStudy], best: float, control: float, seed: float = 0.27, seeds: int = 5
) -> Any:
    """A base, its seeds, lambda 0 and one adversary."""
    fake = start(kind, 0.8)
    for k in range(seeds):
        add(fake, f"seed-b0-s{k + 1}", "seed", 0.8, js=seed)
        for lam, js in ((0.0, control), (0.01, best)):
            told: dict[str, Any] = {"term": "kl", "lambda": lam}
            add(fake, f"adversary-kl-l{lam:g}-s{k}", "adversary", 0.8, js=js, **told)
    fake.head["selected"] = {"run": "adversary-kl-l0.01-s0", "term": "kl", "lambda": 0.01}
    return fake


def guided(kind: type[FakeStudy], *right: float, seeds: int = 5) -> Any:
    """A base and guided models, each guided by a model of its own."""
    fake = start(kind)
    for guide, share in zip(("uniform", "base", "shuffled", "adversary"), right, strict=True):
        for seed in range(seeds if share else 0):
            told = {"guide": guide, "told_by": f"{guide}-s{seed}"}
            add(fake, f"guide-{guide}-s{seed}", "guide", share, js=0.2, **told)
    return fake


def by_one_adversary(kind: type[FakeStudy]) -> Any:
    """IMDb's study: F1 falls by .3 or more in each of five perceptrons of one adversary."""
    fake = guided(kind, 0.85, 0.9, 0.7, 0.4)
    for run in (run for run in fake.runs if run["guide"] == "adversary"):
        run["told_by"] = "adversary-kl-l0.05-s0"
    return fake


def along(*f1: tuple[float, float], seeds: int = 5) -> FakeTagging:
    """A base, other seeds and adversaries of some F1 by lambda."""
    fake = FakeTagging(80, heads=1)
    fake.add("base-s0", "base")
    for seed in range(seeds):
        fake.add(f"seed-b0-s{seed + 1}", "seed", js=0.2, tau=0.6)
        for lam, value in f1:
            told: dict[str, Any] = {"term": "kl", "lambda": lam}
            js = 0.2 + 0.3 * (lam > 0)
            fake.add(f"adversary-kl-l{lam:g}-s{seed}", "adversary", value, js=js, tau=0.2, **told)
    fake.head["selected"] = {"run": "x", "term": "kl", "lambda": f1[-1][0]}
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


def of_marked(*f1: tuple[float, float]) -> FakeTagging:
    fake = along(*f1)
    fake.head["target"] = "marked"
    return fake


def base_alone() -> FakeTagging:
    fake = on_a_line(lambdas=[0.0])
    fake.runs[-1]["state"] = "failed"
    return fake


def two_levels() -> FakeTagging:
    fake = whole_tagger(sentences=30)
    fake.runs[0]["ignorant"] = 1.9
    return fake


MADE = {
    **{f.__name__: f for f in (compared, without_uniform, diverging, guided, by_one_adversary)},
    **{f.__name__: f for f in (along, single_heads, of_marked, base_alone, two_levels)},
    "not_shuffled": lambda kind: guided(kind, 0, 0.9, 0, 0.5),
    "few_guided": lambda kind: guided(kind, 0.7, 0.9, 0.6, 0.5, seeds=2),
    "few_along": partial(along, seeds=3),
    "collapsing": partial(whole_tagger, sentences=30),
}


# A question, how a study is made, and how the sentences that answer begin: … stands for any words, $
# for the end. A claim needs five models on each side.
SAID = """
needed: compared 0.6 0.85
  Attention is needed here: without it {quality} falls by {fall}.…uniform attention (5 seeds)
needed: compared 0.8 0.8
  Attention is not shown to be needed here…changes by {change} […], an interval that contains 0
needed: compared 0.85 0.6
  Attention is not needed here: with uniform attention
needed: compared 0.6 0.9 4
  Inconclusive: 4 and 5 trained models (5 per side required). {Quality}: 0.
needed: without_uniform
  No answer: no finished run of uniform attention.$
missing: without_uniform
  Not finished: 5 of 5 runs with uniform
  The study has no guided …s.$
  The study has no adversaries.$
beyond: diverging 0.6 0.2
  The best adversary is chosen
  {This} beyond seed variance, by {js_seed} […with the best adversary (5 seeds)
  {This} beyond imitation alone, by {js_control} [
  Compared with λ = 0, its predictions are
beyond: diverging 0.27 0.1
  No lambda of KL reached a mean JS of 0.4 on validation
  {This} not shown to be beyond seed variance: it differs by
  {This} beyond imitation alone
  Compared with λ = 0
beyond: diverging 0.2 0.1 0.4
  No lambda of KL reached
  {This} below seed variance, by {js_seed} [
  …
  Compared with λ = 0
beyond: diverging 0.6 0.2 0.27 3
  The best adversary is chosen
  Inconclusive against seed variance
  Inconclusive against imitation alone
  Compared with λ = 0
beyond: compared 0.8 0.8
  No adversary is chosen yet.$
  No answer against seed variance: no finished run of the best adversary.$
  No answer
guides: guided 0.7 0.9 0.6 0.75
  {Adversary} guides {guided} worse than the attention of this base
  {Adversary} guides {guided} better than uniform
  The attention of this base carries information to {guided}:
  {Adversary} carries information to {guided}:
guides: guided 0.75 0.9 0.7 0.74
  {Adversary} guides {guided} worse
  {Adversary} is not shown to guide {guided} better or worse than uniform attention
  The attention of this base carries information
  …
guides: guided 0.7 0.9 0.7 0.5
  …
  …
  …
  {Adversary} guides {guided} worse than the shuffled weights
guides: guided 0.7 0.9 0.7 0.7
  …
  …
  …
  {Adversary} is not shown to carry information to {guided}…an interval that contains 0
guides: by_one_adversary
  Inconclusive…: 1 and 5 trained models (5 per side required)…5 seeds, guided by 1 model
  Inconclusive…: 1 and 5 trained models (5 per side required)…5 seeds, guided by 1 model
  The attention of this base carries information
  Inconclusive…: 1 and 5 trained models (5 per side required)
guides: not_shuffled
  {Adversary} guides
  No answer against uniform attention
  …
  …no finished run of the attention of this base shuffled within each {cluster}.$
guides: few_guided
  Inconclusive
  Inconclusive
  Inconclusive on the attention of this base: 2 and 2 trained models (5 per side required). {Quality}
  Inconclusive
"""
OF_TAGGERS = """
needed: single_heads 0.7 0.9
  Attention is needed here: without it chunk F1 falls by 0.
  Chunk F1 falls without head 1. With one head uniform and the others…{head} [
needed: single_heads 0.9 0.9
  Attention is not shown to be needed here
  Chunk F1 is not shown to fall without any single head.
needed: single_heads 0.7 0.9 3
  Inconclusive…: 3 and 4 trained models (5 per side required).
  Inconclusive…: 3 and 4 trained models (5 per side required).
lost: along 0:0.9 0.01:0.9 0.1:0.8 1:0.7
  KL: λ = 0.1 is the smallest λ at which chunk F1 is below …lowest chunk F1 is that of KL, λ = 1;
lost: along 0:0.9 0.01:0.9 0.1:0.9
  KL: chunk F1 is not shown to be below that at λ = 0 for any λ.
lost: few_along 0:0.9 0.1:0.7
  Inconclusive on KL: 3 and 3 trained models (5 per side required). The lowest
lost: along 0.1:0.7
  KL: no answer, no finished run of λ = 0.$
collapsed: along 0.1:0.7
  …no run of it has a finite loss
ranked: along 0:0.9 0.1:0.7
  Tau of attention with the base's: {tau} ± 
  This base's adversary ranks words less like the base than other seeds do
beyond: along 0:0.9 0.1:0.7
  …of KL with a mean JS of at least 0.4, the one with the highest chunk F1.$
  {This} beyond seed variance
  {This} beyond imitation alone
  Compared with λ = 0
beyond: of_marked 0:0.9 0.1:0.7
  …of KL with a mean JS of at least 0.4, the one with the highest macro F1.$
  …
  …
  …
needed: base_alone
  No answer: no finished run of uniform attention.$
safe: base_alone
  No answer: no finished adversary at a λ above 0.$
lost: base_alone
  No answer: no finished adversary at a λ above 0.$
ranked: base_alone
  No answer: the study has no tau of attention with the base's.$
missing: base_alone
  The study has no runs with uniform attention.$
  The study has no other seeds of a base.$
  The study has no guided taggers.$
  Not finished: 1 of 1 adversaries (adversary-kl-l0-s0).$
collapsed: collapsing
  …
  KL, of 39 runs: 1 of 3 at λ = 0.2848, 2 of 3 at λ = 0.5337, 3 of 3 at λ = 1.$
  KL (released scale)
safe: collapsing
  All terms (60 runs), loss against the base's labels: a jump of 0.2
  All terms, without collapsed runs (48 runs)…: no safe point.$
  …
  …
ranked: collapsing
  Tau of attention
  …
  Up to the jump of the loss tau is 0.4
collapsed: two_levels
  …
  KL, of 39 runs: none.$
  KL (released scale), of 24 runs: none.$
safe: two_levels
  …two levels and no kink…: no safe point.$
  …two levels and no kink…: no safe point.$
"""


Answers = tuple[FakeStudy, Study, dict[str, list[str]]]


@cache
def answers(made: str, kind: type[FakeStudy] | None) -> Answers:
    """A study, and its sentences by question."""
    name, *words = made.split()
    numbers = [tuple(map(float, word.split(":"))) for word in words]
    given = [one if len(one) > 1 else int(one[0]) if one[0] > 1 else one[0] for one in numbers]
    fake = MADE[name](*([] if kind is None else [kind]), *given)
    study = fake.read()
    return fake, study, verdicts(Estimates(study))


def fields(fake: FakeStudy, study: Study) -> dict[str, str]:
    """Words and numbers of the sentences, by loops over the fake's rows."""

    def of(name: str, start: str) -> float:
        return mean([measure(fake, run, name) for run in fake.rows if run.startswith(start)])

    best, trained = of("attention_js", "adversary-kl-l0.01-"), study.finished("base", "seed")
    fall = Estimates(study).estimate(study.finished("uniform", head=None), "f1", trained)
    runs = [run for run in fake.rows if run.startswith(("base", "seed"))]
    with_it = mean([measure(fake, run, "f1") for run in runs])
    without_head = of("f1", "uniform-h1") - with_it
    words = WORDS[type(fake)]
    return words | {
        "Quality": words["quality"][0].upper() + words["quality"][1:],
        "Adversary": "The attention of this base's adversary",
        "This": "The divergence of this base's adversary is",
        "js_seed": f"{abs(best - of('attention_js', 'seed')):.3f}",
        "js_control": f"{best - of('attention_js', 'adversary-kl-l0-'):.3f}",
        "tau": "" if isinstance(fake, FakeTexts) else f"{of('attention_tau', 'seed'):.3f}",
        "fall": f"{-fall.mean:.3f} [{-fall.high:.3f}, {-fall.low:.3f}]",
        "change": f"{of('f1', 'uniform-s') - with_it:.3f}",
        "head": f"{without_head:.3f}",
    }


CASES = [(case, kind) for case in re.split(r"\n(?=\w)", SAID.strip()) for kind in WORDS]
CASES += [(case, None) for case in re.split(r"\n(?=\w)", OF_TAGGERS.strip())]
IDS = [case.partition("\n")[0] + getattr(kind, "__name__", "") for case, kind in CASES]


@pytest.mark.parametrize(("case", "kind"), CASES, ids=IDS)
def test_sentences_follow_from_the_runs(case: str, kind: type[FakeStudy] | None) -> None:
    first, *starts = case.split("\n")
    question, made = first.split(": ")
    fake, study, found = answers(made, kind)
    filled = fields(fake, study)
    sentences = found[text("questions", question, subject=filled["guided"])]
    for sentence, start in zip(sentences, starts, strict=True):
        pattern = re.escape(start[2:].format(**filled)).replace("…", ".*").replace(r"\$", "$")
        assert re.match(pattern, sentence), sentence
        if sentence.startswith(("Inconclusive", "Whether")):
            assert not re.search(r"needed|beyond|worse|carry information", sentence)


def test_a_whole_study_misses_nothing() -> None:
    _, _, found = answers("collapsing", None)
    assert text("questions", "missing") not in found
    assert "safe point" not in found[text("questions", "safe")][0]


@pytest.mark.parametrize(("seeds", "few"), [(5, False), (2, True)])
def test_each_way_of_reading_has_its_answer(seeds: int, few: bool) -> None:
    fake = FakeTagging(400)
    fake.add("base-s0", "base")
    add_probes(fake, seeds, ("full", "tokens", "query_key"))
    found = verdicts(Estimates(fake.read()))
    for way in ("with the base's encoder", "that reads each token alone", "whose queries and keys"):
        question = f"Does given attention guide a probe {way}"
        (said,) = [v for q, v in found.items() if q.startswith(question)]
        assert all(s.startswith("Inconclusive") == few for s in said)
    alone = "a probe that reads each token alone"
    first, _, third, *_ = found[f"Does given attention guide {alone}?"]
    if not few:
        assert first.startswith(f"The attention of this base's adversary guides {alone} worse than")
        assert f"carries information to {alone}" in third


@pytest.mark.parametrize("undefined", [0, 1, 4, 5])
def test_a_model_without_the_measure_is_none_of_the_five(undefined: int) -> None:
    """Tau is undefined where attention orders nothing."""
    fake = whole_tagger(seeds=5, kl=(0.0, 0.1), released=(), sentences=30)
    for seed in range(undefined):
        rows = fake.rows[f"adversary-kl-l0.1-s{seed}"]
        rows["attention_tau"] = np.full(30, np.nan)
        rows["tau_rows"] = np.zeros(30)
    estimates = Estimates(fake.read())
    (ranked,) = [one for one in compare_groups(estimates) if one.spec.question == "ranked"]
    assert (ranked.sides[0].seeds, ranked.sides[1].seeds) == (5 - undefined, 5)
    few = f"Inconclusive against seed variance: {5 - undefined} and 5 trained models"
    said = "This base's adversary ranks words less like the base" if undefined == 0 else few
    assert ranked.sentence().startswith(said)
