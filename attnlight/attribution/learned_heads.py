"""AT2: attention of all heads, weighed so that it predicts ablations (Cohen-Wang et al., 2025)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from typing_extensions import override

from attnlight.attribution.answer_attention import answering
from attnlight.attribution.base import Attribution, Explanation
from attnlight.batch import AttentionModel, AttentionOutput, TextBatch
from attnlight.errors import InputError
from attnlight.functional.attribution.log_odds import log_odds
from attnlight.models.weights_digest import weights_digest
from attnlight.probing.context_ablation import Way, ablated, random_subsets
from attnlight.storage.files import read_json, write_text

# Attention of the answer's token on each item by head (S, L H), sets (K, S) and log odds (K,) of a text.
Ablations = tuple[Tensor, Tensor, Tensor]


@dataclass
class LearnedHeads(Attribution):
    """Attention of the token that predicts an answer, summed over layers and heads by learned weights.

    The weights are those of a file that `fit_heads` wrote for this model, from other texts.

    Args:
        file: The file.

    Raises:
        InputError: There is no such file or it is none of these; and, in use, it is of another model.
    """

    name = "learned_heads"
    signed = True
    passes = 1

    file: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.file:
            raise InputError("learned_heads needs the option file, which `fit_heads` writes.")
        self._stored  # noqa: B018

    @cached_property
    def _stored(self) -> tuple[str, Tensor]:
        """Digest of the weights of the model, and the weights of its heads, (L, H)."""
        content = read_json(Path(self.file))
        try:
            weights = torch.tensor(content["weights"], dtype=torch.float64)
            if weights.ndim != 2 or not weights.isfinite().all():
                raise ValueError
            return str(content["model"]), weights
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(
                f"{self.file} has no `weights` by layer and head, and `model`."
            ) from error

    @override
    def attribute(
        self, model: AttentionModel, batch: TextBatch, output: AttentionOutput, target: Tensor
    ) -> Explanation:
        digest, weights = self._stored
        reader = answering(self.name, model)
        rows = reader.answer_attention(batch, "attention")
        if weights.shape != rows.shape[1:3] or digest != weights_digest(reader.transformer):
            raise InputError(
                f"the heads in {self.file} are of another model: fit them for this one."
            )
        return torch.einsum("blhn,lh->bn", rows, weights.to(rows)), {}


def fit_heads(
    model: AttentionModel,
    batches: Iterable[TextBatch],
    file: str | Path,
    ablations: int = 32,
    way: Way = "removed",
    **options: Any,  # noqa: ANN401
) -> Tensor:
    """Weights (L, H) of the heads of a model, fitted on texts by `learn_weights` and written to a file.

    Args:
        model: An `AnswerModel`, in evaluation mode.
        batches: Texts to fit them on, others than those that are tested.
        file: The JSON file, with a digest of the model's weights, which `LearnedHeads` checks.
        ablations: Random sets of items for each text.
        way: How items are left out, as of `ContextAblation`.
        options: Those of `learn_weights`.
    """
    texts: list[Ablations] = []
    reader = answering("learned_heads", model)
    for batch in batches:
        with torch.no_grad():
            output = model(batch)
            rows = reader.answer_attention(batch, "attention")
            sets = random_subsets(output.mask, batch.index, ablations, 0)
            logits, _ = ablated(model, batch, output, sets, way)
        odds = log_odds(logits, output.logits.argmax(-1))
        shape, features = rows.shape[1:3], rows.flatten(1, 2).mT
        texts += [
            (features[text][items], sets[text][:, items].double(), odds[text])
            for text, items in enumerate(output.mask)
            if int(items.sum()) > 1
        ]
    if not texts:
        raise InputError("no text has two items, from whose ablations heads are learned.")
    weights = learn_weights(texts, **options).view(shape)
    digest = weights_digest(reader.transformer)
    content = {"model": digest, "weights": weights.tolist()}
    write_text(Path(file), json.dumps(content))
    return weights


def learn_weights(
    texts: Sequence[Ablations],
    steps: int = 1000,
    learning_rate: float = 1e-3,
    batch_size: int = 32,
    seed: int = 0,
) -> Tensor:
    """Weights (F,) of features, fitted so that sums over the kept items correlate with the log odds.

    As published: all begin at 1 / F, Adam with a cosine schedule lowers minus the mean over texts of
    Pearson's correlation of the sums and the log odds over a text's ablations, gradients are clipped at
    1, and the weights are divided by the sum of their sizes.

    Args:
        texts: Features (S, F) of the items, K sets (K, S) and log odds (K,) of each text.
        steps: Number of steps.
        learning_rate: Of Adam, at the first step.
        batch_size: Texts of a step, drawn with replacement.
        seed: Seed of these draws.
    """
    count = texts[0][0].shape[1]
    device, generator = texts[0][0].device, torch.Generator().manual_seed(seed)
    weights = nn.Parameter(torch.full((count,), 1 / count, dtype=torch.float64, device=device))
    optimizer = torch.optim.Adam([weights], learning_rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    sums = torch.stack([sets @ features.double() for features, sets, _ in texts])
    odds = torch.stack([values for _, _, values in texts])
    odds = odds - odds.mean(-1, keepdim=True)
    for _ in range(steps):
        drawn = torch.randint(len(sums), (batch_size,), generator=generator).to(device)
        kept, own = sums[drawn] @ weights, odds[drawn]
        kept = kept - kept.mean(-1, keepdim=True)
        size = kept.norm(dim=-1) * own.norm(dim=-1)
        loss = -((kept * own).sum(-1) / size.clamp(min=1e-12)).mean()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_([weights], 1.0)
        optimizer.step()
        schedule.step()
    return (weights / weights.abs().sum()).detach()
