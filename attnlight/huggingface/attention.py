"""Attention of transformers' models that can be recorded and replaced.

Importing this module registers it with transformers as the attention implementation `attnlight`.
`attention_layers` makes a model use it; `intercept` then records and replaces its weights.
"""

import threading
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import dropout as drop
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import eager_mask, sdpa_mask

from attnlight.errors import InputError
from attnlight.probing.interception import (
    LayerAttention,
    holding,
    intercept,
    interception_of,
    is_intercepting,
    number_layers,
)

__all__ = ["LayerAttention", "attention", "attention_layers", "intercept", "mask", "weights_of"]

_NAME = "attnlight"
_LOWEST = -9e3  # masks add at least this to the scores of what may be reached


class _Thread(threading.local):
    """Arguments of `attend_with` and of `until_recorded`, within these."""

    rows: tuple[Tensor, Tensor] | None = None
    awaited: tuple[Mapping[int, LayerAttention], int] | None = None


_THREAD = _Thread()


def attention_layers(model: PreTrainedModel) -> list[nn.Module]:
    """Make a model use this attention; its attention modules, layer 0 first.

    Layers are numbered in the order of the calls of one forward pass of two tokens. A module that
    computes several layers, as in ALBERT, is there several times. Copies of a numbered model keep
    the numbers.

    Raises:
        InputError: The model's attention does not come through transformers' interface.

    Example:
        >>> from transformers import BertConfig, BertModel
        >>> from attnlight.probing.patches import restrict, uniform
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
    training = {module: module.training for module in model.modules()}
    for module in training:
        if isinstance(module, PreTrainedModel):
            # `set_attn_implementation` guesses from source text whether a model takes it.
            module.config._attn_implementation = _NAME
    tokens = torch.ones(1, 2, dtype=torch.long, device=model.device)  # all of them real
    model.eval()
    try:
        layers = number_layers(lambda: model(input_ids=tokens, attention_mask=tokens))
    finally:
        for module, mode in training.items():
            module.training = mode
    if not layers:
        raise InputError(
            f"{type(model).__name__} cannot be intercepted: it does not compute attention through "
            "transformers' AttentionInterface."
        )
    return layers


def attend_with(weights: Tensor, values: Tensor) -> AbstractContextManager[None]:
    """Answer calls of attention in this thread by weights (B, H, K, N) of values (B, H, N, D / H).

    The model then reads B K texts of one token each, which are K queries of B texts; what it
    computes of queries, keys and masks is not used.
    """
    return holding(_THREAD, rows=(weights, values))


class _RecordedError(Exception):
    """Ends a forward pass of which the rest is not needed."""


@contextmanager
def until_recorded(found: Mapping[int, LayerAttention], layer: int) -> Iterator[None]:
    """End a forward pass of this thread once `found`, which `intercept` yields, has a layer."""
    with holding(_THREAD, awaited=(found, layer)), suppress(_RecordedError):
        yield


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
        scores = scores.masked_fill_(~mask, torch.finfo(scores.dtype).min)
    elif mask is not None:
        scores = scores.add_(mask)
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
    asked = interception_of(module)
    plain = options.get("softcap") is None and options.get("s_aux") is None
    if plain and asked is None:
        computed: tuple[Tensor, None] = sdpa_attention_forward(
            module, query, key, value, attention_mask, dropout, scaling, is_causal, **options
        )
        return computed
    groups = query.shape[1] // key.shape[1]
    if groups > 1:
        key, value = (part.repeat_interleave(groups, dim=1) for part in (key, value))
    weights, allowed = weights_of(module, query, key, attention_mask, scaling, is_causal, options)
    if asked is not None:
        weights = asked(weights, value, allowed)
        if _THREAD.awaited is not None:
            found, layer = _THREAD.awaited
            if layer in found:
                raise _RecordedError
    contexts = (drop(weights, dropout) if dropout else weights) @ value
    return contexts.transpose(1, 2).contiguous(), weights


def mask(**options: Any) -> Tensor | None:  # noqa: ANN401
    """The mask that the layers of a forward pass get: eager's, or sdpa's if nothing intercepts.

    They differ for queries that may reach nothing, which are padding: eager's spreads their
    attention over all items, sdpa's leaves their contexts 0.
    """
    made: Tensor | None = (eager_mask if is_intercepting() else sdpa_mask)(**options)
    return made


AttentionInterface.register(_NAME, attention)
AttentionMaskInterface.register(_NAME, mask)
