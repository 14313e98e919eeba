"""Forward passes with replaced attention, each computed from the first layer that it changes on."""

import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from attnlight.batch import AttentionModel, AttentionOutput, LayeredModel, TextBatch
from attnlight.errors import InputError
from attnlight.probing.interception import LayerAttention, intercept, interception_of
from attnlight.probing.leave_one_out import TOKENS
from attnlight.probing.patches import Patch, expanded

_TOKENS = TOKENS._replace(cpu=1 << 10)  # what a layer makes of more leaves the cache
_LOCK = threading.RLock()  # replays replace `forward` of modules, which threads share


class Replay:
    """A forward pass of a batch, and what its layers computed.

    Args:
        model: The model, in evaluation mode.
        batch: B texts.
        name: What needs layers, for the message.

    Attributes:
        output: The model's output.
        attention: Attention of each layer, layer 0 first.

    Raises:
        InputError: The model has no layers of attention.
    """

    @torch.no_grad()
    def __init__(self, model: AttentionModel, batch: TextBatch, name: str) -> None:
        self.model, self.batch = layered(model, name), batch
        self._modules = layer_modules(self.model)
        self._outputs: list[Any] = []
        with self._stepping(), intercept(record="all") as found:
            self.output: AttentionOutput = self.model(batch)
        self.attention = [found[layer] for layer in range(len(self._modules))]

    @torch.no_grad()
    def logits(self, patches: Sequence[Mapping[int, Patch]], budget: int | None = None) -> Tensor:
        """Logits (R, K, C) with the attention replaced in each of K ways.

        They are patches by layer, each with at least one; what is below the first layer that is
        replaced is not computed again. `budget` is that of `leave_one_out`.
        """
        budget = _TOKENS.of(self.output.logits) if budget is None else budget
        most = max(1, budget // max(1, self.batch.mask.numel()))
        by_first = defaultdict(list)
        for number, patch in enumerate(patches):
            by_first[min(patch)].append(number)
        rows, classes = self.output.logits.shape
        logits = self.output.logits.new_empty(rows, len(patches), classes)
        for first, numbers in by_first.items():
            for start in range(0, len(numbers), most):
                chosen = numbers[start : start + most]
                copies = partial(_repeated, texts=len(self.batch), copies=len(chosen))
                changed = sorted({layer for number in chosen for layer in patches[number]})
                stacked = {
                    layer: partial(_by_copy, [patches[number].get(layer) for number in chosen])
                    for layer in changed
                }
                with intercept(patch=stacked), self._stepping(first, copies):
                    found = self.model(self.batch.apply(copies)).logits
                logits[:, chosen] = found.view(len(chosen), rows, classes).transpose(0, 1)
        return logits

    @contextmanager
    def _stepping(
        self, first: int = 0, copies: Callable[[Tensor], Tensor] | None = None
    ) -> Iterator[None]:
        """Within it, layers below `first` return `copies` of what they returned before.

        Without `copies` layers compute, and what they return is kept.
        """
        calls, thread = iter(range(len(self._modules))), threading.get_ident()
        attention_modules = self.model.attention_layers

        def step(original: Callable[..., Any], *args: Any, **options: Any) -> Any:  # noqa: ANN401
            number = next(calls, None) if threading.get_ident() == thread else None
            if number is None:  # of another thread, or what the model does after its pass
                return original(*args, **options)
            if copies is None:
                self._outputs.append(original(*args, **options))
                return self._outputs[number]
            if number >= first:
                return original(*args, **options)
            asked = interception_of(attention_modules[number])
            if asked is not None:
                kept = vars(self.attention[number]).values()
                asked.record(LayerAttention(*map(copies, kept)))
            output = self._outputs[number]
            return tree_map(lambda part: copies(part) if isinstance(part, Tensor) else part, output)

        with _LOCK:
            modules = dict.fromkeys(self._modules)
            before = {module: vars(module).get("forward") for module in modules}
            try:
                for module in modules:
                    vars(module)["forward"] = partial(step, module.forward)
                yield
            finally:
                for module, own in before.items():
                    if own is None:
                        del vars(module)["forward"]
                    else:
                        vars(module)["forward"] = own


def layered(model: AttentionModel, name: str) -> LayeredModel:
    """The model.

    Raises:
        InputError: It has no layers of attention; the message says that `name` needs them.
    """
    if not isinstance(model, LayeredModel) or not model.attention_layers:
        raise InputError(
            f"{name} needs a model with layers of self-attention (`attention_layers`), such as a "
            f"transformer; {type(model).__name__} has none."
        )
    return model


def layer_modules(model: LayeredModel) -> list[nn.Module]:
    """The module of each layer whose output need not be computed again if its input is the same.

    Of the lists of modules (`nn.ModuleList`) that hold a layer's attention, the element of the
    innermost one; the attention module itself where there is none or elements hold several.
    """
    attention = list(model.attention_layers)
    found = dict.fromkeys(attention)
    lists = [module for module in model.modules() if isinstance(module, nn.ModuleList)]  # type: ignore[attr-defined]
    holding: dict[nn.Module, nn.Module] = {}
    for elements in lists:  # outer ones come first
        for element in elements:
            holding |= {module: element for module in element.modules() if module in found}
    modules = [holding.get(module, module) for module in attention]
    shared = len(set(modules)) < len(found)
    return attention if shared else modules


def _by_copy(patches: Sequence[Patch | None], weights: Tensor, allowed: Tensor) -> Tensor:
    """Patch of copies of a batch, one after the other, each by its own; None: as they are."""
    parts = zip(weights.chunk(len(patches)), allowed.chunk(len(patches)), patches, strict=True)
    return torch.cat(
        [own if one is None else expanded(one(own, may), own) for own, may, one in parts]
    )


def _repeated(values: Tensor, texts: int, copies: int) -> Tensor:
    """Copies of values along the texts, one after the other; what is not of texts as it is."""
    if not values.ndim or len(values) != texts:
        return values
    return values.repeat(copies, *[1] * (values.ndim - 1))
