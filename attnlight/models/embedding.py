"""Token embeddings, initialised at random or from word vectors."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from attnlight.batch import PAD
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
        """Initialise from word vectors; words without one are set to zero or keep random values.

        Raises:
            InputError: The vectors differ from the embedding in size or vocabulary.
        """
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
