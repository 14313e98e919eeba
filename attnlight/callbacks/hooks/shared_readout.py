"""The readout of the texts of a batch that tests measure, which these tests share."""

from collections.abc import MutableMapping
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary

from attnlight.batch import AttentionModel, AttentionOutput, TextBatch
from attnlight.callbacks.hooks.validate_output import broken_rows
from attnlight.models.readout import Readout, readout_of
from attnlight.probing.shared_results import share_results

_Found = tuple[Readout, NDArray[Any]]
# Of one batch at a time, by its output and then by the model and the chosen texts.
_READOUTS: MutableMapping[AttentionOutput, dict[tuple[int, bytes], _Found]] = WeakIdKeyDictionary()


def shared_readout(
    batch: TextBatch, output: AttentionOutput, model: AttentionModel, texts: Tensor
) -> _Found:
    """The readout of chosen texts, (B,) bool, and the rows (E, 2) of those that are not finite.

    These texts are left out of the readout. Tests that choose the same texts get the same readout,
    and the results of `shared` functions for it, as long as the output exists and no other batch
    was asked for.
    """
    if output not in _READOUTS:
        _READOUTS.clear()
        _READOUTS[output] = {}
    found, chosen = _READOUTS[output], (id(model), texts.cpu().numpy().tobytes())
    if chosen not in found:
        detached = output.apply(Tensor.detach)
        if not texts.all():
            rows = torch.isin(output.rows[:, 0], batch.index[texts])
            batch, detached = batch.select(texts), detached.select(texts, rows)
        broken, excluded = broken_rows(detached), detached.rows[:0]
        if broken is not None:
            excluded = detached.rows[broken]
            finite = ~torch.isin(batch.index, excluded[:, 0])
            batch, detached = batch.select(finite), detached.select(finite, ~broken)
        share_results(model, batch, detached)
        found[chosen] = readout_of(batch, detached, model), excluded.cpu().numpy()
    return found[chosen]
