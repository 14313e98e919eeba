"""Attention of all layers multiplied: by itself (Abnar & Zuidema, 2020), and weighted by its gradient."""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from typing_extensions import override

from attnlight.attribution.base import Attribution, Explanation
from attnlight.batch import AttentionModel, AttentionOutput, TextBatch
from attnlight.functional.attribution.log_odds import log_odds
from attnlight.probing import layers
from attnlight.probing.flat_texts import FlatTexts
from attnlight.probing.interception import intercept
from attnlight.probing.replay import layered
from attnlight.probing.row_gradients import text_of_rows


@dataclass
class Rollout(Attribution):
    """Share of each token in the state that a row reads, as attention of all layers mixes states.

    Each layer passes on the mean of a token's state and of the states that it attends to, mean over
    heads: A' = (A + I) / 2. The scores are the row of the product of all A' that belongs to the token
    which is read: of a text the classifying one, of a tagger the row's own. Where a text's attention
    is above the layers, they are the rows' mean by that attention. They are the same for all classes.

    Args:
        of: What A is: `attention`, or `value_norm`, the norm of the sum over heads of weight times
            transformed value (Kobayashi et al., 2020), each row scaled to sum to 1.
    """

    name = "rollout"
    signed = False

    of: Literal["attention", "value_norm"] = "attention"

    @override
    def attribute(
        self, model: AttentionModel, batch: TextBatch, output: AttentionOutput, target: Tensor
    ) -> Explanation:
        owner = layered(model, self.name)
        attention = layers.layer_attention(owner, batch)
        if self.of == "attention":
            matrices = [one.weights.double().mean(1) for one in attention]
        else:
            maps = layers.output_maps(owner, batch)
            matrices = [layers.value_norms(*pair) for pair in zip(attention, maps, strict=True)]
        return layers.rolled_out(owner, batch, output, matrices), {}


@dataclass
class GradientRollout(Attribution):
    """What each token passes on to the state that a row reads, as far as it speaks for the class.

    Chefer et al. (2021). In each layer A' is the mean over heads of weight times gradient of the log
    odds, 0 where that is negative, and R becomes R + A' R, from R = I below the first layer. The scores
    are the row of R that belongs to the token which is read; where a text's attention is above the
    layers, they are the rows' mean by that attention.
    """

    name = "gradient_rollout"
    signed = False
    passes = 3

    @override
    def attribute(
        self, model: AttentionModel, batch: TextBatch, output: AttentionOutput, target: Tensor
    ) -> Explanation:
        owner = layered(model, self.name)
        with torch.enable_grad(), intercept(record="all") as found:
            embeddings = owner.embed(batch).detach().requires_grad_()
            odds = log_odds(owner(batch, embeddings=embeddings).logits, target)
        weights = [found[layer].weights for layer in sorted(found)]
        text = text_of_rows(batch, output)
        shares = layers.read_shares(owner, batch, output).detach()
        # One row of each text at a time: the gradient of their sum is that of each.
        order = torch.arange(len(text), device=text.device) - torch.searchsorted(text, text)
        for number in range(int(order.amax()) + 1 if len(text) else 0):
            rows = (order == number).nonzero().flatten()
            gradients = torch.autograd.grad(odds[rows].sum(), weights, retain_graph=True)
            own = shares[rows]
            for weight, gradient in zip(reversed(weights), reversed(gradients), strict=True):
                chosen = (weight * gradient)[text[rows]].double().clamp(min=0).mean(1)
                own = own + torch.einsum("rq,rqn->rn", own, chosen)
            shares[rows] = own
        return FlatTexts.of(batch).sums(shares), {}
