"""Log odds and integrated gradients on the line from a baseline to each text's embeddings."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from attnlight.batch import AttentionModel, TextBatch
from attnlight.functional.attribution.log_odds import log_odds
from attnlight.probing.row_gradients import product, row_gradients


@dataclass
class EmbeddingLine:
    """The line from a baseline (alpha = 0) to the embeddings of each text (alpha = 1).

    Attributes:
        model: The model, in evaluation mode.
        batch: B texts of N items.
        baseline: Embeddings of the baseline, (B, N, E) or (B, S, N, E).
        difference: Embeddings of the texts minus those of the baseline.
        target: Class of each row, (R,) long.
        text: Place in the batch of each row's text, (R,) long, ascending.
        tokens: Most tokens, with padding, in a forward pass, which has at least one text.
    """

    model: AttentionModel
    batch: TextBatch
    baseline: Tensor
    difference: Tensor
    target: Tensor
    text: Tensor
    tokens: int

    def odds(self, row: Tensor, alpha: Tensor) -> Tensor:
        """Log odds (Q,) float64 of rows (Q,) long, each at its own alpha, (Q,) float64."""
        odds = torch.zeros_like(alpha)
        for texts, embeddings, rows, asked, query in self._points(row, alpha):
            with torch.no_grad():
                logits = self.model(self.batch.select(texts), embeddings=embeddings).logits
            odds[query] = log_odds(logits, self.target[rows]).double()[asked]
        return odds

    def integrals(self, row: Tensor, ends: Tensor, steps: int) -> Tensor:
        """Integrated gradients (Q, N) float64 of rows (Q,), each between two alphas, `ends` (Q, 2)."""
        # Gauss-Legendre nodes and weights, scaled from [-1, 1] to an interval of width 1.
        nodes, weights = (
            torch.from_numpy(values / 2).to(ends)
            for values in np.polynomial.legendre.leggauss(steps)
        )
        low, width = ends[:, :1], ends[:, 1:] - ends[:, :1]
        alpha = (low + width * (0.5 + nodes)).flatten()
        weight = (width * weights).flatten()
        integral = torch.arange(len(row), device=row.device).repeat_interleave(steps)
        integrals = ends.new_zeros(len(row), self.batch.mask.shape[1])
        for texts, embeddings, rows, asked, query in self._points(row[integral], alpha):
            difference = self.difference[texts]
            values = row_gradients(
                self.model,
                self.batch.select(texts),
                embeddings,
                self.target[rows],
                lambda gradient, _, by=difference: product(gradient, by),  # type: ignore[misc]
                wanted=asked,
            )
            integrals.index_add_(0, integral[query], values[asked] * weight[query, None])
        return integrals

    def _points(self, row: Tensor, alpha: Tensor) -> Iterator[tuple[Tensor, ...]]:
        """Forward passes that answer queries of a row (Q,) and an alpha (Q,).

        A pass gives all rows of its texts, so each pair of text and alpha is in one pass only.

        Yields:
            Texts (P,) and embeddings (P, ...) of a pass; the rows of these texts, (S,) long; which of
            these are asked for, (A,) long; and the query that each of them answers, (A,) long.
        """
        size = max(1, self.tokens * len(self.batch) // max(self.batch.mask.numel(), 1))
        numbers, count = torch.arange(len(row), device=row.device), len(self.text)
        alone = count == len(self.batch)  # each text has one row, and each query a text of its own
        text, keys, order = self.text[row], numbers, numbers
        if not alone:
            points, point = torch.unique(
                torch.stack([text.double(), alpha], -1), dim=0, return_inverse=True
            )
            text, alpha = points[:, 0].long(), points[:, 1]
            keys, order = (point * count + row).sort()
            numbers = numbers[: len(points)]
        for group in torch.split(numbers, size):
            texts, rows, asked, query = text[group], text[group], group - group[:1], group
            if not alone:
                starts = torch.searchsorted(self.text, texts)
                counts = torch.searchsorted(self.text, texts, right=True) - starts
                place = (group - group[:1]).repeat_interleave(counts)
                ends = counts.cumsum(0)
                rows = numbers.new_ones(len(place)).cumsum(0) - 1 + (starts + counts - ends)[place]
                key = group[place] * count + rows
                found = torch.searchsorted(keys, key).clamp(max=len(keys) - 1)
                asked = (keys[found] == key).nonzero().squeeze(-1)
                query = order[found[asked]]
            alphas = alpha[group].to(self.difference)
            alphas = alphas.view(-1, *[1] * (self.difference.ndim - 1))
            embeddings = self.baseline[texts] + self.difference[texts] * alphas
            yield texts, embeddings, rows, asked, query
