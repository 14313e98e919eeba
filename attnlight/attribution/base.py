"""The signature of an attribution method, and what all methods share."""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from attnlight.batch import AttentionModel, AttentionOutput, TextBatch
from attnlight.data.word_sampler import WordSampler
from attnlight.errors import InputError
from attnlight.functional.masking import allowed_classes

# Scores of items (R, N), and further columns (R,) of a method by name.
Explanation = tuple[Tensor, dict[str, Tensor]]
ATTRIBUTIONS: dict[str, type["Attribution"]] = {}  # each class by its `name`, once it is defined


@dataclass
class Attribution(ABC):
    """A score of each item for the prediction of one class; a subclass's fields are its options.

    Higher scores speak more for the class where a method is `signed`, otherwise the size counts.

    Args:
        label: Name of the scores in records; by default the method's name, with `_by_size` where that
            is chosen. Two methods of one name that are compared need two labels.
        by_size: Give the size of each score, without its sign.

    Attributes:
        name: Name in configurations.
        signed: Whether scores have a sign unless they are given by size.
        explains: What the scores explain.
        passes: Forward passes of a text that it takes, a backward pass counted as two; those of a
            method that replaces words are for each item.
        split: The split whose texts are explained, which tests set; None: not known.
        word_sampler: The words that `replacement: resample` draws, which tests set.
    """

    name: ClassVar[str]
    signed: ClassVar[bool]
    explains: ClassVar[str] = "log odds"

    label: str = ""
    by_size: bool = False
    replacement = ""  # of words, of a method that replaces some; no option
    passes = 0  # no option

    def __init_subclass__(cls) -> None:
        if "name" in vars(cls):
            ATTRIBUTIONS[cls.name] = cls

    def __post_init__(self) -> None:
        self.split: Any = None
        self.word_sampler: WordSampler | None = None
        self.label = self.label or self.name + "_by_size" * self.by_size

    def __call__(
        self, model: AttentionModel, batch: TextBatch, output: AttentionOutput, target: Tensor
    ) -> Tensor:
        """The scores (R, N) of `explain`."""
        return self.explain(model, batch, output, target)[0]

    def explain(
        self, model: AttentionModel, batch: TextBatch, output: AttentionOutput, target: Tensor
    ) -> Explanation:
        """Scores of the items for a class of each row, and further columns of a method.

        Args:
            model: The model, in evaluation mode.
            batch: B texts of N items: tokens, or sentences of tokens.
            output: The model's output for the batch, one row per text or per token.
            target: Class explained in each row, (R,) long, any of the C classes.

        Returns:
            Scores (R, N) float64: 0 off the mask, and in rows whose target is not allowed or the only
            allowed class; NaN where a method is not defined for an item. And columns (R,) by name,
            such as the `completeness_error` of integrated gradients; most methods have none. They
            are NaN in the rows without a choice of classes.

        Raises:
            InputError: A target is not a class, the rows of `output` are neither the texts of
                `batch` nor tokens of each, or the method is not defined for the model.
        """
        classes = output.logits.shape[-1]
        wrong = (target < 0) | (target >= classes)
        if wrong.is_cpu and wrong.any():  # an accelerator would wait, and refuses by itself
            raise InputError(
                f"target is class {int(target[wrong][0])}; the model's classes are 0 to "
                f"{classes - 1}."
            )
        allowed = allowed_classes(output.logits)
        undefined = ~allowed.gather(-1, target[:, None]) | (allowed.sum(-1, keepdim=True) < 2)
        scores, columns = self.attribute(model, batch, output, target)
        scores = scores.detach().double().masked_fill(~output.mask | undefined, 0.0)
        scores = scores.abs() if self.by_size else scores
        lacking = undefined.squeeze(-1)
        return scores, {
            name: values.double().masked_fill(lacking, torch.nan)
            for name, values in columns.items()
        }

    @abstractmethod
    def attribute(
        self, model: AttentionModel, batch: TextBatch, output: AttentionOutput, target: Tensor
    ) -> Explanation:
        """Scores and columns as `explain` returns them, arbitrary where that replaces them."""

    @property
    def computation(self) -> str:
        """Name and options without `label` and `by_size`: methods that share it differ in sign alone."""
        return repr((self.name, asdict(self) | {"label": "", "by_size": False}))

    @property
    def metadata(self) -> dict[str, Any]:
        """Name, sign, what is explained and options, for records."""
        options = asdict(self)
        signed = not options.pop("by_size") and self.signed
        return {"name": self.name, "signed": signed, "explains": self.explains} | options


def passes_of(methods: Iterable[Attribution], items: float) -> float:
    """Forward passes that methods take of a text of so many items, what they share once."""
    computed = {method.computation: method for method in methods}.values()
    return sum(method.passes * (items if method.replacement else 1) for method in computed)
