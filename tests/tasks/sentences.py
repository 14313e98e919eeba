"""A problem, a network and a corpus of one's own: whether each sentence of a text has evidence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torchmetrics import MetricCollection
from torchmetrics.classification import MulticlassAccuracy

from attnlight.batch import AttentionOutput, TextBatch
from attnlight.datamodules import PlantedEvidence
from attnlight.functional.readout.instances import texts_of_rows
from attnlight.models import Embedding
from attnlight.problems import Problem, Words
from tests.bases import InSentences


class Sentences(Problem):
    """A class for each sentence of a text."""

    name = "sentences"

    @staticmethod
    def instances(batch: TextBatch) -> tuple[Tensor, Tensor]:
        there = batch.attendable().any(-1)
        text, place = there.nonzero().unbind(-1)
        return torch.stack([batch.index[text], place], dim=1), there[text]

    def labels(self, batch: TextBatch) -> Tensor:
        assert batch.labels is not None
        return batch.labels[batch.attendable().any(-1)]

    def metrics(self) -> MetricCollection:
        return MetricCollection(
            {"accuracy": MulticlassAccuracy(len(self.classes), average="micro")}
        )

    def update(
        self, metrics: MetricCollection, output: AttentionOutput, labels: Tensor, real: Tensor
    ) -> None:
        metrics.update(output.logits[real], labels[real])

    @classmethod
    def words(cls, classes: list[str], target: str = "tokens") -> Words:
        return Words(cls.name, "sentence", "text", "accuracy", "accuracy", "a sentence model")


class SentenceNet(nn.Module):
    """Each sentence attends to the sentences of its text, which are read alone."""

    def __init__(
        self, vocab_size: int, num_classes: int, size: int = 8, attention: str = "dot"
    ) -> None:
        super().__init__()
        self.embedding = Embedding(vocab_size, size, 1.0)
        self.query = nn.Linear(size, size) if attention == "dot" else None
        self.decoder = nn.Linear(size, num_classes)

    @staticmethod
    def uniform_net(net: dict[str, Any], head: int | None) -> dict[str, Any]:
        return net | {"attention": "uniform"}

    @staticmethod
    def guided_net(net: dict[str, Any], guide: str, **options: object) -> dict[str, Any]:
        return net if guide == "learned" else net | {"attention": "uniform"}

    def embed(self, batch: TextBatch) -> Tensor:
        embeddings: Tensor = self.embedding(batch.tokens)
        return embeddings

    def forward(
        self, batch: TextBatch, weights: Tensor | None = None, embeddings: Tensor | None = None
    ) -> AttentionOutput:
        words = batch.attendable()
        found = self.embed(batch) if embeddings is None else embeddings
        count = words.sum(-1, keepdim=True).clamp(min=1)
        states = torch.tanh((found * words.unsqueeze(-1)).sum(-2) / count)
        rows, mask = Sentences.instances(batch)
        text, place = words.any(-1).nonzero().unbind(-1)
        if weights is None:
            scores = torch.zeros(mask.shape, dtype=states.dtype)
            if self.query is not None:
                own = self.query(states[text, place])
                scores = (states[text] @ own.unsqueeze(-1)).squeeze(-1)
            weights = scores.masked_fill(~mask, -torch.inf).softmax(-1).unsqueeze(1)
        return AttentionOutput(
            rows=rows,
            logits=self.decoder((weights @ states[text]).squeeze(1)),
            weights=weights,
            item_logits=None if self.training else self.decoder(states)[text].unsqueeze(1),
            bias=self.decoder.bias,
            mask=mask,
            states=states,
        )

    def readout(self, output: AttentionOutput, weights: Tensor) -> Tensor:
        logits: Tensor = self.decoder(
            weights.squeeze(1) @ output.states[texts_of_rows(output.rows)]
        )
        return logits


class Labelled(InSentences):
    """A split with a label for each sentence."""

    def __getitem__(self, positions: Sequence[int]) -> TextBatch:
        batch = self.texts[positions]
        batch.labels = (batch.extras["evidence"] != 0).any(-1).long()
        return batch


class SentenceCorpus(PlantedEvidence):
    """The planted corpus in sentences of four words."""

    def __init__(self, size: int = 40, batch_size: int = 8, seed: int = 0) -> None:
        sizes = {"validation_size": 20, "test_size": 20, "eval_batch_size": 8}
        lengths = {"min_tokens": 9, "max_tokens": 17, "sentence_length": 4}
        super().__init__(size, batch_size=batch_size, seed=seed, **sizes, **lengths)

    @property
    def classes(self) -> list[str]:
        return ["plain", "evidence"]

    def dataset(self, split: str) -> Any:
        return Labelled(super().dataset(split))
