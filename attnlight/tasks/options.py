"""How a model is trained: the papers' optimisers and schedules, the loss, and word vectors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypedDict, get_type_hints

from lightning.pytorch.utilities.types import OptimizerLRSchedulerConfig
from torch import nn
from torch.optim import SGD, Adam, AdamW
from torch.optim import Optimizer as TorchOptimizer
from torch.optim.lr_scheduler import LambdaLR, ReduceLROnPlateau

from attnlight.data.word2vec import Word2VecSettings
from attnlight.errors import InputError, did_you_mean
from attnlight.models import read_vectors
from attnlight.models.embedding import Embedding

PLATEAU_MONITOR = "val/accuracy"
WeightDecay = float | dict[str, float]


@dataclass(frozen=True)
class Optimizer:
    """An optimiser and its schedule.

    Args:
        name: The optimiser.
        learning_rate: Its learning rate; with `warmup_steps` the factor of the schedule.
        plateau_factor: Multiply the learning rate by this after each epoch whose validation
            accuracy is no new best (Serrano & Smith); null: keep it.
        warmup_steps: Let the learning rate rise for so many steps and fall with the root of their
            number then (Vaswani et al., 2017; Yang 500, with a factor of 0.2); null: keep it.
        weight_decay: L2 penalty, one for all or by part of the network: embedding, encoder,
            attention, decoder; in a hierarchical one embedding, word_encoder, word_attention,
            sentence_encoder, sentence_attention, decoder; in a tagger embedding, features,
            projection, recurrent, layers, norm, attention, decoder. A part left out has none.
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

    def build(self, model: nn.Module) -> TorchOptimizer:
        """One optimiser with a parameter group per part of the model.

        Raises:
            InputError: `weight_decay` names a part that the model lacks.
        """
        parts = {n: p for n, p in model.named_children() if not isinstance(p, nn.Dropout)}
        groups = _groups(parts, self.weight_decay)
        if self.name == "sgd":
            return SGD(groups, lr=self.learning_rate, momentum=self.momentum)
        kind: type[Adam] = {"adam": Adam, "adamw": AdamW}[self.name]
        betas = (self.betas[0], self.betas[1])
        return kind(
            groups, lr=self.learning_rate, betas=betas, amsgrad=self.amsgrad, fused=self.fused
        )

    def scheduled(
        self, optimizer: TorchOptimizer, size: int | None
    ) -> TorchOptimizer | OptimizerLRSchedulerConfig:
        """The optimiser with its schedule, as `configure_optimizers` returns them.

        Args:
            optimizer: What `build` returned.
            size: Size D of the model's states, which `warmup_steps` scales by.

        Raises:
            InputError: An option is out of range, or both schedules are asked for.
        """
        if self.plateau_factor is None and self.warmup_steps is None:
            return optimizer
        if self.warmup_steps is None:
            assert self.plateau_factor is not None
            return with_plateau(optimizer, self.plateau_factor)
        if self.plateau_factor is not None:
            raise InputError("plateau_factor and warmup_steps exclude each other: leave one out.")
        if size is None:
            raise InputError("warmup_steps needs the hidden_size of `net`.")
        return with_noam(optimizer, self.warmup_steps, size)


@dataclass(frozen=True)
class Loss:
    """How the losses of a batch become one.

    Args:
        reduction: `mean` over the instances of the batch of all devices, or `sum`, as Jain &
            Wallace.
        class_weights: `balanced` weighs each class by n / (C n_c) on the training split.
    """

    reduction: Literal["sum", "mean"] = "mean"
    class_weights: Literal["none", "balanced"] = "none"


@dataclass(frozen=True)
class Vectors:
    """Word vectors to start from.

    Args:
        path: A word2vec, fastText (.vec) or GloVe file of vectors of the embedding's size, or
            `corpus` to train them with word2vec on the corpus's own training and validation texts,
            by Serrano & Smith's settings (`Word2VecSettings`); null: none.
        normalize: Bring vectors to L2 norm 1 first, as Serrano & Smith.
        unknown: Embedding of words that have no vector.
    """

    path: str | None = None
    normalize: bool = False
    unknown: Literal["zero", "random"] = "random"

    def start(
        self,
        embeddings: Sequence[Embedding],
        vocabulary: Mapping[str, int],
        corpus: Any,  # noqa: ANN401
    ) -> None:
        """Take over the vectors as the start of embeddings.

        Args:
            embeddings: What starts from them.
            vocabulary: Id of each word.
            corpus: The datamodule whose text is read where `path` is `corpus`.

        Raises:
            InputError: The vectors cannot be read or trained, or are of another size.
        """
        assert self.path is not None
        for embedding in embeddings:
            place: str | Path = self.path
            if place == "corpus":
                place = corpus.word_vectors(Word2VecSettings(size=embedding.embedding_dim))
            found = read_vectors(place, vocabulary)
            embedding.start_from(found.normalized() if self.normalize else found, self.unknown)


# What a variant changes of its base's options: some of them, each with its type.
if TYPE_CHECKING:
    OptimizerChanges = dict[str, Any]
    LossChanges = dict[str, Any]
    VectorsChanges = dict[str, Any]
else:
    OptimizerChanges, LossChanges, VectorsChanges = (
        TypedDict(f"{kind.__name__}Changes", get_type_hints(kind), total=False)
        for kind in (Optimizer, Loss, Vectors)
    )
GROUPS: dict[str, Any] = {"optimizer": Optimizer, "loss": Loss, "vectors": Vectors}


def completed(group: str, options: object) -> dict[str, Any]:
    """All options of a group as plain values.

    Args:
        group: `optimizer`, `loss` or `vectors`.
        options: The group, or some of its options.

    Raises:
        InputError: There is no such option.
    """
    kind = GROUPS[group]
    given = asdict(options) if isinstance(options, kind) else dict(options or {})  # type: ignore[call-overload]
    known = kind.__dataclass_fields__
    for name in given:
        if name not in known:
            hint = did_you_mean(name, known)
            raise InputError(f"{group} has no option {name!r}{hint}; they are {', '.join(known)}.")
    return asdict(kind(**given))


def with_plateau(optimizer: TorchOptimizer, factor: float) -> OptimizerLRSchedulerConfig:
    """The optimiser and Serrano & Smith's schedule, as `configure_optimizers` returns them.

    Args:
        optimizer: The optimiser.
        factor: What the learning rate is multiplied by after each epoch whose validation accuracy
            is no new best.

    Raises:
        InputError: `factor` is not between 0 and 1.
    """
    if not 0 < factor < 1:
        raise InputError(f"plateau_factor is {factor}; it must be between 0 and 1.")
    plateau = ReduceLROnPlateau(optimizer, mode="max", factor=factor, patience=0)
    return {
        "optimizer": optimizer,
        "lr_scheduler": {"scheduler": plateau, "monitor": PLATEAU_MONITOR},
    }


def with_noam(optimizer: TorchOptimizer, warmup: int, size: int) -> OptimizerLRSchedulerConfig:
    """The optimiser and the schedule of Vaswani et al. (2017), as `configure_optimizers` returns them.

    At step s, from 1, the learning rate is multiplied by D^-0.5 min(s^-0.5, s W^-1.5).

    Args:
        optimizer: The optimiser.
        warmup: Steps W for which the learning rate rises.
        size: Size D of the model's states.

    Raises:
        InputError: `warmup` is not positive.
    """
    if warmup < 1:
        raise InputError(f"warmup_steps is {warmup}; it must be at least 1.")

    def factor(steps: int) -> float:
        step = steps + 1
        return float(size**-0.5 * min(step**-0.5, step * warmup**-1.5))

    return {
        "optimizer": optimizer,
        "lr_scheduler": {"scheduler": LambdaLR(optimizer, factor), "interval": "step"},
    }


def _groups(parts: Mapping[str, nn.Module], weight_decay: WeightDecay) -> list[dict[str, Any]]:
    decay = weight_decay if isinstance(weight_decay, dict) else dict.fromkeys(parts, weight_decay)
    unknown = sorted(set(decay) - set(parts))
    if unknown:
        raise InputError(
            f"weight_decay names the part {unknown[0]!r}; the model has {', '.join(parts)}."
        )
    groups = (
        {
            "params": [p for p in part.parameters() if p.requires_grad],
            "weight_decay": decay.get(name, 0.0),
        }
        for name, part in parts.items()
    )
    return [group for group in groups if group["params"]]
