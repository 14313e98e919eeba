"""A study of a tagger: its runs, how each is started, and what its file may not say."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from attnlight.studies.argv import fit_command
from attnlight.studies.executor import first_command, joined
from attnlight.studies.plan import PlannedRun, digests, plan
from attnlight.studies.spec import read_studies
from tests.commands import CONFIGS
from tests.studies.conftest import CONTENT, Lab

TAGGER: dict[str, Any] = CONTENT | {
    "experiment": str(CONFIGS / "experiments/conll2000_study.yaml"),
    "uniform": {"seeds": [0, 1], "heads": [0, 3]},
    "seeds": {"seeds": [1]},
    "guides": {
        "names": ["base", "uniform", "adversary"],
        "contexts": ["full", "tokens", "query_key"],
        "seeds": [0],
    },
    "adversaries": {"lambdas": {"kl": [0, 0.01], "compat": [2.1]}, "seeds": [0]},
}


def runs_of(lab: Lab, content: dict[str, Any] = TAGGER) -> dict[str, PlannedRun]:
    return {run.name: run for run in plan(lab.study(content))}


def model_of(lab: Lab, name: str, guide_run: str | None = None) -> list[str]:
    words = fit_command(lab.study(TAGGER), runs_of(lab)[name], Path("r/t"), guide_run)
    return [word.partition("=")[2] for word in words if word.startswith("--model")]


def test_names(lab: Lab) -> None:
    assert list(runs_of(lab)) == [
        "base-s0",
        "uniform-s0",
        "uniform-s1",
        "uniform-h0-s0",
        "uniform-h0-s1",
        "uniform-h3-s0",
        "uniform-h3-s1",
        "seed-b0-s1",
        "guide-base-s0",
        "guide-base-tokens-s0",
        "guide-base-query_key-s0",
        "guide-uniform-s0",
        "guide-uniform-tokens-s0",  # and none whose uniform attention queries and keys move
        "adversary-kl-l0-s0",
        "adversary-kl-l0.01-s0",
        "adversary-compat-l2.1-s0",
        "guide-adversary-s0",
        "guide-adversary-tokens-s0",
        "guide-adversary-query_key-s0",
    ]
    needs = runs_of(lab)["guide-adversary-tokens-s0"].needs
    assert needs == ("base-s0", "adversary-kl-l0.01-s0"), "the term of compat is another"


def test_the_study_of_conll2000() -> None:
    (study,) = read_studies(CONFIGS / "studies/chunking_conll2000.yaml")
    runs = plan(study)
    assert Counter(run.role for run in runs) == {
        "base": 3,
        "uniform": 5 + 2 * 5,
        "seed": 5 + 4 + 4,
        "guide": 6 * 2 * 3,
        "adversary": 13 * 3 + 7 * 2,
    }
    assert study.adversaries is not None
    weights = study.adversaries.lambdas["kl"]
    steps = [b / a for a, b in pairwise(weights[1:])]
    assert (weights[0], weights[1], weights[-1]) == (0, 1e-3, 1)
    assert steps == pytest.approx([1000 ** (1 / 11)] * 11, rel=5e-3)


def test_the_conditions_of_conll2000() -> None:
    studies = read_studies(CONFIGS / "studies/exclusivity_conll2000.yaml")
    assert Counter(study.target for study in studies) == {"tokens": 3, "marked": 3, "sentence": 2}
    grids = {
        target: {
            str(study.condition).partition("-")[2]: study.adversaries
            and (study.adversaries.lambdas, study.adversaries.seeds)
            for study in studies
            if study.target == target
        }
        for target in ("tokens", "marked")
    }
    assert grids["tokens"] == grids["marked"], "what is compared has the same runs"
    for study in studies:
        target, readout, pos = str(study.condition).split("-")
        told = {f"--data.target={target}", f"--data.pos={str(pos == 'pos').lower()}"}
        base, adversary = plan(study)[0], plan(study)[-1]
        assert told | {f"--model.net.readout={readout}"} <= set(base.options)
        assert told <= set(adversary.options), "which takes its readout from the base"
        assert not [option for option in adversary.options if "readout" in option]


class TestCommands:
    def test_variants_are_those_of_taggers(self, lab: Lab) -> None:
        base = "r/t/base-s0/best.ckpt"
        assert model_of(lab, "base-s0") == []
        assert model_of(lab, "uniform-s1") == ["attnlight.tasks.UniformVariant", base]
        assert model_of(lab, "uniform-h3-s0") == ["attnlight.tasks.UniformVariant", base, "3"]
        assert model_of(lab, "seed-b0-s1") == ["attnlight.tasks.SeedVariant", base]
        guided = ["attnlight.tasks.GuidedVariant", base]
        assert model_of(lab, "guide-base-s0") == [*guided, "base", "full"]
        assert model_of(lab, "guide-uniform-tokens-s0") == [*guided, "uniform", "tokens"]
        told = "adversary-kl-l0.01-s0"
        words = model_of(lab, "guide-adversary-query_key-s0", told)
        assert words == [*guided, "adversary", f"r/t/{told}/best.ckpt", "true"]
        adversary = ["attnlight.tasks.AdversarialVariant", base]
        assert model_of(lab, told) == [*adversary, "0.01", "kl"]
        assert model_of(lab, "adversary-compat-l2.1-s0") == [*adversary, "2.1", "kl", "true"]

    def test_records_are_of_validation_and_test(self, lab: Lab) -> None:
        records = lab.state(TAGGER).records(runs_of(lab)["uniform-s0"])
        assert [path.parts[-2:] for path in records] == [
            (stage, f"{name}.parquet")
            for stage in ("val", "test")
            for name in ("predictions", "base_divergence")
        ]

    def test_come_apart_as_they_were_joined(self) -> None:
        commands = [["fit", "--a=1"], ["validate"], ["test", "-c", "b"]]
        left, found = joined(commands), []
        while left:
            command, left = first_command(left)
            found.append(command)
        assert found == commands


def test_head_and_context_decide_a_run(lab: Lab) -> None:
    study = lab.study(TAGGER)
    decided = digests(study, plan(study))
    assert len(set(decided.values())) == len(decided)
