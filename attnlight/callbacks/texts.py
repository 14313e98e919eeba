"""Record texts with scores of their items, which the page of a run shows."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from typing_extensions import override

from attnlight.attribution import build_attributions
from attnlight.batch import AttentionOutput, HasFreeAnswers, TextBatch
from attnlight.callbacks.adversarial_attention import one_row_of_each_text
from attnlight.callbacks.base import InterpretabilityTest, Measured
from attnlight.callbacks.hooks.attention_maps import attention_maps
from attnlight.callbacks.hooks.epoch_recorder import to_cpu
from attnlight.callbacks.hooks.text_columns import TextColumns, item_lists, score_columns
from attnlight.callbacks.surroundings import Surroundings
from attnlight.data.selection import choose
from attnlight.functional import masked_softmax, permuted_weights
from attnlight.models.readout import Readout
from attnlight.probing.input_gradient import input_gradient
from attnlight.probing.leave_one_out import leave_one_out
from attnlight.records import TEXT_MARKS

METHODS = ("gradient_x_attention", {"name": "occlusion", "replacement": "delete"})


class Texts(InterpretabilityTest):
    """Record texts and the scores of their items, for the page of the run; there are no measures.

    Columns are those of `TextColumns` (of the corpus's per-token columns only the marks `evidence`,
    `rationale` and `impermissible`), `answer` of models that answer in free text, and for each row a list
    of scores of its items:

    * `scores_input_gradient`: gradient times embedding, with attention held constant.
    * `scores_loo`: the change of the prediction when the item is deleted; NaN for the token that a
      row of a tagger predicts.
    * `scores_minimal`: 1 for the items of the smallest set whose erasure changes the decision, as
      `DecisionFlip` finds it, 0 for others; NaN if no set does or the readout is not affine.
    * `scores_worst_case`: worst-case attention as of `AdversarialAttention`, mean over heads. With
      more than two classes or a readout that is not affine it is computed for one row of each text
      and NaN in others; where such a readout may be costly, as if `program_instances` were 0.
    * one for each of `methods`, by its label: scores of the predicted class.

    Where the page cannot compute an exact worst case, with more than two classes or a readout that is
    not affine, `candidates` are other attentions, and `candidate_probabilities` the predictions under
    each, one after the other: the worst case of the head that can change most, with all other heads
    as they are; uniform attention; and a random permutation of the attention.

    For some texts the attention of all layers, or of a hierarchical model's words, is recorded by
    `attention_maps`.

    Nothing is recorded on validation epochs of `fit`.

    Args:
        epsilon: Largest total variation distance under worst-case attention.
        leave_one_out: Compute `loo`, which encodes texts again; else it is not recorded.
        methods: Names of attribution methods, or mappings of their options; occlusion by deletion
            shares its encoded texts with `loo`.
        maps: Record the attention between all tokens of this many texts, chosen likewise.
        max_instances: Record this many texts, chosen by a seeded hash; None: all.
        seed: Seed of the choice of instances.
    """

    needs_gradients = True

    def __init__(
        self,
        epsilon: float = 0.01,
        leave_one_out: bool = True,
        methods: Sequence[str | dict[str, Any]] = METHODS,
        maps: int = 12,
        max_instances: int | None = 500,
        seed: int = 0,
    ) -> None:
        super().__init__(max_instances=max_instances, seed=seed, figures=False)
        self.epsilon = epsilon
        self.leave_one_out = leave_one_out
        self.maps = maps
        self.methods = build_attributions(methods, self.name, least=0)
        self.metadata = {"epsilon": epsilon}

    @override
    def begin(self, around: Surroundings) -> None:
        if around.epoch is not None:
            return
        self._texts = TextColumns(around.dataset)
        self._mapped = choose(around.dataset.index, self.maps, self.seed)
        super().begin(around)

    @override
    def measure(self, batch: TextBatch, output: AttentionOutput, readout: Readout) -> Measured:
        model, mask = readout.model, output.mask
        scores = {"input_gradient": input_gradient(model, batch, output, detached=True)}
        if self.leave_one_out:
            scores["loo"] = leave_one_out(model, batch, output, None)
        minimal = torch.full(mask.shape, torch.nan, dtype=torch.float64, device=mask.device)
        worst = minimal.clone()
        if (found := readout.minimal_flips()) is not None:
            size, members = found
            minimal = torch.where((size < 0)[:, None], torch.nan, members.double())
        target = output.logits.argmax(-1)
        scores |= {n: method(model, batch, output, target) for n, method in self.methods.items()}
        solved = one_row_of_each_text(output.rows, output.rows[:, 0], self.seed)
        solved |= torch.tensor(not readout.by_programs, device=mask.device)
        programs = readout.affine or readout.cheap
        adversary, js, _ = readout.select(solved).worst_case(self.epsilon, programs=programs)
        worst[solved] = adversary.mean(1).to(worst.dtype)
        scores |= {"minimal": minimal, "worst_case": worst}
        texts = self._texts(batch, output)
        if isinstance(model, HasFreeAnswers) and (answers := model.free_texts(batch)) is not None:
            texts["answer"] = answers
        if readout.by_programs:
            one_head, head = readout.head_weights.clone(), js.nan_to_num(-1.0).argmax(-1)
            found_rows = torch.arange(len(head), device=head.device)
            one_head[solved.nonzero().squeeze(-1), head] = adversary[found_rows, head]
            texts |= self._candidates(readout, one_head)
        mapped = batch.index.new_tensor(self._mapped)
        texts |= attention_maps(model, batch, output, torch.isin(batch.index, mapped))
        unmarked = batch.extras.keys() - set(TEXT_MARKS)
        shown = {name: values for name, values in texts.items() if name not in unmarked}
        return shown | score_columns(scores, mask)

    def _candidates(self, readout: Readout, worst: Tensor) -> dict[str, Any]:
        """Columns of the worst case (R, H, N) and of two other attentions, and their predictions."""
        output, mask = readout.output, readout.output.mask
        uniform = masked_softmax(torch.zeros_like(worst), mask)
        texts = output.rows * output.rows.new_tensor([1, 0])
        shuffled = permuted_weights(readout.head_weights, mask, texts, 1, self.seed).squeeze(2)
        attentions = torch.stack([worst, uniform, shuffled], dim=2)  # (R, H, 3, N)
        lists = item_lists(*map(to_cpu, (attentions.transpose(1, 2).flatten(1, 2).float(), mask)))
        logits = readout.candidates(attentions).detach()
        return {
            "candidates": lists,
            "candidate_probabilities": logits.softmax(-1).float().flatten(1),
        }
