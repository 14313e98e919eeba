"""Attention of the token that answers, of any layer and head of a decoder-only model."""

from dataclasses import dataclass

from torch import Tensor
from typing_extensions import override

from attnlight.attribution.base import Attribution, Explanation
from attnlight.batch import AttentionModel, AttentionOutput, HasAnswerAttention, TextBatch
from attnlight.errors import InputError
from attnlight.probing.context_ablation import Reading


@dataclass
class AnswerAttention(Attribution):
    """What the token that predicts an answer takes from each item, for all answers.

    Weights are sums over the tokens of an item, and no share of the others: what the template, the
    question and the first token have is not divided among the items.

    Args:
        layer: Number of the layer; null: the mean of all.
        head: Number of the head; null: the mean of all.
        of: `attention`; `value_norm`, the norm of weight times transformed value of each token, summed
            over an item's tokens, of all heads together; or `rollout`, the row of the token in the
            product of all layers' (A + I) / 2, A the mean over heads.
    """

    name = "answer_attention"
    signed = False

    layer: int | None = None
    head: int | None = None
    of: Reading = "attention"

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.of != "attention" and self.head is not None) or (
            self.of == "rollout" and self.layer is not None
        ):
            raise InputError(f"{self.name}: {self.of} is of all heads, and rollout of all layers.")
        self.passes = 1

    @override
    def attribute(
        self, model: AttentionModel, batch: TextBatch, output: AttentionOutput, target: Tensor
    ) -> Explanation:
        weights = answering(self.name, model).answer_attention(batch, self.of)
        for name, dimension in (("layer", 1), ("head", 2)):
            number, count = vars(self)[name], weights.shape[dimension]
            if number is not None and not 0 <= number < count:
                raise InputError(f"there is no {name} {number}; {name}s are 0 to {count - 1}.")
            chosen = slice(None) if number is None else slice(number, number + 1)
            weights = weights[:, chosen] if dimension == 1 else weights[:, :, chosen]
        return weights.mean((1, 2)), {}


def answering(name: str, model: object) -> HasAnswerAttention:
    """The model.

    Raises:
        InputError: It does not answer by one token of each text; the message says that `name` needs it.
    """
    if not isinstance(model, HasAnswerAttention):
        raise InputError(
            f"{name} reads models that answer, such as AnswerModel, not {type(model).__name__}."
        )
    return model
