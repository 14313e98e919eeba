"""A network from plain options, such as those that a checkpoint keeps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, fields, is_dataclass
from inspect import signature
from typing import Any

from torch import nn

from attnlight.errors import InputError, did_you_mean
from attnlight.foreign import import_class
from attnlight.models.classifier import FlatClassifier
from attnlight.models.guided import (
    Guided,
    GuidedFlatClassifier,
    GuidedHierarchicalClassifier,
    GuidedSelfAttentionTagger,
)
from attnlight.models.hierarchical import HierarchicalClassifier
from attnlight.models.options import ClassifierNet, TaggerNet
from attnlight.models.tagger import SelfAttentionTagger

Options = Mapping[str, Any]
OWN = "network"  # names the class of a network of one's own in plain options
_GUIDED: dict[type[nn.Module], type[nn.Module]] = {
    FlatClassifier: GuidedFlatClassifier,
    HierarchicalClassifier: GuidedHierarchicalClassifier,
    SelfAttentionTagger: GuidedSelfAttentionTagger,
}
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
    if net.get("hierarchical"):
        return HierarchicalClassifier
    if net.get("sentence_dropout"):
        raise InputError(
            f"sentence_dropout is {net['sentence_dropout']}, but a model that is not hierarchical "
            "has no sentences."
        )
    return FlatClassifier


def model_options(problem: str, net: Options, spec: Options) -> dict[str, Any]:
    """Arguments of the network's class: of the corpus's spec those that it names, and its own.

    Raises:
        InputError: The class of one's own network has no such argument.
    """
    known = signature(network(problem, net)).parameters
    of_corpus = {**spec, "num_classes": len(spec["classes"])}
    options = {name: value for name, value in of_corpus.items() if name in known}
    own = net["options"] if OWN in net else net
    unknown = sorted(own.keys() - known.keys())
    if unknown and OWN in net:
        raise InputError(
            f"{net[OWN]} has no option {unknown[0]!r}{did_you_mean(unknown[0], known)}."
        )
    return options | {name: value for name, value in own.items() if name in known}


def plain_net(problem: str, net: object) -> dict[str, Any]:
    """Options of a network as plain values: all of them, or `network` and `options` of one's own.

    Raises:
        InputError: There is no such option.
    """
    options = asdict(net) if is_dataclass(net) and not isinstance(net, type) else dict(net)  # type: ignore[call-overload]
    if "class_path" in options:  # a key that jsonargparse would build where it stands in a dict
        return {OWN: options["class_path"], "options": dict(options.get("init_args") or {})}
    if OWN in options or problem not in _NETS:
        return options
    try:
        return asdict(_NETS[problem](**options))
    except TypeError:
        known = [field.name for field in fields(_NETS[problem])]
        wrong = next(name for name in options if name not in known)
        raise InputError(f"net has no option {wrong!r}{did_you_mean(wrong, known)}.") from None


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


def build_model(problem: str, net: Options, spec: Options, *, guided: bool = False) -> nn.Module:
    """Build a network.

    Args:
        problem: Name of the problem.
        net: Options of its network, as `plain_net` gives them.
        spec: What it must know of its corpus, see `Problem`.
        guided: Build one whose last attention is given.
    """
    kind = network(problem, net)
    options = model_options(problem, net, spec)
    if guided:
        kind = _GUIDED.get(kind) or type(f"Guided{kind.__name__}", (Guided, kind), {})
    return kind(**options)  # type: ignore[no-any-return]


def attends(problem: str, net: Options) -> bool:
    """Whether a network has attention of its own."""
    return OWN in net or problem == "tagging" or net.get("attention") not in (None, "none")


def uniform_net(problem: str, net: Options, head: int | None) -> dict[str, Any]:
    """Options of the same network with uniform attention, in one head or (None) in all of them.

    Raises:
        InputError: There is no such head, or the network cannot be made uniform.
    """
    return _changed(problem, net, "uniform_net", head=head)


def guided_net(
    problem: str, net: Options, guide: str, context: str | None, query_key: bool
) -> dict[str, Any]:
    """Options of the network that a guide tells what to attend to.

    Args:
        problem: Name of the problem.
        net: Options of the base's network.
        guide: Where attention comes from; `learned` is the network's own.
        context: `full`, the base's network; `tokens`, each item read alone; None: the first that
            the network can have.
        query_key: Whether trained queries and keys move what is given.

    Raises:
        InputError: The network cannot be guided so.
    """
    return _changed(problem, net, "guided_net", guide=guide, context=context, query_key=query_key)


def _changed(problem: str, net: Options, how: str, **options: object) -> dict[str, Any]:
    kind = network(problem, net)
    change = getattr(kind, how, None)
    if change is None:
        raise InputError(f"{kind.__name__} has no {how}: a network of one's own needs one here.")
    if OWN not in net:
        return dict(change(dict(net), **options))
    return {OWN: net[OWN], "options": change(dict(net["options"]), **options)}
