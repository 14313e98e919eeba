"""Hidden token attribution: how much of each state that attention weights comes from its own token."""

import torch
from torch import Tensor

from attnlight.batch import AttentionModel, AttentionOutput, HasReach, TextBatch
from attnlight.errors import InputError
from attnlight.functional._cpu import Budget
from attnlight.functional.random import draw_keys
from attnlight.probing.row_gradients import text_blocks, text_of_rows

# Tokens, with padding, that are differentiated together: larger blocks are no faster on a CPU.
_TOKENS = Budget(1 << 11, 1 << 17)


def hidden_token_attribution(
    model: AttentionModel,
    batch: TextBatch,
    output: AttentionOutput,
    probes: int | None = None,
    seed: int = 0,
    budget: int | None = None,
) -> tuple[Tensor, Tensor]:
    """Share of the gradient norm of each item's state that lies on each place of its text.

    Brunner et al. (2020), section 4: `|ds_i/dE_j| / sum_k |ds_i/dE_k|`, with s_i the state that
    attention weights as item i, E_j the embedding at place j, and | | the Frobenius norm of the
    Jacobian. Places are all tokens that the encoder reads, boundary tokens included; the norms of
    the words of a sentence are summed.

    It is exact by one backward pass for each dimension of each state, or of several states if a
    state depends on few tokens; passes are taken together on copies of the texts.

    Args:
        model: The model, in evaluation mode. If it has an attribute `reach` that is not None, a
            state depends on items up to that distance only.
        batch: B texts of N items: tokens, or sentences of tokens.
        output: The model's output for the batch, one row per text or per token.
        probes: Estimate the squared norms as the mean of so many squared products v J, with random
            signs v (Hutchinson, 1989), instead of summing over all dimensions; at least 2. None:
            exact.
        seed: Seed of the signs, which depend on it, the dataset index and the item alone.
        budget: Tokens differentiated at once, at least one text; None chooses by device. It bounds
            memory and does not affect results.

    Returns:
        Shares (B, N, N) float64, each row of an item summing to 1, other rows 0; NaN where a state
        depends on no embedding. And the standard error of each item's share on itself (B, N), by
        jackknife over probes; 0 if exact.

    Raises:
        InputError: The rows of `output` are neither the texts of `batch` nor tokens of each, or the
            model does not compute the states of its items from the embeddings that it is given.
    """
    budget = _TOKENS.of(output.mask) if budget is None else budget
    shape = len(batch), output.mask.shape[1]
    items = output.mask.new_zeros(shape).index_copy(0, text_of_rows(batch, output), output.mask)
    size, reach = output.states.shape[-1], model.reach if isinstance(model, HasReach) else None
    shares = output.mask.new_zeros(*shape, shape[1], dtype=torch.float64)
    errors = shares.new_zeros(shape)
    for part, texts, _, length in text_blocks(batch, output, budget):
        own = items[texts, :length]
        if not own.any():
            continue
        ranks = own.cumsum(-1) - 1
        # Items of one colour share passes: no embedding reaches two of their states.
        colours = length if reach is None else min(2 * reach + 1, length)
        colour = torch.where(own, ranks % colours, -1)
        if probes is None:
            directions = torch.eye(size, device=own.device).expand(*own.shape, size, size)
        else:
            index = part.index[:, None].expand_as(ranks).flatten()
            keys = draw_keys(seed, index, ranks.flatten(), probes, size)
            directions = (1.0 - 2.0 * (keys < 0)).view(*own.shape, probes, size)
        squares = _squared_jacobians(model, part, colour, directions, budget, bool(probes))
        # (n, length, probes or 1, length): of the item's colour, near the item.
        text = torch.arange(len(own), device=own.device)[:, None]
        squares = squares[text, colour.clamp(min=0)]
        distance = (ranks[:, None] - ranks[:, :, None]).abs()
        far = distance > (length if reach is None else reach)
        sums = squares.sum(2)
        norms = sums.sqrt().sum(3).masked_fill(far, 0.0)
        part_shares = norms / norms.sum(-1, keepdim=True)
        shares[texts, :length, :length] = part_shares.masked_fill(~own.unsqueeze(-1), 0.0)
        if probes is not None:
            without = (sums.unsqueeze(2) - squares).clamp(min=0).sqrt().sum(4)
            without = without.masked_fill(far.unsqueeze(2), 0.0)
            without = without.diagonal(dim1=1, dim2=3) / without.sum(-1).mT
            error = without.var(1, correction=0).mul(probes - 1).sqrt()
            errors[texts, :length] = error.masked_fill(~own, 0.0)
    return shares, errors


def _squared_jacobians(
    model: AttentionModel,
    batch: TextBatch,
    colour: Tensor,
    directions: Tensor,
    budget: int,
    apart: bool,
) -> Tensor:
    """Squared norms of directions times Jacobians of the states of each colour, by word.

    Each item has a colour (B, N), -1 where there is none, and each state K directions, (B, N, K,
    D), which are kept `apart` or summed: (B, colours, K or 1, N, W) float64, W words per item.
    """
    texts, kinds = len(batch), directions.shape[2]
    colours = int(colour.max()) + 1
    passes = torch.arange(colours * kinds, device=colour.device)
    copies = max(1, min(len(passes), budget // batch.mask.numel()))
    repeated = batch.select(torch.arange(texts, device=colour.device).repeat(copies))
    # cuDNN does not differentiate recurrent networks in evaluation mode.
    with torch.enable_grad(), torch.backends.cudnn.flags(enabled=False):
        embeddings = model.embed(repeated).detach().requires_grad_()
        states = model(repeated, embeddings=embeddings).states
    if not states.requires_grad or states.shape[:2] != repeated.mask.shape[:2]:
        raise InputError(
            "hidden token attribution needs a model whose `states` (B, N, D) are computed from the "
            "`embeddings` (B, N, E) that it is given."
        )
    words = batch.mask[0, 0].numel()
    squares = states.new_zeros(
        (colours, kinds if apart else 1, *batch.mask.shape[:2], words), dtype=torch.float64
    )
    for some in torch.split(passes, copies):
        number, kind = some // kinds, some % kinds
        chosen = directions[:, :, kind].permute(2, 0, 1, 3).to(states)
        chosen = chosen * (colour == number[:, None, None]).unsqueeze(-1)
        rest = states.new_zeros(len(states) - len(some) * texts, *states.shape[1:])
        (gradient,) = torch.autograd.grad(
            states, embeddings, torch.cat([chosen.flatten(0, 1), rest]), retain_graph=True
        )
        found = gradient.double().square().sum(-1).view(copies, *squares.shape[2:])[: len(some)]
        squares.index_put_((number, kind if apart else kind * 0), found, accumulate=True)
    return squares.movedim(2, 0)
