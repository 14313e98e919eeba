"""What a model's layers of attention pass on, and their calls, by which each can be computed again."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from attnlight.batch import AttentionOutput, HasReadTokens, LayeredModel, TextBatch
from attnlight.errors import InputError
from attnlight.functional.readout.instances import rows_are_texts
from attnlight.probing.flat_texts import SHARE, FlatTexts
from attnlight.probing.interception import LayerAttention, intercept
from attnlight.probing.patches import uniform
from attnlight.probing.replay import layer_modules
from attnlight.probing.row_gradients import text_of_rows

Call = tuple[nn.Module, tuple[Any, ...], dict[str, Any]]  # with arguments and options


def layer_attention(model: LayeredModel, batch: TextBatch) -> list[LayerAttention]:
    """Attention of each layer in a forward pass without gradients, layer 0 first."""
    with torch.no_grad(), intercept(record="all") as found:
        model(batch)
    return [found[layer] for layer in sorted(found)]


def attended(
    model: LayeredModel, batch: TextBatch, output: AttentionOutput, targets: Tensor, queries: Tensor
) -> tuple[Tensor, Tensor]:
    """Attention on tokens of K kinds by layer and head, (R, L H, K) float64, and uniform attention's, (R, K).

    Of a row that is a text it is the mean over its queries, NaN without one; of a row that is a token,
    what this token attends to, NaN if it is no query. Where items are words, tokens are their pieces.

    Args:
        model: The model, whose layers have equally many heads.
        batch: B texts of N tokens.
        output: The model's output for them, R rows.
        targets: The tokens of each kind, for each token that attends, (B, N, N, K) bool.
        queries: The tokens that attend, (B, N, K) bool.
    """
    text, wanted, shares = text_of_rows(batch, output), targets.double(), queries.double()
    found, spread = [], []
    for one in layer_attention(model, batch):
        equal = uniform(one.weights[:, :1].double(), one.allowed[:, :1])
        every = torch.cat([one.weights.double(), equal], dim=1)
        mass = every.transpose(1, 2) @ wanted  # (B, N, H + 1, K)
        if rows_are_texts(batch, output):
            mass = torch.einsum("bqk,bqhk->bhk", shares / shares.sum(1, keepdim=True), mass)
        else:
            place = text, output.rows[:, 1]
            mass = mass[place].masked_fill(~queries[place].unsqueeze(1), torch.nan)
        found.append(mass[:, :-1])
        spread.append(mass[:, -1])
    return torch.cat(found, dim=1), torch.stack(spread).mean(0)


def read_shares(model: LayeredModel, batch: TextBatch, output: AttentionOutput) -> Tensor:
    """How much each row reads of each token's last state, (R, N) float64, rows sum to 1.

    Where items are words, tokens are their pieces, in the order of `FlatTexts`.

    A row that is a token reads its own state; a text that of the token which the model's
    `read_tokens(batch)` names or, without that method, all states by the attention of the output.
    """
    flat = FlatTexts.of(batch)
    if not rows_are_texts(batch, output):
        read = output.rows[:, 1]
    elif isinstance(model, HasReadTokens):
        read = model.read_tokens(flat.batch)
    else:
        weights = flat.of_items(output.weights.double())
        return (weights * output.memory.get(SHARE, 1.0)).mean(1)
    places = torch.arange(flat.batch.mask.shape[1], device=read.device)
    return (places == read[:, None]).double()


def rolled_out(
    model: LayeredModel,
    batch: TextBatch,
    output: AttentionOutput,
    matrices: Sequence[Tensor],
    mixed: float = 0.5,
) -> Tensor:
    """Share of each item in what each row reads after several layers, (R, N) float64.

    A state is taken to be its token's state below and, in a part `mixed`, what the layer's matrix mixes.
    `matrices` (B, N, N) are between tokens in each layer, layer 0 first, and not negative; rows are
    scaled to sum to 1.
    """
    text, shares = text_of_rows(batch, output), read_shares(model, batch, output)
    for matrix in reversed(matrices):
        rows = matrix.double()
        total = rows.sum(-1, keepdim=True)
        rows = rows / total.where(total > 0, 1.0)
        part = torch.where(total > 0, mixed, 0.0)  # without attention all stays
        passed = shares * part[text, :, 0]
        shares = shares - passed + torch.einsum("rq,rqn->rn", passed, rows[text])
    return FlatTexts.of(batch).sums(shares)


def value_norms(attention: LayerAttention, output_map: Tensor) -> Tensor:
    """Norms (B, N, N) of the sums over heads of weight times transformed value (Kobayashi 2020).

    Args:
        attention: Of the layer.
        output_map: From a head's values to the states that it adds to, (H, D / H, D).
    """
    weights, values = attention.weights.double(), attention.values.double()
    states = torch.einsum("bhnd,hde->bnhe", values, output_map.double())
    products = states @ states.mT  # (B, N, H, H)
    squares = torch.einsum("bhqn,bnhg,bgqn->bqn", weights, products, weights)
    return squares.clamp(min=0.0).sqrt()


@torch.no_grad()
def output_maps(model: LayeredModel, batch: TextBatch) -> list[Tensor]:
    """The map of each layer's concatenated contexts, without its bias, by head: (H, D / H, D).

    It is that of the module whose input they are in a pass of the first text.

    Raises:
        InputError: Contexts of a layer are no module's input.
    """
    parts: list[nn.Module] = list(model.modules())  # type: ignore[attr-defined]
    leaves = [one for one in parts if not list(one.children()) and list(one.parameters())]
    with noted_calls(leaves) as calls:
        attention = layer_attention(model, batch.select(slice(1)))  # type: ignore[arg-type]
    maps: list[Tensor] = []
    for number, one in enumerate(attention):
        contexts = (one.weights @ one.values).transpose(1, 2).flatten(2)
        calls = calls_from_reader(calls, contexts)
        if not calls:
            raise InputError(
                f"{type(model).__name__} has no module that maps the contexts of layer {number}, so "
                "that the size of its values is unknown."
            )
        (module, *_), *calls = calls
        maps.append(linear_part(module, contexts, one.weights.shape[1]))
    return maps


def calls_from_reader(calls: list[Call], states: Tensor) -> list[Call]:
    """The calls from that of the first module on whose input has only rows of `states` (B, N, D); none: []."""
    precise = states.flatten(0, -2).to(torch.promote_types(states.dtype, torch.float32))
    nearly = max(1e-5, 4 * torch.finfo(states.dtype).eps) * precise.norm(dim=-1).amax()
    for place, (_, args, _) in enumerate(calls):
        given = args[0] if args and isinstance(args[0], Tensor) else torch.zeros(0)
        if given.ndim < 2 or given.shape[-1] != states.shape[-1]:
            continue
        rows = given.flatten(0, -2).to(precise)
        if given.shape == states.shape:
            distances = (rows - precise).norm(dim=-1)
        else:  # of some tokens
            mode = "donot_use_mm_for_euclid_dist"
            distances = torch.cdist(rows, precise, compute_mode=mode).amin(-1)
        if (distances <= nearly).all():
            return calls[place:]
    return []


def linear_part(module: nn.Module, contexts: Tensor, heads: int) -> Tensor:
    """The map of a module, without its bias, of the concatenated contexts of heads: (H, D / H, D)."""
    unit = torch.eye(contexts.shape[-1], dtype=contexts.dtype, device=contexts.device)
    mapped: Tensor = module(unit) - module(torch.zeros_like(unit))
    return mapped.view(heads, -1, mapped.shape[-1])


@dataclass(frozen=True)
class LayerCall:
    """The call of one layer in a forward pass.

    Attributes:
        number: Number of the layer, from 0.
        module: What computes the layer, see `layer_modules`.
        args, options: Arguments of the call.
        states: The layer's input, (B, N, D).
        attention: Attention of the layer in that pass.
    """

    number: int
    module: nn.Module
    args: Sequence[Any]
    options: Mapping[str, Any]
    states: Tensor
    attention: LayerAttention


@torch.no_grad()
def layer_calls(model: LayeredModel, batch: TextBatch, name: str) -> list[LayerCall]:
    """The calls of all layers in a forward pass of a batch, layer 0 first.

    Raises:
        InputError: One module computes several layers; the message says that `name` needs one for each.
    """
    modules = layer_modules(model)
    if len({*modules}) < len(modules):
        raise InputError(f"{name} needs a module for each layer; this model's layers share one.")
    with noted_calls(modules) as calls, intercept(record="all") as found:
        model(batch)
    first = {module: (args, options) for module, args, options in reversed(calls)}
    made = []
    for number, module in enumerate(modules):
        args, options = first[module]
        states = args[0] if args else options["hidden_states"]
        made.append(LayerCall(number, module, args, options, states, found[number]))
    return made


@contextmanager
def noted_calls(modules: Iterable[nn.Module]) -> Iterator[list[Call]]:
    """Within it, the calls of these modules are noted, in order."""
    calls: list[Call] = []

    def note(*call: Any) -> None:  # noqa: ANN401
        calls.append(call)

    hooks = [module.register_forward_pre_hook(note, with_kwargs=True) for module in modules]
    try:
        yield calls
    finally:
        for hook in hooks:
            hook.remove()
