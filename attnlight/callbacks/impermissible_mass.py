"""Does attention show the tokens that a prediction needs? (Pruthi et al. 2020)."""

from collections.abc import Sequence
from typing import Any

import torch
from typing_extensions import override

from attnlight.batch import AttentionOutput, TextBatch
from attnlight.callbacks.base import InterpretabilityTest, Measured, fill_undefined
from attnlight.callbacks.marked import marking_column, tested_split
from attnlight.callbacks.predictions import row_labels
from attnlight.callbacks.surroundings import Surroundings
from attnlight.errors import InputError
from attnlight.functional.readout.instances import marked_items, other_items
from attnlight.models.readout import Readout
from attnlight.probing.subsets import Replacement, subset_logits

_MEASURES = ("mass", "max_mass", "chance", "accuracy")


class ImpermissibleMass(InterpretabilityTest):
    """Attention on impermissible tokens, and what the prediction is without them.

    An item is impermissible if the corpus's column is positive for it or, if items are sentences, for
    any of its words. With m of n attended items impermissible:

    * `mass`: attention on them, mean over heads; `max_mass`: of the head with the most. With several
      heads, `mass_by_head` (R, H).
    * `chance`: m / n, the mass of uniform attention.
    * `accuracy`: whether the prediction is the label; `accuracy_<replacement>`: whether it still is
      after the impermissible items are deleted or replaced and the text is encoded and attended to
      again by the same model. They are undefined without labels.
    * `impermissible_items`: m; `without_impermissible`: whether m is 0. Masses and chance are
      undefined then, and the accuracies are equal.

    Attention of little mass whose model is accurate only with these items is deceptive: it hides what
    the prediction depends on. A row that is a token keeps its own token.

    Args:
        column: Per-token column of the corpus, positive where a token is impermissible.
        replacements: What becomes of impermissible items: `delete`, the text is shorter (if nothing
            remains, the logits are those of an empty context); `unk` or `pad`, their tokens are
            replaced by the unknown or by the padding token.
        options: Those of `InterpretabilityTest`, such as `max_instances` and `seed`.
    """

    def __init__(
        self,
        column: str = "impermissible",
        replacements: Sequence[Replacement] = ("delete", "unk", "pad"),
        **options: Any,  # noqa: ANN401
    ) -> None:
        super().__init__(**options)
        if len(set(replacements)) < len(replacements):
            raise InputError(f"replacements of {self.name} names one more than once.")
        self.column = column
        self.replacements = tuple(replacements)
        erased = (f"accuracy_{name}" for name in self.replacements)
        self.measures = (*_MEASURES, *erased, "without_impermissible")
        self.metadata = {"column": column}

    @override
    def prepare(self, around: Surroundings) -> None:
        super().prepare(around)
        texts = tested_split(around)
        if texts is not None:
            marking_column(self.name, [self.column], texts.extras)

    @override
    def measure(self, batch: TextBatch, output: AttentionOutput, readout: Readout) -> Measured:
        column = marking_column(self.name, [self.column], list(batch.extras))
        items = marked_items(batch.extras[column] > 0, batch, output)
        count, label = items.sum(-1), row_labels(batch, output)
        by_head = (readout.head_weights * items.unsqueeze(1)).sum(-1)
        columns = {
            "mass": by_head.mean(-1),
            "max_mass": by_head.amax(-1),
            "chance": count / readout.lengths.double(),
        }
        if by_head.shape[1] > 1:
            columns["mass_by_head"] = by_head
        columns = fill_undefined(columns, count == 0)
        predicted = {"accuracy": output.logits.argmax(-1)}
        removed = items & other_items(batch, output)
        rows = removed.any(-1).nonzero().squeeze(-1)
        kept = (output.mask & ~removed)[rows].unsqueeze(1)
        for name in self.replacements:
            changed = predicted["accuracy"].clone()
            if len(rows):
                logits = subset_logits(readout.model, batch, output, rows, kept, name, self.budget)
                changed[rows] = logits.squeeze(1).argmax(-1)
            predicted[f"accuracy_{name}"] = changed
        for measure, classes in predicted.items():
            known = torch.full_like(count, -1) if label is None else label
            columns[measure] = (classes == known).double().masked_fill(known < 0, torch.nan)
        without = (count == 0).double()
        return columns | {"impermissible_items": count, "without_impermissible": without}
