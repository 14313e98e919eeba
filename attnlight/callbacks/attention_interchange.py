"""How far does a prediction go towards that of another text or model with its attention?"""

from collections.abc import Mapping
from functools import partial
from typing import Any, Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from typing_extensions import override

from attnlight.batch import AttentionModel, AttentionOutput, LayeredModel, TextBatch
from attnlight.callbacks.base import InterpretabilityTest
from attnlight.callbacks.marked import tested_split
from attnlight.callbacks.surroundings import Surroundings
from attnlight.datamodules.base import CorpusDataModule
from attnlight.errors import InputError, did_you_mean
from attnlight.functional import masked_softmax
from attnlight.functional.alignment import move_weights
from attnlight.functional.random import draw_keys
from attnlight.functional.readout.instances import rows_are_texts
from attnlight.models.readout import Readout
from attnlight.probing.flat_texts import FlatTexts
from attnlight.probing.interception import intercept
from attnlight.probing.leave_one_out import prediction_change
from attnlight.probing.patches import Patch, move, restrict, uniform
from attnlight.probing.replay import Replay
from attnlight.probing.single_edits import aligned_blocks
from attnlight.reference.trained import TrainedModel

Level = Literal["all", "layer", "head"]
_LEVELS = get_args(Level)
_Logits = tuple[
    dict[str, Tensor], Tensor, Tensor
]  # by part (R, K, C), of the text and of the other


class AttentionInterchange(InterpretabilityTest):
    """Give a text the attention weights of another text, or of another model for it, and predict again.

    Values and all else stay the text's own (interchange interventions on attention: Vig et al. 2020;
    Geiger et al. 2021). Without `other` a text's partner is, in a corpus of originals and edits, the
    original of an edit and the first edit of an original, aligned as in `CounterfactualUse`; in any
    other, another text of the split with as many tokens (sentences of hierarchical models), drawn by the
    seed, and aligned token by token. What the partner lacks keeps its own attention (`patches.move`).
    With `other` the attention is that of another model for the same text.

    `distance` is the total variation distance between both predictions. The parts are `all` layers,
    each `layer` and each `head`, and as controls `all_uniform` and `layer_uniform`, where uniform
    attention takes the place of the partner's. For each part:

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
        other: A run, a checkpoint, or a model's folder or id, of the same tokens and shape; None: the
            attention is of another text.
        least: Smallest distance of which a share is taken.
        options: Those of `InterpretabilityTest`, such as `max_instances` and `seed`.
    """

    def __init__(
        self,
        level: Level = "layer",
        other: str | None = None,
        least: float = 0.1,
        **options: Any,  # noqa: ANN401
    ) -> None:
        super().__init__(**options)
        if level not in _LEVELS:
            raise InputError(
                f"level of {self.name} is {level!r}{did_you_mean(str(level), _LEVELS)}; expected one of: "
                f"{', '.join(_LEVELS)}."
            )
        if not 0 < least < 1:
            raise InputError(f"least of {self.name} is {least}; it must be above 0 and below 1.")
        self.other, self.least = other, least
        chosen = _LEVELS[: _LEVELS.index(level) + 1]
        self.parts = (*chosen, *(f"{part}_uniform" for part in chosen if part != "head"))
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
        vocabularies = [x.parsed_tokenizer.get_vocab() for x in (tokens, theirs.raw)]
        layers = [
            len(x.attention_layers) if isinstance(x, LayeredModel) else 0
            for x in (around.model, theirs.model)
        ]
        classes = list(spec["classes"])
        differs = type(theirs.problem)(spec).difference(theirs.problem.spec)
        if vocabularies[0] != vocabularies[1]:
            differs = "reads other tokens than the model"
        elif classes != theirs.classes and sorted(classes) == sorted(theirs.classes):
            differs = f"has the classes in another order, {', '.join(theirs.classes)}"
        elif layers[0] != layers[1]:
            differs = f"has {layers[1]} layers of self-attention, the model {layers[0]}"
        if differs:
            raise InputError(f"other of {self.name}, {self.other}, {differs}.")
        network: Any = theirs.model
        self._model = network.to(around.strategy.root_device).eval()

    @override
    def measure(
        self, batch: TextBatch, output: AttentionOutput, readout: Readout
    ) -> Mapping[str, Tensor]:
        pair, other = output.rows[:, 0], batch
        alone = torch.zeros_like(pair, dtype=torch.bool)
        if self._model is None:
            assert self._partners is not None
            if not rows_are_texts(batch, output):
                raise InputError(
                    f"{self.name} needs a model with one row for each text, not for each token, unless it "
                    "compares with another model: name one as `other`."
                )
            split = self._split
            at = np.searchsorted(split.index, batch.index.cpu().numpy())
            other = split[self._partners[at].tolist()].to(pair.device)
            alone = other.index == batch.index
            if split.edit_of is not None:
                original = torch.from_numpy(split.edit_of[at]).to(pair)
                pair = torch.where(original < 0, pair, original)
        model = readout.model
        layered = isinstance(model, LayeredModel) and len(model.attention_layers) > 0
        found, own, theirs = (self._of_layers if layered else self._of_readout)(readout, other)
        distance = prediction_change(theirs.unsqueeze(1), own).masked_fill(
            alone[:, None], torch.nan
        )
        apart = distance >= self.least
        differ = apart & (own.argmax(-1) != theirs.argmax(-1))[:, None]
        columns = {"distance": distance[:, 0], "pair": pair.double()}
        for part, logits in found.items():
            covered = 1 - prediction_change(logits, theirs) / distance
            turns = (logits.argmax(-1) == theirs.argmax(-1, keepdim=True)).double()
            turns = turns.masked_fill(covered.isnan(), torch.nan)
            for name, values, defined in (("covered", covered, apart), ("turns", turns, differ)):
                values = values.masked_fill(~defined, torch.nan)
                columns[f"{name}_{part}"] = values.mean(1)
                if not part.startswith("all"):
                    columns[f"{name}_{part}_by_{part.partition('_')[0]}"] = values
        return columns

    def _of_layers(self, readout: Readout, other: TextBatch) -> _Logits:
        """Logits of a model with layers, each part computed from its first layer on."""
        replay = Replay(readout.model, readout.batch, self.name)
        with intercept(record="all") as found:
            theirs = (self._model or readout.model)(other).logits
        layers = range(len(replay.attention))
        shapes = [
            [given[layer].weights.shape[1] for layer in layers]
            for given in (replay.attention, found)
        ]
        if shapes[0] != shapes[1]:
            raise InputError(
                f"other of {self.name}, {self.other}, has {shapes[1]} heads in its layers, the model "
                f"{shapes[0]}."
            )
        texts = (FlatTexts.of(readout.batch).batch, FlatTexts.of(other).batch)
        own, blocks = self._blocks(*texts)
        moved: dict[int, Patch] = {n: partial(move, found[n].weights, blocks, own) for n in layers}
        patches: dict[str, list[dict[int, Patch]]] = {
            "all": [moved],
            "layer": [{n: patch} for n, patch in moved.items()],
            "head": [
                {n: restrict(partial(move, found[n].weights[:, [head]], blocks, own), [head])}
                for n in layers
                for head in range(shapes[0][n])
            ],
        }
        for part in ("all", "layer"):
            patches[f"{part}_uniform"] = [dict.fromkeys(one, uniform) for one in patches[part]]
        chosen = [patches[part] for part in self.parts]
        logits = replay.logits([one for group in chosen for one in group], self.budget)
        parts = torch.split(logits, [len(group) for group in chosen], dim=1)
        return dict(zip(self.parts, parts, strict=True)), replay.output.logits, theirs

    def _of_readout(self, readout: Readout, other: TextBatch) -> _Logits:
        """Logits of a model whose one layer is the attention that is tested; NaN if its mass is lost."""
        with torch.no_grad():
            theirs = (self._model or readout.model)(other)
        output, mask = readout.output, readout.output.mask
        if theirs.weights.shape[1] != output.weights.shape[1]:
            raise InputError(
                f"other of {self.name}, {self.other}, has {theirs.weights.shape[1]} heads, the model "
                f"{output.weights.shape[1]}."
            )
        own, blocks = self._blocks(readout.batch, other)
        own, blocks = own.masked_fill(~mask, -1), blocks.masked_fill(~theirs.mask, -1)
        moved = move_weights(theirs.weights, blocks, own).unsqueeze(2)
        lost = moved.isnan().flatten(1).any(-1)[:, None, None]
        weights = output.weights.to(moved).unsqueeze(2)
        equal = masked_softmax(torch.zeros_like(weights), mask)
        single = torch.eye(weights.shape[1], dtype=torch.bool, device=mask.device).unsqueeze(-1)
        given = {"all": moved, "layer": moved, "all_uniform": equal, "layer_uniform": equal}
        given["head"] = torch.where(single, moved, weights)
        logits = {
            part: readout.candidates(given[part].nan_to_num().to(output.weights.dtype))
            for part in self.parts
        }
        logits = {part: values.masked_fill(lost, torch.nan) for part, values in logits.items()}
        return logits, readout.logits, theirs.logits.to(readout.logits)

    def _blocks(self, batch: TextBatch, other: TextBatch) -> tuple[Tensor, Tensor]:
        """Block of each item of texts (B, N) and of their partners (B, M), -1 on padding."""
        masks = [x.mask if x.mask.ndim == 2 else x.mask.any(-1) for x in (batch, other)]
        found = [(mask.cumsum(-1) - 1).clamp(min=0) for mask in masks]
        if self._model is None and self._split.edit_of is not None:
            pairs = zip(aligned_blocks(batch, other), found, strict=False)
            found = [blocks.gather(1, places) for blocks, places in pairs]
        one, two = (
            values.masked_fill(~mask, -1) for values, mask in zip(found, masks, strict=True)
        )
        return one, two


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
