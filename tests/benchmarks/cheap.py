"""What the tests of configs/tests/cheap.yaml cost beside a forward pass."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module

import torch
import yaml

from attnlight.batch import AttentionOutput
from attnlight.callbacks import InterpretabilityTest
from tests.benchmarks.measuring import Measurement, clock, spread
from tests.benchmarks.scene import TEXTS, TOKENS, Scene, scene
from tests.commands import CONFIGS


def attached(name: str) -> list[InterpretabilityTest]:
    """The tests that a file of configs/tests/ attaches, as it sets them, without linear programs.

    What these cost with more than two classes is measured by itself, in the group several_classes.
    """
    text = (CONFIGS / "tests" / f"{name}.yaml").read_text(encoding="utf-8")
    tests = []
    for entry in yaml.safe_load(text)["trainer"]["callbacks+"]:
        module, _, kind = entry["class_path"].rpartition(".")
        options = entry.get("init_args", {})
        if kind == "AdversarialAttention":
            options |= {"program_instances": 0}
        tests.append(getattr(import_module(module), kind)(**options))
    return tests


@torch.no_grad()
def cheap_tests(
    threads: int,
    repetitions: int = 7,
    warm_ups: int = 2,
    batches: int = 4,
    texts: int = TEXTS,
    tokens: int = TOKENS,
) -> Measurement:
    """What the cheap tests measure over the forward pass that each batch takes before them."""
    torch.set_num_threads(threads)
    shared, tests = scene(batches, texts, tokens), attached("cheap")
    rounds = [_evaluated(shared, tests) for _ in range(warm_ups + repetitions)][warm_ups:]
    seconds = {name: [taken[name] for taken in rounds] for name in rounds[0]}
    forward = seconds.pop("forward")
    together = [sum(taken) for taken in zip(*seconds.values(), strict=True)]
    details = {"texts": shared.size, "forward passes": spread(forward)}
    for name, taken in seconds.items():
        shares = Measurement.of_ratios(taken, forward, {})
        details[f"`{name}` over them"] = f"{shares.median:.3f}"
    return Measurement.of_ratios(together, forward, details)


def _evaluated(shared: Scene, tests: Sequence[InterpretabilityTest]) -> dict[str, float]:
    """Seconds of the forward passes and of each test, batch by batch as in an evaluation."""
    seconds = dict.fromkeys(["forward", *(type(test).__name__ for test in tests)], 0.0)
    for batch in shared.batches:
        said: list[AttentionOutput] = []
        seconds["forward"] += clock(lambda: said.append(shared.model(batch)))  # noqa: B023
        for test in tests:
            way = lambda: test.measure(batch, said[0], shared.model)  # noqa: B023
            seconds[type(test).__name__] += clock(way)
    return seconds
