"""Parts of a network, copies with other parameters in some of them, and a digest of its weights."""

import hashlib
from collections.abc import Iterable, Mapping
from copy import deepcopy
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from attnlight.batch import HasParameterParts
from attnlight.errors import InputError

_KNOWN: WeakKeyDictionary[nn.Module, tuple[Any, str]] = WeakKeyDictionary()


def part_names(model: nn.Module) -> dict[str, list[str]]:
    """Names of the parameters in each part of a network, from its output down.

    A network names the modules of each by an attribute `parameter_parts`. Without it each child
    module and each parameter of its own is a part, the last registered first. Parts without
    parameters are left out.
    """
    names = [name for name, _ in model.named_parameters()]
    children = dict.fromkeys(name.partition(".")[0] for name in reversed(names))
    prefixes: Mapping[str, tuple[str, ...]] = {child: (child,) for child in children}
    if isinstance(model, HasParameterParts):
        prefixes = model.parameter_parts
    parts = {
        part: [name for name in names if f"{name}.".startswith(tuple(f"{m}." for m in modules))]
        for part, modules in prefixes.items()
    }
    left_out = set(names).difference(*parts.values())
    if left_out:
        raise InputError(
            f"parameter_parts of {type(model).__name__} are {', '.join(parts)}; expected that each "
            f"parameter is in one, but {min(left_out)} is in none."
        )
    return {part: members for part, members in parts.items() if members}


def with_parameters(
    model: nn.Module, values: Mapping[str, Tensor], shared: Iterable[object] = ()
) -> nn.Module:
    """A copy of a network with other values of some parameters; it shares the others' tensors.

    It refers to what is `shared`, such as the owner of a `guide`, instead of copying it.
    """
    memo: dict[int, object] = {id(item): item for item in shared}
    for name, parameter in model.named_parameters():
        memo[id(parameter)] = parameter
        if name in values:
            changed = values[name].detach().to(parameter, copy=True)
            memo[id(parameter)] = nn.Parameter(changed, parameter.requires_grad)
    return deepcopy(model, memo)


def weights_digest(module: nn.Module) -> str:
    """SHA-256 of all parameters and buffers of a module by name, its first 16 hexadecimal digits.

    It is computed again only when they have changed.
    """
    tensors = {name: t for name, t in module.state_dict(keep_vars=True).items() if t is not None}
    # A tensor's version counts the changes of its values; tensors of inference mode have none.
    counted = not any(tensor.is_inference() for tensor in tensors.values())
    version = [(id(tensor), tensor._version) for tensor in tensors.values()] if counted else None
    known = _KNOWN.get(module)
    if known is not None and version is not None and known[0] == version:
        return known[1]
    digest = hashlib.sha256()
    for name, tensor in tensors.items():
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        flat = tensor.detach().cpu().contiguous().reshape(-1)
        digest.update(flat.view(torch.uint8).numpy().data)
    _KNOWN[module] = version, digest.hexdigest()[:16]
    return _KNOWN[module][1]
