"""A study file says what is wrong with it in one sentence."""

from pathlib import Path
from typing import Any

import pytest

from attnlight.errors import InputError
from attnlight.studies.file import read_studies
from attnlight.studies.sections import Section, read_experiment
from tests.studies.conftest import CONTENT, WHOLE, Lab

ADVERSARIES = WHOLE["adversaries"]


def changed(**parts: Any) -> dict[str, Any]:
    return WHOLE | parts


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (changed(sedes={}), "tiny.yaml has the key 'sedes', which is none; they are trainer, exp"),
        (changed(uniform={"seed": [1]}), "tiny.yaml: uniform has the key 'seed'"),
        (changed(uniform=[1]), "uniform is [1]; expected a mapping"),
        (changed(uniform={"seeds": 3}), "uniform: seeds is 3; expected a list"),
        (changed(uniform={"seeds": [0, 1, 0]}), "uniform: seeds names 0 twice"),
        (changed(uniform={"seeds": [-1]}), "seeds has -1; a seed is a whole number"),
        (changed(uniform={"seeds": [True]}), "seeds has True"),
        (changed(base={"seeds": []}), "a study needs a base"),
        (changed(experiment="nowhere.yaml"), "nowhere.yaml, which is no file"),
        (changed(tests=["nowhere.yaml"]), "tests names"),
        ({"trainer": CONTENT["trainer"]}, "has no experiment"),
        (changed(experiment=CONTENT["trainer"]), "trainer.yaml has no `data`"),
        (changed(guides={"names": ["oracle"]}), "names has 'oracle', which is none; they are"),
        (changed(adversaries=None), "guide adversary needs `adversaries`"),
        (changed(adversaries=ADVERSARIES | {"lambdas": {"kl": [0]}}), "with seeds and a lambda"),
        (changed(adversaries=ADVERSARIES | {"seeds": []}), "guide adversary needs"),
        (changed(adversaries=ADVERSARIES | {"lambdas": {}}), "lambdas needs a list"),
        (changed(adversaries=ADVERSARIES | {"lambdas": {"kl": []}}), "names no lambda"),
        (changed(adversaries=ADVERSARIES | {"lambdas": {"nll": [1]}}), "the key 'nll'"),
        (changed(adversaries=ADVERSARIES | {"lambdas": {"kl": [-0.1]}}), "the lambda -0.1"),
        (changed(adversaries=ADVERSARIES | {"lambdas": {"kl": ["much"]}}), "the lambda 'much'"),
        (changed(adversaries=ADVERSARIES | {"lambdas": {"kl": [float("inf")]}}), "lambda inf"),
        (changed(adversaries=ADVERSARIES | {"bases": [4]}), "bases must be seeds of `base`"),
        (changed(seeds={"seeds": [0]}), "guide other is a model of `seeds`"),
        (changed(options={"seed_everything": 1}), "options has the key 'seed_everything'"),
    ],
)
def test_mistake_is_told(lab: Lab, content: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError) as error:
        read_studies(lab.write(content))
    assert said in str(error.value)
    assert "tiny.yaml" in str(error.value) or "trainer.yaml" in str(error.value)


@pytest.mark.parametrize(("text", "said"), [("a: [", "no readable YAML"), ("- a", "no mapping")])
def test_file_that_is_none(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "s.yaml").write_text(text)
    with pytest.raises(InputError, match=said):
        read_studies(tmp_path / "s.yaml")
    with pytest.raises(InputError, match="no file"):
        read_studies(tmp_path / "missing.yaml")


def test_paths_are_relative_to_the_file(lab: Lab) -> None:
    (lab.folder / "parts").mkdir()
    (lab.folder / "parts/t.yaml").write_text("trainer: {}")
    study = lab.study(CONTENT | {"trainer": "parts/../parts/t.yaml"})
    assert study.trainer == lab.folder / "parts/t.yaml"
    assert (study.name, study.corpus) == ("tiny", "planted")


def test_lambdas_ascend_and_may_be_text_to_yaml(lab: Lab) -> None:
    lab.write(CONTENT)
    path = lab.folder / "tiny.yaml"
    path.write_text(path.read_text() + "adversaries: {lambdas: {js: [5e-3, 1e-3, 0]}, seeds: [2]}")
    (study,) = read_studies(path)
    held = study.adversaries
    assert held is not None
    assert held.lambdas == {"js": (0.0, 1e-3, 5e-3)}
    assert (held.term, held.seeds, held.bases) == ("js", {"js": (2,)}, (0,))


def test_seeds_by_term(lab: Lab) -> None:
    told = {"lambdas": {"js": [1], "kl": [1]}, "seeds": {"kl": [0, 1], "js": [2]}}
    held = lab.study(CONTENT | {"adversaries": told}).adversaries
    assert held is not None
    assert (held.term, held.seeds) == ("kl", {"kl": (0, 1), "js": (2,)})


def test_options_become_those_of_fit() -> None:
    told = {
        "trainer": {"max_epochs": 3, "logger": False, "callbacks+": [{"class_path": "a.B"}]},
        "data": {"init_args": {"name": "x.y", "text": "a b", "nothing": None, "extra": {}}},
    }
    assert Section("f", {"options": told}, ["options"], Path()).options() == (
        "--trainer.max_epochs=3",
        "--trainer.logger=false",
        '--trainer.callbacks+=[{"class_path": "a.B"}]',
        "--data.init_args.name=x.y",
        '--data.init_args.text="a b"',
        "--data.init_args.nothing=null",
        "--data.init_args.extra={}",
    )


def test_group_options_follow_those_of_all_runs(lab: Lab) -> None:
    told = {"options": {"trainer": {"max_epochs": 1}}}
    study = lab.study(CONTENT | told | {"uniform": {"options": {"trainer": {"max_epochs": 2}}}})
    assert study.uniform.options == ("--trainer.max_epochs=1", "--trainer.max_epochs=2")


@pytest.mark.parametrize(
    ("said", "corpus", "model"),
    [
        ("{model: m.yaml, data: d.yaml}", "d", "ChunkTagger"),
        ("{model: a.b.ChunkTagger, data: {class_path: a.Corpus}}", "Corpus", "ChunkTagger"),
        ("{data: a.b.Corpus}", "Corpus", ""),
    ],
)
def test_an_experiment_is_read_with_what_it_names(
    tmp_path: Path, said: str, corpus: str, model: str
) -> None:
    (tmp_path / "m.yaml").write_text("class_path: a.b.ChunkTagger")
    (tmp_path / "d.yaml").write_text("class_path: a.b.Corpus")
    (tmp_path / "e.yaml").write_text(said)
    found = read_experiment(tmp_path / "e.yaml")
    assert (found.corpus, found.model) == (corpus, model)
    if "m.yaml" in said:
        classes = {"model": "a.b.ChunkTagger", "data": "a.b.Corpus"}
        assert found.content == {key: {"class_path": name} for key, name in classes.items()}
