"""Do the states that attention weights stand for their tokens?"""

from typing import Any, Literal

import torch
from torch import Tensor
from typing_extensions import override

from attnlight.attribution.hidden_tokens import hidden_token_attribution
from attnlight.batch import AttentionOutput, HasReach, TextBatch
from attnlight.callbacks.base import InterpretabilityTest, Measured
from attnlight.functional import kendall_tau
from attnlight.functional.ranking import TIE, dense_ranks
from attnlight.functional.readout.instances import other_items
from attnlight.models.readout import Readout
from attnlight.probing.leave_one_out import leave_one_out, prediction_change
from attnlight.probing.row_gradients import text_of_rows

_LONG = 100  # items; exact attribution takes a minute or more on one core if the encoder recurs


class StateTokenAgreement(InterpretabilityTest):
    """Compare the states that attention weights with the tokens at their places.

    Erasing an item at the attention layer removes its state; deleting it removes its token. What is
    said of attention over states holds for tokens as far as these two agree:

    * `tau_erasure_deletion`: Kendall's tau-b over the items of a row between the change of the
      prediction (total variation distance) when state i is erased and the remaining attention
      renormalised, and when token i is deleted and the remaining text encoded and attended to again
      (leave-one-out). Changes within 1e-5 of the row's largest are ties.
    * `hidden_token_attribution`: share of the gradient norm of state i that lies on the embedding of
      token i (Brunner et al., 2020), mean over items. It is exactly 1 for an encoder without context.
    * `own_token_largest`: share of the items whose own token has the largest share (within 1e-5).
    * `chance`: 1 / n with n the tokens that the encoder reads, boundary tokens included, or its
      sentences: the attribution of a state that depends on all of them alike.

    Items that are sentences are erased and deleted whole; the gradient norms of their words are
    summed. A state whose gradient is 0, as after a ReLU, is left out. If rows are tokens (a tagger),
    tau excludes the token itself, whose deletion leaves no prediction; the last three columns are of
    all states of its sentence, the same for each of its tokens.

    `items` is the number of items. Exact attribution takes a backward pass for each dimension of
    each state, which is time quadratic in the length of a text.

    Args:
        probes: Estimate the gradient norms from so many random combinations of a state's dimensions
            (at least 2) instead of all of them: 16 give the mean within its interval at a fraction
            of the time. `hidden_token_attribution_error` then is the standard error of each row's
            estimate. Null: exact.
        hidden_tokens: `local`: leave the last three columns undefined for encoders of unbounded
            reach, such as recurrent ones, where they take most of the time; `all`: measure them.
        options: Those of `InterpretabilityTest`, such as `max_instances` and `seed`.
    """

    needs_gradients = True
    measures = ("tau_erasure_deletion", "hidden_token_attribution", "own_token_largest", "chance")

    def __init__(
        self,
        probes: int | None = None,
        hidden_tokens: Literal["all", "local"] = "all",
        **options: Any,  # noqa: ANN401
    ) -> None:
        super().__init__(**options)
        self._require_at_least(2, probes=probes)
        self.hidden_tokens, self.probes = hidden_tokens, probes
        self.metadata = {"tie": TIE, "probes": probes}

    @override
    def measure(self, batch: TextBatch, output: AttentionOutput, readout: Readout) -> Measured:
        model = readout.model
        with torch.no_grad():
            erasure = prediction_change(readout.erase(), readout.logits)
        deletion = leave_one_out(model, batch, output, self.budget)
        others = other_items(batch, output)
        tau, _ = kendall_tau(dense_ranks(erasure, others), dense_ranks(deletion, others), others)
        columns = {"tau_erasure_deletion": tau, **self._shares(batch, output, readout)}
        return columns | {"items": readout.lengths}

    def _shares(
        self, batch: TextBatch, output: AttentionOutput, readout: Readout
    ) -> dict[str, Tensor]:
        """The columns of hidden token attribution."""
        model, longest = readout.model, int(readout.lengths.max())
        unbounded = not isinstance(model, HasReach) or model.reach is None
        if unbounded and self.hidden_tokens == "local":
            return {name: torch.full((len(output.mask),), torch.nan) for name in self.measures[1:]}
        if unbounded and self.probes is None and longest > _LONG:
            self._say_once(
                f"a text has {longest:,} items; exact attribution takes time quadratic in their "
                "number. Set probes: 16 to estimate it, or max_instances."
            )
        shares, errors = hidden_token_attribution(
            model, batch, output, self.probes, self.seed, self.budget
        )
        own = shares.diagonal(dim1=1, dim2=2)
        largest = (own >= (1 - TIE) * shares.amax(-1)).double()
        read = batch.mask if batch.mask.ndim == 2 else batch.mask.any(-1)
        text = text_of_rows(batch, output)
        known = output.mask & ~own[text].isnan()
        count = known.sum(-1)
        columns = {
            "hidden_token_attribution": own[text].masked_fill(~known, 0.0).sum(-1) / count,
            "own_token_largest": (largest[text] * known).sum(-1) / count,
            "chance": torch.where(count > 0, 1.0 / read.sum(-1).double()[text], torch.nan),
        }
        if self.probes is not None:
            squares = errors[text].square().masked_fill(~known, 0.0).sum(-1)
            columns["hidden_token_attribution_error"] = squares.sqrt() / count
        return columns
