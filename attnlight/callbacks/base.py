"""The base class of the interpretability tests: schedule, records, scalars and figures."""

from __future__ import annotations

import json
import logging
import re
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import wraps
from math import isnan
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Literal, get_type_hints

import lightning.pytorch as pl
import torch
from lightning.pytorch.core.mixins.hparams_mixin import HyperparametersMixin
from lightning.pytorch.trainer.states import TrainerFn
from numpy.typing import NDArray
from torch import Tensor
from torchmetrics import SumMetric
from typing_extensions import override

from attnlight.batch import (
    AttentionModel,
    AttentionOutput,
    HasWordLevel,
    TextBatch,
)
from attnlight.callbacks.hooks.display import interval_scalars, show_figure, show_table, unmeasured
from attnlight.callbacks.hooks.epoch_recorder import (
    EpochRecorder,
    RecordingCallback,
    read_recorded_texts,
)
from attnlight.callbacks.hooks.readouts import HeldReadouts, shared_readout
from attnlight.callbacks.hooks.trainer_surroundings import trainer_surroundings
from attnlight.callbacks.hooks.validate_output import validate_output
from attnlight.callbacks.surroundings import Surroundings
from attnlight.data.word_sampler import WordSampler
from attnlight.errors import InputError, require_at_least, require_words
from attnlight.functional.attribution.weight_gradient import Target
from attnlight.models.readout import Readout, readout_of
from attnlight.records import read_metadata
from attnlight.reference.rows import class_reader
from attnlight.report import draw
from attnlight.storage.run_folder import is_rank_zero

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from attnlight.attribution import Attribution

_UNRECORDED = ("every_n_epochs", "figures", "budget", "label")  # arguments that change no row
_SHARED = ("max_instances", "seed", *_UNRECORDED)  # arguments of all tests
Level = Literal["words"] | None  # of items: words inside sentences, or those of the last attention
PAIRS = 1 << 19  # of tokens of the texts whose attention of all layers is held at once, at most
_LOGGER = logging.getLogger(__name__)
Measured = Mapping[str, Any]  # columns of rows, (R,) or (R, K) tensors or Arrow arrays, by name
_Measure = Callable[[Any, TextBatch, AttentionOutput, Any], Measured]


class InterpretabilityTest(RecordingCallback, HyperparametersMixin, ABC):
    """A test that runs on validation epochs, at test time, and on the split that `predict` reads.

    A subclass measures a batch; this class decides when and on which instances, writes one row per
    instance, merges the ranks, logs each measure's mean and interval as `<stage>/<test>/<measure>`,
    `..._low` and `..._high`, and draws the figure. Every record also has `prediction` and
    `max_attention`, by which most figures split their rows.

    A text whose logits or attention weights are not all finite is not measured: its rows are in the
    record with a `prediction` of -1 and nulls, a warning names it, and their number is in the
    record's metadata and logged as `<stage>/<test>/non_finite`.

    Args:
        every_n_epochs: Run on every n-th validation epoch of `fit`.
        max_instances: Run on this many instances only, chosen by a seeded hash of the dataset
            index, never the first ones (corpora are sorted by label). None: all. Where all tests of
            `test` choose some, it reads no other texts.
        seed: Seed of the choice of instances and of the test's random draws.
        figures: Draw the figure: at test time into the run folder, on validation epochs for the
            loggers that take figures.
        budget: Tokens computed at once by tests that ask the model again; null: chosen by device. It
            changes no result.
        label: Name of these options, such as `words`, where a run holds the test with others too: it
            follows the test's name in records, curves and pages. Null: the usual ones, under the test's
            name, which a verdict card reads.

    Attributes:
        methods: Attribution methods that a subclass compares, by label; records describe them.
        word_sampler: The words that `replacement: resample` draws, of a test that has it.
    """

    # Name of the test's records and curves: the class name in snake case, of an instance with its label.
    name: str
    # The averaged columns; the first represents the test where only one is shown.
    measures: tuple[str, ...] = ()
    needs_gradients: ClassVar[bool] = False
    # Whether rows of several batches may be measured together: `measure` neither asks the model again
    # nor reads states, which are then left out.
    joins_batches: ClassVar[bool] = False
    # Whether `measure` holds the attention of all layers, so that few long texts are measured at once.
    holds_layers: ClassVar[bool] = False
    # Whether `attnlight test` prints the first table of its page instead of the means of its record.
    shows_table: ClassVar[bool] = False
    replacement: str = ""  # of words, of a test that replaces some
    level: Level = None  # of the items that `measure` is given, of a test that has this option
    target: int | str | None = None  # class that gradients are of, of a test that has this option
    # Plain values that a reader of the record's columns needs, such as a tolerance.
    metadata: Mapping[str, Any] = MappingProxyType({})

    def __init__(
        self,
        every_n_epochs: int = 1,
        max_instances: int | None = None,
        seed: int = 0,
        figures: bool = True,
        budget: int | None = None,
        label: str | None = None,
    ) -> None:
        counts = {"every_n_epochs": every_n_epochs, "max_instances": max_instances}
        self._require_at_least(1, **counts, budget=budget)
        self.every_n_epochs = every_n_epochs
        self.max_instances = max_instances
        self.seed = seed
        self.figures = figures
        self.budget = budget
        self.label = label
        if label is not None and not label.isidentifier():
            raise InputError(
                f"label of {self.name} is {label!r}; expected letters, digits and _, a letter first."
            )
        self.name = record_name(self.name, {"label": label})
        self.methods: dict[str, Attribution] = {}
        self.word_sampler: WordSampler | None = None
        self._classes: list[str] = []
        self._unmeasured, self._said = "", False
        self.save_hyperparameters(logger=False)
        # A user's class may import types under TYPE_CHECKING alone.
        with suppress(NameError):
            require_words(self.name, self.hparams, get_type_hints(type(self).__init__))
        if type(self).__init__ is not InterpretabilityTest.__init__:  # which passes these on
            self.hparams.update({name: vars(self)[name] for name in _SHARED} | dict(self.hparams))

    def __init_subclass__(cls) -> None:
        """Name the test, and wrap its `measure`: detached output, gradients only if needed."""
        super().__init_subclass__()
        if "name" not in vars(cls):
            cls.name = record_name(cls.__name__)
        if "measure" not in vars(cls):
            return
        measure: _Measure = cls.measure

        @wraps(measure)
        def measured(
            self: InterpretabilityTest,
            batch: TextBatch,
            output: AttentionOutput,
            readout: Readout | AttentionModel,
        ) -> Measured:
            if not isinstance(readout, Readout):
                output = output.apply(Tensor.detach)
                readout = readout_of(batch, output, readout)
            with torch.set_grad_enabled(self.needs_gradients):
                if self.level == "words":
                    assert isinstance(readout.model, HasWordLevel)  # since `prepare`
                    output = readout.model.word_level(batch, output)
                    readout = readout_of(batch, output, readout.model)
                return measure(self, batch, output, readout)

        cls.measure = measured  # type: ignore[method-assign]

    def _require_at_least(self, minimum: int, **options: int | None) -> None:
        """Refuse options below a minimum; None is accepted.

        Raises:
            InputError: An option is below it.
        """
        require_at_least(minimum, **{f"{name} of {self.name}": n for name, n in options.items()})

    def _say_once(self, text: str) -> None:
        """Print that the test takes long, before it seems to hang."""
        if not self._said and is_rank_zero():
            print(f"{self.name}: {text}", file=sys.stderr)
        self._said = True

    def settings(self, around: Surroundings) -> dict[str, Any]:
        """The constructor arguments that determine a record, and the limit of batches."""
        settings = {k: v for k, v in self.hparams.items() if k not in _UNRECORDED}
        if around.limit is not None:
            settings["limit_batches"] = around.limit
        plain: dict[str, Any] = json.loads(json.dumps(settings, default=str))
        return plain

    @abstractmethod
    def measure(self, batch: TextBatch, output: AttentionOutput, readout: Readout) -> Measured:
        """Measure each row.

        It may be called with a model, or with a readout of a detached output. A subclass receives a
        detached output and its readout, which tests of the same texts share. Gradients are enabled if
        it sets `needs_gradients`; where it differentiates a recurrent network itself, it turns cuDNN off
        for that (`torch.backends.cudnn.flags(enabled=False)`), which has no gradients in evaluation mode.

        Args:
            batch: B texts.
            output: The model's output for them, R rows, on the model's device.
            readout: From other attention to logits; `readout.model` is the model, in evaluation
                mode.

        Returns:
            Columns (R,) or (R, K); NaN where a measure is undefined.
        """

    def figure(self, rows: Mapping[str, NDArray[Any]]) -> Figure | None:
        """The test's figure, drawn from its rows; None if it has no figure."""
        return draw(self.name, rows, self._classes, self.metadata)

    def prepare(self, around: Surroundings) -> None:
        """Take what the test needs of the model and the corpus, before the texts are read.

        Raises:
            InputError: They lack it.
        """
        if not isinstance(around.model, AttentionModel):
            raise InputError(
                f"{self.name} needs a task whose `model` meets attnlight.batch.AttentionModel; "
                f"{type(around.owner).__name__} has none."
            )
        if self.level and not isinstance(around.model, HasWordLevel):
            raise InputError(
                f"level of {self.name} is words, but {type(around.model).__name__} has no attention over "
                "words inside sentences: leave level out, or train a model with `hierarchical: true`."
            )
        self._classes = around.classes
        if self._classes:
            self._target_class()

    def _target_class(self, count: int = 0) -> Target:
        """The option `target`, a class as its number.

        Args:
            count: Number of classes, where their names are not known.

        Raises:
            InputError: There is no such class.
        """
        if self.target == "runner_up":
            return "runner_up"
        names, has = self._classes or [*map(str, range(count))], f"target of {self.name} names"
        return None if self.target is None else class_reader(names)(self.target, has)

    def begin(self, around: Surroundings) -> None:
        """Begin the record of an epoch; collective over ranks.

        Raises:
            InputError: JSON cannot represent `metadata`.
        """
        self._unmeasured = ""
        self._held = HeldReadouts()
        described = {label: method.metadata for label, method in self.methods.items()}
        known = {"methods": described} if described else {}
        try:
            metadata = json.loads(json.dumps({**self.metadata, **known}))
        except TypeError as error:
            raise InputError(f"metadata of {self.name} must be plain values: {error}.") from error
        self._recorder = EpochRecorder(
            around,
            self.name if around.epoch is None else f"{self.name}-{around.epoch}",
            max_instances=self.max_instances,
            seed=self.seed,
            metadata=metadata
            | {
                "test": self.name,
                "settings": self.settings(around),
                "measures": list(self.measures),
                "epoch": around.epoch,
                "classes": self._classes,
                "model": around.model_metadata,
            },
        )
        for method in self.methods.values():
            method.split = around.dataset
        parts: list[InterpretabilityTest | Attribution] = [self, *self.methods.values()]
        for part in parts:
            if part.replacement == "resample":
                part.word_sampler = around.word_sampler

    def record(self, batch: TextBatch, output: AttentionOutput, model: AttentionModel) -> None:
        """Measure a batch, and record the rows of the chosen texts."""
        if self._recorder is None:
            return
        texts = self._recorder.recorded(batch.index)
        readout, excluded = shared_readout(batch, output, model, texts)
        if len(excluded):
            self._recorder.writer.exclude(excluded, ("max_attention", *self.measures))
        if len(readout.output.rows):
            pairs = PAIRS if self.holds_layers else None
            joins = self.joins_batches and self.level is None  # words have states
            parts = self._held.add(readout) if joins else readout.by_texts(pairs)
            self._record_each(parts, self._recorder)

    def _record_each(self, readouts: Iterable[Readout], recorder: EpochRecorder) -> None:
        for part in readouts:
            output = part.output
            columns = {
                "prediction": output.logits.argmax(dim=-1),
                "max_attention": output.weights.amax(dim=-1).mean(dim=-1),
            }
            columns |= self.measure(part.batch, output, part)
            recorder.add(output.rows, columns)

    def finish(self, tests: Sequence[InterpretabilityTest]) -> EpochRecorder | None:
        """Merge the record of the epoch, and warn of texts that could not be measured.

        Args:
            tests: The tests that run together; only one of them warns of the same texts.

        Returns:
            The recorder, whose `path` only rank 0 may read; None if the test skips this epoch.

        Raises:
            RecordError: On every rank, if a row is missing or repeated or the disk is full.
        """
        recorder = self._recorder
        if recorder is None:
            return None
        self._record_each(self._held.release(), recorder)
        path = recorder.finish()
        self._recorder = None
        if recorder.rank == 0 and (metadata := read_metadata(path))["non_finite"]:
            self._unmeasured = unmeasured(path, metadata["stage"], metadata["epoch"])
            if all(test is self or test._unmeasured != self._unmeasured for test in tests):
                _LOGGER.warning(self._unmeasured)
        return recorder

    @override
    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        loops = trainer.validate_loop, trainer.test_loop, trainer.predict_loop
        if self.needs_gradients and stage != "fit" and any(loop.inference_mode for loop in loops):
            raise InputError(f"{self.name} takes gradients: set trainer.inference_mode to false.")
        tests, around = attached_tests(trainer), trainer_surroundings(trainer, pl_module)
        require_distinct(tests)
        self.prepare(around)
        recording = [c for c in trainer.callbacks if isinstance(c, RecordingCallback)]  # type: ignore[attr-defined]
        if stage == "test" and self is tests[-1] and len(recording) == len(tests):
            read_recorded_texts(around.corpus, [(test.max_instances, test.seed) for test in tests])

    @override
    def on_validation_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        fitting = trainer.state.fn == TrainerFn.FITTING
        skipped = fitting and (trainer.current_epoch + 1) % self.every_n_epochs
        if not (trainer.sanity_checking or skipped):
            self.begin(trainer_surroundings(trainer, pl_module, reading=True))

    @override
    def on_validation_batch_end(
        self,
        trainer: pl.Trainer,
        pl_module: pl.LightningModule,
        outputs: Any,
        batch: TextBatch,
        *_: Any,
        **__: Any,
    ) -> None:
        if self._recorder is not None:
            self.record(batch, validate_output(outputs, pl_module), pl_module.model)  # type: ignore[arg-type]

    @override
    def on_validation_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        recorder = self.finish(attached_tests(trainer))
        if recorder is None or trainer.predicting:  # `predict` has no metrics and no figures
            return
        path, stage, scalars = recorder.path, recorder.around.stage, {}
        if trainer.is_global_zero:
            scalars = interval_scalars(path, self.measures)
            show_table(trainer, stage, self.name, scalars)
            scalars["non_finite"] = float(read_metadata(path)["non_finite"])
        for name, value in trainer.strategy.broadcast(scalars).items():
            # Every rank has the same value; Lightning neither averages nor warns of such a metric.
            metric = SumMetric(nan_strategy="disable", sync_on_compute=False)
            metric.update(value)
            key = f"{stage}/{self.name}/{name}"
            # An undefined measure of a single epoch would be an empty panel in the logger.
            logger = False if isnan(value) and trainer.testing else None
            pl_module.log(key, metric.to(pl_module.device), metric_attribute=key, logger=logger)
        if self.figures and trainer.is_global_zero:
            show_figure(trainer, stage, self.name, path, self.figure)

    on_test_epoch_start = on_validation_epoch_start
    on_test_batch_end = on_validation_batch_end
    on_test_epoch_end = on_validation_epoch_end
    on_predict_epoch_start = on_validation_epoch_start
    on_predict_batch_end = on_validation_batch_end
    on_predict_epoch_end = on_validation_epoch_end


def fill_undefined(
    columns: Mapping[str, Tensor], rows: Tensor, dtype: torch.dtype | None = None
) -> dict[str, Tensor]:
    """Columns (R,) or (R, K) with NaN in some rows (R,) bool, in a dtype of at least float32."""
    filled = {}
    for name, values in columns.items():
        kept = values if dtype is None else values.to(torch.promote_types(dtype, torch.float32))
        filled[name] = kept.masked_fill(rows.view(-1, *(1,) * (kept.ndim - 1)), torch.nan)
    return filled


def attached_tests(trainer: pl.Trainer) -> list[InterpretabilityTest]:
    """The interpretability tests among a trainer's callbacks."""
    return [c for c in trainer.callbacks if isinstance(c, InterpretabilityTest)]  # type: ignore[attr-defined]


def require_distinct(tests: Sequence[InterpretabilityTest]) -> None:
    """Refuse tests that would write the same record.

    Raises:
        InputError: Two have one name.
    """
    names = [test.name for test in tests]
    for name in names:
        if names.count(name) > 1:
            raise InputError(
                f"{name} is attached twice, and both would write the same record: give one a `label`."
            )


def record_name(class_path: str, init_args: Mapping[str, Any] | None = None) -> str:
    """The name of a test's records and curves: its class name in snake case, and its `label`.

    Example:
        >>> record_name("attnlight.callbacks.DecisionFlip", {"label": "words"})
        'decision_flip-words'
    """
    name = re.sub(r"(?<!^)(?=[A-Z])", "_", class_path.rpartition(".")[2]).lower()
    label = (init_args or {}).get("label")
    return f"{name}-{label}" if label else name
