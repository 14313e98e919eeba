"""Which runs a study is made of, and how each is started."""

import json
from collections import Counter
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnlight.studies.argv import evaluation_commands, fit_command
from attnlight.studies.plan import ROLES, PlannedRun, digests, plan, selected_runs
from attnlight.studies.spec import read_studies
from tests.commands import CONFIGS
from tests.studies.conftest import ALL_ROLES, MINIMAL, TAGGER, Lab

STUDIES = sorted((CONFIGS / "studies").glob("*.yaml"))
OTHER = str(CONFIGS / "experiments/planted_none.yaml")
WAYS = ["full", "tokens", "query_key"]
CONTEXTS: dict[str, Any] = TAGGER | {
    "uniform": {"seeds": [0, 1], "heads": [0, 3]},
    "guides": {"names": ["base", "uniform", "adversary"], "contexts": WAYS, "seeds": [0]},
    "adversaries": {"lambdas": {"kl": [0, 0.01], "released": [2.1]}, "seeds": [0]},
}


@pytest.mark.parametrize("file", STUDIES, ids=lambda file: file.stem)
def test_every_file_plans(file: Path) -> None:
    for study in read_studies(file):
        runs = plan(study)
        names = [run.name for run in runs]
        assert len(set(names)) == len(names)
        asked = {
            "uniform": study.uniform.seeds,
            "seed": study.seeds.seeds,
            "roar": study.roar.seeds,
        }
        asked |= {"guide": study.guides.seeds, "adversary": study.adversaries.lambdas}
        roles = {run.role for run in runs}
        assert roles == {"base", *(role for role, given in asked.items() if given)}
        for place, run in enumerate(runs):
            assert set(run.needs) <= set(names[:place]), "after all that it needs"
            assert (run.base is None) == (run.role in ("base", "roar"))
        if study.adversaries.lambdas:
            assert any(run.lambda_ == 0 for run in runs), "the imitation control is in every grid"


@pytest.mark.parametrize(
    ("content", "names", "needs"),
    [
        (
            ALL_ROLES,
            """base-s0 uniform-s0 seed-b0-s1 guide-base-s0 guide-other-s0
            adversary-kl-l0-s0 adversary-kl-l0-s1 adversary-kl-l0.05-s0 adversary-kl-l0.05-s1
            adversary-kl-l0.06-s0 adversary-kl-l0.06-s1 guide-adversary-s0""",
            {
                "guide-other-s0": "base-s0 seed-b0-s1",
                "guide-adversary-s0": "base-s0 adversary-kl-l0.05-s0 adversary-kl-l0.05-s1 "
                "adversary-kl-l0.06-s0 adversary-kl-l0.06-s1",
            },
        ),
        # No model of uniform attention that queries and keys move; the term `released` is another.
        (
            CONTEXTS,
            """base-s0 uniform-s0 uniform-s1 uniform-h0-s0 uniform-h0-s1 uniform-h3-s0 uniform-h3-s1
            seed-b0-s1 guide-base-s0 guide-base-tokens-s0 guide-base-query_key-s0
            guide-uniform-s0 guide-uniform-tokens-s0
            adversary-kl-l0-s0 adversary-kl-l0.01-s0 adversary-released-l2.1-s0
            guide-adversary-s0 guide-adversary-tokens-s0 guide-adversary-query_key-s0""",
            {"guide-adversary-tokens-s0": "base-s0 adversary-kl-l0.01-s0"},
        ),
    ],
    ids=["texts", "tokens"],
)
def test_names_and_needs(
    lab: Lab, content: dict[str, Any], names: str, needs: dict[str, str]
) -> None:
    runs = lab.runs(content)
    assert list(runs) == names.split()
    assert {name: " ".join(runs[name].needs) for name in needs} == needs
    decided = digests(lab.study(content), runs.values())
    assert len(set(decided.values())) == len(runs), "head and context decide a run too"


def test_further_bases(lab: Lab) -> None:
    content = MINIMAL | {
        "base": {"seeds": [3, 1]},
        "seeds": {"seeds": [1, 2]},
        "uniform": {"seeds": [0]},
        "guides": {"names": ["other"], "seeds": [2, 9]},
        "adversaries": {"lambdas": {"js": [1e-7, 0.1234567]}, "seeds": [0], "bases": [3, 1]},
    }
    runs = lab.runs(content)
    seeds = [name for name in runs if name.startswith("seed")]
    assert seeds == ["seed-b3-s1", "seed-b3-s2", "seed-b1-s2"]
    assert runs["uniform-s0"].base == "base-s3"
    assert runs["guide-other-s2"].guide_run == "seed-b3-s2"
    assert runs["guide-other-s9"].guide_run == "seed-b3-s1"
    bases = product(("js base-s3", "b1-js base-s1"), ("1e-07", "0.1234567"))
    parts = [(*words.split(), lam) for words, lam in bases]
    expected = {f"adversary-{kind}-l{lam}-s0": base for kind, base, lam in parts}
    assert {name: run.base for name, run in runs.items() if run.role == "adversary"} == expected


RUNS = [PlannedRun(f"{role}-{i}", role, i) for role in ("base", "seed", "guide") for i in range(9)]


@given(st.integers(1, 9), st.integers(0, 18), st.integers(1, 12))
def test_shards_are_a_partition(bases: int, others: int, shards: int) -> None:
    runs = [*RUNS[:bases], *RUNS[9 : 9 + others]]
    parts = [selected_runs(runs, ROLES, (shard, shards)) for shard in range(1, shards + 1)]
    assert Counter(run.name for part in parts for run in part) == Counter(r.name for r in runs)
    assert parts[0][:bases] == runs[:bases], "the bases come first, from the first shard"
    sizes = [sum(run.role != "base" for run in part) for part in parts]
    assert max(sizes) - min(sizes) <= 1
    assert all(part == [run for run in runs if run in part] for part in parts), "in order"


class TestDigests:
    def test_comments_and_needs_change_nothing(self, lab: Lab) -> None:
        study = lab.study(ALL_ROLES)
        runs = plan(study)
        (lab.folder / "trainer.yaml").write_text("# more\n" + study.trainer.read_text())
        other = replace(study, trainer=lab.folder / "trainer.yaml")
        fewer = [replace(run, needs=run.needs[:1]) for run in runs]
        assert digests(other, fewer) == digests(study, runs)

    @pytest.mark.parametrize(
        ("changes", "roles"),
        [
            ({"uniform": {"seeds": [0], "options": {"trainer": {"max_epochs": 9}}}}, "uniform"),
            ({"base": {"seeds": [0], "tests": [str(CONFIGS / "tests/cheap.yaml")]}}, "base"),
            ({"experiment": OTHER}, "base uniform seed guide adversary"),
        ],
        ids=["options", "tests of bases", "experiment"],
    )
    def test_configurations_and_options_do(self, lab: Lab, changes: Any, roles: str) -> None:
        studies = map(lab.study, (ALL_ROLES, ALL_ROLES | changes))
        before, after = (digests(study, plan(study)) for study in studies)
        changed = {name.partition("-")[0] for name in before if after[name] != before[name]}
        assert changed == {*roles.split()}


class TestCommands:
    def test_of_fit(self, lab: Lab) -> None:
        study = lab.study(ALL_ROLES | {"tests": [str(CONFIGS / "tests/cheap.yaml")]})
        run, told = lab.runs(ALL_ROLES)["guide-adversary-s0"], "adversary-kl-l0.05-s0"
        words = fit_command(study, run, Path("root/tiny"), told, ("--overwrite",))
        assert words[0] == "fit"
        assert words[1:7:2] == ["-c"] * 3
        assert words[6] == str(CONFIGS / "tests/cheap.yaml")
        named = ["--root=root", "--experiment=tiny", "--run=guide-adversary-s0"]
        assert words[-5:] == [*named, "--seed_everything=0", "--overwrite"]

    @pytest.mark.parametrize(
        ("name", "model"),
        [
            ("base-s0", ""),
            ("uniform-s1", "=Uniform base"),
            ("uniform-h3-s0", "=Uniform base head=3"),
            ("seed-b0-s1", "=Seed base"),
            ("guide-base-s0", "=Guided base guide=base context=full"),
            ("guide-uniform-tokens-s0", "=Guided base guide=uniform context=tokens"),
            ("guide-adversary-query_key-s0", "=Guided base guide=adversary guided query_key=true"),
            ("adversary-kl-l0.01-s0", "=Adversarial base lambda_=0.01 attention_term=kl"),
            ("adversary-released-l2.1-s0", "=Adversarial base lambda_=2.1 attention_term=kl scale"),
        ],
    )
    def test_name_the_variant_and_its_options(self, lab: Lab, name: str, model: str) -> None:
        told = "adversary-kl-l0.01-s0" if "guide-adversary" in name else None
        words = fit_command(lab.study(CONTEXTS), lab.runs(CONTEXTS)[name], Path("r/t"), told)
        kind, *options = model.split() or [""]
        full = {"base": "base=r/t/base-s0/best.ckpt"}
        full |= {"guided": f"guide_checkpoint=r/t/{told}/best.ckpt", "scale": "released=true"}
        expected = [f"--model=attnlight.tasks.{kind[1:]}Variant"] * bool(kind)
        expected += [f"--model.{full.get(option, option)}" for option in options]
        assert [word for word in words if word.startswith("--model")] == expected

    @pytest.mark.parametrize(
        ("content", "verbs"), [(ALL_ROLES, ["test"]), (TAGGER, ["validate", "test"])]
    )
    @pytest.mark.parametrize("name", ["base-s0", "uniform-s0"])
    def test_name_what_is_measured_after_fit(
        self, lab: Lab, content: dict[str, Any], verbs: list[str], name: str
    ) -> None:
        """A `fit.yaml` gives no tests: the command names those of the study, of bases, and its own."""
        tests, search = (
            str(CONFIGS / f"tests/{test}.yaml") for test in ("decision_flip", "adversarial_search")
        )
        study = lab.study(content | {"tests": [tests], "base": {"seeds": [0], "tests": [search]}})
        run = lab.runs(content)[name]
        attached = ["Predictions", "BaseDivergence"][: 2 if run.base else 1]
        in_fit = [w for w in fit_command(study, run, Path("r/t"), None) if "callbacks" in w]
        assert len(in_fit) == len(attached) * (verbs == ["test"]), "or of the best epoch alone"
        commands = evaluation_commands(study, run, Path("r/t"))
        assert [command[0] for command in commands] == verbs
        for command in commands:
            assert command[1:3] == ["-c", f"r/t/{name}/fit.yaml"]
            assert tests in command
            assert (search in command) == (command[0] == "test" and name == "base-s0")
            (callbacks,) = (word for word in command if "callbacks" in word)
            names = [item["class_path"] for item in json.loads(callbacks.partition("=")[2])]
            assert names == [f"attnlight.callbacks.{test}" for test in attached]
            assert command[-1] == f"--ckpt_path=r/t/{name}/best.ckpt"
