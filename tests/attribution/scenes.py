"""Models in double precision with batches: texts, sentences, pairs and tokens."""

from typing import Any

import torch
from torch import Tensor, nn

from attnlight.attribution import ATTRIBUTIONS
from attnlight.batch import BOS, EOS, PAD, AttentionOutput, TextBatch
from attnlight.functional import log_odds
from tests.models import test_classifier as flat
from tests.models import test_hierarchical as hierarchical
from tests.models import test_pair as pair
from tests.models import translations
from tests.models.taggers import sentences, tagger
from tests.outside import Texts, TwoHeads, collate

TEXTS = ("bilstm", "cnn", "average", "han", "pair")
TOKENS = ("transformer", "recurrent", "heads")
SCENES = (*TEXTS, *TOKENS, "sparse han", "sparse pair", "sparse transformer")
OF_CONTEXTS = ("answer_attention", "context_cite", "learned_heads")  # which other models lack
OF_LAYERS = ("alti", "attention_flow", "gradient_rollout", "rollout", "value_zeroing")
# Without those that tests define.
METHODS = [
    name
    for name, kind in ATTRIBUTIONS.items()
    if kind.__module__.startswith("attnlight.") and name not in OF_CONTEXTS
]


def scene(name: str, padding: int = 0) -> tuple[Any, TextBatch]:
    """A model far from its start, in evaluation mode, and a batch with so much more padding."""
    sparse: Any = {"normalizer": "sparsemax"} if name.startswith("sparse ") else {}
    name = name.removeprefix("sparse ")
    if name == "translation":
        return translations.model(), translations.batch(padding)
    if name == "han":
        batch = hierarchical.collate(hierarchical.corpus(15)[:5], padding, padding)
        return hierarchical.model(classes=2, **sparse), batch
    if name in ("pair", "affine pair"):
        decoder = "affine" if name == "affine pair" else "tanh"
        return pair.model(decoder=decoder, **sparse), pair.collate(
            pair.corpus()[:5], (padding, 2 * padding)
        )
    if name in ("two heads", "opaque heads"):
        return outside(name == "two heads")
    options = {
        "transformer": {"readout": "study", "layers": 2},
        "recurrent": {"readout": "text", "encoder": "bilstm"},
        "heads": {"readout": "residual", "features": {"pos": 7, "case": 5}},
    }.get(name)
    if options is not None:
        return tagger(**options, **sparse).double(), sentences((9, 1, 4), padding)  # type: ignore[arg-type]
    classes = 2 if name == "bilstm" else 4
    return flat.model(name, classes=classes, **sparse), flat.collate(flat.corpus()[:6], padding)


def outside(affine: bool) -> tuple[Any, TextBatch]:
    """A model that owes nothing to attnlight, in double precision, and texts."""
    torch.manual_seed(0)
    model, texts = TwoHeads(affine).double(), Texts(12)
    with torch.no_grad():
        model.scores.weight.mul_(3)
        model.values.weight.mul_(4)
    model.decode = lambda context: TwoHeads.decode(model, context.double())  # type: ignore[method-assign]
    return model, collate([texts[number] for number in range(12)])


def evaluated(name: str, padding: int = 0) -> tuple[Any, TextBatch, AttentionOutput, Tensor]:
    """A scene, its output without gradients, and which rows have a choice of classes, (R,) bool."""
    model, batch = scene(name, padding)
    output = model(batch).apply(Tensor.detach)
    return model, batch, output, (output.logits > -5000).sum(-1) > 1


def targets(output: AttentionOutput) -> tuple[Tensor, Tensor]:
    """Allowed classes, of which some are predicted and some are not, and the best other class."""
    logits = output.logits.detach()
    order = logits.argsort(-1, descending=True)
    place = torch.arange(len(logits)) % (logits > -1e3).sum(-1)
    target = order.gather(-1, place[:, None]).squeeze(-1)
    return target, order.gather(-1, (place == 0).long()[:, None]).squeeze(-1)


def one_text(batch: TextBatch, place: int) -> TextBatch:
    """A batch of one of the texts, as padded as the others."""
    return batch.select(torch.tensor([place]))


def words(batch: TextBatch) -> Tensor:
    """Tokens that are neither padding nor boundary tokens, shape of the tokens."""
    return torch.tensor([token not in (PAD, BOS, EOS) for token in batch.tokens.flatten()]).view(
        batch.tokens.shape
    )


class RowOdds(nn.Module):
    """Log odds of one class in one row, from embeddings of copies of the row's text."""

    def __init__(self, model: nn.Module, batch: TextBatch, target: int, row: int = 0) -> None:
        super().__init__()
        self.model, self.batch, self.target, self.row = model, batch, target, row

    def forward(self, embeddings: Tensor) -> Tensor:
        batch = one_text(self.batch, 0)
        odds = []
        for values in embeddings.split(1):  # one copy at a time: no rows to tell apart
            logits = self.model(batch, embeddings=values).logits[self.row]
            odds.append(log_odds(logits[None], torch.tensor([self.target])))
        return torch.cat(odds)


def rows(batch: TextBatch, output: AttentionOutput) -> list[tuple[int, int]]:
    """The text of each row and its number among the rows of that text, a row at a time."""
    found: list[tuple[int, int]] = []
    places = {index: place for place, index in enumerate(batch.index.tolist())}
    for index, _ in output.rows.tolist():
        text = places[index]
        found.append((text, sum(text == other for other, _ in found)))
    return found
