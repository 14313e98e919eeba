"""Log odds and their integrated gradients on parts of the line from a baseline to each text."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from attnlight.batch import AttentionModel, TextBatch
from attnlight.functional.attribution.log_odds import log_odds
from attnlight.probing.row_gradients import row_gradients


@dataclass
class EmbeddingLine:
    """The way of each text's embeddings from a baseline, for a model in evaluation mode.

    Attributes:
        start: Embeddings of the baseline.
        way: Embeddings of the texts less those.
        target: Class of each row, (R,) long.
        text: Place of each row's text, (R,) long, ascending.
        tokens: Tokens with padding that are computed together, at least those of one text.
    """

    model: AttentionModel
    batch: TextBatch
    start: Tensor
    way: Tensor
    target: Tensor
    text: Tensor
    tokens: int

    def odds(self, row: Tensor, place: Tensor) -> Tensor:
        """Log odds (Q,) float64 of the rows (Q,) with their texts at places (Q,) of the line."""
        found = torch.zeros_like(place)
        for texts, at, rows, asked in self._points(row, place):
            with torch.no_grad():
                logits = self.model(self.batch.select(texts), embeddings=at).logits
            values = log_odds(logits, self.target[rows]).double()
            found[asked[asked >= 0]] = values[asked >= 0]
        return found

    def integrals(self, row: Tensor, ends: Tensor, steps: int) -> Tensor:
        """Integrated gradients (Q, N) float64 of the rows (Q,) between ends (Q, 2), at so many nodes."""
        nodes, weights = (
            torch.from_numpy(values / 2).to(ends)
            for values in np.polynomial.legendre.leggauss(steps)
        )
        low, width = ends[:, 0], ends[:, 1] - ends[:, 0]
        place = low[:, None] + width[:, None] * (0.5 + nodes)
        weight = (width[:, None] * weights).flatten()
        part = torch.arange(len(row), device=row.device).repeat_interleave(steps)
        found = ends.new_zeros(len(row), self.batch.mask.shape[1])
        for texts, at, rows, asked in self._points(row[part], place.flatten()):
            way = self.way[texts]
            values = row_gradients(
                self.model,
                self.batch.select(texts),
                at,
                self.target[rows],
                lambda gradient, _, way=way: (gradient * way).sum(-1, dtype=torch.float64),  # type: ignore[misc]
                wanted=asked >= 0,
            )
            own = asked[asked >= 0]
            found.index_add_(0, part[own], values[asked >= 0] * weight[own, None])
        return found

    def _points(
        self, row: Tensor, place: Tensor
    ) -> Iterator[tuple[Tensor, Tensor, Tensor, Tensor]]:
        """Texts with their embeddings at places, each pair once; their rows; which were asked for.

        Yields:
            Texts (P,) and embeddings (P, ...) of a pass of the model; the rows of these texts, (S,)
            long; and the number of each of these in `row` and `place`, (S,) long, -1 if it is in
            neither.
        """
        pairs, pair = torch.unique(
            torch.stack([self.text[row].double(), place], -1), dim=0, return_inverse=True
        )
        rows_of = torch.bincount(self.text, minlength=len(self.batch))
        first = rows_of.cumsum(0) - rows_of
        size = max(1, self.tokens * len(self.batch) // max(self.batch.mask.numel(), 1))
        for chosen in torch.split(torch.arange(len(pairs), device=row.device), size):
            texts = pairs[chosen, 0].long()
            count = rows_of[texts]
            copy = torch.arange(len(texts), device=row.device).repeat_interleave(count)
            rows = torch.arange(len(copy), device=row.device) - (count.cumsum(0) - count)[copy]
            rows = rows + first[texts][copy]
            numbers = rows.new_full((len(texts), len(self.text)), -1)
            own = torch.nonzero((pair >= chosen[0]) & (pair <= chosen[-1])).squeeze(-1)
            numbers[pair[own] - chosen[0], row[own]] = own
            at = pairs[chosen, 1].to(self.way).view(-1, *[1] * (self.way.ndim - 1))
            yield texts, self.start[texts] + self.way[texts] * at, rows, numbers[copy, rows]
