"""Encoders: from embeddings (B, N, E) under a mask (B, N) to states (B, N, D).

States of real tokens depend on neither padding nor the rest of the batch; those of padding are
finite and arbitrary. A mask is a run of True from the first token on. The constructors take the
size E of an embedding and `hidden_size`, which determines the size D of a state.
"""

from typing import ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import linear
from typing_extensions import override

from attnlight.errors import InputError

EncoderName = Literal[
    "bilstm", "bigru", "lstm", "orthogonal_lstm", "cnn", "conv", "average", "none"
]


class Encoder(nn.Module):
    """Base of the encoders: `forward` maps embeddings and a mask (B, N) to states (B, N, D).

    Attributes:
        output_size: Size D of a state.
        reach: Number of tokens on either side that a state depends on; None: all.
    """

    output_size: int
    reach: int | None = None

    def final(self, states: Tensor, mask: Tensor, items: Tensor) -> Tensor:
        """A text's vector (B, D), as of a query: by default the mean state of its items, else zeros.

        Recurrent encoders give the last state of each direction, convolutions the maximum over the
        items.

        Args:
            states: Result of `forward`, (B, N, D).
            mask: Tokens that the encoder has read, (B, N) bool.
            items: Those that are no boundary tokens, (B, N) bool.
        """
        total = states.masked_fill(~items.unsqueeze(-1), 0.0).sum(1)
        return total / items.sum(1, keepdim=True).clamp(min=1)


class _Recurrent(Encoder):
    """A recurrent network over the text and, in two `directions`, one over the reversed text.

    On a CPU this trains up to three times as fast as packed sequences do (LSTM, 200 tokens).
    """

    cell: ClassVar[type[nn.LSTM | nn.GRU]]
    directions: ClassVar[int] = 2

    def __init__(self, input_size: int, hidden_size: int) -> None:
        super().__init__()
        self.output_size = self.directions * hidden_size
        self.forwards = self.cell(input_size, hidden_size, batch_first=True)
        if self.directions == 2:
            self.backwards = self.cell(input_size, hidden_size, batch_first=True)

    @override
    def forward(self, embeddings: Tensor, mask: Tensor) -> Tensor:
        forwards, _ = self.forwards(embeddings)
        if self.directions == 1:
            return forwards  # type: ignore[no-any-return]
        # Indices into the flattened batch that reverse each text and leave its padding in place.
        texts, size = mask.shape
        places = torch.arange(size, device=mask.device)
        mirrored = mask.sum(1, keepdim=True) - 1 - places
        starts = size * torch.arange(texts, device=mask.device)[:, None]
        reversal = (torch.where(mirrored >= 0, mirrored, places) + starts).flatten()

        reversed_texts = embeddings.flatten(0, 1).index_select(0, reversal).view_as(embeddings)
        backwards, _ = self.backwards(reversed_texts)
        backwards = backwards.flatten(0, 1).index_select(0, reversal).view_as(forwards)
        return torch.cat([forwards, backwards], dim=-1)

    @override
    def final(self, states: Tensor, mask: Tensor, items: Tensor) -> Tensor:
        last = (mask.sum(1) - 1).clamp(min=0)[:, None, None].expand(-1, -1, states.shape[-1])
        forwards, backwards = states.gather(1, last).squeeze(1), states[:, 0]
        size = states.shape[-1] // self.directions
        both = torch.cat([forwards[:, :size], backwards[:, size:]], dim=-1)
        return both.masked_fill(~mask.any(1, keepdim=True), 0.0)


class BiLSTM(_Recurrent):
    """One bidirectional LSTM layer, of Jain and Wallace (2019); `hidden_size` is D / 2."""

    cell = nn.LSTM


class BiGRU(_Recurrent):
    """One bidirectional GRU layer; `hidden_size` is D / 2."""

    cell = nn.GRU


class LSTM(_Recurrent):
    """One LSTM layer from the first token to the last, as of Mohankumar et al. (2020); D is `hidden_size`."""

    cell = nn.LSTM
    directions = 1


class OrthogonalLSTM(_Recurrent):
    """An LSTM whose states are orthogonal to the mean of those before (Mohankumar et al. 2020).

    What a state has in the direction of that mean is taken from it before it recurs; the cell stays as
    it is. The published code divides by the squared length of the mean plus 1e-6, so that small states
    stay alike; here the direction is a unit vector, whatever the scale. D is `hidden_size`.
    """

    cell = nn.LSTM
    directions = 1

    @override
    def forward(self, embeddings: Tensor, mask: Tensor) -> Tensor:
        with torch.autocast(embeddings.device.type, enabled=False):  # needs all digits
            # The gates that are sigmoids first, so that one call computes all three.
            weight, recurrent, bias, other = (
                torch.cat([i, f, o, g])
                for i, f, g, o in (values.chunk(4) for values in self.forwards.parameters())
            )
            hidden = total = cell = embeddings.new_zeros(len(mask), self.output_size)
            size, states = 3 * self.output_size, []
            for inputs in linear(embeddings, weight, bias + other).unbind(1):
                gates = torch.addmm(inputs, hidden, recurrent.mT)
                input_gate, forget_gate, output_gate = gates[:, :size].sigmoid().chunk(3, dim=-1)
                cell = torch.addcmul(forget_gate * cell, input_gate, gates[:, size:].tanh())
                hidden = orthogonal_to(output_gate * cell.tanh(), total)
                total = total + hidden
                states.append(hidden)
        return torch.stack(states, dim=1)


def orthogonal_to(vectors: Tensor, direction: Tensor) -> Tensor:
    """What vectors (B, D) are beside a direction (B, D), at any scale; all of it where that is 0.

    Projected twice: where a vector is nearly the direction, rounding leaves some of it the first time.
    """
    length = direction.norm(dim=-1, keepdim=True, dtype=torch.float64).to(direction.dtype)
    unit = direction / length.masked_fill(length == 0, 1.0)
    vectors = torch.addcmul(vectors, (vectors * unit).sum(-1, keepdim=True), unit, value=-1)
    known, unit = vectors.detach(), unit.detach()  # the second time changes digits, no gradient
    return torch.addcmul(vectors, (known * unit).sum(-1, keepdim=True), unit, value=-1)


class _Convolutional(Encoder):
    """Convolutions of several widths over the text padded with zeros, and ReLU.

    D is `hidden_size`; the filters are divided evenly among the widths.
    """

    widths: ClassVar[tuple[int, ...]]
    input_dropout: ClassVar[float] = 0.0

    def __init__(self, input_size: int, hidden_size: int) -> None:
        super().__init__()
        self.output_size = hidden_size
        filters, rest = divmod(hidden_size, len(self.widths))
        if rest or not filters:
            name = type(self).__name__.lower()
            raise InputError(
                f"hidden_size {hidden_size} of the {name} is not a multiple of {len(self.widths)}"
            )
        self.dropout = nn.Dropout(self.input_dropout)
        self.convolutions = nn.ModuleList(
            nn.Conv1d(input_size, filters, width, padding=width // 2) for width in self.widths
        )
        self.reach = max(self.widths) // 2

    @override
    def forward(self, embeddings: Tensor, mask: Tensor) -> Tensor:
        padding = ~mask.unsqueeze(-1)
        channels = self.dropout(embeddings).masked_fill(padding, 0.0).transpose(1, 2)
        states = torch.cat([layer(channels) for layer in self.convolutions], dim=1)
        return states.relu().transpose(1, 2).masked_fill(padding, 0.0)

    @override
    def final(self, states: Tensor, mask: Tensor, items: Tensor) -> Tensor:
        return states.masked_fill(~items.unsqueeze(-1), 0.0).amax(1)  # no state is negative


class CNN(_Convolutional):
    """Convolutions of 1, 3, 5 and 7 tokens and ReLU, of Jain and Wallace (2019)."""

    widths = (1, 3, 5, 7)


class Conv(_Convolutional):
    """Dropout, convolutions of 3 and 5 tokens and ReLU, of Serrano and Smith (2019)."""

    widths = (3, 5)
    input_dropout = 0.3


class Average(Encoder):
    """An affine map and tanh of each token alone: the MLP of Wiegreffe and Pinter (2019).

    D is `hidden_size`.
    """

    reach = 0

    def __init__(self, input_size: int, hidden_size: int) -> None:
        super().__init__()
        self.output_size = hidden_size
        self.projection = nn.Linear(input_size, hidden_size)

    @override
    def forward(self, embeddings: Tensor, mask: Tensor) -> Tensor:
        return torch.tanh(self.projection(embeddings))


class NoEncoder(Encoder):
    """The embeddings themselves: D is E, and `hidden_size` is not used."""

    reach = 0

    def __init__(self, input_size: int, hidden_size: int) -> None:
        super().__init__()
        self.output_size = input_size

    @override
    def forward(self, embeddings: Tensor, mask: Tensor) -> Tensor:
        return embeddings


ENCODERS: dict[str, type[Encoder]] = {
    "bilstm": BiLSTM,
    "bigru": BiGRU,
    "lstm": LSTM,
    "orthogonal_lstm": OrthogonalLSTM,
    "cnn": CNN,
    "conv": Conv,
    "average": Average,
    "none": NoEncoder,
}
