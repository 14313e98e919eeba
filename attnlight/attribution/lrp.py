"""Layer-wise relevance propagation."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.modules import module as hooks
from typing_extensions import override

from attnlight.attribution.base import Attribution, Explanation
from attnlight.batch import AttentionModel, AttentionOutput, LayeredModel, TextBatch
from attnlight.errors import InputError, require_at_least
from attnlight.functional.attribution.log_odds import log_odds
from attnlight.functional.attribution.relevance_rules import RelevanceRules, elementwise
from attnlight.probing.interception import intercept
from attnlight.probing.row_gradients import TOKENS, counted_tokens, row_gradients, text_blocks

_KNOWN = (
    "Linear, Conv1d, LSTM and GRU of one layer and one direction, LayerNorm, RMSNorm, Tanh, ReLU, GELU, "
    "SiLU, Softmax, Dropout"
)


@dataclass
class LRP(Attribution):
    """Relevance by the epsilon rule, of the target's logit minus the largest other class's.

    Bach et al. (2015), with the rules of Arras et al. (2017) for recurrent networks: gates and
    attention weights are held fixed, and what they multiply receives all relevance. Of transformers
    attention weights of all layers and denominators of norms are held fixed (Ali et al. 2022), and in
    a feed-forward part with a gate both factors get half (Achtibat et al. 2024). The columns
    are `absorbed`, the relevance of all that is no item: biases, boundary tokens, positions and the
    query; and `leak`, what the stabiliser loses. Items, `absorbed` and `leak` sum to the difference.

    Args:
        epsilon: The stabiliser, at least 0: a sum z passes `|z| / (|z| + epsilon)` of its relevance
            to its terms.

    Raises:
        InputError: `epsilon` is negative.
    """

    name = "lrp"
    signed = True
    passes = 3
    explains = "logit difference to the runner-up"

    epsilon: float = 1e-6

    def __post_init__(self) -> None:
        super().__post_init__()
        require_at_least(0, epsilon=self.epsilon)

    @override
    def attribute(
        self, model: AttentionModel, batch: TextBatch, output: AttentionOutput, target: Tensor
    ) -> Explanation:
        assert isinstance(model, nn.Module)
        logits = output.logits.detach()
        runner_up = logits.scatter(-1, target[:, None], -torch.inf).argmax(-1)
        others = torch.ones_like(logits, dtype=torch.bool)
        others = others.scatter(-1, torch.stack([target, runner_up], dim=-1), False)
        difference = log_odds(logits.masked_fill(others, -torch.inf), target)
        scores = difference.new_zeros(output.mask.shape)
        absorbed = torch.zeros_like(difference)
        with _refusals(model) as refusal:
            for part, _, rows, items in text_blocks(batch, output, TOKENS.of(output.mask)):
                rules = RelevanceRules(self.epsilon, refusal)
                linear: Any = partial(_linear_output, model, rules, others[rows])
                own, weights = target[rows], output.weights[rows, :, :items].detach()
                inputs = model.embed(part).detach()
                scores[rows, :items] = row_gradients(
                    linear,
                    part,
                    inputs,
                    own,
                    lambda g, e: (g.double() * e.double()).sum(-1),
                    weights,
                )
                rules.replay()
                # Without the tokens that the scores include.
                rest = inputs.masked_fill(counted_tokens(part).unsqueeze(-1), 0.0)
                with torch.enable_grad():  # by the same operations, none of which has a gradient
                    absorbed[rows] = log_odds(linear(part, weights, rest).logits, own)
        leak = difference - absorbed - scores.sum(-1)
        absorbed = absorbed + scores.masked_fill(output.mask, 0.0).sum(-1)
        return scores, {"absorbed": absorbed, "leak": leak}


def _linear_output(
    model: nn.Module,
    rules: RelevanceRules,
    others: Tensor,
    batch: TextBatch,
    weights: Tensor | None = None,
    embeddings: Tensor | None = None,
) -> AttentionOutput:
    """Output of a model under `rules`, with logits of -infinity for the classes `others` (R, C)."""
    # As constants, so that only what depends on the embeddings has a gradient.
    parameters = {name: value.detach() for name, value in model.named_parameters()}
    given = {"weights": weights, "embeddings": embeddings}
    layered = isinstance(model, LayeredModel) and model.attention_layers
    # So that each layer computes its weights, which are then held fixed.
    with rules, intercept(record="all") if layered else nullcontext():
        output: AttentionOutput = functional_call(model, parameters, (batch,), given)
    return replace(output, logits=output.logits.masked_fill(others, -torch.inf))


@contextmanager
def _refusals(model: nn.Module) -> Iterator[Any]:
    """A function that gives the error for an operation of the layer that is being computed."""
    names = {layer: name for name, layer in model.named_modules()}
    entered: list[nn.Module] = []

    def leave(layer: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> Any:  # noqa: ANN401
        entered.pop()
        kind = type(layer)
        own_formula = kind.__module__ == "transformers.activations" and "GELU" in kind.__name__
        return elementwise(inputs[0], output) if own_formula else None

    def refusal(operation: str) -> InputError:
        layer = entered[-1]
        name = names.get(layer) or "the model itself"
        return InputError(
            f"lrp has no rule for {name} ({type(layer).__name__}), which computes {operation!r}; "
            f"layers that have one: {_KNOWN}."
        )

    with (
        hooks.register_module_forward_pre_hook(lambda layer, _: entered.append(layer)),
        hooks.register_module_forward_hook(leave),
    ):
        yield refusal
