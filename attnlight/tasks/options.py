"""Training options: the papers' optimisers and schedules, the loss, and word vectors."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil, inf, isfinite
from typing import TYPE_CHECKING, Any, Literal, TypedDict, get_type_hints

import torch
from lightning.pytorch.utilities.types import LRSchedulerConfigType, OptimizerLRSchedulerConfig
from torch import Tensor, nn
from torch.optim import SGD, Adam, AdamW
from torch.optim import Optimizer as TorchOptimizer
from torch.optim.lr_scheduler import LambdaLR, ReduceLROnPlateau

from attnlight.errors import InputError, require_at_least
from attnlight.probing.replay import layer_modules, layered

PLATEAU_MONITOR = "val/accuracy"


@dataclass(frozen=True)
class Optimizer:
    """An optimiser and its schedule.

    Args:
        name: The optimiser.
        learning_rate: Learning rate; with `warmup_steps` the factor of the schedule.
        plateau_factor: Factor of the learning rate after each epoch without a new best validation
            accuracy (Serrano & Smith); null: constant.
        warmup_steps: Number of steps in which the learning rate rises linearly, to fall with the
            inverse square root of the step afterwards (Vaswani et al., 2017; Yang 500, with a factor
            of 0.2); null: constant.
        warmup: Linear rise of the learning rate, which is constant afterwards: the share of all steps
            up to `max_epochs`, below 1, or their number; null or 0: none.
        layerwise_lr_decay: Factor of the learning rate from each layer of self-attention to the one
            below (Clark et al., 2020): d^(L + 1 - n) in layer n of L, from 1, d^(L + 1) below all
            layers, 1 above them; null or 1: none.
        weight_decay: L2 penalty, one for all or by part of the network: embedding, encoder,
            attention, decoder; in a hierarchical one embedding, word_encoder, word_attention,
            sentence_encoder, sentence_attention, decoder; of pairs also query_embedding,
            query_encoder, query_decoder and output; in a tagger embedding, features, projection,
            recurrent, layers, norm, attention, decoder. The default of a part is 0.
        betas: Decay rates of Adam's and AdamW's running means.
        amsgrad: The AMSGrad variant of Adam and AdamW.
        fused: The fused implementation of Adam and AdamW.
        momentum: Momentum of SGD.
    """

    name: Literal["adam", "adamw", "sgd"] = "adam"
    learning_rate: float = 1e-3
    plateau_factor: float | None = None
    warmup_steps: int | None = None
    weight_decay: float | dict[str, float] = 0.0
    betas: tuple[float, float] = (0.9, 0.999)
    amsgrad: bool = False
    fused: bool = True
    momentum: float = 0.0
    warmup: float | None = None
    layerwise_lr_decay: float | None = None

    def build(self, model: nn.Module, head: nn.Module | None = None) -> TorchOptimizer:
        """One optimiser with a parameter group per part of the model, or per part of each layer.

        What an objective trains beside the model, its `head`, is one more group.
        """
        parts = {n: p for n, p in model.named_children() if not isinstance(p, nn.Dropout)}
        parts |= {} if head is None else {"head": head}
        decay = self.weight_decay
        if not isinstance(decay, dict):
            decay = dict.fromkeys(parts, decay)
        if unknown := sorted(decay.keys() - parts.keys()):
            raise InputError(
                f"weight_decay names the part {unknown[0]!r}; the model has {', '.join(parts)}."
            )
        scale = self.layerwise_lr_decay
        scales = {} if scale is None else _learning_rate_scales(model, scale)
        members: dict[tuple[str, float], list[nn.Parameter]] = {}
        for name, part in parts.items():
            for weight in (weight for weight in part.parameters() if weight.requires_grad):
                members.setdefault((name, scales.get(weight, 1.0)), []).append(weight)
        groups: list[dict[str, Any]] = [
            {"params": weights, "weight_decay": decay.get(name, 0.0)}
            | ({} if scale is None else {"lr": self.learning_rate * factor})
            for (name, factor), weights in members.items()
        ]
        if self.name == "sgd":
            return SGD(groups, self.learning_rate, momentum=self.momentum)
        kind: type[Adam] = {"adam": Adam, "adamw": AdamW}[self.name]
        betas = (self.betas[0], self.betas[1])  # checkpoints hold a list
        return kind(groups, self.learning_rate, betas, amsgrad=self.amsgrad, fused=self.fused)

    def scheduled(
        self,
        model: nn.Module,
        size: int | None,
        steps: Callable[[], float] = lambda: inf,
        head: nn.Module | None = None,
    ) -> TorchOptimizer | OptimizerLRSchedulerConfig:
        """The optimiser of a model with its schedule, as `configure_optimizers` returns them.

        With W `warmup_steps` the learning rate is multiplied by D^-0.5 min(s^-0.5, s W^-1.5) at
        step s, from 1, for states of `size` D; with W steps of `warmup` by min(1, s / W). `steps`
        gives the number of steps of training.
        """
        optimizer, factor = self.build(model, head), self.plateau_factor
        warmup = self.warmup_steps
        linear = self.warmup or None
        given = {"plateau_factor": factor, "warmup_steps": warmup, "warmup": linear}
        if len(several := [name for name, value in given.items() if value is not None]) > 1:
            raise InputError(f"{' and '.join(several)} exclude each other: leave one out.")
        if linear is not None:
            if linear < 0 or (linear > 1 and linear != int(linear)):
                raise InputError(
                    f"warmup is {linear:g}; expected a share of the steps, 0 to 1, or their number."
                )
            count = (
                linear if linear >= 1 else ceil(linear * total) if isfinite(total := steps()) else 0
            )
            if not count:
                raise InputError(
                    f"warmup is {linear:g} of the steps, but max_epochs does not bound their number: "
                    "give the number of steps of warmup."
                )
            schedule = LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / count))
        elif factor is not None:
            if not 0 < factor < 1:
                raise InputError(f"plateau_factor is {factor}; it must be between 0 and 1.")
            plateau = ReduceLROnPlateau(optimizer, mode="max", factor=factor, patience=0)
            on_plateau: LRSchedulerConfigType = {"scheduler": plateau, "monitor": PLATEAU_MONITOR}
            return {"optimizer": optimizer, "lr_scheduler": on_plateau}
        elif warmup is None:
            return optimizer
        else:
            require_at_least(1, warmup_steps=warmup)
            if size is None:
                raise InputError("warmup_steps needs the hidden_size of `net`.")
            scale, rise = size**-0.5, warmup**-1.5
            schedule = LambdaLR(optimizer, lambda s: scale * min((s + 1) ** -0.5, (s + 1) * rise))
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


def _learning_rate_scales(model: nn.Module, decay: float) -> dict[nn.Parameter, float]:
    """Factor of each parameter's learning rate, by `layerwise_lr_decay`."""
    if not 0 < decay <= 1:
        raise InputError(f"layerwise_lr_decay is {decay}; it must be above 0 and at most 1.")
    layers = layer_modules(layered(model, "layerwise_lr_decay"))  # type: ignore[arg-type]
    numbers = {weight: n for n, layer in enumerate(layers, 1) for weight in layer.parameters()}
    # What is in no layer, in the order of the model: before all layers, of the next one, or above all.
    weights, number, scales = list(model.parameters()), len(layers) + 1, {}
    first = next(place for place, weight in enumerate(weights) if weight in numbers)
    for place, weight in reversed(list(enumerate(weights))):
        number = numbers.get(weight, number)
        scales[weight] = decay ** (len(layers) + 1 - (number if place >= first else 0))
    return scales


@dataclass(frozen=True)
class Loss:
    """Reduction and class weights of the loss.

    Args:
        reduction: `mean` over the instances of the batch of all devices, or `sum`, as Jain &
            Wallace.
        class_weights: `balanced` weights each class by n / (C n_c) on the training split.
    """

    reduction: Literal["sum", "mean"] = "mean"
    class_weights: Literal["none", "balanced"] = "none"


@dataclass(frozen=True)
class Vectors:
    """Initial word vectors, and whether word embeddings are trained.

    Args:
        path: A word2vec, fastText (.vec) or GloVe file of vectors of the embedding's size, or
            `corpus` to train them with word2vec on the corpus's training and validation texts, by
            Serrano & Smith's settings (`Word2VecSettings`); null: none.
        normalize: Scale vectors to L2 norm 1 first, as Serrano & Smith.
        unknown: Embedding of words without a vector.
        freeze: Do not train word embeddings, with vectors or without.
    """

    path: str | None = None
    normalize: bool = False
    unknown: Literal["zero", "random"] = "random"
    freeze: bool = False


@dataclass(frozen=True)
class Objective:
    """Penalties that are added to the loss of each instance, and reduced with it.

    `val/loss` and `train/loss` are without them, so that they are comparable for all weights;
    `val/objective`, by which the epoch is chosen, is the score on validation (accuracy, F1 of a
    tagger) less the mean of the weighted penalties. The mean of a penalty is logged as
    `train/deceive` and `val/deceive`, and the number of instances without it as
    `train/without_deceive` and `val/without_deceive`, and likewise for the others. They have no class
    weights.

    Args:
        lambda_deceive: Weight of -log(1 - attention on impermissible items) (Pruthi et al. 2020);
            instances without an impermissible or without a permissible item have no penalty. Of a
            hierarchical model the items are sentences and the attention that over sentences: a
            sentence is impermissible if any of its words is, so that no impermissible word is read
            through a permissible one. 0: no penalty.
        aggregate: The penalty of several heads: their `mean`, or that of the head with the most, of
            each instance.
        column: Per-token column of the corpus; tokens where it is positive are impermissible, or those
            that attention is supervised to reach. `links`: the source tokens that a target token of a
            translation is linked to.
        lambda_supervise: Weight of KL(uniform over marked items || attention) in nats, by which
            attention is supervised (Liu et al. 2017; Mi et al. 2016), as by rationales (Bao et al.
            2018); instances without a marked item have no penalty. It excludes `lambda_deceive`.
        lambda_diversity: Weight of the mean size of the cosine of each state with the mean state of its
            text (Mohankumar et al. 2020). This weight and the next ones are of classifiers of texts and
            pairs, whose epoch is chosen by the score alone.
        signed: Take these cosines with their sign, so that they may become negative.
        lambda_tying: Weight of the mean distance of states from the embeddings of their words, which
            must be of one size (Tutek & Snajder 2020).
        lambda_masked_words: Weight of the cross-entropy in nats of the words of 15 % of the states, drawn
            anew in each epoch, by an affine layer that is in training alone (Tutek & Snajder 2020).
    """

    lambda_deceive: float = 0.0
    aggregate: Literal["mean", "max"] = "mean"
    column: str = "impermissible"
    lambda_supervise: float = 0.0
    lambda_diversity: float = 0.0
    signed: bool = False
    lambda_tying: float = 0.0
    lambda_masked_words: float = 0.0


# Partial options, by which a variant changes those of its base.
if TYPE_CHECKING:
    OptimizerChanges = dict[str, Any]
    LossChanges = dict[str, Any]
    VectorsChanges = dict[str, Any]
    ObjectiveChanges = dict[str, Any]
else:
    OptimizerChanges, LossChanges, VectorsChanges, ObjectiveChanges = (
        TypedDict(f"{kind.__name__}Changes", get_type_hints(kind), total=False)
        for kind in (Optimizer, Loss, Vectors, Objective)
    )
GROUPS: dict[str, Any] = {
    kind.__name__.lower(): kind for kind in (Optimizer, Loss, Vectors, Objective)
}


# From the counts of the classes in training to their weights (C,).
CLASS_WEIGHTS: dict[str, Callable[[Sequence[int]], Tensor] | None] = {
    "none": None,
    "balanced": lambda counts: torch.tensor(sum(counts)) / (len(counts) * torch.tensor(counts)),
}
