"""Attention of transformers' models that can be recorded and replaced.

Importing this module registers it with transformers as the attention implementation `attnlight`.
`attention_layers` makes a model use it; `intercept` then records and replaces its weights.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import dropout as drop
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import eager_mask, sdpa_mask

from attnlight.errors import InputError
from attnlight.huggingface.patches import Patch, expanded

_NAME = "attnlight"
_NUMBERS = "_attnlight_layers"  # attribute of attention modules, which their copies keep
_LOWEST = -9e3  # masks add at least this to the scores of what may be reached


@dataclass(frozen=True)
class LayerAttention:
    """Attention of one layer in the last forward pass.

    Attributes:
        weights: After softmax and patches, before dropout, (B, H, Q, N).
        values: What the weights are over, (B, H, N, D / H); shared ones once for each head.
        allowed: Items that each query may reach, (B, H, Q, N) bool, an expanded view.
    """

    weights: Tensor
    values: Tensor
    allowed: Tensor


@dataclass
class _Interception:
    """What one `intercept` asks for, and what it has found."""

    record: Collection[int] | Literal["all"]
    patch: Mapping[int, Patch]
    detach: bool
    found: dict[int, LayerAttention] = field(default_factory=dict)
    calls: Counter[nn.Module] = field(default_factory=Counter)
    seen: set[int] = field(default_factory=set)

    def layer(self, module: nn.Module) -> int:
        """The number of the layer that a module computes now: shared modules compute several."""
        numbers = vars(module).get(_NUMBERS)
        if numbers is None:
            name = type(module).__name__
            raise InputError(f"{name} has no number; call attention_layers(model) first.")
        self.calls[module] += 1
        number: int = numbers[(self.calls[module] - 1) % len(numbers)]
        self.seen.add(number)
        return number

    def require_seen(self) -> None:
        """Check that every layer that was asked for has been computed."""
        asked = set(self.patch) | set(() if self.record == "all" else self.record)
        if not self.seen and (asked or self.record):
            raise InputError("no attention was computed by a model of attention_layers(model).")
        if missing := sorted(asked - self.seen):
            raise InputError(f"there is no layer {missing[0]}; layers are 0 to {max(self.seen)}.")


class _Thread(threading.local):
    """Interceptions of a thread, outermost first.

    Attributes:
        active: The interceptions.
        calls: During a dry pass, the modules that have called `attention`.
        rows: Within `attend_with`, its arguments.
    """

    active: tuple[_Interception, ...] = ()
    calls: list[nn.Module] | None = None
    rows: tuple[Tensor, Tensor] | None = None


_THREAD = _Thread()


def attention_layers(model: PreTrainedModel) -> list[nn.Module]:
    """Make a model use this attention; its attention modules, layer 0 first.

    Layers are numbered in the order of the calls of one forward pass of two tokens. A module that
    computes several layers, as in ALBERT, is there several times. Copies of a numbered model keep
    the numbers.

    Raises:
        InputError: The model's attention does not come through transformers' interface.
    """
    training = {module: module.training for module in model.modules()}
    for module in training:
        if isinstance(module, PreTrainedModel):
            # `set_attn_implementation` guesses from source text whether a model takes it.
            module.config._attn_implementation = _NAME
    tokens = torch.ones(1, 2, dtype=torch.long, device=model.device)
    outer, _THREAD.active, _THREAD.calls = _THREAD.active, (), []
    try:
        with torch.no_grad():
            model.eval()(input_ids=tokens, attention_mask=torch.ones_like(tokens))
        layers = _THREAD.calls
    finally:
        _THREAD.active, _THREAD.calls = outer, None
        for module, mode in training.items():
            module.training = mode
    if not layers:
        raise InputError(
            f"{type(model).__name__} cannot be intercepted: it does not compute attention through "
            "transformers' AttentionInterface."
        )
    for module in layers:
        vars(module)[_NUMBERS] = [number for number, one in enumerate(layers) if one is module]
    return layers


@contextmanager
def intercept(
    record: Collection[int] | Literal["all"] = (),
    patch: Mapping[int, Patch] | None = None,
    detach: bool = False,
) -> Iterator[dict[int, LayerAttention]]:
    """Record and replace attention weights of the forward passes of this thread.

    Interceptions nest: patches of the outer one come first, so that the inner one's win, and both
    record the weights that are used in the end. Gradients flow through what is recorded and given.
    Gradient checkpointing must be off: what it computes anew in `backward` is not intercepted.

    Args:
        record: Numbers of the layers to record, or "all".
        patch: What replaces the weights, by layer (`attnlight.huggingface.patches`).
        detach: Whether what is recorded is cut off from the gradient.

    Yields:
        Recorded attention by layer, filled by each forward pass.

    Raises:
        InputError: The model's layers are not numbered, or a layer or head does not exist.

    Example:
        >>> from transformers import BertConfig, BertModel
        >>> from attnlight.huggingface.patches import restrict, uniform
        >>> config = BertConfig(hidden_size=32, num_hidden_layers=2, num_attention_heads=4)
        >>> model = BertModel(config).eval()
        >>> len(attention_layers(model))
        2
        >>> tokens = torch.tensor([[2, 7, 9, 3]])
        >>> with intercept(record=[1], patch={0: restrict(uniform, heads=[3])}) as found:
        ...     states = model(tokens).last_hidden_state
        >>> found[1].weights.shape, found[1].values.shape
        (torch.Size([1, 4, 4, 4]), torch.Size([1, 4, 4, 8]))
    """
    own = _Interception(record, patch or {}, detach)
    outer = _THREAD.active
    _THREAD.active = (*outer, own)
    try:
        yield own.found
    finally:
        _THREAD.active = outer
    own.require_seen()


@contextmanager
def attend_with(weights: Tensor, values: Tensor) -> Iterator[None]:
    """Answer all calls of attention in this thread by given weights over given values.

    The model then reads B K texts of one token each, which are K queries of B texts; what it computes
    of queries, keys and masks is not used.

    Args:
        weights: (B, H, K, N).
        values: (B, H, N, D / H).
    """
    outer, _THREAD.rows = _THREAD.rows, (weights, values)
    try:
        yield
    finally:
        _THREAD.rows = outer


def weights_of(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    mask: Tensor | None,
    scaling: float | None,
    is_causal: bool | None,
    options: Mapping[str, Any],
) -> tuple[Tensor, Tensor]:
    """Weights and what may be reached, (B, H, Q, N), as transformers' eager attention has them.

    `options` may hold a cap on scores (Gemma 2), a bias on them (T5), and scores of a sink that is
    no item, whose share the weights lack (gpt-oss).
    """
    scores = (query @ key.mT).mul_(query.shape[-1] ** -0.5 if scaling is None else scaling)
    if (cap := options.get("softcap")) is not None:
        scores = (scores / cap).tanh() * cap
    if (bias := options.get("position_bias")) is not None:
        scores = scores + bias
    if mask is None:  # as sdpa takes it
        causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
        allowed = torch.ones_like(scores[:1, :1], dtype=torch.bool)
        if causal and scores.shape[-2] > 1:
            mask = allowed = allowed.tril()
    else:
        allowed = mask if mask.dtype == torch.bool else mask > _LOWEST
    if mask is not None and mask.dtype == torch.bool:
        scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
    elif mask is not None:
        scores = scores + mask
    if (sinks := options.get("s_aux")) is not None:
        scores = torch.cat([scores, sinks.view(1, -1, 1, 1).expand_as(scores[..., :1])], dim=-1)
    precise = torch.promote_types(scores.dtype, torch.float32)
    # In place without gradients: fresh memory costs more than the softmax.
    place = None if scores.requires_grad or scores.dtype != precise else scores
    weights = torch.softmax(scores, -1, dtype=precise, out=place).to(query.dtype)
    weights = weights if sinks is None else weights[..., :-1]
    return weights, allowed.expand_as(weights)


def attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    is_causal: bool | None = None,
    **options: Any,  # noqa: ANN401
) -> tuple[Tensor, Tensor | None]:
    """Contexts (B, Q, H, D / H) and weights, None unless needed: transformers' interface.

    Layers that nothing intercepts are computed by sdpa, unless a cap or a sink, which it does not
    know, is asked for.
    """
    if _THREAD.rows is not None:
        weights, values = _THREAD.rows
        weights = drop(weights, dropout) if dropout else weights
        return (weights @ values).transpose(1, 2).flatten(0, 1).unsqueeze(1), None
    if _THREAD.calls is not None:
        _THREAD.calls.append(module)
    asked = [(one, one.layer(module)) for one in _THREAD.active]
    patches = [one.patch[layer] for one, layer in asked if layer in one.patch]
    recording = [(one, layer) for one, layer in asked if one.record == "all" or layer in one.record]
    plain = options.get("softcap") is None and options.get("s_aux") is None
    if plain and not patches and not recording:
        found: tuple[Tensor, None] = sdpa_attention_forward(
            module,
            query,
            key,
            value,
            attention_mask,
            dropout=dropout,
            scaling=scaling,
            is_causal=is_causal,
            **options,
        )
        return found
    groups = query.shape[1] // key.shape[1]
    if groups > 1:
        key, value = (part.repeat_interleave(groups, dim=1) for part in (key, value))
    weights, allowed = weights_of(module, query, key, attention_mask, scaling, is_causal, options)
    for patch in patches:
        weights = expanded(patch(weights, allowed), weights)
    for one, layer in recording:
        kept = (weights.detach(), value.detach()) if one.detach else (weights, value)
        one.found[layer] = LayerAttention(*kept, allowed)
    contexts = (drop(weights, dropout) if dropout else weights) @ value
    return contexts.transpose(1, 2).contiguous(), weights


def mask(**options: Any) -> Tensor | None:  # noqa: ANN401
    """The mask that the layers of a forward pass get: eager's, or sdpa's if nothing intercepts.

    They differ for queries that may reach nothing, which are padding: eager's spreads their
    attention over all items, sdpa's leaves their contexts 0.
    """
    made: Tensor | None = (eager_mask if _THREAD.active else sdpa_mask)(**options)
    return made


AttentionInterface.register(_NAME, attention)
AttentionMaskInterface.register(_NAME, mask)
