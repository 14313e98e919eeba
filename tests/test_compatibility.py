"""What the first format wrote is read under today's names."""

import json
from dataclasses import asdict
from pathlib import Path

import pytest
import torch
import yaml
from lightning.pytorch.callbacks import Callback

from attnlight.callbacks import AdversarialAttention, GradientSearch
from attnlight.cli.composition import compose
from attnlight.reference import BaseSpec, read_base
from attnlight.storage.compatibility import (
    OPTIONS,
    arguments,
    callback,
    hyperparameters,
    option,
    problem_of,
    section,
)
from attnlight.storage.parsing import OneSentenceParser
from attnlight.tasks import (
    AdversarialVariant,
    AttentionClassifier,
    AttentionTask,
    ChunkTagger,
    GuidedVariant,
    UniformVariant,
)
from tests.bases import Planted, trainer
from tests.kept import archived

HERE = Path(__file__).parent
ALL = sorted(archived().rglob("fit.yaml"))
KEPT = [path for path in ALL if "    net:\n" not in path.read_text()]  # not in groups as today
GUARD = HERE / "guard/expected"
FIRST = HERE / "tasks/first_format"
TASKS: dict[str, type[AttentionTask]] = {
    "classifier": AttentionClassifier,
    "adversary": AdversarialVariant,
    "tagger": ChunkTagger,
    "guided_tagger": GuidedVariant,
}


@pytest.fixture(scope="module")
def parser() -> OneSentenceParser:
    made = OneSentenceParser(exit_on_error=True)
    made.add_subclass_arguments(AttentionTask, "model", skip={"spec"})
    return made


@pytest.mark.parametrize("file", KEPT, ids=lambda file: "-".join(file.parts[-3:-1]))
def test_kept_configurations_are_read(file: Path, parser: OneSentenceParser) -> None:
    first = yaml.safe_load(file.read_text())
    kept = first["model"]["init_args"]
    model = section(first["model"])
    parsed = parser.parse_object({"model": model}).model
    assert parsed.class_path == model["class_path"]
    found = parsed.init_args.as_dict()
    for name, value in kept.items():
        group, _, own = OPTIONS[name].partition(".")
        held = found[group][own]
        assert (list(held) if isinstance(held, tuple) else held) == value, name


def test_there_are_kept_configurations() -> None:
    assert len(KEPT) >= 97


def test_a_composition_has_todays_names() -> None:
    keys = set(yaml.safe_load(KEPT[0].read_text()))
    keys |= {f"trainer.{key}" for key in yaml.safe_load(KEPT[0].read_text())["trainer"]}
    given = ["-c", str(KEPT[0]), "--model.hidden_size", "9", "--model.optimizer=sgd"]
    given += ["--model.vectors=null", "--model.attention_size", "null"]
    composed = compose("fit", given, keys)
    assert composed.config["model"]["init_args"]["vectors"]["path"] is None
    assert composed.config["model"]["init_args"]["net"]["attention_size"] is None
    assert set(composed.config["model"]["init_args"]) <= {"net", "optimizer", "loss", "vectors"}
    assert composed.options == ["--model.net.hidden_size", "9", "--model.optimizer.name=sgd"]


@pytest.mark.parametrize(
    ("word", "value", "today"),
    [
        ("--model.init_args.encoder", "cnn", "--model.init_args.net.encoder"),
        ("--model.training.momentum=0.9", None, "--model.optimizer.momentum=0.9"),
        ("--model.weight_decay.embedding=1", None, "--model.optimizer.weight_decay.embedding=1"),
        ("--model.vectors", "corpus", "--model.vectors.path"),
        ("--model.vectors.path=corpus", None, "--model.vectors.path=corpus"),
        ("--model.optimizer={name: sgd}", None, "--model.optimizer={name: sgd}"),
        ("--model.net.encoder=cnn", None, "--model.net.encoder=cnn"),
        ("--model.freeze_embeddings", "true", "--model.vectors.freeze"),
        ("--model.net.freeze_embeddings=true", None, "--model.vectors.freeze=true"),
        ("--model.init_args.net.freeze_embeddings", "1", "--model.init_args.vectors.freeze"),
        ("--model.net.freeze_embeddings_too=1", None, "--model.net.freeze_embeddings_too=1"),
        ("--model.lambda_=1", None, "--model.lambda_=1"),
        ("--data.vectors=1", None, "--data.vectors=1"),
    ],
)
def test_options_of_commands(word: str, value: str | None, today: str) -> None:
    assert option(word, value) == today


def test_a_variant_of_a_sweep() -> None:
    given = {
        "class_path": "attnlight.tasks.AdversarialTagger",
        "init_args": {"lambda_": 0.1, "training": {"learning_rate": 0.2, "vectors": None}},
    }
    assert section(given) == {
        "class_path": "attnlight.tasks.AdversarialVariant",
        "init_args": {
            "lambda_": 0.1,
            "optimizer": {"learning_rate": 0.2},
            "vectors": {"path": None},
        },
    }
    assert problem_of(given["class_path"]) == "tagging"  # type: ignore[arg-type]
    assert problem_of("attnlight.tasks.UniformVariant") is None


@pytest.mark.parametrize(
    "options",
    [
        {"freeze_embeddings": True, "encoder": "cnn", "vectors": "some.vec"},
        {"net": {"freeze_embeddings": True, "encoder": "cnn"}, "vectors": {"path": "some.vec"}},
        {"net": {"encoder": "cnn"}, "vectors": {"path": "some.vec", "freeze": True}},
    ],
    ids=["first", "second", "today"],
)
def test_frozen_embeddings_of_every_version(
    options: dict[str, object], parser: OneSentenceParser
) -> None:
    model = section({"class_path": "attnlight.tasks.AttentionClassifier", "init_args": options})
    parsed = parser.parse_object({"model": model}).model.init_args.as_dict()
    assert (parsed["vectors"]["path"], parsed["vectors"]["freeze"]) == ("some.vec", True)
    assert parsed["net"]["encoder"] == "cnn"
    assert not AttentionClassifier(
        {"vocab_size": 9, "classes": ["no", "yes"], "features": None, "target": "tokens"},
        **arguments(options),  # type: ignore[arg-type]
    ).model.embedding.weight.requires_grad


def test_frozen_embeddings_of_a_network_without_other_options(parser: OneSentenceParser) -> None:
    given = {"class_path": "ChunkTagger", "init_args": {"net": {"freeze_embeddings": True}}}
    assert parser.parse_object({"model": section(given)}).model.init_args.vectors.freeze


def test_ones_own_network_keeps_its_options() -> None:
    own = {"net": {"class_path": "mine.Net", "init_args": {"freeze_embeddings": True}}}
    assert arguments(own) == own


def test_ones_own_task_keeps_its_options() -> None:
    own = {"class_path": "mine.Task", "init_args": {"encoder": 3}}
    assert section(own) == own


@pytest.mark.parametrize("name", TASKS)
class TestCheckpoint:
    def test_loads_with_its_weights(self, name: str) -> None:
        raw = torch.load(FIRST / f"{name}.ckpt", weights_only=True)
        task = TASKS[name].load_from_checkpoint(FIRST / f"{name}.ckpt")
        state = task.state_dict()
        assert raw["state_dict"].keys() <= state.keys()
        assert all(torch.equal(values, state[key]) for key, values in raw["state_dict"].items())
        expected = hyperparameters(raw["hyper_parameters"])
        assert task.hparams["net"].items() >= expected["net"].items()
        assert task.hparams["optimizer"].items() >= expected["optimizer"].items()

    def test_has_the_fingerprint_by_which_its_outputs_are_kept(self, name: str) -> None:
        if name == "guided_tagger":
            pytest.skip("a model whose attention is given is no base")
        found = read_base(FIRST / f"{name}.ckpt").identity.fingerprint
        kept = {"classifier": "92e010e11f8156bd", "tagger": "bf314404b4be2697"}
        assert found == (kept | {"adversary": "b515cf821d44f381"})[name]


@pytest.mark.parametrize("version", ["first", "second", "today"])
@pytest.mark.parametrize(
    ("name", "fingerprint"), [("classifier", "9dfd9d39c38550c0"), ("tagger", "d6de743192de0147")]
)
def test_a_base_of_frozen_embeddings_keeps_its_fingerprint(
    name: str, fingerprint: str, version: str, tmp_path: Path
) -> None:
    checkpoint = torch.load(FIRST / f"{name}.ckpt", weights_only=True)
    held = checkpoint["hyper_parameters"]
    held["freeze_embeddings"] = True
    if version != "first":
        checkpoint["attnlight"]["format"] = 2
        held = hyperparameters(held)
    if version == "second":
        held["net"]["freeze_embeddings"] = held["vectors"].pop("freeze")
    torch.save(checkpoint | {"hyper_parameters": held}, path := tmp_path / "base.ckpt")
    identity = read_base(path).identity
    assert identity.fingerprint == fingerprint
    assert identity.options["vectors"]["freeze"]
    task = TASKS[name].load_from_checkpoint(path)
    assert task.hparams["vectors"]["freeze"]
    assert not task.model.embedding.weight.requires_grad
    if version == "second":  # a variant's own checkpoint and fit.yaml hold the base's options
        kept = json.loads(json.dumps(held))
        assert BaseSpec.from_dict({**asdict(identity), "options": kept}) == identity
        variant = UniformVariant(held["spec"], str(path))
        assert not variant.model.embedding.weight.requires_grad


def test_it_is_tested_and_is_a_base(tmp_path: Path) -> None:
    data = Planted(vocabulary=7)
    path = FIRST / "classifier.ckpt"
    held = torch.load(path, weights_only=True)["hyper_parameters"]
    task = AttentionClassifier(data.spec, hyperparameters(held)["net"])
    started = trainer(tmp_path, max_epochs=1)
    started.test(task, data, ckpt_path=path, verbose=False)
    loaded = AttentionClassifier.load_from_checkpoint(path)
    assert torch.equal(task.model.embedding.weight, loaded.model.embedding.weight)
    variant = UniformVariant(data.spec, str(path))
    trainer(tmp_path, max_epochs=1, limit_train_batches=1).fit(variant, data)
    assert variant.hparams["optimizer"]["weight_decay"] == held["weight_decay"]


FLAT = {"search": True, "search_instances": 7, "starts": 2, "search_epsilon": 0.05, "seed": 3}


@pytest.mark.parametrize(
    ("first", "today"),
    [
        (FLAT, {"search": {"instances": 7, "starts": 2, "epsilon": 0.05}, "seed": 3}),
        ({"search": True, "steps": 9}, {"search": {"steps": 9}}),
        ({"search": True}, {"search": {}}),
        ({"search": False, "steps": 9}, {}),
        ({"steps": 9, "epsilon": 0.2}, {"epsilon": 0.2}),
    ],
)
@pytest.mark.parametrize(
    "path", ["AdversarialAttention", "attnlight.callbacks.AdversarialAttention"]
)
def test_a_search_of_either_spelling_is_the_same(
    first: dict[str, object], today: dict[str, object], path: str, tmp_path: Path
) -> None:
    parser = OneSentenceParser(exit_on_error=True)
    parser.add_argument("--callbacks", type=list[Callback])
    made = []
    for number, given in enumerate((first, today)):
        file = tmp_path / f"{number}.yaml"
        named = [{"class_path": path, "init_args": given}]
        file.write_text(yaml.safe_dump({"trainer": {"callbacks+": named}}))
        composed = compose("test", ["-c", str(file)], {"trainer", "trainer.callbacks"})
        config = parser.parse_object({"callbacks": composed.config["trainer"]["callbacks"][-1:]})
        (test,) = parser.instantiate_classes(config).callbacks
        assert isinstance(test, AdversarialAttention)
        made.append(test)
    one, other = made
    assert (one.hparams, one.search, one.measures) == (other.hparams, other.search, other.measures)
    assert one.metadata == other.metadata


@pytest.mark.parametrize(
    "file", sorted(GUARD.glob("*/fit.yaml")), ids=lambda file: file.parent.name
)
def test_kept_tests_are_read(file: Path) -> None:
    callbacks = yaml.safe_load(file.read_text())["trainer"]["callbacks"]
    (kept,) = (item for item in callbacks if item["class_path"].endswith("AdversarialAttention"))
    read = callback(kept)["init_args"]
    assert "steps" in kept["init_args"]
    # What records of either format say of their settings is the same.
    assert dict(AdversarialAttention(**read).hparams) == read | {"evaluations": 2000}
    on = callback({**kept, "init_args": kept["init_args"] | {"search": True}})["init_args"]
    search = GradientSearch(**on["search"])
    assert dict(AdversarialAttention(**on | {"search": search}).hparams) == on | {
        "evaluations": 2000
    }
    other = {"class_path": "mine.AdversarialAttention", "init_args": {"steps": 3}}
    assert callback(other) == other
