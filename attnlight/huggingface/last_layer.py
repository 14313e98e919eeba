"""The last layer of a transformers model by itself: its input, and its output for other weights.

What follows the last attention reads each token alone (residual, feed-forward, norms, the head), so
that K candidate weights of a query are K copies of its token: no other layer is computed again.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from copy import copy
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import pad
from transformers import DynamicCache, PreTrainedModel
from typing_extensions import override

from attnlight.data.pieces import longest_text
from attnlight.errors import InputError
from attnlight.huggingface.attention import (
    LayerAttention,
    attend_with,
    attention_layers,
    intercept,
    until_recorded,
)
from attnlight.huggingface.reading import positions
from attnlight.probing.interception import holding
from attnlight.probing.patches import Patch

# Elements of the states of queries in a block: 8 MiB in single precision.
_BLOCK = 1 << 21
Recording = AbstractContextManager[dict[int, LayerAttention]]


class _Thread(threading.local):
    """Input of the last layer in this thread: what it had, and what it is given instead."""

    found: Tensor | None = None
    given: Tensor | None = None


_THREAD = _Thread()


def _exchange(layer: nn.Module, args: tuple[Any, ...], options: dict[str, Any]) -> Any:  # noqa: ANN401
    """A forward pre-hook of the last layer: note its input, or replace it."""
    states = args[0] if args else options["hidden_states"]
    if _THREAD.given is None:
        _THREAD.found = states
        return None
    if args:
        return (_THREAD.given, *args[1:]), options
    return args, options | {"hidden_states": _THREAD.given}


class LastLayer:
    """Passes through a model, and through its last layer and head alone.

    Args:
        model: A model of transformers with one output for a text, which it reads off one token.

    Attributes:
        attentions: The model's attention modules, layer 0 first.
        place: Name of the list of the model's layers.
        causal: Whether a token reads no later one.
    """

    def __init__(self, model: PreTrainedModel) -> None:
        self.attentions = attention_layers(model)
        names = {module: name for name, module in model.named_modules()}
        parts = names[self.attentions[-1]].split(".")
        prefixes = [".".join(parts[:end]) for end in range(1, len(parts))]
        lists = [p for p in prefixes if isinstance(model.get_submodule(p), nn.ModuleList)]
        if not lists or len(model.get_submodule(lists[0])) != len(self.attentions):
            raise InputError(
                f"the last layer of {type(model).__name__} cannot be read by itself: expected a list of "
                "layers with one attention each."
            )
        self.place = lists[0]
        self.longest = longest_text(model.config.get_text_config().to_dict())
        layer = model.get_submodule(self.place)[-1]
        layer.register_forward_pre_hook(_exchange, with_kwargs=True)
        tokens = torch.ones(1, 2, dtype=torch.long, device=model.device)
        with torch.no_grad(), intercept(record=[len(self.attentions) - 1]) as found:
            model(input_ids=tokens, attention_mask=torch.ones_like(tokens))
        states, _THREAD.found = _THREAD.found, None
        assert states is not None
        last = found[len(self.attentions) - 1]
        self.causal = not bool(last.allowed[0, 0, 0, 1])
        # The layer's input, weights and values are given: nothing need compute them.
        self._blanks: dict[str, Blank] = {}
        short, weights = self._shortened(model), last.weights[:, :, :1]

        def run(rows: int) -> Tensor:
            each = weights.expand(-1, -1, rows, -1)
            return self._candidates(short, states[:, 0], each, last.values)[0]

        self._blanks = blanks_for_unused(short, run)

    def read(
        self,
        model: PreTrainedModel,
        embeddings: Tensor,
        mask: Tensor,
        every: bool = False,
        patch: Patch | None = None,
        inputs: Mapping[str, Tensor] | None = None,
    ) -> tuple[Tensor, dict[int, LayerAttention]]:
        """Input (B, N, D) of the last layer, and the recorded attention of it or of `every` layer.

        The model, or a copy of it, reads embeddings of tokens, (B, N, E), with other `inputs` (B,
        N) such as `token_type_ids`. What a mask (B, N) has beyond its longest text is padding. A
        `patch` replaces the weights of all layers.
        """
        last, extra = len(self.attentions) - 1, 0
        if self.longest is not None and (extra := max(0, mask.shape[1] - self.longest)):
            embeddings, mask = embeddings[:, : self.longest], mask[:, : self.longest]
        others = {name: values[:, : mask.shape[1]] for name, values in (inputs or {}).items()}
        others |= positions(model.base_model, mask)
        patches = {} if patch is None else dict.fromkeys(range(last + 1), patch)
        with intercept("all" if every else [last], patches) as found, until_recorded(found, last):
            model.base_model(inputs_embeds=embeddings, attention_mask=mask.long(), **others)
        states, _THREAD.found = _THREAD.found, None
        assert states is not None
        if extra:  # padding for which the model has no positions
            states = pad(states, (0, 0, 0, extra))
            for layer, one in found.items():
                ends = (0, extra, 0, extra)
                weights, allowed = (pad(x, ends) for x in (one.weights, one.allowed))
                found[layer] = LayerAttention(weights, pad(one.values, (0, 0, 0, extra)), allowed)
        return states, found

    def read_last(
        self, model: PreTrainedModel, embeddings: Tensor, mask: Tensor, every: bool = False
    ) -> tuple[Tensor, dict[int, LayerAttention], DynamicCache]:
        """Input of the last layer, attention of the last token, and the keys and values of all layers.

        The last token is read by itself, so that no weights of other tokens are in memory. No token
        of the model, or of a copy of it, reads a later one; texts have two tokens or more, the last
        of which is real.

        Returns:
            States (B, N, D), weights (B, H, 1, N) of the last or `every` layer, keys and values.
        """
        cache, parts, end = DynamicCache(), [], mask.shape[1]
        options = {"past_key_values": cache, "use_cache": True}
        places = (mask.cumsum(-1) - 1).clamp(min=0)
        asked: Sequence[int] | Literal["all"] = "all" if every else [len(self.attentions) - 1]
        for part, wanted in ((slice(0, end - 1), ()), (slice(end - 1, end), asked)):
            seen = {"attention_mask": mask[:, : part.stop].long(), **options}
            recording: Recording = intercept(wanted) if wanted else nullcontext({})
            with recording as found:
                model.base_model(
                    inputs_embeds=embeddings[:, part], position_ids=places[:, part], **seen
                )
            states, _THREAD.found = _THREAD.found, None
            assert states is not None
            parts.append(states)
        return torch.cat(parts, dim=1), found, cache

    def logits(
        self, model: PreTrainedModel, states: Tensor, weights: Tensor, values: Tensor, text: Tensor
    ) -> Tensor:
        """Logits (R, K, C) where each query has K candidate weights in the last layer.

        `states` (R, D) are the layer's input at the query, `weights` (R, H, K, N) are over the `values`
        (B, H, N, D / H) of the `text` (R,) of each.
        """
        short, most = self._shortened(model), max(1, _BLOCK // (4 * states.shape[-1]))
        parts = []
        for block in torch.split(torch.arange(len(states)), max(1, most // weights.shape[2])):
            each = torch.split(weights[block], most, dim=2)
            own = values[text[block]]
            row = [self._candidates(short, states[block], part, own) for part in each]
            parts.append(torch.cat(row, dim=1))
        return torch.cat(parts)

    @staticmethod
    def _candidates(short: Any, states: Tensor, weights: Tensor, values: Tensor) -> Tensor:  # noqa: ANN401
        """`logits` of a shortened model, all at once."""
        token = int(short.config.get_text_config().pad_token_id == 0)  # any but padding
        copies = states.repeat_interleave(weights.shape[2], dim=0).unsqueeze(1)
        tokens = torch.full(copies.shape[:2], token, device=states.device)
        with holding(_THREAD, given=copies), attend_with(weights, values):
            logits: Tensor = short(input_ids=tokens).logits
        return logits.view(len(states), -1, logits.shape[-1])

    def _shortened(self, model: PreTrainedModel) -> Any:  # noqa: ANN401
        """A model that has the last layer alone and shares all modules with this one."""
        last = nn.ModuleList([model.get_submodule(self.place)[-1]])
        return replace_modules(replace_modules(model, {self.place: last}), self._blanks)


def cut_cache(cache: DynamicCache, places: int, copies: int = 1) -> DynamicCache:
    """Copies, one after the other, of the keys and values of the first `places` of a cache."""
    cut = DynamicCache()
    for number, layer in enumerate(cache.layers):
        parts = (part[:, :, :places] for part in (layer.keys, layer.values))
        cut.update(*(part.repeat_interleave(copies, dim=0) for part in parts), number)
    return cut


class Blank(nn.Module):
    """Zeros in place of a module's output, whose last dimension is of this size."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size

    @override
    def forward(self, *args: Any, **options: Any) -> Tensor:
        given, tokens = _read(args, options)
        dtype = given.dtype if given.is_floating_point() else torch.get_default_dtype()
        return given.new_zeros(*tokens, self.size, dtype=dtype)


@torch.no_grad()
def blanks_for_unused(model: nn.Module, run: Callable[[int], Tensor]) -> dict[str, Blank]:
    """A `Blank` for each module that computes states of tokens which the outcome does not depend on.

    NaN in place of a module's output says whether it does, also where its effect is 0 for now: each
    module's in a row of its own, so that one pass asks for all of them. `run` gives the outcomes
    (K, C) of a pass over K equal rows.
    """
    sizes: dict[str, int] = {}
    shared: list[str] = []  # of which all rows read one output, such as that of their positions

    def note(name: str, _: nn.Module, args: Any, options: Any, output: Any) -> None:  # noqa: ANN401
        states = isinstance(output, Tensor) and output.is_floating_point()
        if states and output.shape[:-1] == _read(args, options)[1]:
            sizes[name] = output.shape[-1]
            if len(output) != 2:
                shared.append(name)

    modules = {name: module for name, module in model.named_modules() if name}
    with ExitStack() as hooks:
        for name, module in modules.items():
            noting = partial(note, name)
            hooks.enter_context(module.register_forward_hook(noting, with_kwargs=True))
        run(2)
    unused = set[str]()
    for names in ([name for name in sizes if name not in shared], *([name] for name in shared)):
        with ExitStack() as hooks:
            for row, name in enumerate(names):
                hooks.enter_context(modules[name].register_forward_hook(partial(_spoil, row)))
            finite = run(len(names)).isfinite().all(-1)
        unused |= {name for name, known in zip(names, finite.tolist(), strict=True) if known}
    return {name: Blank(size) for name, size in sizes.items() if name in unused}


def replace_modules(model: Any, changes: Mapping[str, nn.Module]) -> Any:  # noqa: ANN401
    """A network that shares all modules with this one but some, which are given by name."""
    made = copy(model)
    made._modules = dict(model._modules)
    for child in dict.fromkeys(name.partition(".")[0] for name in changes):
        start = f"{child}."
        below = {n.removeprefix(start): m for n, m in changes.items() if n.startswith(start)}
        if child in changes:
            made._modules[child] = changes[child]
        else:
            made._modules[child] = replace_modules(model._modules[child], below)
    return made


def _spoil(row: int, _: nn.Module, args: Any, output: Tensor) -> Tensor:  # noqa: ANN401
    """A module's output with NaN in one row."""
    return output.index_fill(0, torch.tensor([row], device=output.device), torch.nan)


def _read(args: tuple[Any, ...], options: Mapping[str, Any]) -> tuple[Tensor, torch.Size]:
    """The first tensor of a call's arguments, and the shape of its tokens: of states without the last."""
    given = next(part for part in (*args, *options.values()) if isinstance(part, Tensor))
    return given, given.shape[:-1] if given.is_floating_point() else given.shape
