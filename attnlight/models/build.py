"""A network from plain options, such as those that a checkpoint keeps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from inspect import Parameter, signature
from typing import Any

from torch import nn

from attnlight.errors import InputError, did_you_mean
from attnlight.foreign import import_class
from attnlight.models.classifier import FlatClassifier
from attnlight.models.guided import ask_guide, leave_out_given, no_guide
from attnlight.models.hierarchical import HierarchicalClassifier
from attnlight.models.options import ClassifierNet, TaggerNet, group_of
from attnlight.models.tagger import SelfAttentionTagger

Options = Mapping[str, Any]
OWN = "network"  # names the class of a network of one's own in plain options
_NETS: dict[str, type[ClassifierNet | TaggerNet]] = {
    "classification": ClassifierNet,
    "tagging": TaggerNet,
}


def network(problem: str, net: Options) -> type[Any]:
    """The class of a network.

    Args:
        problem: Name of the problem, whose own network it is unless `net` names one.
        net: Its options as `plain_net` gives them.

    Raises:
        InputError: There is no such class, or the problem has no network of its own.
    """
    if OWN in net:
        return import_class(net[OWN], nn.Module)
    if problem == "tagging":
        return SelfAttentionTagger
    if problem != "classification":
        raise InputError(f"{problem} has no network of its own: name one, `net: {{class_path: }}`.")
    return HierarchicalClassifier if net.get("hierarchical") else FlatClassifier


def plain_net(
    problem: str, net: ClassifierNet | TaggerNet | Mapping[str, object]
) -> dict[str, Any]:
    """Options of a network as plain values: all of them, or `network` and `options` of one's own.

    Raises:
        InputError: There is no such option.
    """
    options: dict[str, Any] = dict(net) if isinstance(net, Mapping) else asdict(net)
    if "class_path" in options:  # a key that jsonargparse would build where it stands in a dict
        return {OWN: options["class_path"], "options": dict(options.get("init_args") or {})}
    if OWN in options or problem not in _NETS:
        return options
    return asdict(group_of(_NETS[problem], options))


def completed(problem: str, net: Options) -> dict[str, Any]:
    """All options of a network as its class has them; those of one's own stay as they are."""
    if OWN in net:
        return dict(net)
    of_class = {
        name: parameter.default
        for name, parameter in signature(network(problem, net)).parameters.items()
        if parameter.default is not parameter.empty and name != "features"
    }
    return of_class | asdict(_NETS[problem]()) | dict(net)


def model_options(problem: str, net: Options, spec: Options) -> dict[str, Any]:
    """Arguments of the network's class: of the corpus's spec those that it names, and its own.

    Raises:
        InputError: The class of one's own network has no such argument.
    """
    kind = network(problem, net)
    known = signature(kind).parameters
    own = dict(net["options"] if OWN in net else net)
    if OWN in net and not any(one.kind is Parameter.VAR_KEYWORD for one in known.values()):
        for name in sorted(own.keys() - known.keys()):
            raise InputError(f"{net[OWN]} has no option {name!r}{did_you_mean(name, known)}.")
    own.pop("hierarchical", None)  # the class says it
    if kind is FlatClassifier and not own.get("sentence_dropout"):
        own.pop("sentence_dropout", None)  # fingerprints of bases are of options without it
    of_corpus = {**spec, "num_classes": len(spec["classes"])}
    return {name: value for name, value in of_corpus.items() if name in known} | own


def build_model(problem: str, net: Options, spec: Options, *, guided: bool = False) -> nn.Module:
    """Build a network.

    Args:
        problem: Name of the problem.
        net: Options of its network, as `plain_net` gives them.
        spec: What it must know of its corpus, see `Problem`.
        guided: Build one whose last attention its attribute `guide` is to give.
    """
    model: nn.Module = network(problem, net)(**model_options(problem, net, spec))
    if guided:
        if not hasattr(model, "guide"):
            model.register_forward_pre_hook(ask_guide, with_kwargs=True)
            model.leave_one_out = leave_out_given  # type: ignore[assignment]
        model.guide = no_guide  # type: ignore[assignment]
    return model


def attends(problem: str, net: Options) -> bool:
    """Whether a network has attention of its own."""
    return OWN in net or problem == "tagging" or net.get("attention") not in (None, "none")


def changed_net(problem: str, net: Options, how: str, **options: object) -> dict[str, Any]:
    """Options of the network that a variant of a base has.

    Args:
        problem: Name of the problem.
        net: Options of the base's network.
        how: Name of the static method of its class that makes them: `uniform_net`, with uniform
            attention in one `head` or (None) in all of them; or `guided_net`, whose attention a
            `guide` gives, with a `context` and perhaps a `query_key`, see `GuidedVariant`.
        options: Arguments of that method.

    Raises:
        InputError: The network cannot be changed so.
    """
    kind = network(problem, net)
    change = getattr(kind, how, None)
    if change is None:
        raise InputError(f"{kind.__name__} has no {how}: a network of one's own needs one here.")
    if OWN not in net:
        return dict(change(dict(net), **options))
    return {OWN: net[OWN], "options": change(dict(net["options"]), **options)}
