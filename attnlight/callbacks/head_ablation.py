"""Does a prediction depend on a head, a layer, or any attention at all? (Michel et al., 2019)."""

from collections.abc import Sequence
from typing import Any, Literal

import torch
from typing_extensions import override

from attnlight.batch import AttentionOutput, LayeredModel, TextBatch
from attnlight.callbacks.base import InterpretabilityTest, Measured
from attnlight.callbacks.surroundings import Surroundings
from attnlight.errors import InputError
from attnlight.models.readout import Readout
from attnlight.probing.leave_one_out import prediction_change
from attnlight.probing.patches import Patch, off, restrict, shuffled, uniform
from attnlight.probing.replay import Replay, layered

Ablation = Literal["uniform", "shuffled", "off"]


class HeadAblation(InterpretabilityTest):
    """Change of the prediction when heads and layers of a transformer lose their attention.

    `uniform` gives a head equal weights on all that a query may reach, `shuffled` its own weights in
    a random order of these, `off` none, so that the head adds nothing. Special tokens are treated as
    all others. For each of these ablations, with `tvd` the total variation distance from the
    prediction of the unchanged model and `flip_rate` whether the predicted class changes:

    * `<measure>_head_<ablation>`: one head alone, mean over the heads of all layers; and
      `..._by_head` (R, L H), of each, layer by layer.
    * `<measure>_layer_<ablation>`: all heads of one layer, mean over layers; and `..._by_layer`
      (R, L), of each.
    * `<measure>_last_<ablation>`: all heads of the last layer, and `<measure>_all_<ablation>`: all
      heads of all layers at once. A model may do without the attention of its last layer, which
      most tests are about, and not without attention.
    * `<measure>_others_<ablation>_by_head` (R, L H), if `others`: all heads of a layer but one.

    Each ablation is computed from its first layer on: all heads of L layers with H heads cost about
    H (L + 1) / 2 forward passes for one ablation.

    Args:
        ablations: What becomes of a head's attention, some of `uniform`, `shuffled` and `off`.
        others: Measure all heads of a layer but one too, which costs as much as single heads.
        options: Those of `InterpretabilityTest`, such as `max_instances` and `seed`.
    """

    holds_layers = True

    def __init__(
        self,
        ablations: Sequence[Ablation] = ("uniform", "shuffled", "off"),
        others: bool = False,
        **options: Any,  # noqa: ANN401
    ) -> None:
        super().__init__(**options)
        if not ablations or len(set(ablations)) < len(ablations):
            raise InputError(
                f"ablations of {self.name} are {list(ablations)}; expected one or more, each once."
            )
        self.ablations = list(ablations)
        self.others = others
        self.measures = tuple(
            f"{measure}_{part}_{ablation}"
            for ablation in self.ablations
            for part in ("head", "layer", "last", "all")
            for measure in ("tvd", "flip_rate")
        )
        self.metadata = {"ablations": self.ablations, "layers": None}

    @override
    def prepare(self, around: Surroundings) -> None:
        super().prepare(around)
        model: LayeredModel = layered(around.model, self.name)
        self.metadata = {"ablations": self.ablations, "layers": len(model.attention_layers)}

    @override
    def measure(self, batch: TextBatch, output: AttentionOutput, readout: Readout) -> Measured:
        replay = Replay(readout.model, batch, self.name)
        layers = range(len(replay.attention))
        heads = [range(one.weights.shape[1]) for one in replay.attention]
        single = [(layer, head) for layer in layers for head in heads[layer]]
        kinds: dict[str, Patch] = {"uniform": uniform, "off": off}
        kinds["shuffled"] = shuffled(batch.index, self.seed)
        patches: dict[str, list[dict[int, Patch]]] = {}
        for name in self.ablations:
            patch = kinds[name]
            patches[f"head_{name}"] = [{n: restrict(patch, heads=[head])} for n, head in single]
            patches[f"layer_{name}"] = [{layer: patch} for layer in layers]
            patches[f"all_{name}"] = [dict.fromkeys(layers, patch)]
            if self.others:
                patches[f"others_{name}"] = [
                    {n: restrict(patch, heads=[other for other in heads[n] if other != head])}
                    for n, head in single
                ]
        logits = replay.logits([one for group in patches.values() for one in group], self.budget)
        original = replay.output.logits
        change = prediction_change(logits, original)
        flips = (logits.argmax(-1) != original.argmax(-1, keepdim=True)).to(change.dtype)
        found = {"tvd": change, "flip_rate": flips.masked_fill(change.isnan(), torch.nan)}
        sizes, columns = [len(group) for group in patches.values()], {}
        for measure, values in found.items():
            for part, each in zip(patches, torch.split(values, sizes, dim=1), strict=True):
                kind, _, ablation = part.partition("_")
                if kind != "others":
                    columns[f"{measure}_{part}"] = each.mean(1)
                if kind == "layer":
                    columns[f"{measure}_last_{ablation}"] = each[:, -1]
                    columns[f"{measure}_{part}_by_layer"] = each
                elif kind != "all":
                    columns[f"{measure}_{part}_by_head"] = each
        return columns
