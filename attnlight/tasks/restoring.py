"""Check that a checkpoint matches the task that restores it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attnlight.errors import InputError
from attnlight.models.build import with_defaults
from attnlight.problems import Problem
from attnlight.storage.checkpoint_file import CHECKPOINT_KEY


def require_same(
    tokenizer: str | None,
    problem: Problem,
    hparams: Mapping[str, Any],
    checkpoint: Mapping[str, Any],
) -> None:
    """Raise `InputError` if a checkpoint is of another vocabulary, corpus, problem or network.

    The `tokenizer` is that of the task's corpus, if it has one.
    """
    stored, trained = checkpoint[CHECKPOINT_KEY], checkpoint["hyper_parameters"]
    if tokenizer not in (None, stored["tokenizer"]):
        raise InputError(
            "the checkpoint was trained with another vocabulary than that of the corpus in `data`: "
            "give the `data` of its own fit.yaml."
        )
    if (difference := problem.difference(trained["spec"])) is not None:
        raise InputError(f"the checkpoint {difference}: give the `data` of its own fit.yaml.")
    options = {"problem": trained["problem"]} | with_defaults(trained["problem"], trained["net"])
    expected = {"problem": hparams["problem"]} | hparams["net"]
    for name, value in expected.items():
        pretrained = isinstance(value, Mapping) and "fingerprint" in value
        if pretrained and isinstance(options.get(name), Mapping):  # whose folder may have moved
            value = {**value, "path": options[name].get("path")}
        if options.get(name) != value:
            raise InputError(
                f"the checkpoint has {name} {options.get(name)}, the configuration {value}: give the "
                "`model` of its own fit.yaml."
            )
