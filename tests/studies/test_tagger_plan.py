"""A study of a tagger: its runs, how each is started, and what its file may not say."""

from __future__ import annotations

import json
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from attnlight.errors import InputError
from attnlight.studies.commands import evaluation_commands, first_command, fit_command, joined
from attnlight.studies.file import read_studies
from attnlight.studies.plan import PlannedRun, digests, plan
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
ADVERSARIES = TAGGER["adversaries"]
MARKED = {"options": {"data": {"target": "marked"}}}


def runs_of(lab: Lab, content: dict[str, Any] = TAGGER) -> dict[str, PlannedRun]:
    return {run.name: run for run in plan(lab.study(content))}


def model_of(lab: Lab, name: str, told_by: str | None = None) -> list[str]:
    words = fit_command(lab.study(TAGGER), runs_of(lab)[name], Path("r/t"), told_by)
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

    def test_records_are_of_the_best_epoch_alone(self, lab: Lab) -> None:
        study, run = lab.study(TAGGER), runs_of(lab)["uniform-s0"]
        words = fit_command(study, run, Path("r/t"), None)
        assert not [word for word in words if "callbacks" in word]
        commands = evaluation_commands(study, run, Path("r/t"))
        assert [command[0] for command in commands] == ["validate", "test"]
        for command in commands:
            assert command[1:3] == ["-c", "r/t/uniform-s0/fit.yaml"]
            (attached,) = (word for word in command if "callbacks" in word)
            names = [held["class_path"] for held in json.loads(attached.partition("=")[2])]
            assert names == [f"attnlight.callbacks.{n}" for n in ("Predictions", "BaseDivergence")]
        assert [path.parts[-2:] for path in lab.state(TAGGER).records(run)] == [
            ("val", "predictions.parquet"),
            ("val", "base_divergence.parquet"),
            ("test", "predictions.parquet"),
            ("test", "base_divergence.parquet"),
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


def changed(**parts: Any) -> dict[str, Any]:
    return TAGGER | parts


CLASSIFIER = {"experiment": CONTENT["experiment"], "uniform": None, "guides": None}
CLASSIFIER["adversaries"] = None


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (changed(**CLASSIFIER | {"uniform": {"heads": [0]}}), "uniform has the key 'heads'"),
        (changed(**CLASSIFIER | {"guides": {"contexts": ["full"]}}), "the key 'contexts'"),
        (
            changed(**CLASSIFIER | {"adversaries": ADVERSARIES}),
            "lambdas has the key 'compat', which is none; they are kl, js, tvd",
        ),
        (changed(uniform={"seeds": [0], "heads": [-1]}), "heads has -1; a head is a whole number"),
        (changed(uniform={"seeds": [0], "heads": [1, 1]}), "heads names 1 twice"),
        (
            changed(guides={"names": ["base"], "contexts": ["words"]}),
            "contexts has 'words', which is none; they are full, tokens, query_key",
        ),
        (
            changed(adversaries=ADVERSARIES | {"lambdas": {"kl": [0]}}),
            "guide adversary needs `adversaries`",
        ),
        (changed(**MARKED), "compat is the loss of target tokens, but the corpus of tiny has"),
        (
            changed(conditions={"one": {}, "two": MARKED}),
            "but the corpus of tiny-two has target marked",
        ),
        (changed(conditions={}), "conditions is empty"),
        (changed(conditions=["one"]), "conditions is ['one']; expected a mapping"),
        (changed(conditions={"a/b": {}}), "conditions has 'a/b'; a name is text of letters"),
        (changed(conditions={1: {}}), "conditions has 1; a name is text"),
        (changed(conditions={"one": {"seeds": [1]}}), "conditions: one has the key 'seeds'"),
        (changed(conditions={"one": {"base": {"seeds": [1]}}}), "one: base has the key 'seeds'"),
        (
            changed(conditions={"one": {"adversaries": {"bases": [0]}}}),
            "one: adversaries has the key 'bases'",
        ),
        (
            changed(conditions={"one": {"adversaries": {"lambdas": {"l2": [0]}}}}),
            "lambdas has the key 'l2'",
        ),
    ],
)
def test_mistake_is_told(lab: Lab, content: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError) as error:
        read_studies(lab.write(content))
    assert said in str(error.value)
    assert "tiny.yaml" in str(error.value)
    assert "\n" not in str(error.value)


def test_conditions_add_to_what_all_are_told(lab: Lab) -> None:
    told = {"options": {"trainer": {"max_epochs": 2}}, "base": {"options": {"model": {"heads": 2}}}}
    content = CONTENT | {
        "options": {"trainer": {"max_epochs": 1}},
        "uniform": {"seeds": [0], "options": {"trainer": {"max_epochs": 3}}},
        "conditions": {"plain": None, "longer": told},
    }
    plain, longer = read_studies(lab.write(content))
    assert (plain.name, plain.condition) == ("tiny-plain", "plain")
    assert plain.base.options == ("--trainer.max_epochs=1",)
    epochs = ("--trainer.max_epochs=1", "--trainer.max_epochs=2")
    assert longer.base.options == (*epochs, "--model.heads=2")
    assert longer.uniform.options == (*epochs, "--trainer.max_epochs=3")


def test_a_condition_has_adversaries_of_its_own(lab: Lab) -> None:
    grid = {"lambdas": {"kl": [0, 0.1]}, "seeds": [0, 1], "bases": [0]}
    fewer, other = {"seeds": [0]}, {"lambdas": {"js": [0.2]}}
    conditions = {"all": None, "fewer": {"adversaries": fewer}, "other": {"adversaries": other}}
    content = CONTENT | {"guides": None, "adversaries": grid, "conditions": conditions}
    held = [study.adversaries for study in read_studies(lab.write(content))]
    assert [(one.lambdas, one.seeds) for one in held if one is not None] == [
        ({"kl": (0.0, 0.1)}, {"kl": (0, 1)}),
        ({"kl": (0.0, 0.1)}, {"kl": (0,)}),
        ({"js": (0.2,)}, {"js": (0, 1)}),
    ]
