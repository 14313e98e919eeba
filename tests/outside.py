"""A model, a task and a corpus that owe nothing to attnlight but the Protocol."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import lightning.pytorch as pl
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from attnlight.batch import AttentionOutput, TextBatch


class TwoHeads(nn.Module):
    """Two heads over bare embeddings; the readout is affine, or squashes the context first."""

    def __init__(self, affine: bool, classes: int = 3, heads: int = 2) -> None:
        super().__init__()
        self.affine, self.heads = affine, heads
        self.table = nn.Embedding(50, 8, padding_idx=0)
        self.scores = nn.Linear(8, heads)
        self.values = nn.Linear(8 * heads, classes)

    def embed(self, batch: TextBatch) -> Tensor:
        return self.table(batch.tokens)

    def forward(
        self, batch: TextBatch, weights: Tensor | None = None, embeddings: Tensor | None = None
    ) -> AttentionOutput:
        states = self.embed(batch) if embeddings is None else embeddings
        if weights is None:
            scores = self.scores(states).transpose(1, 2)  # (B, H, N)
            weights = scores.masked_fill(~batch.mask[:, None], -torch.inf).softmax(dim=-1)
        output = AttentionOutput(
            rows=torch.stack([batch.index, torch.zeros_like(batch.index)], dim=1),
            logits=torch.empty(0),
            weights=weights,
            item_logits=self.item_logits(states) if self.affine else None,
            bias=self.decode(torch.zeros(8 * self.heads)),
            mask=batch.mask,
            states=states,
        )
        output.logits = self.readout(output, weights.unsqueeze(2)).squeeze(1)
        return output

    def decode(self, context: Tensor) -> Tensor:
        return self.values(context if self.affine else torch.tanh(3 * context))

    def item_logits(self, states: Tensor) -> Tensor:
        parts = self.values.weight.split(8, dim=1)
        each = torch.stack([states @ part.T for part in parts], dim=1)  # (B, H, N, C)
        return each + self.values.bias / self.heads

    def readout(self, output: AttentionOutput, weights: Tensor) -> Tensor:
        contexts = torch.einsum("bhkn,bnd->bkhd", weights, output.states)
        return self.decode(contexts.flatten(start_dim=2))


class OutsideTask(pl.LightningModule):
    def __init__(self, affine: bool = True) -> None:
        super().__init__()
        self.model = TwoHeads(affine)

    def training_step(self, batch: TextBatch, batch_idx: int) -> Tensor:
        return nn.functional.cross_entropy(self.model(batch).logits, batch.labels)

    def validation_step(self, batch: TextBatch, batch_idx: int) -> dict[str, Any]:
        return {"loss": torch.zeros(()), "output": self.model(batch)}

    test_step = validation_step

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1)


class Texts(Dataset[TextBatch]):
    """Random texts of 1 to 9 tokens, one batch of one text per item."""

    def __init__(self, size: int = 23, index: Sequence[int] | None = None) -> None:
        random = torch.Generator().manual_seed(3)
        lengths = torch.randint(1, 10, (size,), generator=random).tolist()
        self.tokens = [torch.randint(1, 50, (n,), generator=random) for n in lengths]
        self.index = list(range(size)) if index is None else list(index)

    def __len__(self) -> int:
        return len(self.tokens)

    def __getitem__(self, item: int) -> tuple[int, Tensor]:
        return self.index[item], self.tokens[item]


def collate(items: Sequence[tuple[int, Tensor]]) -> TextBatch:
    tokens = nn.utils.rnn.pad_sequence([item[1] for item in items], batch_first=True)
    index = torch.tensor([item[0] for item in items])
    return TextBatch(index=index, tokens=tokens, mask=tokens != 0, labels=index % 3)


def loader(texts: Texts, batch_size: int = 4) -> DataLoader[TextBatch]:
    return DataLoader(texts, batch_size=batch_size, collate_fn=collate)
