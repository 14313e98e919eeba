"""A variant is its base in all but one respect."""

import math
import sys
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import pytest
import torch
import yaml

from attnlight.__main__ import main
from attnlight.compatibility import arguments
from attnlight.datamodules import PlantedEvidence
from attnlight.errors import InputError
from attnlight.records import read_record
from attnlight.reference import read_base
from attnlight.tasks import AdversarialVariant, GuidedVariant, SeedVariant, UniformVariant
from attnlight.tasks.classification import AttentionClassifier
from attnlight.tasks.from_base import FromBase
from tests.bases import Planted, batch_of, running, save, save_base, trainer
from tests.commands import CONFIGS, CPU, QUIET, experiment

KINDS: dict[str, tuple[type[FromBase], dict[str, Any]]] = {
    "uniform": (UniformVariant, {}),
    "seed": (SeedVariant, {}),
    "learned MLP": (GuidedVariant, {"guide": "learned"}),
    "uniform MLP": (GuidedVariant, {"guide": "uniform"}),
    "base MLP": (GuidedVariant, {"guide": "base"}),
    "shuffled MLP": (GuidedVariant, {"guide": "shuffled"}),
    "adversary": (AdversarialVariant, {"lambda_": 0.1}),
    "imitation": (AdversarialVariant, {"lambda_": 0.0, "prediction_term": "nll"}),
}
ARCHITECTURES: dict[str, dict[str, Any]] = {
    "bigru": {"encoder": "bigru"},
    "cnn": {"encoder": "cnn", "attention": "scaled_dot"},
    "none": {"encoder": "none", "attention": "dot", "dropout": 0.2},
    "frozen": {"encoder": "average", "freeze_embeddings": True},
    "hierarchical": {"encoder": "bigru", "hierarchical": True, "sentence_dropout": 0.1},
}


@pytest.fixture(scope="module")
def corpora() -> dict[bool, Planted]:
    """The corpus flat and in sentences, with three classes."""
    return {nested: Planted(nested, num_classes=3) for nested in (False, True)}


def make(kind: str, corpus: Planted, base: Path, **options: Any) -> FromBase:
    task, own = KINDS[kind]
    return task(corpus.spec, base=str(base), **arguments(own | options))


class Gradients(pl.Callback):
    """Parameters that a step did not reach."""

    def __init__(self) -> None:
        self.unreached: set[str] = set()

    def on_after_backward(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.unreached |= {
            name
            for name, parameter in pl_module.named_parameters()
            if parameter.requires_grad and parameter.grad is None
        }


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_fit_and_test_reach_every_parameter(
    kind: str, architecture: str, corpora: dict[bool, Planted], tmp_path: Path
) -> None:
    """Plain ddp stops where a parameter is left out."""
    options = ARCHITECTURES[architecture]
    corpus = corpora[bool(options.get("hierarchical"))]
    task = make(kind, corpus, save_base(tmp_path / "base.ckpt", corpus, **options))
    watch = Gradients()
    started = trainer(tmp_path, watch, max_epochs=1, limit_train_batches=2, limit_val_batches=2)
    started.fit(task, datamodule=corpus)
    assert not watch.unreached
    assert math.isfinite(started.callback_metrics["train/loss"])
    trainer(tmp_path, limit_test_batches=2).test(task, corpus, verbose=False)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_architecture_is_the_base_s(
    architecture: str, corpora: dict[bool, Planted], tmp_path: Path
) -> None:
    options = ARCHITECTURES[architecture]
    corpus = corpora[bool(options.get("hierarchical"))]
    path = save_base(tmp_path / "base.ckpt", corpus, weight_decay=0.5, **options)
    base = AttentionClassifier.load_from_checkpoint(path)
    shapes = {name: p.shape for name, p in base.model.named_parameters()}
    for kind in ("seed", "adversary"):
        task = make(kind, corpus, path)
        assert {name: p.shape for name, p in task.model.named_parameters()} == shapes
        assert task.hparams["net"] == base.hparams["net"]
        assert task.hparams["optimizer"]["weight_decay"] == 0.5
    uniform = make("uniform", corpus, path)
    assert {name: p.shape for name, p in uniform.model.named_parameters()} == {
        name: shape for name, shape in shapes.items() if "attention" not in name
    }
    output = uniform.model(batch_of(corpus))
    assert torch.equal(output.weights[:, 0] > 0, output.mask)
    torch.testing.assert_close(output.weights.amax((1, 2)), 1 / output.mask.sum(-1))


def test_seed_decides_the_start_alone(corpora: dict[bool, Planted], tmp_path: Path) -> None:
    path = save_base(tmp_path / "base.ckpt", corpora[False])
    states = []
    for seed, known in ((3, None), (3, "inherited"), (4, None)):
        first = make("seed", corpora[False], path)
        torch.manual_seed(seed)
        held = first.hparams["inherited"] if known else None
        states.append(make("seed", corpora[False], path, inherited=held).model.state_dict())
    name = "embedding.weight"
    assert torch.equal(states[0][name], states[1][name])
    assert not torch.equal(states[0][name], states[2][name])


class TestTrainingOptions:
    def test_replace_the_base_s(self, corpora: dict[bool, Planted], tmp_path: Path) -> None:
        path = save_base(tmp_path / "base.ckpt", corpora[False], learning_rate=0.5, amsgrad=True)
        task = make("uniform", corpora[False], path, training={"learning_rate": 0.25})
        group = task.configure_optimizers().param_groups[0]
        assert (group["lr"], group["amsgrad"]) == (0.25, True)

    def test_unknown(self, corpora: dict[bool, Planted], tmp_path: Path) -> None:
        path = save_base(tmp_path / "base.ckpt", corpora[False])
        with pytest.raises(InputError, match="optimizer has no option 'encoder'"):
            make("uniform", corpora[False], path, optimizer={"encoder": "cnn"})


@pytest.mark.parametrize("kind", KINDS)
def test_checkpoint_loads_when_the_base_is_gone(
    kind: str, corpora: dict[bool, Planted], tmp_path: Path
) -> None:
    corpus = corpora[False]
    path = save_base(tmp_path / "base.ckpt", corpus)
    fingerprint = read_base(path).identity.fingerprint
    task = make(kind, corpus, path)
    task.adopt_corpus(corpus)
    saved = save(task, tmp_path / "variant.ckpt")
    path.unlink()
    loaded = type(task).load_from_checkpoint(saved)
    assert loaded.reference.identity.fingerprint == fingerprint
    assert loaded.hparams == task.hparams
    assert loaded.settled["inherited"]["base"]["fingerprint"] == fingerprint
    for name, values in task.model.state_dict().items():
        assert torch.equal(loaded.model.state_dict()[name], values)
    if kind not in ("base MLP", "shuffled MLP"):
        torch.testing.assert_close(
            loaded.classify(["good1 filler3"]), task.classify(["good1 filler3"])
        )


def test_a_test_needs_no_base_file_where_its_outputs_are_kept(
    corpora: dict[bool, Planted], tmp_path: Path
) -> None:
    corpus = corpora[False]
    path = save_base(tmp_path / "base.ckpt", corpus, seed=77)
    task = make("adversary", corpus, path)
    trainer(tmp_path).test(task, corpus, verbose=False)
    saved = save(task, tmp_path / "variant.ckpt")
    path.unlink()
    loaded = AdversarialVariant.load_from_checkpoint(saved)
    trainer(tmp_path).test(loaded, corpus, verbose=False)


class TestRefusal:
    @pytest.mark.parametrize("kind", KINDS)
    def test_another_corpus(self, kind: str, corpora: dict[bool, Planted], tmp_path: Path) -> None:
        path = save_base(tmp_path / "base.ckpt", Planted(num_classes=3, corpus_seed=1))
        task = make(kind, corpora[False], path)
        with pytest.raises(InputError, match=r"base\.ckpt was trained on another corpus"):
            trainer(tmp_path, fast_dev_run=True).fit(task, datamodule=corpora[False])

    @pytest.mark.parametrize("options", [{"num_classes": 2}, {"num_classes": 3, "vocabulary": 7}])
    def test_another_vocabulary(
        self, corpora: dict[bool, Planted], tmp_path: Path, options: dict[str, int]
    ) -> None:
        path = save_base(tmp_path / "base.ckpt", Planted(**options))
        with pytest.raises(InputError, match=r"base\.ckpt has \d+ (token ids|classes), the corpus"):
            make("seed", corpora[False], path)

    def test_another_base_than_the_known(
        self, corpora: dict[bool, Planted], tmp_path: Path
    ) -> None:
        """What a `fit.yaml` knows of its base does not silently outvote a base given beside it."""
        known = make("seed", corpora[False], save_base(tmp_path / "base.ckpt", corpora[False]))
        other = save_base(tmp_path / "other.ckpt", corpora[False], seed=1)
        task = make("uniform", corpora[False], other, inherited=known.settled["inherited"])
        with pytest.raises(InputError, match=r"other\.ckpt holds another model"):
            trainer(tmp_path, fast_dev_run=True).fit(task, datamodule=corpora[False])

    def test_missing_base(self, corpora: dict[bool, Planted], tmp_path: Path) -> None:
        with pytest.raises(InputError, match=r"there is no checkpoint .*none\.ckpt"):
            make("uniform", corpora[False], tmp_path / "none.ckpt")

    def test_base_without_attention(self, corpora: dict[bool, Planted], tmp_path: Path) -> None:
        path = save_base(tmp_path / "base.ckpt", corpora[False])
        checkpoint = torch.load(path, weights_only=True)
        del checkpoint["hyper_parameters"]["net"]["attention"]
        torch.save(checkpoint, path)
        with pytest.raises(InputError, match="without attention"):
            make("adversary", corpora[False], path)


def test_older_base_lacks_newer_options(corpora: dict[bool, Planted], tmp_path: Path) -> None:
    path = save_base(tmp_path / "base.ckpt", corpora[False])
    checkpoint = torch.load(path, weights_only=True)
    held = checkpoint["hyper_parameters"]
    del held["optimizer"]["momentum"], held["net"]["dropout"]
    torch.save(checkpoint, path)
    task = make("seed", corpora[False], path)
    assert (task.hparams["optimizer"]["momentum"], task.hparams["net"]["dropout"]) == (0.0, 0.0)


def test_stand_in_reads_each_split(corpora: dict[bool, Planted], tmp_path: Path) -> None:
    """What other tests rely on: a task's losses are against the base's outputs of that split."""
    corpus = corpora[False]
    task = make("imitation", corpus, save_base(tmp_path / "base.ckpt", corpus))
    task.model.load_state_dict(read_base(tmp_path / "base.ckpt").model.state_dict())
    for split in ("train", "validation", "test"):
        running(task, corpus, split)
        batch = batch_of(corpus, split)
        output = task.model(batch)
        own = output.logits.log_softmax(-1).amax(-1)
        torch.testing.assert_close(task._losses(batch, output), -own)


class TestCommands:
    """`fit` and `test` as a user gives them."""

    sizes = ("--data.train_size=60", "--data.validation_size=30", "--data.test_size=31")

    @pytest.fixture
    def base(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(sys, "argv", ["attnlight"])
        corpus = PlantedEvidence(train_size=60, validation_size=30, test_size=31)
        return save_base(tmp_path / "base.ckpt", corpus)

    def fit(self, name: str, *options: str) -> int:
        short = ["--trainer.max_epochs=2", "--trainer.logger=false", "--run=r", *CPU, *QUIET]
        return main(["fit", *experiment(name), *self.sizes, *short, *options])

    def test_a_run_is_tested_when_its_base_is_gone(self, base: Path) -> None:
        divergence = ["-c", f"{CONFIGS}/tests/base_divergence.yaml"]
        assert self.fit("planted_adversarial", *divergence, f"--model.base={base}") == 0
        run = Path("checkpoints/planted_adversarial/r")
        said = yaml.safe_load((run / "fit.yaml").read_text())["model"]["init_args"]
        known = read_base(base).identity
        assert said["inherited"]["base"] == known.held()
        command = ["test", "-c", f"{run}/fit.yaml", *divergence, *CPU, *QUIET]
        command += [f"--ckpt_path={run}/best.ckpt"]
        assert main(command) == 0  # evaluates the base on the test split
        base.unlink()
        assert main(command) == 0
        assert len(read_record(run / "records/test/base_divergence.parquet").columns["index"]) == 31
        for epoch in range(2):
            assert (run / f"records/val/base_divergence-{epoch}.parquet").exists()

    @pytest.mark.parametrize(
        ("name", "monitor"), [("adversarial", "val/loss"), ("uniform", "val/accuracy")]
    )
    def test_the_task_says_which_epoch_is_best(self, base: Path, name: str, monitor: str) -> None:
        assert self.fit(f"planted_{name}", f"--model.base={base}") == 0
        saved = torch.load(f"checkpoints/planted_{name}/r/last.ckpt", weights_only=True)
        best = [state for key, state in saved["callbacks"].items() if "ModelCheckpoint" in key]
        assert monitor in [state["monitor"] for state in best]

    @pytest.mark.parametrize(
        ("options", "sentence"),
        [
            ([], "the following arguments are required: base."),
            (["--model.base=none.ckpt"], "no checkpoint none.ckpt (did you mean 'base.ckpt'?)"),
            (["--model.base=base.ckpt", "--model.lambda_=-1"], "lambda_ is -1.0; it must be"),
            (["--model.base=base.ckpt", "--model.training.momentm=1"], "momentm"),
            (["--model.base=base.ckpt", "--data.corpus_seed=3"], "on another corpus"),
        ],
    )
    def test_mistakes_are_one_sentence(
        self, base: Path, options: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert self.fit("planted_adversarial", *options) == 2
        told = capsys.readouterr().err.strip().splitlines()[-1]
        assert told.startswith("attnlight: ")
        assert sentence in told
