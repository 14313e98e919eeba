"""One direction of a recurrent network, which can be resumed from any token."""

from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from attnlight.models.attention import tanh
from attnlight.models.encoders import orthogonal_to


class Recurrence:
    """One direction of a recurrent network over B texts.

    The inputs' contribution to the gates is computed once per token and reused.

    Args:
        network: An LSTM or GRU of one layer and one direction.
        embeddings: (B, N, E).
        text: Mask of real tokens, (B, N) bool.
        step: 1 from the first token to the last, -1 from the last to the first.
        orthogonal: Whether states are those of `OrthogonalLSTM`.

    Attributes:
        hidden: State of each token, (B, N, H); zero on padding.
    """

    def __init__(
        self,
        network: nn.Module,
        embeddings: Tensor,
        text: Tensor,
        step: int,
        orthogonal: bool = False,
    ) -> None:
        assert isinstance(network, nn.LSTM | nn.GRU)
        self.lengths, self.step = text.sum(-1), step
        lstm, size = isinstance(network, nn.LSTM), network.hidden_size
        twice = torch.ones_like(network.get_parameter("bias_ih_l0"))
        twice[2 * size : 3 * size] += lstm  # the candidates, see `_advance`
        of_input, (weight, self._bias) = (
            (
                network.get_parameter(f"weight_{kind}_l0") * twice[:, None],
                network.get_parameter(f"bias_{kind}_l0") * twice,
            )
            for kind in ("ih", "hh")
        )
        self._weight = weight.mT
        self.inputs = linear(embeddings, *of_input)
        self.hidden = embeddings.new_zeros(*text.shape, size)
        if lstm:
            self.inputs += self._bias
        # The states before each token: hidden and, of an LSTM, cell and, if orthogonal, sum of states.
        self._before = [torch.zeros_like(self.hidden) for _ in range(1 + lstm + orthogonal)]
        state = [part.new_zeros(len(text), part.shape[-1]) for part in self._before]
        for place in range(text.shape[1])[::step]:
            for part, current in zip(self._before, state, strict=True):
                part[:, place] = current
            self._advance(self.inputs[:, place].clone(), state)
            for current in state:
                current.mul_(text[:, place, None])
            self.hidden[:, place] = state[0]

    def resume(
        self, texts: Tensor, places: Tensor, budget: int
    ) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """The states after each of r gaps, one step of all gaps at a time.

        From each text, `texts` (r,), the token at its place (r,) is left out. At least the states
        of one step are given at once.

        Yields:
            Index of the gap before each state (n,), position of its token (n,), the state (n, H), which the
            next step overwrites.
        """
        following = self.lengths[texts] - 1 - places if self.step > 0 else places
        order = following.argsort(descending=True, stable=True)
        texts, places = texts[order], places[order]
        state = [part[texts, places] for part in self._before]
        inputs = self.inputs.flatten(0, 1)
        token = texts * self.inputs.shape[1] + places
        # Gaps are sorted by the tokens that follow, so that unfinished ones are always the first n.
        counts = torch.bincount(following).flip(0).cumsum(0).flip(0)[1:].tolist()
        states = state[0].new_empty(max(budget, len(token)), state[0].shape[-1])
        steps: list[tuple[Tensor, Tensor]] = []
        held = 0
        for number, unfinished in enumerate(counts, 1):
            state = [part[:unfinished] for part in state]
            gates = inputs.index_select(0, token[:unfinished] + number * self.step)
            self._advance(gates, state)
            states[held : held + unfinished] = state[0]
            steps.append((order[:unfinished], places[:unfinished] + number * self.step))
            held += unfinished
            if number == len(counts) or held + counts[number] > budget:
                gaps, positions = (torch.cat(parts) for parts in zip(*steps, strict=True))
                yield gaps, positions, states[:held]
                steps, held = [], 0

    def _advance(self, gates: Tensor, state: list[Tensor]) -> None:
        """One step, in place, of an LSTM with gates (n, 4 H) or of a GRU with gates (n, 3 H).

        The gates initially hold the inputs' contribution, for an LSTM with both biases and twice that to
        the candidates; its cells are twice as large, too. With the logistic function s, tanh(x) is
        2 s(2 x) - 1, and s is several times as fast as tanh on a CPU.
        """
        if len(state) > 1:
            hidden, cell, *total = state
            gates.addmm_(hidden, self._weight).sigmoid_()
            input_gate, forget_gate, candidate, output_gate = gates.chunk(4, -1)
            cell.mul_(forget_gate).addcmul_(input_gate, candidate, value=4).sub_(
                input_gate, alpha=2
            )
            torch.sigmoid(cell, out=hidden).mul_(2).sub_(1).mul_(output_gate)
            for before in total:
                before.add_(hidden.copy_(orthogonal_to(hidden, before)))
            return
        (hidden,) = state
        reset, update, candidate = gates.chunk(3, -1)
        recurrent = torch.addmm(self._bias, hidden, self._weight)
        hidden_reset, hidden_update, hidden_candidate = recurrent.chunk(3, -1)
        reset.add_(hidden_reset).sigmoid_()
        update.add_(hidden_update).sigmoid_()
        candidate = tanh(candidate.addcmul_(reset, hidden_candidate))
        hidden.sub_(candidate).mul_(update).add_(candidate)
