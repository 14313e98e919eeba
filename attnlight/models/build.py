"""Build a network from plain options, such as those stored in a checkpoint."""

from collections.abc import Mapping
from dataclasses import asdict
from functools import partial
from inspect import Parameter, signature
from typing import Any

from torch import nn

from attnlight.batch import HasEncoding, HasGuide, HasStoredOptions
from attnlight.errors import InputError, did_you_mean
from attnlight.models.classifier import FlatClassifier
from attnlight.models.guided import apply_guide, leave_one_out_guided, no_guide
from attnlight.models.hierarchical import HierarchicalClassifier
from attnlight.models.options import ClassifierNet, PairNet, Seq2SeqNet, TaggerNet, group_of
from attnlight.models.pair import PairClassifier
from attnlight.models.seq2seq import Seq2Seq
from attnlight.models.tagger import SelfAttentionTagger
from attnlight.storage.foreign_classes import import_class

Options = Mapping[str, Any]
CUSTOM = "network"  # the plain option that names the class of a custom network
Group = ClassifierNet | PairNet | TaggerNet | Seq2SeqNet
NETS: dict[str, type[Group]] = {
    "classification": ClassifierNet,
    "pairs": PairNet,
    "tagging": TaggerNet,
    "translation": Seq2SeqNet,
}
_CLASSES: dict[str, type[nn.Module]] = {
    "pairs": PairClassifier,
    "tagging": SelfAttentionTagger,
    "translation": Seq2Seq,
}


def network(problem: str, net: Options) -> type[Any]:
    """The class of a network: the one that `net` names, else the problem's default."""
    if CUSTOM in net:
        return import_class(net[CUSTOM], nn.Module)
    if problem in _CLASSES:
        return _CLASSES[problem]
    if problem != "classification":
        raise InputError(f"{problem} has no default network: name one, `net: {{class_path: }}`.")
    return HierarchicalClassifier if net.get("hierarchical") else FlatClassifier


def plain_net(problem: str, net: Group | Mapping[str, object]) -> dict[str, Any]:
    """All options of a network as plain values; of a custom one `network` and `options`.

    The latter are those of its `HasStoredOptions.stored_options`, if it has that method.
    """
    if not isinstance(net, Mapping) and not isinstance(net, NETS.get(problem, Mapping)):
        raise InputError(
            f"net has options of {type(net).__name__}, which {problem} does not take: name a network "
            "by its class_path, or choose the task of that problem."
        )
    options: dict[str, Any] = dict(net) if isinstance(net, Mapping) else asdict(net)
    if "class_path" in options:  # jsonargparse would instantiate a dict that has this key
        given = dict(options.get("init_args") or {})
        kind: object = import_class(options["class_path"], nn.Module)
        given = kind.stored_options(given) if isinstance(kind, HasStoredOptions) else given
        return {CUSTOM: options["class_path"], "options": given}
    if CUSTOM in options or problem not in NETS:
        return options
    return asdict(group_of(NETS[problem], options))


def pretrained_network(
    model: Any,  # noqa: ANN401
    *trained_here: object,
) -> tuple[Any, Options] | None:
    """Class and options of a network that was trained elsewhere, see `HasEncoding`; None: it was not.

    `model` is a section of a configuration, `trained_here` what names a run or a checkpoint, if
    anything.
    """
    net = model.get("init_args", {}).get("net")
    path = net.get("class_path") if hasattr(net, "get") else None
    if path is None or any(name is not None for name in trained_here):
        return None
    kind = import_class(path, nn.Module)
    return (kind, dict(net["init_args"])) if isinstance(kind, HasEncoding) else None


def with_defaults(problem: str, net: Options) -> dict[str, Any]:
    """The options of a network with its class's defaults added; a custom one's are unchanged."""
    if CUSTOM in net:
        return dict(net)
    defaults = {
        name: parameter.default
        for name, parameter in signature(network(problem, net)).parameters.items()
        if parameter.default is not parameter.empty and name != "features"
    }
    return defaults | asdict(NETS[problem]()) | dict(net)


def model_options(problem: str, net: Options, spec: Options) -> dict[str, Any]:
    """Arguments of the network's class: its options, and what it accepts of the corpus's spec."""
    accepted = signature(network(problem, net)).parameters
    options = dict(net["options"] if CUSTOM in net else net)
    if CUSTOM in net and not any(p.kind is Parameter.VAR_KEYWORD for p in accepted.values()):
        for name in sorted(options.keys() - accepted.keys()):
            hint = did_you_mean(name, accepted)
            raise InputError(f"{net[CUSTOM]} has no option {name!r}{hint}.")
    options.pop("hierarchical", None)  # implied by the class
    corpus_options = {**spec, "num_classes": len(spec["classes"])}
    return {name: value for name, value in corpus_options.items() if name in accepted} | options


def build_model(problem: str, net: Options, spec: Options, *, guided: bool = False) -> nn.Module:
    """Build a network from the options of `plain_net` and the spec of a corpus, see `Problem`.

    If it is `guided`, its attribute `guide` supplies the last attention.
    """
    model: nn.Module = network(problem, net)(**model_options(problem, net, spec))
    if guided:
        if not isinstance(model, HasGuide):
            model.register_forward_pre_hook(apply_guide, with_kwargs=True)
            model.leave_one_out = partial(leave_one_out_guided, model)  # type: ignore[assignment]
        model.guide = no_guide  # type: ignore[assignment]
    return model


def changed_net(problem: str, net: Options, method: str, **options: object) -> dict[str, Any]:
    """Options of the network of a base's variant, by `uniform_net` or `guided_net` of its class."""
    kind = network(problem, net)
    change = getattr(kind, method, None)
    if change is None:
        raise InputError(f"{kind.__name__} has no {method}: a custom network must define it.")
    if CUSTOM not in net:
        return dict(change(dict(net), **options))
    return {CUSTOM: net[CUSTOM], "options": change(dict(net["options"]), **options)}
