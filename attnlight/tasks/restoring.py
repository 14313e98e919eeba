"""What a checkpoint must agree on with the task that takes it over."""

from __future__ import annotations

from collections.abc import Mapping
from inspect import Parameter, signature
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
    if task.raw.tokenizer_json not in (None, held["tokenizer"]):
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


def accepted(cls: type[AttentionTask], options: Mapping[str, Any]) -> dict[str, Any]:
    """Those of the hyperparameters that are constructor arguments of a task, or passed on by it."""
    names: set[str] = set()
    for kind in cls.__mro__:
        own = signature(vars(kind)["__init__"]).parameters if "__init__" in vars(kind) else {}
        names |= own.keys()
        if own and not any(one.kind is Parameter.VAR_KEYWORD for one in own.values()):
            break
    if cls.asks is not None:
        names.discard("problem")
    return {name: options[name] for name in names if name in options}
