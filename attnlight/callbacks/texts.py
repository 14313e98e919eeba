"""Record texts with scores of their items, which the page of a run shows."""

from collections.abc import Mapping
from typing import Any

import torch
from typing_extensions import override

from attnlight.batch import AttentionOutput, TextBatch
from attnlight.callbacks.adversarial_attention import one_row_of_each_text
from attnlight.callbacks.base import InterpretabilityTest
from attnlight.callbacks.hooks.text_columns import TextColumns
from attnlight.callbacks.score_columns import score_columns
from attnlight.callbacks.surroundings import Surroundings
from attnlight.models.readout import Readout
from attnlight.probing.input_gradient import input_gradient
from attnlight.probing.leave_one_out import leave_one_out
from attnlight.records import TEXT_MARKS


class Texts(InterpretabilityTest):
    """Record texts and the scores of their items, for the page of the run; there are no measures.

    Columns are those of `TextColumns` (of the corpus's per-token columns only the marks `evidence`,
    `rationale` and `impermissible`), and for each row a list of scores of its items:

    * `scores_input_gradient`: gradient times embedding, with attention held constant.
    * `scores_loo`: the change of the prediction when the item is deleted; NaN for the token that a
      row of a tagger predicts.
    * `scores_minimal`: 1 for the items of the smallest set whose erasure changes the decision, as
      `DecisionFlip` finds it, 0 for others; NaN if no set does or the readout is not affine.
    * `scores_worst_case`: worst-case attention as of `AdversarialAttention`, mean over heads. With
      more than two classes or a readout that is not affine it is computed for one row of each text
      and NaN in others; where such a readout may be costly, as if `program_instances` were 0.

    Nothing is recorded on validation epochs of `fit`.

    Args:
        epsilon: Largest total variation distance under worst-case attention.
        leave_one_out: Compute `loo`, which encodes texts again; else it is not recorded.
        max_instances: Record this many texts, chosen by a seeded hash; None: all.
        seed: Seed of the choice of instances.
    """

    needs_gradients = True

    def __init__(
        self,
        epsilon: float = 0.01,
        leave_one_out: bool = True,
        max_instances: int | None = 500,
        seed: int = 0,
    ) -> None:
        super().__init__(max_instances=max_instances, seed=seed, figures=False)
        self.epsilon = epsilon
        self.leave_one_out = leave_one_out
        self.metadata = {"epsilon": epsilon}

    @override
    def begin(self, around: Surroundings) -> None:
        if around.epoch is not None:
            return
        self._texts = TextColumns(around.dataset)
        super().begin(around)

    @override
    def measure(
        self, batch: TextBatch, output: AttentionOutput, readout: Readout
    ) -> Mapping[str, Any]:
        model, mask = readout.model, output.mask
        scores = {"input_gradient": input_gradient(model, batch, output, detached=True)}
        if self.leave_one_out:
            scores["loo"] = leave_one_out(model, batch, output, None)
        minimal = torch.full(mask.shape, torch.nan, dtype=torch.float64, device=mask.device)
        worst = minimal.clone()
        if (found := readout.minimal_flips()) is not None:
            size, members = found
            minimal = torch.where((size < 0)[:, None], torch.nan, members.double())
        solved = one_row_of_each_text(output.rows, output.rows[:, 0], self.seed)
        solved |= torch.tensor(not readout.by_programs, device=mask.device)
        programs = readout.affine or readout.cheap
        adversary, _, _ = readout.select(solved).worst_case(self.epsilon, programs=programs)
        worst[solved] = adversary.mean(1).to(worst.dtype)
        scores |= {"minimal": minimal, "worst_case": worst}
        texts = self._texts(batch, output)
        unmarked = batch.extras.keys() - set(TEXT_MARKS)
        shown = {name: values for name, values in texts.items() if name not in unmarked}
        return shown | score_columns(scores, mask)
