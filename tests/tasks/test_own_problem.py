"""A network of one's own, and a problem of one's own, by YAML and their file alone."""

import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from attnlight.__main__ import main
from attnlight.errors import InputError
from attnlight.probing.input_gradient import input_gradient
from attnlight.probing.leave_one_out import leave_one_out
from attnlight.records import read_record
from attnlight.reference import read_base
from attnlight.storage.foreign_classes import foreign_names
from attnlight.tasks import AttentionTask
from tests.commands import CPU, QUIET, without_figures
from tests.probing.oracles import moved
from tests.tasks.sentences import SentenceCorpus, SentenceNet

MODULE = "tests.tasks.sentences"
OWN = {
    "model": {
        "class_path": "attnlight.tasks.AttentionTask",
        "init_args": {
            "problem": f"{MODULE}.Sentences",
            "net": {"class_path": f"{MODULE}.SentenceNet", "init_args": {"size": 6}},
            "optimizer": {"learning_rate": 0.03, "weight_decay": {"query": 0.01}},
        },
    },
    "data": {"class_path": f"{MODULE}.SentenceCorpus"},
    "trainer": {"max_epochs": 2, "logger": False},
}
VARIANTS = {
    "uniform": ["--model=UniformVariant"],
    "adversary": ["--model=AdversarialVariant", "--model.lambda_=0.1"],
    "guided": ["--model=GuidedVariant", "--model.guide=shuffled"],
}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the configuration and a trained base in `runs/e/base`."""
    folder = tmp_path_factory.mktemp("own")
    (folder / "own.yaml").write_text(yaml.safe_dump(OWN))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert main(["fit", "-c", "own.yaml", *PLACE, "--run=base", *CPU, *QUIET]) == 0
    return folder


PLACE = ["--root=runs", "--experiment=e"]


@pytest.fixture
def here(place: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(place)
    return place


def records_of(run: str, *tests: str) -> Path:
    """The records of `test` on a run with some files of tests."""
    attached = without_figures("tests.yaml", *tests)
    assert main(["test", f"runs/e/{run}", *attached, *CPU, *QUIET]) == 0
    return Path(f"runs/e/{run}/records/test")


def test_importance_of_sentences_to_sentences_by_hand() -> None:
    data = SentenceCorpus()
    torch.manual_seed(0)
    model = SentenceNet(data.vocab_size, 3).double().eval()
    batch = data.dataset("test")[list(range(8))]
    output = model(batch)
    found = [input_gradient(model, batch, output, detached=kind) for kind in (True, False)]
    deleted, expected = leave_one_out(model, batch, output), moved(model, batch, output, True)
    torch.testing.assert_close(deleted[output.mask], expected[output.mask], equal_nan=True)
    row = 0
    for text in range(len(batch)):
        alone = batch.select(torch.arange(8) == text)
        sentences = int(batch.mask[text].any(-1).sum())
        for place in range(sentences):
            weights = output.weights[row : row + sentences].detach()
            for given, scores in zip((weights, None), found, strict=True):
                embeddings = model.embed(alone).detach().requires_grad_()
                logits = model(alone, given, embeddings).logits[place]
                winner = int(logits.argmax())
                others = [z for number, z in enumerate(logits) if number != winner]
                odds = logits[winner] - torch.stack(others).exp().sum().log()
                (gradient,) = torch.autograd.grad(odds, embeddings)
                words = (gradient * embeddings).sum(-1)[0]  # (S, N); there are no boundary tokens
                expected = torch.stack(
                    [words[s][batch.mask[text, s]].sum() for s in range(sentences)]
                )
                torch.testing.assert_close(scores[row + place, :sentences], expected.abs())
                assert not scores[row + place, sentences:].any()
        row += sentences
    assert row == len(output.rows)


@pytest.mark.parametrize("kind", VARIANTS)
def test_variants(here: Path, kind: str) -> None:
    variant = [*VARIANTS[kind], "--model.base=runs/e/base", *PLACE, f"--run={kind}"]
    assert main(["fit", "-c", "own.yaml", *variant, *CPU, *QUIET]) == 0
    rows = read_record(records_of(kind, "base_divergence") / "base_divergence.parquet").columns
    if kind == "uniform":
        assert rows["attention_js"].max() > 0
    assert len(rows["index"]) > 20
    if kind == "adversary":  # its folder alone may be a guide, of classes that its base names
        assert read_base(Path(f"runs/e/{kind}")).identity.options["lambda_"] > 0


class TestCheckpoint:
    def test_holds_names_and_plain_values(self, here: Path) -> None:
        held = torch.load("runs/e/base/best.ckpt", weights_only=True)["hyper_parameters"]
        assert foreign_names(held) == {f"{MODULE}.Sentences", f"{MODULE}.SentenceNet"}
        assert not {"_instantiator", "class_path"} & held.keys()

    def test_imports_nothing(self, here: Path, tmp_path: Path, monkeypatch: Any) -> None:
        (tmp_path / "stranger.py").write_text("raise RuntimeError('imported')\n")
        monkeypatch.syspath_prepend(tmp_path)
        checkpoint = torch.load("runs/e/base/best.ckpt", weights_only=True)
        net = checkpoint["hyper_parameters"]["net"]
        net["network"] = "stranger.Net"
        torch.save(checkpoint, tmp_path / "best.ckpt")
        with pytest.raises(InputError, match=r"stranger\.Net"):
            AttentionTask.load_from_checkpoint(tmp_path / "best.ckpt")
        with pytest.raises(InputError, match=r"stranger\.Net"):
            read_base(tmp_path / "best.ckpt")
        (tmp_path / "fit.yaml").write_text(Path("runs/e/base/fit.yaml").read_text())
        with pytest.raises(InputError, match=r"stranger\.Net"):
            read_base(tmp_path)
        assert "stranger" not in sys.modules

    def test_is_a_base_with_its_configuration_alone(self, here: Path) -> None:
        with pytest.raises(InputError, match=rf"{MODULE}\.Sentence"):
            read_base("runs/e/base/best.ckpt")
        assert type(read_base("runs/e/base").model).__name__ == "SentenceNet"

    def test_loads_where_its_classes_are_named(self, here: Path) -> None:
        given = OWN["model"]["init_args"]  # type: ignore[index]
        task = AttentionTask.load_from_checkpoint(
            "runs/e/base/best.ckpt", problem=given["problem"], net=given["net"]
        )
        assert type(task.model).__name__ == "SentenceNet"


def test_a_network_of_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    net = {"class_path": "attnlight.models.FlatClassifier", "init_args": {"embedding_size": 6}}
    model = {"class_path": "attnlight.tasks.AttentionClassifier", "init_args": {"net": net}}
    Path("own.yaml").write_text(yaml.safe_dump({"model": model}))
    sizes = [f"--data.{name}_size=30" for name in ("train", "validation", "test")]
    options = [*PLACE, "--run=r", "--trainer.max_epochs=1", "--trainer.logger=false", *CPU, *QUIET]
    sizes += ["--model.net.init_args.hidden_size=5"]
    sizes += ["--model.init_args.net.init_args.dropout", ".5"]
    assert main(["fit", "-c", "own.yaml", *sizes, *options]) == 0
    said = yaml.safe_load(Path("runs/e/r/fit.yaml").read_text())["model"]["init_args"]
    net["init_args"] |= {"hidden_size": 5, "dropout": 0.5}  # type: ignore[operator]
    assert said["net"] == net
    held = torch.load("runs/e/r/best.ckpt", weights_only=True)["hyper_parameters"]
    assert held["net"] == {"network": net["class_path"], "options": net["init_args"]}
    assert "predictions" in str(records_of("r", "predictions") / "predictions.parquet")
    net["init_args"]["embeding_size"] = 6  # type: ignore[index]
    Path("own.yaml").write_text(yaml.safe_dump({"model": model}))
    assert main(["fit", "-c", "own.yaml", *sizes, *options, "--overwrite"]) == 2
