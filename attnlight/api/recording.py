"""Run interpretability tests on batches in one process, without a Trainer."""

from collections.abc import Mapping, Sequence
from copy import copy
from pathlib import Path
from reprlib import repr as short
from typing import Any

import torch
from lightning.pytorch.strategies import SingleDeviceStrategy

from attnlight.batch import AttentionModel, TextBatch
from attnlight.callbacks import InterpretabilityTest
from attnlight.callbacks.base import record_name, require_distinct
from attnlight.callbacks.surroundings import Surroundings
from attnlight.data.progress import progress
from attnlight.errors import InputError
from attnlight.reference.rows import GivenTexts
from attnlight.reference.trained import evaluating
from attnlight.storage.files import read_yaml
from attnlight.storage.foreign_classes import class_of
from attnlight.storage.parsing import OneSentenceParser
from attnlight.storage.shipped import find_config


def build_tests(
    tests: str | InterpretabilityTest | Sequence[str | Mapping[str, Any] | InterpretabilityTest],
) -> list[InterpretabilityTest]:
    """The tests that are named or described, and copies of those that are given, without figures."""
    given = tests if isinstance(tests, Sequence | None) else [tests]
    specs: list[Any] = [] if isinstance(tests, str) else list(given or ())
    names = tests.split(",") if isinstance(tests, str) else ()
    by_name: dict[str, Any] = {}  # of a test in several files the last one counts, as for `--tests`
    for name in filter(None, map(str.strip, names)):
        trainer = read_yaml(Path(find_config(name, "tests"))).get("trainer", {})
        found = [spec for key in ("callbacks", "callbacks+") for spec in trainer.get(key, ())]
        by_name |= {record_name(**spec): spec for spec in found}
    specs += by_name.values()
    parser = OneSentenceParser()
    parser.add_argument("--tests", type=list[InterpretabilityTest])
    described = [spec for spec in specs if not isinstance(spec, InterpretabilityTest)]
    for spec in described:
        named = spec.get("class_path") if isinstance(spec, Mapping) else spec
        if not isinstance(named, str):
            raise InputError(
                f"a test is {short(spec)}; expected the name of its class, such as 'DecisionFlip', a mapping "
                "of `class_path` and `init_args`, or the test itself, such as DecisionFlip()."
            )
        class_of(named, InterpretabilityTest, "tests")
    built = iter(parser.instantiate(parser.parse_object({"tests": described})).tests)
    chosen = [copy(s) if isinstance(s, InterpretabilityTest) else next(built) for s in specs]
    if not chosen:
        raise InputError("there is no test to run; expected at least one, such as 'cheap'.")
    for test in chosen:
        test.figures = False
    return chosen


def record_tests(
    tests: Sequence[InterpretabilityTest],
    model: AttentionModel,
    batches: Sequence[TextBatch],
    texts: GivenTexts,
    owner: Any,  # noqa: ANN401
    folder: Path,
) -> None:
    """Write the record of each test into `records/test` of a folder, as `attnlight test` does.

    No dataset index may occur twice in the batches; `texts` are the same texts and give their
    words. Tests may ask for classes and hyperparameters of the `owner`, a task or a `TrainedModel`.
    """
    with evaluating(model) as device, torch.backends.cudnn.flags(allow_tf32=False):
        around = Surroundings(
            folder=folder,
            stage="test",
            owner=owner,
            model=model,
            strategy=SingleDeviceStrategy(device),
            dataset=texts,
        )
        require_distinct(tests)
        try:
            for test in tests:
                test.prepare(around)
            for test in tests:
                test.begin(around)
            with torch.no_grad():
                for batch in progress(batches, "batches"):
                    moved = batch.to(device)
                    output = model(moved)
                    for test in tests:
                        test.record(moved, output, model)
            for test in tests:
                test.finish(tests)
        finally:
            for test in tests:
                test.discard()
