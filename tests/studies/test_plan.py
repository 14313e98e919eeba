"""Which runs a study is made of."""

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from attnlight.studies import argv
from attnlight.studies.argv import fit_command
from attnlight.studies.plan import PlannedRun, deal, digests, plan
from attnlight.studies.spec import Study, read_studies
from tests.commands import CONFIGS
from tests.studies.conftest import CONTENT, TAGGER, WHOLE, Lab

FILES = sorted((CONFIGS / "studies").glob("*.yaml"))


def by_name(study: Study) -> dict[str, PlannedRun]:
    return {run.name: run for run in plan(study)}


STUDIES = [study for file in FILES for study in read_studies(file)]


@pytest.mark.parametrize("study", STUDIES, ids=lambda study: study.name)
def test_every_file_plans(study: Study) -> None:
    runs = plan(study)
    names = [run.name for run in runs]
    assert len(set(names)) == len(names)
    roles = {"base", "uniform", "seed", "guide", "adversary"}
    assert {run.role for run in runs} == (
        roles if study.condition is None else {"base", "adversary"}
    )
    for place, run in enumerate(runs):
        assert set(run.needs) <= set(names[:place]), "after all that it needs"
        assert (run.base is None) == (run.role == "base")
    assert any(run.lambda_ == 0 for run in runs), "the imitation control is in every grid"


def test_the_full_study_has_its_size() -> None:
    (study,) = read_studies(CONFIGS / "studies/wiegreffe_pinter_sst.yaml")
    runs = plan(study)
    assert Counter(run.role for run in runs) == {
        "base": 3,
        "uniform": 8,
        "seed": 8 + 7 + 7,
        "guide": 6 * 8,
        "adversary": 7 * 8 + 4 * 3,
    }


def test_names_and_needs(lab: Lab) -> None:
    runs = by_name(lab.study(WHOLE))
    assert list(runs) == [
        "base-s0",
        "uniform-s0",
        "seed-b0-s1",
        "guide-base-s0",
        "guide-other-s0",
        "adversary-kl-l0-s0",
        "adversary-kl-l0-s1",
        "adversary-kl-l0.05-s0",
        "adversary-kl-l0.05-s1",
        "adversary-kl-l0.06-s0",
        "adversary-kl-l0.06-s1",
        "guide-adversary-s0",
    ]
    assert runs["guide-other-s0"].needs == ("base-s0", "seed-b0-s1")
    chosen_from = [name for name in runs if "l0.0" in name]
    assert list(runs["guide-adversary-s0"].needs) == ["base-s0", *chosen_from]


def test_further_bases(lab: Lab) -> None:
    content = CONTENT | {
        "base": {"seeds": [3, 1]},
        "seeds": {"seeds": [1, 2]},
        "uniform": {"seeds": [0]},
        "guides": {"names": ["other"], "seeds": [2, 9]},
        "adversaries": {"lambdas": {"js": [1e-7, 0.1234567]}, "seeds": [0], "bases": [3, 1]},
    }
    runs = by_name(lab.study(content))
    assert [name for name in runs if name.startswith("seed")] == [
        "seed-b3-s1",
        "seed-b3-s2",
        "seed-b1-s2",
    ]
    assert runs["uniform-s0"].base == "base-s3"
    assert runs["guide-other-s2"].guide_run == "seed-b3-s2"
    assert runs["guide-other-s9"].guide_run == "seed-b3-s1"
    assert {name: runs[name].base for name in runs if "adversary" in name} == {
        "adversary-js-l1e-07-s0": "base-s3",
        "adversary-js-l0.1234567-s0": "base-s3",
        "adversary-b1-js-l1e-07-s0": "base-s1",
        "adversary-b1-js-l0.1234567-s0": "base-s1",
    }


RUNS = [PlannedRun(f"{role}-{i}", role, i) for role in ("base", "seed", "guide") for i in range(9)]


@given(st.integers(1, 9), st.integers(0, 18), st.integers(1, 12))
def test_shards_are_a_partition(bases: int, others: int, shards: int) -> None:
    runs = [*RUNS[:bases], *RUNS[9 : 9 + others]]
    parts = [deal(runs, shard, shards) for shard in range(1, shards + 1)]
    assert Counter(run.name for part in parts for run in part) == Counter(r.name for r in runs)
    assert parts[0][:bases] == runs[:bases], "the bases come first, from the first shard"
    sizes = [sum(run.role != "base" for run in part) for part in parts]
    assert max(sizes) - min(sizes) <= 1
    assert all(part == [run for run in runs if run in part] for part in parts), "in order"


PARTS: dict[str, Any] = {
    "trainer": {"trainer": {"max_epochs": 3}},
    "experiment": {"model": "model.yaml", "data": "data.yaml"},
    "model": {"class_path": "attnlight.tasks.AttentionClassifier", "init_args": {"hidden_size": 8}},
    "data": {"class_path": "attnlight.datamodules.PlantedEvidence"},
    "tests": {"trainer": {"callbacks+": [{"class_path": "attnlight.callbacks.SingleErasure"}]}},
    "study": {
        "trainer": "trainer.yaml",
        "experiment": "experiment.yaml",
        "options": {"trainer": {"max_epochs": 2}},
        "base": {"seeds": [0], "tests": ["tests.yaml"]},
        "uniform": {"seeds": [0]},
        "seeds": {"seeds": [1]},
        "guides": {"names": ["other"], "seeds": [0]},
        "adversaries": {"lambdas": {"kl": [0.05]}, "seeds": [0]},
    },
}


class TestDigests:
    def test_are_those_of_studies_that_have_begun(self, tmp_path: Path) -> None:
        """As at commit 552a73f; another digest would refuse to go on with what is there."""
        for name, content in PARTS.items():
            (tmp_path / f"{name}.yaml").write_text(yaml.safe_dump(content))
        (study,) = read_studies(tmp_path / "study.yaml")
        assert digests(study, plan(study)) == {
            "base-s0": "f262774dc5f33c90",
            "uniform-s0": "da3d11fc2bf32ccf",
            "seed-b0-s1": "0ae298dcac5d4b51",
            "guide-other-s0": "da4d7cbf11b0952b",
            "adversary-kl-l0.05-s0": "3ac6aac86abb0f53",
        }

    def test_comments_and_needs_change_nothing(self, lab: Lab) -> None:
        study = lab.study(WHOLE)
        runs = plan(study)
        (lab.folder / "trainer.yaml").write_text("# more\n" + study.trainer.read_text())
        other = replace(study, trainer=lab.folder / "trainer.yaml")
        fewer = [replace(run, needs=run.needs[:1]) for run in runs]
        assert digests(other, fewer) == digests(study, runs)

    def test_configurations_and_options_do(self, lab: Lab) -> None:
        study = lab.study(WHOLE)
        held = digests(study, plan(study))
        longer = dict(WHOLE, uniform={"seeds": [0], "options": {"trainer": {"max_epochs": 9}}})
        told = lab.study(longer)
        now = digests(told, plan(told))
        assert [name for name in held if now[name] != held[name]] == ["uniform-s0"]
        model = CONFIGS / "experiments/planted_none.yaml"
        told = replace(study, experiment=model)
        now = digests(told, plan(told))
        assert all(now[name] != held[name] for name in held)

    def test_further_tests_of_bases_are_theirs_alone(self, lab: Lab) -> None:
        study = lab.study(WHOLE)
        tests = (CONFIGS / "tests/adversarial_search.yaml",)
        told = replace(study, base=replace(study.base, tests=tests))
        held, now = (digests(one, plan(one)) for one in (study, told))
        assert [name for name in held if now[name] != held[name]] == ["base-s0"]


class TestCommands:
    def test_of_a_guide(self, lab: Lab) -> None:
        study = lab.study(WHOLE | {"tests": [str(CONFIGS / "tests/cheap.yaml")]})
        run = by_name(study)["guide-adversary-s0"]
        words = fit_command(
            study, run, Path("root/tiny"), "adversary-kl-l0.05-s0", ("--overwrite",)
        )
        assert words[0] == "fit"
        assert words[1:7:2] == ["-c"] * 3
        assert words[6] == str(CONFIGS / "tests/cheap.yaml")
        assert [word for word in words if word.startswith("--model")] == [
            "--model=attnlight.tasks.GuidedVariant",
            "--model.base=root/tiny/base-s0/best.ckpt",
            "--model.guide=adversary",
            "--model.guide_checkpoint=root/tiny/adversary-kl-l0.05-s0/best.ckpt",
        ]
        assert words[-5:] == [
            "--root=root",
            "--experiment=tiny",
            "--run=guide-adversary-s0",
            "--seed_everything=0",
            "--overwrite",
        ]

    def test_of_an_adversary_and_a_base(self, lab: Lab) -> None:
        study = lab.study(WHOLE)
        runs = by_name(study)
        words = fit_command(study, runs["adversary-kl-l0.05-s1"], Path("r/t"), None)
        assert {"--model.lambda_=0.05", "--model.attention_term=kl"} <= set(words)
        assert "--trainer.callbacks+=attnlight.callbacks.BaseDivergence" in words
        base = fit_command(study, runs["base-s0"], Path("r/t"), None)
        assert not [word for word in base if "--model" in word or "BaseDivergence" in word]

    def test_further_tests_are_of_bases(self, lab: Lab) -> None:
        search = CONFIGS / "tests/adversarial_search.yaml"
        study = lab.study(WHOLE | {"base": {"seeds": [0], "tests": [str(search)]}})
        runs = by_name(study)
        (words,) = argv.evaluation_commands(study, runs["base-s0"], Path("r/t"))
        assert str(search) in words
        (words,) = argv.evaluation_commands(study, runs["uniform-s0"], Path("r/t"))
        assert words[:3] == ["test", "-c", "r/t/uniform-s0/fit.yaml"]
        assert str(search) not in words
        assert words[-1] == "--ckpt_path=r/t/uniform-s0/best.ckpt"

    @pytest.mark.parametrize(
        ("content", "verbs"), [(WHOLE, ["test"]), (TAGGER, ["validate", "test"])]
    )
    def test_name_what_is_measured_after_fit(
        self, lab: Lab, content: dict[str, Any], verbs: list[str]
    ) -> None:
        """A `fit.yaml` gives no tests, so the command names those of the study and its own two."""
        tests = str(CONFIGS / "tests/decision_flip.yaml")
        study = lab.study(content | {"tests": [tests]})
        run = by_name(study)["uniform-s0"]
        words = fit_command(study, run, Path("r/t"), None)
        in_fit = [word for word in words if "callbacks" in word]
        assert len(in_fit) == (2 if verbs == ["test"] else 0), "or of the best epoch alone"
        commands = argv.evaluation_commands(study, run, Path("r/t"))
        assert [command[0] for command in commands] == verbs
        for command in commands:
            assert command[1:3] == ["-c", "r/t/uniform-s0/fit.yaml"]
            assert tests in command
            (attached,) = (word for word in command if "callbacks" in word)
            names = [item["class_path"] for item in json.loads(attached.partition("=")[2])]
            assert names == [f"attnlight.callbacks.{n}" for n in ("Predictions", "BaseDivergence")]
