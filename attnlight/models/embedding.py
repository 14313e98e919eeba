"""Token embeddings, initialised at random or from word vectors, and vectors of features."""

from collections.abc import Mapping
from typing import Literal

import torch
from torch import Tensor, nn

from attnlight.batch import PAD, TextBatch
from attnlight.data.features import CHARACTERS, PACKED
from attnlight.errors import InputError
from attnlight.models.vectors import WordVectors


class Embedding(nn.Embedding):
    """Embeddings (V, E) from N(0, scale^2); the padding row is and stays zero.

    With `sparse` set, as tasks do on one CPU without DDP, a gradient holds only the rows of the
    batch until `densify_gradient`; otherwise gradients are dense throughout.
    """

    def __init__(self, vocab_size: int, size: int, scale: float = 0.1) -> None:
        super().__init__(vocab_size, size, padding_idx=PAD)
        with torch.no_grad():
            self.weight.mul_(scale)  # nn.Embedding starts from N(0, 1), with a padding row of zeros
        self._gradient: Tensor | None = None
        self._rows: Tensor | None = None

    def densify_gradient(self) -> None:
        """Turn a sparse gradient into the dense one that fused optimisers need.

        The dense gradient is one buffer, whose rows of the last batch are cleared: with a new one
        per batch, an epoch on SST takes a tenth longer on a CPU.
        """
        gradient = self.weight.grad
        if gradient is None or not gradient.is_sparse:
            return
        if self._gradient is None or self._rows is None:
            self._gradient = torch.zeros_like(self.weight)
        else:
            self._gradient.index_fill_(0, self._rows, 0.0)
        # The public accessors require a coalesced tensor, which costs a sort.
        self._rows = gradient._indices()[0]
        self._gradient.index_add_(0, self._rows, gradient._values())
        self.weight.grad = self._gradient

    @torch.no_grad()
    def start_from(
        self, vectors: WordVectors, unknown: Literal["zero", "random"] = "random"
    ) -> None:
        """Initialise from word vectors; words without one are set to zero or keep random values."""
        matrix, covered = vectors
        if matrix.shape != self.weight.shape:
            raise InputError(
                f"the file of vectors gives {matrix.shape[0]} words of size {matrix.shape[1]}, but "
                f"the model has {self.num_embeddings} of embedding_size {self.embedding_dim}"
            )
        if unknown == "zero":
            self.weight.zero_()
        self.weight[covered.to(self.weight.device)] = matrix[covered].to(self.weight)
        self.weight[PAD] = 0.0


class CharacterCNN(nn.Module):
    """Convolution of 3 characters and the maximum over a word, as Ma and Hovy (2016)."""

    def __init__(self, characters: int, size: int, scale: float = 0.1) -> None:
        super().__init__()
        self.embedding = Embedding(characters, size, scale)
        self.convolution = nn.Conv1d(size, size, 3, padding=1)

    def forward(self, packed: Tensor) -> Tensor:
        """Vectors (B, N, size) of words spelled in packed numbers (B, N, P)."""
        shifts = torch.arange(0, 8 * PACKED, 8, device=packed.device)
        spelled = ((packed.unsqueeze(-1) >> shifts) & 0xFF).flatten(2)  # (B, N, 8 P)
        words = spelled.flatten(0, 1)
        channels = self.convolution(self.embedding(words).mT)
        # The maximum is over the word alone, not over its padding.
        highest = channels.masked_fill((words == PAD).unsqueeze(1), -torch.inf).amax(-1)
        highest = highest.masked_fill(highest.isinf(), 0.0)
        vectors: Tensor = highest.unflatten(0, packed.shape[:2])
        return vectors


class TokenFeatures(nn.Module):
    """Vectors of the features in `TextBatch.extras`; `characters` are encoded by a convolution.

    Args:
        features: Number of ids of each.
        size: Size of each feature's vector.
        scale: Standard deviation of randomly drawn embeddings.
    """

    def __init__(self, features: Mapping[str, int], size: int, scale: float = 0.1) -> None:
        super().__init__()
        self.tables = nn.ModuleDict(
            {
                name: CharacterCNN(ids, size, scale)
                if name == CHARACTERS
                else Embedding(ids, size, scale)
                for name, ids in features.items()
            }
        )
        self.output_size = size * len(features)

    def forward(self, batch: TextBatch) -> list[Tensor]:
        """Each feature's vectors (B, N, size), zero on padding."""
        padding, vectors = ~batch.mask.unsqueeze(-1), []
        for name, table in self.tables.items():
            columns = [name]
            if name == CHARACTERS:  # packed, some in each column
                columns = sorted(c for c in batch.extras if c.startswith(f"{name}_")) or columns
            if columns[0] not in batch.extras:
                names = ", ".join(batch.extras) or "none"
                raise InputError(f"the model reads the feature {name}, but the batch has {names}.")
            ids = torch.stack([batch.extras[column] for column in columns], dim=-1)
            ids = ids if name == CHARACTERS else ids.squeeze(-1).long()
            vectors.append(table(ids).masked_fill(padding, 0.0))
        return vectors
