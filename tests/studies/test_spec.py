"""A study file says what is wrong with it in one sentence."""

from pathlib import Path
from typing import Any

import pytest
from jsonargparse import ArgumentParser

from attnlight.data.sources import Source
from attnlight.errors import InputError
from attnlight.studies.plan import plan
from attnlight.studies.spec import read_experiment, read_studies
from attnlight.studies.values import Options, read_value
from tests.commands import CONFIGS
from tests.studies.conftest import ALL_ROLES, MINIMAL, Lab

ADVERSARIES = ALL_ROLES["adversaries"]
TAGGER: dict[str, Any] = {
    "experiment": str(CONFIGS / "experiments/conll2000_study.yaml"),
    "guides": {"names": ["base"], "contexts": ["full", "tokens"], "seeds": [0]},
    "adversaries": {"lambdas": {"kl": [0, 0.01], "released": [2.1]}, "seeds": [0]},
}
MARKED = {"options": {"data": {"target": "marked"}}}


def grid(**parts: Any) -> dict[str, Any]:
    return {"adversaries": ADVERSARIES | parts}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"gird": []}, "the unknown key 'gird' (did you mean 'grid'?)"),
        ({"unifrom": {}}, "tiny.yaml has the unknown key 'unifrom' (did you mean 'uniform'?)"),
        ({"uniform": [1]}, "uniform is [1]; expected a mapping"),
        ({"uniform": {"seeds": 3}}, "uniform: seeds is 3; expected a list"),
        ({"uniform": {"seeds": [0, 1, 0]}}, "uniform: seeds names 0 twice"),
        ({"uniform": {"seeds": [-1]}}, "seeds is [-1]; expected a list of whole numbers"),
        ({"uniform": {"seeds": [True]}}, "seeds is [True]"),
        ({"uniform": {"seeds": [1 << 32]}}, "seeds is [4294967296]"),
        ({"base": {"seeds": []}}, "a study needs a base"),
        ({"experiment": "nowhere.yaml"}, "nowhere.yaml, which is not a file"),
        ({"experiment": None}, "tiny.yaml: experiment is None; expected the path"),
        ({"experiment": 3}, "experiment is 3; expected the path of a file"),
        ({"tests": ["nowhere.yaml"]}, "tests names"),
        ({"experiment": MINIMAL["trainer"]}, "trainer.yaml has no `data`"),
        ({"guides": {"names": ["shufled"]}}, "(did you mean 'shuffled'?)"),
        ({"adversaries": None}, "guide adversary needs `adversaries`"),
        (grid(lambdas={"kl": [0]}), "with seeds and a lambda"),
        (grid(seeds=[]), "guide adversary needs"),
        (grid(lambdas={}), "lambdas needs a list"),
        (grid(lambdas=[{}]), "adversaries: lambdas is [{}]; expected a mapping"),
        (grid(lambdas={"kl": []}), "names no lambda"),
        (grid(lambdas={"nll": [1]}), "lambdas has the unknown key 'nll'"),
        (grid(lambdas={"kl": [-0.1]}), "lambdas: kl is [-0.1]; expected a list of numbers"),
        (grid(lambdas={"kl": ["much"]}), "kl is ['much']"),
        (grid(lambdas={"kl": [float("inf")]}), "kl is [inf]"),
        (grid(seeds={"kl": [0], "js": [0]}), "seeds has a term without lambdas"),
        (grid(bases=[4]), "bases must be seeds of `base`"),
        ({"seeds": {"seeds": [0]}}, "guide other is a model of `seeds`"),
        ({"options": {"seed_everything": 1}}, "options has the unknown key 'seed_everything'"),
        ({"uniform": {"heads": [0]}}, "uniform: heads is for models that classify tokens"),
        (
            {"options": {"model": {"net": {"hidden_size": 9}}}},
            "move `options: model: net` below `base`",
        ),
        ({"guides": {"contexts": ["tokens"]}}, "guides: contexts is for models"),
        (grid(lambdas={"released": [1]}) | {"guides": None}, "lambdas: released is for models"),
        (TAGGER | {"guides": {"contexts": ["words"]}}, "list of full, tokens, query_key"),
        (
            TAGGER | MARKED,
            "released is the loss of target tokens, but that of the corpus is marked",
        ),
        (
            TAGGER | {"conditions": {"one": {}, "two": MARKED}},
            "conditions: two: released is the loss",
        ),
        ({"grid": {}}, "grid is {}; expected a list of mappings"),
        ({"grid": []}, "grid is []; expected a list of mappings"),
        ({"grid": [{"a": {"seeds": [0]}}]}, "grid: a has the unknown key 'seeds'"),
        ({"grid": [{"a": {}}, {}]}, "grid is [{'a': {}}, {}]; expected a list of mappings"),
        ({"conditions": {}}, "conditions is empty"),
        ({"conditions": {"a/b": {}}}, "conditions has 'a/b'; a name is text of letters"),
        ({"conditions": {1: {}}}, "conditions has 1; a name is text"),
        ({"conditions": {"one": {"seeds": [1]}}}, "one has the unknown key 'seeds'"),
        ({"conditions": {"one": {"experiment": 3}}}, "one: experiment is 3; expected the path"),
        (
            {"conditions": {"one": {"base": {"seeds": [1]}}}} | grid(bases=[0]),
            "conditions: one: adversaries: bases must be seeds of `base`, which has [1]",
        ),
        ({"conditions": {"one": {"adversaries": {"bases": [0]}}}}, "the unknown key 'bases'"),
    ],
)
def test_mistake_is_told(lab: Lab, changes: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError) as error:
        read_studies(lab.write(ALL_ROLES | changes))
    assert said in str(error.value)
    assert "tiny.yaml" in str(error.value) or "trainer.yaml" in str(error.value)
    assert "\n" not in str(error.value)


def test_file_that_is_none(tmp_path: Path) -> None:
    file = tmp_path / "s.yaml"
    for text, said in {"": "no file", "a: [": "not readable YAML", "- a": "a mapping"}.items():
        if text:
            file.write_text(text)
        with pytest.raises(InputError, match=said):
            read_studies(file)


def test_paths_are_relative_to_the_file(lab: Lab) -> None:
    (lab.folder / "parts").mkdir()
    (lab.folder / "parts/t.yaml").write_text("trainer: {}")
    study = lab.study(MINIMAL | {"trainer": "parts/../parts/t.yaml"})
    assert study.trainer == lab.folder / "parts/t.yaml"
    assert (study.condition, study.setup.corpus) == (None, "planted")


def test_lambdas_ascend_and_may_be_text_to_yaml(lab: Lab) -> None:
    path = lab.write(MINIMAL)
    told = "{lambdas: {js: [5e-3, 1e-3, 0], kl: [1]}, seeds: {kl: [0, 1], js: [2]}}"
    path.write_text(f"{path.read_text()}adversaries: {told}")
    (study,) = read_studies(path)
    held = study.adversaries
    assert held.lambdas == {"js": (0.0, 1e-3, 5e-3), "kl": (1.0,)}
    assert (held.term, held.seeds, held.bases) == ("kl", {"kl": (0, 1), "js": (2,)}, (0,))


def test_options_become_those_of_fit() -> None:
    told = {
        "trainer": {"max_epochs": 3, "logger": False, "callbacks+": [{"class_path": "a.B"}]},
        "data": {"init_args": {"name": "x.y", "text": "a b", "nothing": None, "extra": {}}},
    }
    assert read_value(Options, told, "f", Path()) == (
        "--trainer.max_epochs=3",
        "--trainer.logger=false",
        '--trainer.callbacks+=[{"class_path": "a.B"}]',
        "--data.init_args.name=x.y",
        "--data.init_args.text=a b",
        "--data.init_args.nothing=null",
        "--data.init_args.extra={}",
    )


@pytest.mark.parametrize("text", ["train+test", "train[:10%]", "a b", "2021", "a: b", "é", "x"])
@pytest.mark.parametrize("kind", [str, str | None, str | Source | None])
def test_a_string_reaches_the_run_as_it_is(text: str, kind: Any) -> None:
    parser = ArgumentParser()
    parser.add_argument("--data.train", type=kind)
    (given,) = read_value(Options, {"data": {"train": text}}, "f", Path())
    assert parser.parse_args([given])["data.train"] == text


def test_group_options_follow_those_of_all_runs(lab: Lab) -> None:
    told = {"options": {"trainer": {"max_epochs": 1}}}
    study = lab.study(MINIMAL | told | {"uniform": {"options": {"trainer": {"max_epochs": 2}}}})
    assert study.uniform.options == ("--trainer.max_epochs=1", "--trainer.max_epochs=2")


@pytest.mark.parametrize(
    ("said", "corpus", "problem"),
    [
        ("{model: m.yaml, data: d.yaml}", "d", "tagging"),
        ("{model: a.b.ChunkTagger, data: {class_path: a.Corpus}}", "Corpus", "tagging"),
        ("{data: a.b.Corpus}", "Corpus", "classification"),
        ("{data: reviews.csv}", "reviews", "classification"),  # a table is no YAML
    ],
)
def test_an_experiment_is_read_with_what_it_names(
    tmp_path: Path, said: str, corpus: str, problem: str
) -> None:
    (tmp_path / "m.yaml").write_text("class_path: a.b.ChunkTagger")
    (tmp_path / "d.yaml").write_text("class_path: a.b.Corpus")
    (tmp_path / "reviews.csv").write_text("text,label\nSo: good: so good,1\n")
    (tmp_path / "e.yaml").write_text(said)
    found = read_experiment(tmp_path / "e.yaml")
    assert (found.corpus, found.problem.name) == (corpus, problem)
    if "m.yaml" in said:
        classes = {"model": "a.b.ChunkTagger", "data": "a.b.Corpus"}
        assert found.content == {key: {"class_path": name} for key, name in classes.items()}


def test_a_condition_has_adversaries_of_its_own(lab: Lab) -> None:
    grid = {"lambdas": {"kl": [0, 0.1]}, "seeds": [0, 1], "bases": [0]}
    fewer, other = {"seeds": [0]}, {"lambdas": {"js": [0.2]}}
    conditions = {"all": None, "fewer": {"adversaries": fewer}, "other": {"adversaries": other}}
    content = MINIMAL | {"guides": None, "adversaries": grid, "conditions": conditions}
    held = [study.adversaries for study in read_studies(lab.write(content))]
    assert [(one.lambdas, one.seeds) for one in held] == [
        ({"kl": (0.0, 0.1)}, {"kl": (0, 1)}),
        ({"kl": (0.0, 0.1)}, {"kl": (0,)}),
        ({"js": (0.2,)}, {"js": (0, 1)}),
    ]


def test_a_condition_may_name_an_experiment_seeds_and_tests_of_its_bases(lab: Lab) -> None:
    first, second = (CONFIGS / f"tests/{name}.yaml" for name in ("cheap", "evidence_mass"))
    other = CONFIGS / "experiments/planted_none.yaml"
    changed = {"experiment": str(other), "base": {"seeds": [3, 4], "tests": [str(second)]}}
    base = {"seeds": [0, 1], "tests": [str(first)]}
    content = MINIMAL | {"base": base, "conditions": {"same": {}, "other": changed}}
    studies = read_studies(lab.write(content))
    planned = [(one.experiment.name, one.base.seeds, one.base.tests) for one in studies]
    same = ("planted_bilstm.yaml", (0, 1), (first,))
    assert planned == [same, ("planted_none.yaml", (3, 4), (first, second))]
    nets = [one.setup.content["model"]["init_args"]["net"] for one in studies]
    assert [net["encoder"] for net in nets] == ["bilstm", "none"]
    assert [run.name for run in plan(studies[1])] == ["base-s3", "base-s4"]


def test_a_grid_is_every_combination(lab: Lab) -> None:
    tests = [str(CONFIGS / f"tests/{name}.yaml") for name in ("cheap", "evidence_mass")]
    short = {"options": {"data": {"max_tokens": 30}}, "base": {"tests": tests[:1]}}
    dot = {"options": {"model": {"net": {"attention": "dot"}}}, "base": {"tests": tests[1:]}}
    axes = [
        {"short": short, "long": {"base": {"seeds": [7]}}},
        {"plain": {"base": {"seeds": [1, 2]}}, "dot": dot},
    ]
    file = lab.write({"experiment": MINIMAL["experiment"], "grid": axes})
    studies = {study.condition: study for study in read_studies(file)}
    seeds = [(name, study.base.seeds) for name, study in studies.items()]
    of_short = [("short-plain", (1, 2)), ("short-dot", (0,))]
    assert seeds == [*of_short, ("long-plain", (1, 2)), ("long-dot", (7,))]
    options = ("--data.max_tokens=30", "--model.net.attention=dot")
    assert studies["short-dot"].base.options[-2:] == options
    assert [path.stem for path in studies["short-dot"].base.tests] == ["cheap", "evidence_mass"]
