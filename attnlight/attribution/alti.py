"""ALTI: how near a token's part of a state is to the whole state, by layer (Ferrando et al., 2022)."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import pad
from typing_extensions import override

from attnlight.attribution.base import Attribution, Explanation
from attnlight.batch import AttentionModel, AttentionOutput, TextBatch
from attnlight.errors import InputError
from attnlight.probing import layers
from attnlight.probing.flat_texts import FlatTexts
from attnlight.probing.interception import intercept
from attnlight.probing.replay import layered

_PAIRS = 1 << 18  # of tokens, whose attention of all layers is in memory at once
_ELEMENTS = 1 << 20  # of transformed vectors at once: larger blocks leave the cache


@dataclass
class ALTI(Attribution):
    """Share of each token in the state that a row reads, by how near its part is to each whole state.

    In each layer the output y_i of the attention block of token i is a sum over tokens j of transformed
    vectors T_i(x_j) and a bias: of all heads together, attention weight times value times output map;
    for j = i the block's input x_i; and of that, where a layer norm follows (post-norm), the norm's linear
    part, its deviation held fixed. Biases of the output map and of the norm are no token's; that of the
    values is in the values, as in the released code. Pre-norm models (GPT-2, Llama) have the values of
    the normed inputs, and no norm follows the sum (as in Ferrando et al., 2023).
    The contribution of j is `max(0, |y_i| - |y_i - T_i(x_j)|)` by L1 norms. Rows of contributions are scaled
    to sum to 1 and multiplied over the layers. They are the same for all classes.

    Raises:
        InputError: Attention is not added to the layer's input and then read by a norm.
    """

    name = "alti"
    signed = False
    passes = 2

    @override
    def attribute(
        self, model: AttentionModel, batch: TextBatch, output: AttentionOutput, target: Tensor
    ) -> Explanation:
        owner, most = layered(model, self.name), FlatTexts.of(batch).batch.mask.shape[1]
        by_block = []
        for texts in torch.split(torch.arange(len(batch)), max(1, _PAIRS // max(1, most**2))):
            calls = layers.layer_calls(owner, batch.select(texts.to(batch.index.device)), self.name)
            by_block.append([attention_block(call).contributions() for call in calls])
        matrices = []
        for parts in zip(*by_block, strict=True):
            # Of words of several pieces a block has the width of its longest text.
            lacking = [(0, most - part.shape[1], 0, most - part.shape[1]) for part in parts]
            matrices.append(torch.cat(list(map(pad, parts, lacking))))
        return layers.rolled_out(owner, batch, output, matrices, mixed=1.0), {}


@dataclass(frozen=True)
class AttentionBlock:
    """The part of a layer up to the sum of its input and of what attention adds, in double precision.

    Of a post-norm layer all vectors are after the linear part of the norm that reads the sum, without the
    division by the deviation: a factor of a token's vectors, which no share depends on.

    Attributes:
        weights: Attention, (B, H, N, N).
        values: What each head's value of a token adds at weight 1, (B, N, H, D).
        states: The layer's input, (B, N, D).
        output: The block's output with all biases, (B, N, D).
    """

    weights: Tensor
    values: Tensor
    states: Tensor
    output: Tensor

    def transformed(self, queries: Tensor) -> Tensor:
        """The vectors T_i(x_j) of some tokens i, (B, N, I, D): of all tokens j, the second dimension."""
        vectors = torch.einsum("bhqn,bnhd->bnqd", self.weights[:, :, queries], self.values)
        own = torch.arange(len(queries), device=queries.device)
        vectors[:, queries, own] += self.states[:, queries]
        return vectors

    def contributions(self) -> Tensor:
        """Contributions of all tokens to the output of each, (B, N, N), rows not yet scaled."""
        tokens, found = torch.arange(self.output.shape[1], device=self.output.device), []
        for queries in torch.split(tokens, max(1, _ELEMENTS // max(1, self.output.numel()))):
            whole = self.output[:, None, queries]
            nearer = whole.abs() - (whole - self.transformed(queries)).abs()  # 0 without a part
            found.append(nearer.sum(-1).clamp(min=0).mT)
        return torch.cat(found, dim=1)


@torch.no_grad()
def attention_block(call: layers.LayerCall) -> "AttentionBlock":
    """The attention block of a layer."""
    weights, values = call.attention.weights, call.attention.values
    parts = [one for one in call.module.modules() if not [*one.children()]]
    leaves = [part for part in parts if [*part.parameters()]]
    with layers.noted_calls(leaves) as calls, intercept(patch={call.number: lambda *_: weights}):
        call.module(*call.args, **call.options)
    contexts = (weights @ values).transpose(1, 2).flatten(2)
    of_map = layers.calls_from_reader(calls, contexts)
    total = call.states + (of_map[0][0](contexts) if of_map else 0)
    of_norm = layers.calls_from_reader(of_map[1:], total)
    norm = of_norm[0][0] if of_norm else None
    follows = type(norm) is type(calls[-1][0])  # a post-norm layer ends with a norm, too
    if norm is None or (follows and not isinstance(norm, nn.LayerNorm)):
        raise InputError(
            "alti needs layers that add what attention gives to their input, and a norm that reads the "
            f"sum; layer {call.number} ({type(call.module).__name__}) does otherwise."
        )
    output_map = layers.linear_part(of_map[0][0], contexts, weights.shape[1]).double()
    mapped = torch.einsum("bhnd,hde->bnhe", values.double(), output_map)
    vectors = mapped, call.states.double(), total.double()
    if follows and isinstance(norm, nn.LayerNorm):
        scale = (vectors[2].var(-1, correction=0, keepdim=True) + norm.eps).sqrt()
        centred = (part - part.mean(-1, keepdim=True) for part in vectors)
        mapped, states, output = (part * norm.weight.double() for part in centred)
        bias = 0 if norm.bias is None else scale * norm.bias.double()
        vectors = mapped, states, output + bias
    return AttentionBlock(weights.double(), *vectors)
