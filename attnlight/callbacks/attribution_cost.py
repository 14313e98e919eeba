"""What does an explanation cost beside a prediction?"""

from collections.abc import Callable, Sequence
from functools import partial
from statistics import median
from time import perf_counter
from typing import Any

import torch
from typing_extensions import override

from attnlight.attribution import DEFAULT_METHODS, build_attributions
from attnlight.batch import AttentionOutput, TextBatch
from attnlight.callbacks.base import InterpretabilityTest, Measured
from attnlight.callbacks.surroundings import Surroundings
from attnlight.models.readout import Readout


class AttributionCost(InterpretabilityTest):
    """Time of each attribution method as a multiple of a forward pass on the same batch.

    * `cost_<method>`: the seconds that a method takes to explain a batch, over those of a forward
      pass without gradients; the median over the repetitions, after one that does not count. In each
      repetition the forward pass and all methods are timed in turn, in alternating order, and on an
      accelerator until it has finished.
    * `forward_seconds`: the median time of the forward pass.
    * `batch`: the smallest dataset index of the batch. All rows of a batch have the same values, so
      intervals resample batches.

    Unlike all other records, this one varies from run to run: times depend on the machine and on what
    else it does. Metadata name the device and the number of threads. The forward pass that made the
    prediction is no part of a method's time. With `max_instances` a batch has the chosen texts alone;
    of so few texts fixed costs are a larger part.

    Args:
        methods: Names of attribution methods, or mappings such as
            `{name: integrated_gradients, tolerance: 1e-4, label: exact}`.
        repeats: Repetitions that count.
        options: Those of `InterpretabilityTest`, such as `max_instances` and `seed`.
    """

    needs_gradients = True

    def __init__(
        self,
        methods: Sequence[str | dict[str, Any]] = DEFAULT_METHODS,
        repeats: int = 3,
        **options: Any,  # noqa: ANN401
    ) -> None:
        super().__init__(**options)
        self._require_at_least(1, repeats=repeats)
        self.methods = build_attributions(methods, self.name)
        self.repeats = repeats
        self.measures = (*(f"cost_{label}" for label in self.methods), "forward_seconds")
        self.metadata: dict[str, Any] = {"clusters": "batch"}

    @override
    def prepare(self, around: Surroundings) -> None:
        super().prepare(around)
        device = around.strategy.root_device
        named = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
        self.metadata |= {"device": named, "threads": torch.get_num_threads()}

    @override
    def measure(self, batch: TextBatch, output: AttentionOutput, readout: Readout) -> Measured:
        model, target = readout.model, output.logits.argmax(-1)
        synchronize = torch.get_device_module(output.logits.device.type).synchronize
        timed: dict[str, Callable[[], object]] = {"forward": torch.no_grad()(partial(model, batch))}
        for label, method in self.methods.items():
            timed[f"cost_{label}"] = partial(method.explain, model, batch, output, target)
        seconds: dict[str, list[float]] = {name: [] for name in timed}
        for number in range(1 + self.repeats):
            for name in list(timed)[:: (-1) ** number]:
                synchronize()
                start = perf_counter()
                timed[name]()
                synchronize()
                seconds[name].append(perf_counter() - start)
        passes = seconds.pop("forward")[1:]
        found = {
            name: median(own / of_pass for own, of_pass in zip(taken[1:], passes, strict=True))
            for name, taken in seconds.items()
        } | {"forward_seconds": median(passes)}
        rows = torch.ones(len(target), dtype=torch.float64)
        columns = {name: value * rows for name, value in found.items()}
        return columns | {"batch": batch.index.min().cpu().expand(len(rows))}
