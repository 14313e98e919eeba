"""Run interpretability tests on batches in one process, without a Trainer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from lightning.pytorch.trainer.states import TrainerFn

from attnlight.batch import AttentionModel, TextBatch
from attnlight.callbacks import InterpretabilityTest
from attnlight.errors import InputError
from attnlight.reference.rows import GivenTexts
from attnlight.reference.trained import evaluating
from attnlight.storage.files import read_yaml
from attnlight.storage.parsing import OneSentenceParser
from attnlight.storage.shipped import find_config


def build_tests(
    tests: str | Sequence[str | Mapping[str, Any] | InterpretabilityTest],
) -> list[InterpretabilityTest]:
    """The tests that are named or described, and copies of those that are given, without figures.

    Raises:
        InputError: There is no such file or test, it has no such option, or there is no test.
    """
    specs: list[Any] = [] if isinstance(tests, str) else list(tests or ())
    names = tests.split(",") if isinstance(tests, str) else ()
    for name in filter(None, map(str.strip, names)):
        trainer = read_yaml(Path(find_config(name, "tests"))).get("trainer", {})
        specs += [spec for key in ("callbacks", "callbacks+") for spec in trainer.get(key, ())]
    parser = OneSentenceParser()
    parser.add_argument("--tests", type=list[InterpretabilityTest])
    described = [spec for spec in specs if not isinstance(spec, InterpretabilityTest)]
    built = iter(parser.instantiate_classes(parser.parse_object({"tests": described})).tests)
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
    """Write the record of each test into `records/test` of a folder, by the hooks that `fit` calls.

    Args:
        tests: The tests.
        model: The network.
        batches: The texts; no dataset index may occur twice.
        texts: The same texts, which give their words.
        owner: The task or the `TrainedModel`, whose classes and hyperparameters tests may ask for.
        folder: The folder.

    Raises:
        InputError: A test refuses the model or the texts, or a record cannot be written.
    """
    with evaluating(model) as device, torch.backends.cudnn.flags(allow_tf32=False):
        trainer: Any = _surroundings(folder, tests, batches, texts, device)
        module: Any = SimpleNamespace(
            model=model,
            classes=getattr(owner, "classes", None),
            hparams=getattr(owner, "hparams", {}),
            reference=getattr(owner, "reference", None),
            device=device,
            log=lambda *_, **__: None,
        )
        trainer.lightning_module = module
        try:
            for test in tests:
                test.setup(trainer, module, "test")
            for test in tests:
                test.on_test_epoch_start(trainer, module)
            with torch.no_grad():
                for number, batch in enumerate(batches):
                    moved = batch.to(device)
                    output = {"output": model(moved)}
                    for test in tests:
                        test.on_test_batch_end(trainer, module, output, moved, number)
            for test in tests:
                test.on_test_epoch_end(trainer, module)
        finally:
            for test in tests:
                test.teardown(trainer, module, "test")


def _surroundings(
    folder: Path,
    tests: Sequence[InterpretabilityTest],
    batches: Sequence[TextBatch],
    texts: GivenTexts,
    device: torch.device,
) -> SimpleNamespace:
    """What tests ask of a Trainer: here one process that tests some batches on one device."""

    class Batches(list[TextBatch]):
        dataset = texts

    return SimpleNamespace(
        default_root_dir=str(folder),
        callbacks=tests,
        loggers=[],
        datamodule=None,
        ckpt_path=None,
        test_dataloaders=[Batches(batches)],
        num_test_batches=[len(batches)],
        limit_test_batches=1.0,
        limit_val_batches=1.0,
        test_loop=SimpleNamespace(inference_mode=False),
        validate_loop=None,
        state=SimpleNamespace(fn=TrainerFn.TESTING),
        strategy=SimpleNamespace(
            barrier=lambda: None,
            broadcast=lambda value: value,
            reduce_boolean_decision=lambda value, **_: value,
            root_device=device,
        ),
        testing=True,
        sanity_checking=False,
        fast_dev_run=False,
        is_global_zero=True,
        world_size=1,
        global_rank=0,
        current_epoch=0,
        global_step=0,
    )
