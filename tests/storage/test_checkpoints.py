"""best.ckpt contains weights and what they need, last.ckpt all that training resumes from."""

import re
from contextlib import chdir
from pathlib import Path
from typing import Any

import pytest
import torch

from attnlight.__main__ import main
from attnlight.reference import read_base
from attnlight.studies.selection import chosen_epoch
from tests.commands import CPU, QUIET, Refused, experiment

USABLE = {"attnlight", "hyper_parameters", "hparams_name", "state_dict", "epoch", "global_step"}
USABLE |= {"pytorch-lightning_version"}
RESUMED = {"callbacks", "global_batch_size", "loops", "lr_schedulers", "optimizer_states"}
SMALL = ["--data.train_size=64", "--data.validation_size=32", "--data.test_size=32"]
SMALL += ["--trainer.max_epochs=2", "--trainer.logger=false", *CPU, *QUIET]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a base and of an adversary of it."""
    folder = tmp_path_factory.mktemp("runs")
    with chdir(folder):
        for name in ("bilstm", "adversarial"):
            options = ["--model.base=e/bilstm/best.ckpt"] if name == "adversarial" else []
            place = ["--root=.", "--experiment=e", f"--run={name}"]
            assert main(["fit", *experiment(f"planted_{name}"), *options, *place, *SMALL]) == 0
    return folder / "e"


def read(path: Path) -> dict[str, Any]:
    content: dict[str, Any] = torch.load(path, weights_only=True)
    return content


@pytest.mark.parametrize("name", ["bilstm", "adversarial"])
def test_best_holds_nothing_of_the_training(runs: Path, name: str) -> None:
    best, last = (read(runs / name / file) for file in ("best.ckpt", "last.ckpt"))
    assert set(best) == USABLE
    assert set(last) == USABLE | RESUMED
    assert best["hyper_parameters"] == last["hyper_parameters"]
    assert best["attnlight"] == last["attnlight"]
    assert best["attnlight"]["tokenizer"]
    assert ("inherited" in best["hyper_parameters"]) == (name == "adversarial")
    assert best["state_dict"].keys() == last["state_dict"].keys()
    assert best["epoch"] == chosen_epoch(runs / name / "best.ckpt")


def test_best_is_as_large_as_its_weights(runs: Path) -> None:
    best, last = runs / "bilstm/best.ckpt", runs / "bilstm/last.ckpt"
    weights = sum(values.nbytes for values in read(best)["state_dict"].values())
    # Adam keeps two more values of each weight, AMSGrad three.
    assert weights < best.stat().st_size < 1.1 * weights < last.stat().st_size / 2.5


def test_a_base_is_the_same_with_and_without_its_optimizer(runs: Path, tmp_path: Path) -> None:
    last = read(runs / "bilstm/last.ckpt")
    torch.save({name: last[name] for name in USABLE}, tmp_path / "weights.ckpt")
    complete, weights = (
        read_base(path).identity for path in (runs / "bilstm/last.ckpt", tmp_path / "weights.ckpt")
    )
    assert complete == weights


@pytest.mark.parametrize("given", ["best", "path", "other run"])
def test_training_does_not_resume_from_weights(runs: Path, given: str, refused: Refused) -> None:
    path = "best" if given == "best" else str(runs / "bilstm/best.ckpt")
    run = "new" if given == "other run" else "bilstm"
    place = [f"--root={runs.parent}", "--experiment=e", f"--run={run}", f"--ckpt_path={path}"]
    message = refused("fit", *experiment("planted_bilstm"), *SMALL, *place, leaving=runs)
    told = r"attnlight: \S*bilstm/best\.ckpt contains weights .* give --ckpt_path last\."
    assert re.fullmatch(told, message)


def test_options_that_a_checkpoint_lacks_are_their_defaults(runs: Path, refused: Refused) -> None:
    """Those of networks that are newer than the run; others must be equal."""
    path = runs / "bilstm/older.ckpt"
    older = read(runs / "bilstm/best.ckpt")
    del older["hyper_parameters"]["net"]["normalizer"]
    torch.save(older, path)
    command = ["-c", str(runs / "bilstm/fit.yaml"), f"--ckpt_path={path}", "--trainer.logger=false"]
    assert main(["predict", *command, *QUIET]) == 0
    sparse = [*command, "--model.net.normalizer=sparsemax"]
    refused("predict", *sparse, names=["normalizer softmax, the configuration sparsemax"])
