"""One direction of a recurrent network, resumed from any token on."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.nn.functional import linear


class Recurrence:
    """One direction of a recurrent network over B texts.

    What the inputs add to the gates is computed once per token, however often it is read again.

    Args:
        network: An LSTM or GRU of one layer and one direction.
        embeddings: (B, N, E).
        text: What is text, (B, N) bool.
        step: 1 from the first token on, -1 from the last one back.

    Attributes:
        hidden: State of each token, (B, N, H); zero on padding.
    """

    def __init__(self, network: nn.Module, embeddings: Tensor, text: Tensor, step: int) -> None:
        assert isinstance(network, nn.LSTM | nn.GRU)
        self.lengths, self.step = text.sum(-1), step
        weight, self._bias = (network.get_parameter(f"{kind}_hh_l0") for kind in ("weight", "bias"))
        self._weight = weight.mT
        entering = (network.get_parameter(f"{kind}_ih_l0") for kind in ("weight", "bias"))
        self.inputs = linear(embeddings, *entering)
        self.hidden = embeddings.new_zeros(*text.shape, network.hidden_size)
        lstm = isinstance(network, nn.LSTM)
        if lstm:
            self.inputs += self._bias
        # The states before each token, by parts: hidden and, of an LSTM, cell.
        self._before = [torch.zeros_like(self.hidden) for _ in range(2 if lstm else 1)]
        state = [part.new_zeros(len(text), part.shape[-1]) for part in self._before]
        for place in range(text.shape[1])[::step]:
            for part, now in zip(self._before, state, strict=True):
                part[:, place] = now
            self._advance(self.inputs[:, place].clone(), state)
            for now in state:
                now.mul_(text[:, place, None])
            self.hidden[:, place] = state[0]

    def resume(self, texts: Tensor, places: Tensor) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """The states that follow each of r gaps, a step of all at a time.

        Args:
            texts: Which texts, (r,).
            places: The token that is left out of each, (r,).

        Yields:
            Which gaps still have a token after them, (n,), that token's place (n,), and its state
            (n, H), which the next step overwrites.
        """
        following = self.lengths[texts] - 1 - places if self.step > 0 else places
        order = following.argsort(descending=True, stable=True)
        texts, places = texts[order], places[order]
        state = [part[texts, places] for part in self._before]
        inputs = self.inputs.flatten(0, 1)
        token = texts * self.inputs.shape[1] + places
        # Those with the most to follow stand first: who goes on is always a head of the rows.
        counts = torch.bincount(following).flip(0).cumsum(0).flip(0)[1:].tolist()
        for number, left in enumerate(counts, 1):
            state = [part[:left] for part in state]
            gates = inputs.index_select(0, token[:left] + number * self.step)
            self._advance(gates, state)
            yield order[:left], places[:left] + number * self.step, state[0]

    def _advance(self, gates: Tensor, state: list[Tensor]) -> None:
        """One step, in place, of an LSTM with gates (n, 4 H) or of a GRU with gates (n, 3 H).

        The gates are given what the inputs add, of an LSTM with both biases.
        """
        if len(state) == 2:
            hidden, cell = state
            gates.addmm_(hidden, self._weight)
            enter, forget, new, leave = gates.chunk(4, -1)
            cell.mul_(forget.sigmoid_()).addcmul_(enter.sigmoid_(), new.tanh_())
            torch.tanh(cell, out=hidden).mul_(leave.sigmoid_())
            return
        (hidden,) = state
        reset, update, new = gates.chunk(3, -1)
        added = torch.addmm(self._bias, hidden, self._weight)
        more_reset, more_update, more_new = added.chunk(3, -1)
        reset.add_(more_reset).sigmoid_()
        update.add_(more_update).sigmoid_()
        new.addcmul_(reset, more_new).tanh_()
        hidden.sub_(new).mul_(update).add_(new)
