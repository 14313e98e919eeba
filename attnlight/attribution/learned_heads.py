"""AT2: attention of all heads, weighed so that it predicts ablations (Cohen-Wang et al., 2025)."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from typing_extensions import override

from attnlight.attribution.answer_attention import answering
from attnlight.attribution.base import Attribution, Explanation
from attnlight.batch import PAD, AttentionModel, AttentionOutput, HasAnswerAttention, TextBatch
from attnlight.data.digests import text_digest
from attnlight.errors import InputError
from attnlight.functional.attribution.log_odds import log_odds
from attnlight.functional.correlation import somers_d
from attnlight.models.parts import weights_digest
from attnlight.probing.context_ablation import Way, ablated, random_subsets, single_subsets
from attnlight.storage.files import read_json, write_text

# Attention of the answer's token on each item by head (S, L H), sets (K, S) and log odds (K,) of a text.
Ablations = tuple[Tensor, Tensor, Tensor]


class Heads(NamedTuple):
    """What a file says of the heads of a model of L layers of H heads.

    Attributes:
        model: Digest of the weights of the model.
        texts: Digests of the texts that the heads were learned from.
        weights: Learned weights, (L, H).
        somers_d: Somers' D of the weights of each head and of the effects of items, mean of the texts
            that the heads were learned from, (L, H).
        copies: Share of those texts whose answer stands in the context at which the largest weight of
            a head is on it, (L, H): Wu et al.'s (2024) retrieval heads; NaN where no text is such.
    """

    model: str
    texts: frozenset[str]
    weights: Tensor
    somers_d: Tensor
    copies: Tensor

    @classmethod
    def read(cls, file: str | Path) -> "Heads":
        """The content of a file that a `HeadLearner` wrote."""
        content = read_json(Path(file))
        try:
            kinds = content["weights"], content["somers_d"], content["copies"]
            parts = [torch.tensor(kind, dtype=torch.float64) for kind in kinds if kind is not None]
            if len(parts) < 2 or parts[0].ndim != 2 or not torch.stack(parts).isfinite().all():
                raise ValueError
            unknown = torch.full_like(parts[0], torch.nan)
            return cls(str(content["model"]), frozenset(content["texts"]), *[*parts, unknown][:3])
        except (KeyError, TypeError, ValueError, RuntimeError) as error:
            raise InputError(
                f"{file} has no `weights`, `somers_d` and `copies` by layer and head, `model` and `texts`: "
                "expected a file that `fit_heads` wrote."
            ) from error

    def table(self, count: int = 5) -> list[list[float]]:
        """The heads of largest learned weight: layer, head, weight, Somers' D and share of copies."""
        order = self.weights.flatten().argsort(descending=True)[:count].tolist()
        width = self.weights.shape[1]
        parts = [part.flatten() for part in self[2:]]
        return [[*divmod(place, width), *(float(part[place]) for part in parts)] for place in order]


@dataclass
class LearnedHeads(Attribution):
    """Attention of the token that predicts an answer, summed over layers and heads by learned weights.

    The weights are those of a file that `fit_heads` wrote for this model. Texts that they were learned
    from have no scores.

    Args:
        file: The file.
        best: Take the attention of the single head alone whose Somers' D is largest there.

    Raises:
        InputError: There is no such file, or it holds no heads; and, in use, they are of another model.
    """

    name = "learned_heads"
    signed = True
    passes = 1

    file: str = ""
    best: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.file:
            raise InputError("learned_heads needs the option file, which `fit_heads` writes.")
        self._heads = Heads.read(self.file)

    @override
    def attribute(
        self, model: AttentionModel, batch: TextBatch, output: AttentionOutput, target: Tensor
    ) -> Explanation:
        digest, texts, weights, agreement, _ = self._heads
        reader = answering(self.name, model)
        rows = reader.answer_attention(batch, "attention")
        if weights.shape != rows.shape[1:3] or digest != weights_digest(reader):  # type: ignore[arg-type]
            raise InputError(
                f"the heads in {self.file} are of another model: fit them for this one."
            )
        if self.best:
            weights = torch.zeros_like(weights).flatten()
            weights = weights.index_fill(0, agreement.argmax(), 1.0).view_as(agreement)
        scores = torch.einsum("blhn,lh->bn", rows, weights.to(rows))
        learned = torch.tensor([text in texts for text in _digests(batch)], device=rows.device)
        return scores.masked_fill(learned[:, None], torch.nan), {}


class HeadLearner:
    """Learns from ablations of texts which heads of a model predict them.

    Args:
        model: An `AnswerModel`, in evaluation mode.
    """

    def __init__(self, model: AttentionModel) -> None:
        self._model: HasAnswerAttention = answering("learned_heads", model)
        self._texts: list[Ablations] = []
        self._digests: set[str] = set()
        self._agreement: list[Tensor] = []
        self._copies: list[Tensor] = []

    def add(
        self, batch: TextBatch, output: AttentionOutput, sets: Tensor, odds: Tensor, effects: Tensor
    ) -> None:
        """Take the ablations of B texts of N items; those of one item are left out.

        Answers are the largest logits of the output. Random `sets` (B, K, N) bool of items stay,
        `odds` (B, K) are the log odds of the answers then, and `effects` (B, N) their decrease
        without each item.
        """
        rows = self._model.answer_attention(batch, "attention")
        copies = self._model.copied_answers(batch, output.logits.argmax(-1))
        self._shape = rows.shape[1:3]
        self._digests |= {*_digests(batch)}
        for text in (output.mask.sum(-1) > 1).nonzero().flatten().tolist():
            items = output.mask[text]
            weights = rows[text].flatten(0, 1)[:, items]
            self._texts.append((weights.mT, sets[text][:, items].double(), odds[text]))
            every = torch.ones_like(weights, dtype=torch.bool)
            truth = effects[text][items].abs().expand_as(weights)
            self._agreement.append(somers_d(weights, truth, every, 0.1))
            self._copies.append(copies[text].flatten())

    def write(self, file: str | Path, **options: Any) -> Tensor:  # noqa: ANN401
        """Write the file of `Heads`, and return the weights (L, H) that `learn_weights` gives."""
        if not self._texts:
            raise InputError("no text has two items, from whose ablations heads are learned.")
        weights = learn_weights(self._texts, **options)
        agreement = torch.stack(self._agreement).nanmean(0).nan_to_num(-1.0)
        copies = torch.stack(self._copies).nanmean(0)
        digest = weights_digest(self._model)  # type: ignore[arg-type]
        content = {"model": digest, "texts": sorted(self._digests)}
        parts = {"weights": weights, "somers_d": agreement, "copies": copies}
        lists: dict[str, Any] = {
            name: part.view(self._shape).tolist() for name, part in parts.items()
        }
        lists["copies"] = lists["copies"] if copies.isfinite().all() else None
        write_text(Path(file), json.dumps(content | lists))
        return weights.view(self._shape)


def _digests(batch: TextBatch) -> list[str]:
    """A digest of each text with its query, 16 hexadecimal digits."""
    texts = batch.tokens.flatten(1)
    queries = texts[:, :0] if batch.query is None else batch.query
    pairs = (
        [part[part > PAD].tolist() for part in pair] for pair in zip(texts, queries, strict=True)
    )
    return [text_digest(repr(pair)) for pair in pairs]


def fit_heads(
    model: AttentionModel,
    batches: Iterable[TextBatch],
    file: str | Path,
    ablations: int = 32,
    way: Way = "removed",
    **options: Any,  # noqa: ANN401
) -> Tensor:
    """Weights (L, H) of the heads of a model, fitted on texts by `learn_weights` and written to a file.

    The file also says which single head agrees best with the effects of leaving out each item.

    Args:
        model: An `AnswerModel`, in evaluation mode.
        batches: Texts to fit them on, others than those that are tested.
        file: The JSON file, with a digest of the model's weights, which `LearnedHeads` checks.
        ablations: Random sets of items for each text.
        way: How items are left out, as of `ContextAblation`.
        options: Those of `learn_weights`.
    """
    learner = HeadLearner(model)
    for batch in batches:
        with torch.no_grad():
            output = model(batch)
            sets = random_subsets(output.mask, batch.index, ablations, 0)
            every = [output.mask.unsqueeze(1), single_subsets(output.mask), sets]
            logits, _ = ablated(model, batch, output, torch.cat(every, dim=1), way)
        odds, size = log_odds(logits, output.logits.argmax(-1)), 1 + output.mask.shape[1]
        learner.add(batch, output, sets, odds[:, size:], odds[:, :1] - odds[:, 1:size])
    return learner.write(file, **options)


@torch.enable_grad()
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
