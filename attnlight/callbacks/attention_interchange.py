"""How far does a prediction go towards that of another text or model with its attention?"""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any, Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from typing_extensions import override

from attnlight.batch import AttentionModel, AttentionOutput, LayeredModel, TextBatch
from attnlight.callbacks.base import InterpretabilityTest, Measured
from attnlight.callbacks.marked import tested_split
from attnlight.callbacks.surroundings import Surroundings
from attnlight.datamodules.base import CorpusDataModule
from attnlight.errors import InputError
from attnlight.functional import masked_softmax
from attnlight.functional.alignment import move_weights
from attnlight.functional.random import draw_keys
from attnlight.functional.readout.instances import rows_are_texts
from attnlight.models.readout import Readout
from attnlight.probing.flat_texts import FlatTexts
from attnlight.probing.interception import LayerAttention, intercept
from attnlight.probing.leave_one_out import prediction_change
from attnlight.probing.patches import Patch, move, restrict, uniform
from attnlight.probing.replay import Replay
from attnlight.probing.swaps import item_blocks
from attnlight.reference.trained import TrainedModel

Level = Literal["all", "layer", "head"]
_LEVELS = get_args(Level)
_UNIFORM = "all_uniform"
_Recording = AbstractContextManager[Mapping[int, LayerAttention]]


class AttentionInterchange(InterpretabilityTest):
    """Give a text the attention weights of another text, or of another model for it, and predict again.

    Values and all else stay the text's own (interchange interventions on attention: Vig et al. 2020;
    Geiger et al. 2021). Without `other` a text's partner is, in a corpus of originals and edits, the
    original of an edit and the first edit of an original, aligned as in `CounterfactualUse`; in any
    other, another text of the split with as many tokens (sentences of hierarchical models), drawn by the
    seed, and aligned token by token. What the partner lacks keeps its own attention (`patches.move`).

    `distance` is the total variation distance between both predictions. The parts are `all` layers,
    each `layer`, each `head`, and as a control `all_uniform`, uniform attention in all layers:

    * `covered_<part>`: the share of the distance that is covered, 1 if the prediction becomes the
      partner's, 0 if it stays as far from it, below 0 if it moves away; mean over layers or heads, with
      `..._by_layer` (R, L) and `..._by_head` (R, L H). Any change that makes a prediction less certain
      covers something of the way to another class: compare the control.
    * `turns_<part>`: whether the partner's class is then predicted, where it was not.

    They are undefined where the distance is below `least`, and `turns` where both predict one class; so
    are texts without a partner. A model without layers of self-attention has one layer, the attention
    that is tested; if no mass of a head's attention can be moved there, the text is undefined.

    Args:
        level: The smallest parts that are measured: `all`, `layer` or `head`. All heads of L layers with
            H heads cost about H (L + 1) / 2 forward passes.
        other: A run, a checkpoint, or a model's folder or id, of the same tokens and shape, whose
            attention for the same text is taken; None: that of another text.
        least: Smallest distance of which a share is taken.
        options: Those of `InterpretabilityTest`, such as `max_instances` and `seed`.
    """

    holds_layers = True

    def __init__(
        self,
        level: Level = "layer",
        other: str | None = None,
        least: float = 0.1,
        **options: Any,  # noqa: ANN401
    ) -> None:
        super().__init__(**options)
        if not 0 < least < 1:
            raise InputError(f"least of {self.name} is {least}; it must be above 0 and below 1.")
        self.other, self.least = other, least
        self.parts = (*_LEVELS[: _LEVELS.index(level) + 1], _UNIFORM)
        names = (f"{measure}_{part}" for measure in ("covered", "turns") for part in self.parts)
        self.measures = ("distance", *names)
        self.metadata = {"clusters": "pair", "level": level, "least": least, "other": other}
        self._model: AttentionModel | None = None  # `other`
        self._split: Any = None
        self._partners: NDArray[np.int64] | None = None

    @override
    def prepare(self, around: Surroundings) -> None:
        super().prepare(around)
        if self.other is None:
            self._split = tested_split(around)
            if self._split is None:
                raise InputError(
                    f"{self.name} draws the partners of texts from a corpus: use `attnlight test`, or name "
                    "a model of the same shape as `other`."
                )
            self._partners = partners(self._split, self.seed)
            return
        theirs, tokens = TrainedModel.load(self.other), around.corpus
        if isinstance(tokens, CorpusDataModule):
            spec: Mapping[str, Any] = tokens.spec
        else:
            own = TrainedModel.of(around.owner)
            tokens, spec = own.raw, own.problem.spec
        one, two = (x.parsed_tokenizer.get_vocab() for x in (tokens, theirs.raw))
        classes = list(spec["classes"])
        differs = type(theirs.problem)(spec).difference(theirs.problem.spec)
        if one != two:
            differs = "reads other tokens than the model"
        elif classes != theirs.classes and sorted(classes) == sorted(theirs.classes):
            differs = f"has the classes in another order, {', '.join(theirs.classes)}"
        if differs:
            raise InputError(f"other of {self.name}, {self.other}, {differs}.")
        network: Any = theirs.model
        self._model = network.to(around.strategy.root_device).eval()

    @override
    def measure(self, batch: TextBatch, output: AttentionOutput, readout: Readout) -> Measured:
        model, pair, other, edits = readout.model, output.rows[:, 0], batch, False
        if self._model is None:
            assert self._partners is not None
            if not rows_are_texts(batch, output):
                raise InputError(
                    f"{self.name} needs a model with one row for each text, not for each token, unless it "
                    "compares with another model: name one as `other`."
                )
            at = np.searchsorted(self._split.index, batch.index.cpu().numpy())
            other = self._split[self._partners[at].tolist()].to(pair.device)
            if edits := self._split.edit_of is not None:
                original = torch.from_numpy(self._split.edit_of[at]).to(pair)
                pair = torch.where(original < 0, pair, original)
        layered = isinstance(model, LayeredModel) and len(model.attention_layers) > 0
        recording: _Recording = intercept(record="all") if layered else nullcontext({})
        with torch.no_grad(), recording as found:
            theirs = (self._model or model)(other)
        given = [found[layer].weights for layer in sorted(found)] or [theirs.weights]
        replay = Replay(model, batch, self.name) if layered else None
        weights = [one.weights for one in replay.attention] if replay else [output.weights]
        heads = [[layer.shape[1] for layer in each] for each in (given, weights)]
        if heads[0] != heads[1]:
            raise InputError(
                f"other of {self.name}, {self.other}, has {heads[0]} heads in its layers of attention, "
                f"the model {heads[1]}."
            )
        texts = [FlatTexts.of(one).batch if layered else one for one in (batch, other)]
        blocks = item_blocks(texts[0], texts[1], edits)
        if replay is None:
            own, logits = readout.logits, self._of_readout(readout, theirs, blocks)
        else:
            own, logits = replay.output.logits, self._of_layers(replay, given, blocks)
        distance = prediction_change(theirs.logits.unsqueeze(1), own)
        if self._model is None:  # texts without a partner are their own
            distance = distance.masked_fill((other.index == batch.index)[:, None], torch.nan)
        apart = distance >= self.least
        differ = apart & (own.argmax(-1) != theirs.logits.argmax(-1))[:, None]
        columns = {"distance": distance[:, 0], "pair": pair.double()}
        for part, values in logits.items():
            covered = 1 - prediction_change(values, theirs.logits) / distance
            turns = (values.argmax(-1) == theirs.logits.argmax(-1, keepdim=True)).double()
            turns = turns.masked_fill(covered.isnan(), torch.nan)
            for name, each, defined in (("covered", covered, apart), ("turns", turns, differ)):
                each = each.masked_fill(~defined, torch.nan)
                columns[f"{name}_{part}"] = each.mean(1)
                if part in ("layer", "head"):
                    columns[f"{name}_{part}_by_{part}"] = each
        return columns

    def _of_layers(
        self, replay: Replay, given: Sequence[Tensor], blocks: tuple[Tensor, Tensor]
    ) -> dict[str, Tensor]:
        """Logits (R, K, C) by part, with the weights (B, H, M, M) of each layer of the partners moved."""
        own, others = blocks
        moved: list[Patch] = [partial(move, weights, others, own) for weights in given]
        patches: dict[str, list[dict[int, Patch]]] = {
            "all": [dict(enumerate(moved))],
            "layer": [{layer: patch} for layer, patch in enumerate(moved)],
            "head": [
                {layer: restrict(partial(move, weights[:, [head]], others, own), [head])}
                for layer, weights in enumerate(given)
                for head in range(weights.shape[1])
            ],
            _UNIFORM: [dict.fromkeys(range(len(given)), uniform)],
        }
        chosen = [patches[part] for part in self.parts]
        logits = replay.logits([one for group in chosen for one in group], self.budget)
        parts = torch.split(logits, [len(group) for group in chosen], dim=1)
        return dict(zip(self.parts, parts, strict=True))

    def _of_readout(
        self, readout: Readout, theirs: AttentionOutput, blocks: tuple[Tensor, Tensor]
    ) -> dict[str, Tensor]:
        """The same of a model whose one layer is the attention that is tested; NaN if mass is lost."""
        output, mask = readout.output, readout.output.mask
        own, others = blocks[0].masked_fill(~mask, -1), blocks[1].masked_fill(~theirs.mask, -1)
        moved = move_weights(theirs.weights, others, own).unsqueeze(2)
        lost = moved.isnan().flatten(1).any(-1)[:, None, None]
        weights = output.weights.to(moved).unsqueeze(2)
        single = torch.eye(weights.shape[1], dtype=torch.bool, device=mask.device).unsqueeze(-1)
        given = {"all": moved, "layer": moved, "head": torch.where(single, moved, weights)}
        given[_UNIFORM] = masked_softmax(torch.zeros_like(weights), mask)
        logits = {}
        for part in self.parts:
            found = readout.candidates(given[part].nan_to_num().to(output.weights.dtype))
            logits[part] = found.masked_fill(lost, torch.nan)
        return logits


def partners(split: Any, seed: int) -> NDArray[np.int64]:  # noqa: ANN401
    """Place of the partner of each text of a split, (n,); its own place if it has none.

    Of an edit it is its original, of an original its first edit. In a split without edits it is drawn
    among the other texts of the same size, as a function of the seed, the text's index and these alone.

    Args:
        split: Texts with the attributes `index`, `edit_of` and `shapes` of `TokenDataset`.
        seed: Any integer.
    """
    places = np.arange(len(split.index))
    if split.edit_of is not None:
        edits = np.flatnonzero(split.edit_of >= 0)
        originals = np.searchsorted(split.index, split.edit_of[edits])
        places[originals[::-1]] = edits[::-1]  # the first of several comes last
        places[edits] = originals
        return places
    sizes = np.atleast_2d(split.shapes.T)[0]
    order = np.lexsort((split.index, sizes))
    _, first, group, counts = np.unique(
        sizes[order], return_index=True, return_inverse=True, return_counts=True
    )
    index = torch.from_numpy(split.index[order])
    keys = draw_keys(seed, index, torch.zeros_like(index), 1, 1).flatten().numpy()
    start, count = first[group], counts[group]
    steps = 1 + (keys & 0x7FFFFFFF_FFFFFFFF) % np.maximum(count - 1, 1)
    places[order] = order[start + (np.arange(len(order)) - start + steps) % count]
    return places
