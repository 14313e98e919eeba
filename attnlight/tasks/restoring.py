"""What a checkpoint must agree on with the task that takes it over."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from attnlight.checkpoints import CHECKPOINT_KEY
from attnlight.errors import InputError

if TYPE_CHECKING:
    from attnlight.tasks.attention import AttentionTask


def require_same(task: AttentionTask, checkpoint: Mapping[str, Any]) -> None:
    """Refuse a checkpoint of another vocabulary, corpus, problem or network.

    Raises:
        InputError: It is of another.
    """
    held, hparams = checkpoint[CHECKPOINT_KEY], checkpoint["hyper_parameters"]
    if task.raw.tokenizer not in (None, held["tokenizer"]):
        raise InputError(
            "the checkpoint was trained with another vocabulary than that of the corpus in `data`: "
            "give the `data` of its own fit.yaml."
        )
    if (found := task.problem.difference(hparams["spec"])) is not None:
        raise InputError(f"the checkpoint {found}: give the `data` of its own fit.yaml.")
    own = {"problem": task.hparams["problem"]} | task.hparams["net"]
    there = {"problem": hparams["problem"]} | hparams["net"]
    for name, value in own.items():
        # An option that came later is not in the checkpoint; its shapes are checked on loading.
        if there.get(name, value) != value:
            raise InputError(
                f"the checkpoint has {name} {there[name]}, the configuration {value}: give the "
                "`model` of its own fit.yaml."
            )
