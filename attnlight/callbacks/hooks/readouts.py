"""Readouts that tests of the same texts share, and those of several batches, measured together."""

from collections.abc import MutableMapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary

from attnlight.batch import AttentionModel, AttentionOutput, TextBatch
from attnlight.callbacks.hooks.validate_output import broken_rows
from attnlight.models.readout import Readout, readout_of
from attnlight.probing.shared_results import share_results

WEIGHTS = 1 << 16  # (rows x heads x items) that are measured together at most
_Found = tuple[Readout, NDArray[Any]]
# Of one batch at a time, by its output and then by the model and the chosen texts.
_READOUTS: MutableMapping[AttentionOutput, dict[tuple[int, bytes], _Found]] = WeakIdKeyDictionary()
# By the last of several readouts: which these are, and what joins them, for tests that hold the same.
_JOINED: MutableMapping[Readout, tuple[list[int], Readout]] = WeakIdKeyDictionary()


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


class HeldReadouts:
    """Readouts of small batches that wait for each other, since a measure costs much for few rows.

    Those whose rows are not texts do not wait, nor do those that are not affine, whose measures cost
    more for each row.
    """

    def __init__(self) -> None:
        self._held: list[Readout] = []

    def add(self, readout: Readout) -> list[Readout]:
        """The readouts to measure now, of a batch or of several."""
        output = readout.output
        if not readout.affine or len(output.rows) != len(output.states):
            return [*readout.by_texts()]
        weights = sum(held.output.weights.numel() for held in [*self._held, readout])
        released = self.release() if weights > WEIGHTS else []
        self._held.append(readout)
        return released

    def release(self) -> list[Readout]:
        """All held readouts joined into one, padded to the longest text; none is held afterwards.

        It has no states of items, which a readout that is affine in attention does not need, and
        which are by far the largest.
        """
        held, self._held = self._held, []
        if len(held) < 2:
            return held
        first, last, which = held[0], held[-1], [*map(id, held)]
        if last not in _JOINED or _JOINED[last][0] != which:
            batch = TextBatch(**_cat([vars(part.batch) for part in held]))
            outputs = [replace(x.output, states=x.output.states[:, :0], layers=None) for x in held]
            output = AttentionOutput(**_cat([vars(output) for output in outputs]))
            if output.bias is not None and output.bias.ndim == 1:  # of all rows
                output.bias = first.output.bias
            _JOINED[last] = which, Readout(batch, output, first.model)
        return [_JOINED[last][1]]


def _cat(parts: Sequence[Any]) -> Any:  # noqa: ANN401
    """Tensors along their first dimension, padded with zeros, or tuples and mappings of them."""
    first = parts[0]
    if isinstance(first, Tensor):
        sizes = [max(size) for size in zip(*(part.shape[1:] for part in parts), strict=True)]
        joined = first.new_zeros(sum(map(len, parts)), *sizes)
        for place, part in zip(torch.split(joined, [*map(len, parts)]), parts, strict=True):
            place[tuple(map(slice, part.shape))] = part
        return joined
    if isinstance(first, tuple):
        return tuple(_cat(each) for each in zip(*parts, strict=True))
    return {key: _cat([part[key] for part in parts]) for key in first or ()} or first
