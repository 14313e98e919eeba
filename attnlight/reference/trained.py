"""A trained model with all that it needs to read raw text, without Lightning."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any, Protocol, Self, runtime_checkable

import torch
from torch import nn

from attnlight.batch import AttentionModel, TextBatch
from attnlight.data.raw_text import RawText
from attnlight.errors import InputError
from attnlight.models.build import pretrained_network
from attnlight.models.seq2seq import Seq2Seq
from attnlight.models.translate import translate
from attnlight.problems import Problem, problem_class
from attnlight.reference.base_spec import read_base
from attnlight.reference.cached_outputs import device_of
from attnlight.storage.hub import hub_run
from attnlight.storage.model_folder import (
    TAGGER,
    is_model,
    read_tested,
    require_run,
    tags_tokens,
)
from attnlight.storage.shipped import find_trained


@runtime_checkable
class _ReadsRawText(Protocol):
    """A task of attnlight that has been trained or set up."""

    problem: Problem
    raw: RawText
    hparams: Mapping[str, Any]


@runtime_checkable
class _Pipeline(Protocol):
    """A pipeline of transformers, or another object that holds a model and its tokenizer."""

    model: Any
    tokenizer: Any


def network_of(model: Any) -> AttentionModel:  # noqa: ANN401
    """The network of a task or of a `TrainedModel`, or the model itself.

    Raises:
        InputError: It is not an `AttentionModel`.
    """
    network = getattr(model, "model", model)
    if not isinstance(network, AttentionModel):
        raise InputError(
            f"{type(network).__name__} is not an AttentionModel: it needs the methods forward, embed "
            "and readout that attnlight.batch.AttentionModel describes."
        )
    return network


@contextmanager
def evaluating(model: Any) -> Iterator[torch.device]:  # noqa: ANN401
    """Keep a network in evaluation mode, and yield the device of its parameters."""
    training = isinstance(model, nn.Module) and model.training
    try:
        if training:
            model.eval()
        yield device_of(model)
    finally:
        if training:
            model.train()


def _network_class(tags: bool) -> Any:  # noqa: ANN401
    """The network class for a model that tags tokens, or for one that classifies texts."""
    from attnlight.huggingface import HuggingFaceClassifier, HuggingFaceTagger

    return HuggingFaceTagger if tags else HuggingFaceClassifier


def of_transformers(model: Any, tokenizer: Any = None) -> Any:  # noqa: ANN401
    """The network of a model of transformers, or of its pipeline; any other object itself.

    The model stays as it is: modules are copied, parameters shared.

    Raises:
        InputError: The network cannot be built, or a tokenizer is given with another object.
    """
    module = sys.modules.get("transformers.modeling_utils")
    kind: Any = () if module is None else module.PreTrainedModel
    given, own = model, None
    if isinstance(model, _Pipeline) and not isinstance(model, kind):
        given, own = model.model, model.tokenizer
    if isinstance(given, kind):
        shared = {id(values): values for values in chain(given.parameters(), given.buffers())}
        tokenizer = own if tokenizer is None else tokenizer
        network = _network_class(type(given).__name__.endswith(TAGGER))
        return network(deepcopy(given, shared), tokenizer).eval()
    if tokenizer is not None:
        name = model if isinstance(model, str | Path) else type(model).__name__
        raise InputError(
            f"`tokenizer` goes with a model of transformers in memory, not with {name}."
        )
    return model


@dataclass(frozen=True)
class TrainedModel:
    """A trained model that reads raw text; an `AttentionTask` has the same attributes.

    Attributes:
        model: The network.
        problem: The prediction problem.
        raw: The encoder of raw text.
        hparams: The hyperparameters of its task.
        path: The folder of its run, its checkpoint, or the folder or id of a model elsewhere; None if it
            was not read from a file.
    """

    model: AttentionModel
    problem: Problem
    raw: RawText
    hparams: Mapping[str, Any] = field(default_factory=dict)
    path: Path | None = None

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a run's `best.ckpt`, a checkpoint, the shipped model of that name, or a model elsewhere.

        The latter is named by its folder, its id on the Hugging Face hub, or a run that tested it. An id
        is also that of a run which `push` sent there. A checkpoint outside a run's folder may name no
        class of the user's own.

        Raises:
            InputError: There is no such run, checkpoint or shipped model, it is damaged, or its model
                has no attention of its own.
        """
        given = Path(path)
        if (place := hub_run(given)) is None:
            elsewhere: tuple[Any, Mapping[str, Any]] | None
            if is_model(given):
                elsewhere = _network_class(tags_tokens(given)), {"path": given}
            else:
                elsewhere = pretrained_network(read_tested(given).get("model") or {})
            if elsewhere is not None:
                return replace(cls.of(elsewhere[0](**elsewhere[1]).eval()), path=given)
        path = place or find_trained(path)
        if path.is_dir():
            require_run(path)
        base = read_base(path)
        options = base.identity.options
        problem = problem_class(options["problem"])(options["spec"])
        return cls(base.model, problem, RawText.from_dict(base.raw), options, path)

    @classmethod
    def of(cls, model: Any) -> Self:  # noqa: ANN401
        """The trained model of a path or of a task; one of this class is returned unchanged.

        Raises:
            InputError: `load` refuses the path, or the object is no model with attention that reads
                raw text.
        """
        if isinstance(model, cls):
            return model
        if isinstance(model, str | Path):
            return cls.load(model)
        model = of_transformers(model)
        network = network_of(model)
        if not isinstance(model, _ReadsRawText):
            raise InputError(
                f"{type(model).__name__} has no tokenizer to read raw text with: give a run's folder, "
                "a checkpoint, or a task of attnlight."
            )
        return cls(network, model.problem, model.raw, dict(model.hparams))

    @property
    def classes(self) -> list[str]:
        """Names of the classes."""
        return self.raw.classes

    def encode(
        self,
        texts: Sequence[str],
        pos: Sequence[Sequence[str]] | None = None,
        queries: Sequence[str] | None = None,
        candidates: Sequence[Sequence[str]] | None = None,
    ) -> TextBatch:
        """An unlabelled batch of raw texts with index 0 to B - 1, see `RawText.encode`.

        Of a translation network the targets are its own translations, by greedy search.

        Raises:
            InputError: The corpus has queries and none are given, or the reverse; or `RawText.encode`
                refuses the texts.
        """
        expected = bool(self.problem.spec.get("query")) or self.raw.joined
        if expected != (queries is not None) and not (self.raw.joins and queries is not None):
            reads = "texts alone: leave out `queries`, or --query"
            if expected:
                reads = "passages with queries: give each its own, in `queries`, as `query` of its row or by --query"
            raise InputError(f"the model reads {reads}.")
        batch = self.problem.mark_instances(self.raw.encode(texts, pos, queries, candidates))
        if isinstance(self.model, Seq2Seq):
            with evaluating(self.model) as device:
                target = translate(self.model, batch.to(device)).to(batch.index.device)
            batch = replace(batch, target=target, known={"target": target})
        return batch
