"""Check that a checkpoint matches the task that restores it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from attnlight.errors import InputError
from attnlight.storage.checkpoints import CHECKPOINT_KEY

if TYPE_CHECKING:
    from attnlight.tasks.attention import AttentionTask


def require_same(task: AttentionTask, checkpoint: Mapping[str, Any]) -> None:
    """Refuse a checkpoint of another vocabulary, corpus, problem or network.

    Raises:
        InputError: The checkpoint does not match.
    """
    stored, hparams = checkpoint[CHECKPOINT_KEY], checkpoint["hyper_parameters"]
    if task.raw.tokenizer not in (None, stored["tokenizer"]):
        raise InputError(
            "the checkpoint was trained with another vocabulary than that of the corpus in `data`: "
            "give the `data` of its own fit.yaml."
        )
    if (difference := task.problem.difference(hparams["spec"])) is not None:
        raise InputError(f"the checkpoint {difference}: give the `data` of its own fit.yaml.")
    options = {"problem": hparams["problem"]} | hparams["net"]
    expected = {"problem": task.hparams["problem"]} | task.hparams["net"]
    for name, value in expected.items():
        pretrained = isinstance(value, Mapping) and "fingerprint" in value
        if pretrained and isinstance(options.get(name), Mapping):  # whose folder may have moved
            value = {**value, "path": options[name].get("path")}
        if options.get(name) != value:
            raise InputError(
                f"the checkpoint has {name} {options.get(name)}, the configuration {value}: give the "
                "`model` of its own fit.yaml."
            )
