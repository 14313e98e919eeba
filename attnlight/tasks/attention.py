"""Train a model whose attention is to be tested: the base class of all tasks."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from inspect import getfullargspec
from typing import Any, ClassVar, Self

import lightning.pytorch as pl
import torch
from lightning.pytorch.strategies import SingleDeviceStrategy
from lightning.pytorch.trainer.states import TrainerFn
from lightning.pytorch.utilities.types import OptimizerLRScheduler
from torch import Tensor
from torch.optim.lr_scheduler import ReduceLROnPlateau
from torchmetrics import MeanMetric
from typing_extensions import override

from attnlight.batch import AttentionOutput, HasKeptStates, HasTokenizer, TextBatch
from attnlight.data.raw_text import RawText
from attnlight.data.word2vec import Word2VecSettings
from attnlight.datamodules.base import CorpusDataModule
from attnlight.errors import InputError
from attnlight.functional.readout.instances import texts_of_rows
from attnlight.models import Embedding, read_vectors
from attnlight.models.build import build_model, plain_net, with_defaults
from attnlight.models.options import CustomNetwork, PairNet, group_of
from attnlight.problems import Problem, problem_class
from attnlight.reference import TrainedModel, evaluating
from attnlight.storage.checkpoint_file import (
    CHECKPOINT_FORMAT,
    CHECKPOINT_KEY,
    OPTIMIZER_STATES,
    read_checkpoint,
)
from attnlight.storage.foreign_classes import require_trusted_classes
from attnlight.tasks.objectives import Penalties
from attnlight.tasks.options import (
    CLASS_WEIGHTS,
    GROUPS,
    PLATEAU_MONITOR,
    Loss,
    Objective,
    Optimizer,
    Vectors,
)


class AttentionTask(pl.LightningModule):
    """Train a classifier of pairs, or a custom network, on a problem.

    `validation_step` and `test_step` return `{"loss", "output"}`, which is all that the
    interpretability tests see.

    Args:
        spec: Description of the corpus, see `Problem`; the command line supplies it.
        problem: `pairs`, `classification`, `tagging`, or the import path of a custom problem.
        net: The options of the network of `pairs`, or any network by `class_path` and `init_args`.
        optimizer: The optimiser.
        loss: Reduction and class weights of the loss.
        vectors: Initial word vectors, and whether word embeddings are trained.
        objective: Penalties added to the loss in training; null: none. Losses are logged without
            them.

    Attributes:
        problem_name: Name of the problem, if the class determines it.
        problem: The prediction problem.
        model: The network, an `AttentionModel`.
        raw: The encoder of raw text.

    Raises:
        InputError: An option is out of range or incompatible with another.
    """

    problem_name: ClassVar[str | None] = None
    model: Any

    def __init__(
        self,
        spec: dict[str, Any],
        problem: str,
        net: PairNet | CustomNetwork = PairNet(),
        optimizer: Optimizer = Optimizer(),
        loss: Loss = Loss(),
        vectors: Vectors = Vectors(),
        objective: Objective | None = None,
    ) -> None:
        super().__init__()
        groups: dict[str, Any] = {"optimizer": optimizer, "loss": loss, "vectors": vectors}
        groups["objective"] = objective or Objective()
        self._assemble(problem, spec, plain_net(problem, net), **groups)

    @classmethod
    def network_of(cls, arguments: Mapping[str, Any]) -> tuple[str | None, Mapping[str, Any]]:
        """The problem and the options of the network, by the constructor's arguments, as far as given."""
        return cls.problem_name or arguments.get("problem"), arguments.get("net") or {}

    @classmethod
    def monitor(cls, arguments: Mapping[str, Any]) -> tuple[str, str]:
        """The value that selects the best epoch, and `max` or `min`, by the constructor's arguments.

        With penalties of attention on marked items the weighted penalties count too: epochs of equal
        accuracy differ in them.
        """
        name, mode = problem_class(cls.problem_name or arguments["problem"]).monitor
        objective = group_of(Objective, arguments.get("objective") or {}, "objective")
        return "val/objective" if Penalties(objective).marked else name, mode

    @property
    def _has_penalties(self) -> bool:
        """Whether a validation epoch measures penalties: in `fit`, whose corpus has their columns."""
        return bool(self.penalties.weights) and self.trainer.state.fn == TrainerFn.FITTING

    @property
    def learning_rate(self) -> float:
        """The learning rate of `optimizer`, by the name under which `LearningRateFinder` sets it."""
        return float(self.hparams["optimizer"]["learning_rate"])

    @learning_rate.setter
    def learning_rate(self, rate: float) -> None:
        options = self.hparams["optimizer"]
        for name in ("warmup", "warmup_steps", "layerwise_lr_decay"):
            if options[name]:
                raise InputError(
                    f"LearningRateFinder finds one rate of all steps and layers: leave out {name}."
                )
        options["learning_rate"] = rate

    @property
    def classes(self) -> list[str]:
        """Names of the classes."""
        return self.raw.classes

    @property
    def tokenizer(self) -> Any:  # noqa: ANN401
        """The tokenizer of the training corpus, see `RawText`."""
        return self.raw.parsed_tokenizer

    def encode(
        self,
        texts: Sequence[str],
        pos: Sequence[Sequence[str]] | None = None,
        queries: Sequence[str] | None = None,
        candidates: Sequence[Sequence[str]] | None = None,
    ) -> TextBatch:
        """`TrainedModel.encode` on the task's device."""
        reader = TrainedModel(self.model, self.problem, self.raw)
        return reader.encode(texts, pos, queries, candidates).to(self.device)

    def read(self, *texts: Any, **columns: Any) -> AttentionOutput:  # noqa: ANN401
        """The model's output for raw texts, in evaluation mode; arguments of `encode`."""
        with evaluating(self.model), torch.no_grad():
            output: AttentionOutput = self.model(self.encode(*texts, **columns))
        return output

    def classify(
        self,
        texts: Sequence[str],
        queries: Sequence[str] | None = None,
        candidates: Sequence[Sequence[str]] | None = None,
    ) -> Tensor:
        """Class probabilities of raw texts' instances, (R, C), in the order of `classes`."""
        return self.read(texts, queries=queries, candidates=candidates).probabilities

    def tag(
        self, texts: Sequence[str], pos: Sequence[Sequence[str]] | None = None
    ) -> list[list[str]]:
        """Names of the predicted classes of each raw text's instances; arguments of `encode`."""
        output = self.read(texts, pos)
        sizes = torch.bincount(texts_of_rows(output.rows)).tolist()
        predicted = torch.split(output.logits.argmax(-1), sizes)
        return [[self.classes[number] for number in numbers.tolist()] for numbers in predicted]

    @override
    def setup(self, stage: str) -> None:
        self._seed = torch.initial_seed()  # before callbacks that train, such as LearningRateFinder
        corpus = self.trainer.datamodule  # type: ignore[attr-defined]
        if isinstance(corpus, CorpusDataModule):
            self.raw = RawText.of_corpus(corpus)
            if isinstance(self.model, HasTokenizer):
                self.model.require_tokenizer(self.raw.tokenizer)
            if isinstance(self.model, HasKeptStates):
                self.model.keep_states(map(corpus.dataset, corpus.splits))
        if stage == "fit":
            self.penalties.start(self.model, self.hparams["spec"]["vocab_size"])
        if stage == "fit" and hasattr(corpus, "dataset"):
            self.penalties.require_marks(corpus.dataset("train"))
        if stage != "fit" or self.trainer.ckpt_path:
            return
        vectors = Vectors(**self.hparams["vectors"])
        if vectors.path is not None:
            vocabulary = self.tokenizer.get_vocab()
            for embedding in self._embeddings:
                path = vectors.path
                if path == "corpus":
                    path = corpus.word_vectors(Word2VecSettings(size=embedding.embedding_dim))
                word_vectors = read_vectors(path, vocabulary, normalized=vectors.normalize)
                embedding.start_from(word_vectors, vectors.unknown)
        if self._class_weights is not None:
            self.class_weight.copy_(self._class_weights(corpus.label_counts))

    @override
    def configure_optimizers(self) -> OptimizerLRScheduler:
        size = self.hparams["net"].get("hidden_size")
        options = Optimizer(**self.hparams["optimizer"])
        return options.scheduled(
            self.model, size, lambda: self.trainer.estimated_stepping_batches, self.penalties.head
        )

    @override
    def lr_scheduler_step(self, scheduler: Any, metric: Any) -> None:
        """Step once per batch; a plateau scheduler steps in `on_train_epoch_end`."""
        if not isinstance(scheduler, ReduceLROnPlateau):
            scheduler.step()

    @override
    def on_fit_start(self) -> None:
        # DDP averages dense gradients, even of one process; on a GPU they cost nothing.
        alone = isinstance(self.trainer.strategy, SingleDeviceStrategy)
        for embedding in self._embeddings:
            embedding.sparse = alone and self.device.type == "cpu"

    @override
    def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
        # Dropout is a function of seed, epoch and rank, like the order of batches, so that a resumed
        # run ends with the weights of an uninterrupted one, on any number of devices. Not at the
        # start of the epoch: the loader's iterator draws a number before or after that hook.
        if batch_idx == 0:
            stream = self.current_epoch * self.trainer.world_size + self.global_rank
            torch.manual_seed((self._seed + 0x9E3779B97F4A7C15 * (stream + 1)) % 2**64)
            if self.penalties.head is not None:
                self.penalties.head.epoch = self.current_epoch
            self._loss_sum = torch.zeros((), device=self.device)
            self._row_count = torch.zeros((), dtype=torch.long, device=self.device)

    @override
    def training_step(self, batch: TextBatch, batch_idx: int) -> Tensor:
        output = self.model(batch)
        real = output.rows[:, 0] >= 0
        losses = self._losses(batch, output) * real
        self._loss_sum += losses.detach().sum()
        self._row_count += real.sum()
        losses = losses + self.penalties(output, batch, real, "train")
        return self._reduce(losses, real, batch) * self.trainer.world_size

    @override
    def on_before_optimizer_step(self, optimizer: torch.optim.Optimizer) -> None:
        for embedding in self._embeddings:
            embedding.densify_gradient()

    @override
    def on_train_epoch_end(self) -> None:
        # Once per epoch: updating a metric and logging it at every step costs time.
        self.train_loss.update(self._loss_sum / self._row_count, self._row_count)
        self.log_dict({"train/loss": self.train_loss, **self.penalties.logged("train")})
        # Lightning steps after the epoch's checkpoint, so that a resumed run would miss a step.
        plateau, score = self.lr_schedulers(), self.trainer.callback_metrics.get(PLATEAU_MONITOR)
        if isinstance(plateau, ReduceLROnPlateau) and score is not None:
            plateau.step(score)

    @override
    def validation_step(self, batch: TextBatch, batch_idx: int) -> dict[str, Any]:
        output: AttentionOutput = self.model(batch)
        losses = self._losses(batch, output)
        real = output.rows[:, 0] >= 0
        if real.any():
            stage = "test" if self.trainer.testing else "val"
            getattr(self, f"{stage}_loss").update(losses[real])
            labels = self.problem.labels(batch)
            self.problem.update(getattr(self, f"{stage}_metrics"), output, labels, real)
            if self._has_penalties:
                self.val_penalty.update(self.penalties(output, batch, real, "val")[real])
        return {"loss": losses.mean(), "output": output}

    @override
    def on_validation_epoch_end(self) -> None:
        stage = "test" if self.trainer.testing else "val"
        self.log_dict(getattr(self, f"{stage}_metrics"))
        if self._has_penalties:
            name, mode = self.problem.monitor
            score = {**self.val_metrics.compute(), "val/loss": self.val_loss.compute()}[name]
            penalty = self.val_penalty.compute()
            self.val_objective.update(score - penalty if mode == "max" else score + penalty)
            self.val_penalty.reset()
            self.log_dict({"val/objective": self.val_objective, **self.penalties.logged("val")})
        self.log(f"{stage}/loss", getattr(self, f"{stage}_loss"))

    test_step = validation_step
    on_test_epoch_end = on_validation_epoch_end

    @override
    def predict_step(self, batch: TextBatch, batch_idx: int) -> dict[str, Any]:
        return {"output": self.model(batch)}

    @override
    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        checkpoint[CHECKPOINT_KEY] = {"format": CHECKPOINT_FORMAT, **asdict(self.raw)}
        if OPTIMIZER_STATES not in checkpoint:  # Lightning's save_weights_only keeps loops
            checkpoint.pop("loops", None)
            _drop_head(checkpoint)

    @override
    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        _require_same(self.raw.tokenizer, self.problem, self.hparams, checkpoint)
        if self.penalties.head is None:
            _drop_head(checkpoint)
        self.raw = RawText.from_dict(checkpoint[CHECKPOINT_KEY])

    @classmethod
    @override
    def load_from_checkpoint(  # type: ignore[override]
        cls, checkpoint_path: Any, map_location: Any = "cpu", **options: Any
    ) -> Self:
        """Load a checkpoint without a corpus; no code in it is executed or imported.

        Args:
            checkpoint_path: The file.
            map_location: Where to load it, as for `torch.load`.
            options: Constructor arguments that replace those in the checkpoint.

        Raises:
            InputError: The file is missing, damaged, not from attnlight, or names a custom class
                that `options` do not name.
        """
        checkpoint = read_checkpoint(checkpoint_path, map_location)
        arguments = checkpoint["hyper_parameters"] | options
        require_trusted_classes(checkpoint_path, arguments, options)
        names: set[str] = set()
        for kind in cls.__mro__:
            constructor = getfullargspec(kind)
            names |= {*constructor.args, *constructor.kwonlyargs}
            if constructor.varkw is None:  # else it passes options on to its parent class
                break
        if cls.problem_name is not None:
            names.discard("problem")
        task = cls(**{name: arguments[name] for name in names & arguments.keys()})
        task.on_load_checkpoint(checkpoint)
        task.load_state_dict(checkpoint["state_dict"])
        return task.to(task.class_weight.device if map_location is None else map_location)

    def _assemble(
        self,
        problem: str,
        spec: Mapping[str, Any],
        net: Mapping[str, Any],
        guided: bool = False,
        **groups: object,
    ) -> None:
        """Save all options as plain values, and build the model and its metrics."""
        plain: dict[str, Any] = {"problem": problem, "spec": dict(spec), "net": dict(net)}
        for name, group in groups.items():
            plain[name] = asdict(group_of(GROUPS[name], group, name))
        self.penalties = penalties = Penalties(Objective(**plain["objective"]))
        if not self.penalties.weights:  # the hyperparameters of a task without this group
            del plain["objective"]
            self.hparams.pop("objective", None)
        self.save_hyperparameters({**self.hparams, **plain})
        self.problem = problem_class(problem)(spec)
        self.raw = RawText(classes=self.problem.classes)
        self.model = build_model(problem, net, spec, guided=guided)
        penalties.require_defined(problem, net, self.model, spec["vocab_size"])
        self.register_buffer("class_weight", torch.ones(len(self.problem.classes)))
        self.class_weight: Tensor
        metrics = self.problem.metrics()
        self.val_metrics = metrics.clone(prefix="val/")
        self.test_metrics = metrics.clone(prefix="test/")
        self.train_loss, self.val_loss, self.test_loss = (MeanMetric() for _ in range(3))
        self.val_penalty, self.val_objective = MeanMetric(), MeanMetric()
        self._class_weights = CLASS_WEIGHTS[plain["loss"]["class_weights"]]
        self._embeddings = [part for part in self.model.children() if isinstance(part, Embedding)]
        if plain["vectors"]["freeze"]:
            for embedding in self._embeddings:
                embedding.requires_grad_(False)

    def _losses(self, batch: TextBatch, output: AttentionOutput) -> Tensor:
        """The loss of each instance, (R,)."""
        return self.problem.losses(output, batch, self.class_weight)

    def _reduce(self, losses: Tensor, real: Tensor, batch: TextBatch) -> Tensor:
        """This rank's part of the global batch's loss; `losses` (R,) are 0 unless `real` (R,).

        DDP averages gradients over ranks, so that `training_step` multiplies by their number: the
        optimiser and its weight decay then see the gradient of the global batch on one device.
        """
        total = losses.sum()
        if self.hparams["loss"]["reduction"] == "sum":
            return total
        return total / self._gather_ranks(real.sum()).sum()

    def _gather_ranks(self, values: Tensor) -> Tensor:
        """Values (...) of each rank without their gradient, (ranks, ...)."""
        return values[None] if self.trainer.world_size == 1 else self.all_gather(values)  # type: ignore[return-value]


def _drop_head(checkpoint: dict[str, Any]) -> None:
    """Remove from a checkpoint what an objective trains beside the model."""
    for name in [name for name in checkpoint["state_dict"] if name.startswith("penalties.head.")]:
        del checkpoint["state_dict"][name]


def _require_same(
    tokenizer: str | None,
    problem: Problem,
    hparams: Mapping[str, Any],
    checkpoint: Mapping[str, Any],
) -> None:
    """Raise `InputError` if a checkpoint is of another vocabulary, corpus, problem or network.

    The `tokenizer` is that of the task's corpus, if it has one.
    """
    stored, trained = checkpoint[CHECKPOINT_KEY], checkpoint["hyper_parameters"]
    if tokenizer not in (None, stored["tokenizer"]):
        raise InputError(
            "the checkpoint was trained with another vocabulary than that of the corpus in `data`: "
            "give the `data` of its own fit.yaml."
        )
    if (difference := problem.difference(trained["spec"])) is not None:
        raise InputError(f"the checkpoint {difference}: give the `data` of its own fit.yaml.")
    options = {"problem": trained["problem"]} | with_defaults(trained["problem"], trained["net"])
    expected = {"problem": hparams["problem"]} | hparams["net"]
    for name, value in expected.items():
        pretrained = isinstance(value, Mapping) and "fingerprint" in value
        if pretrained and isinstance(options.get(name), Mapping):  # whose folder may have moved
            value = {**value, "path": options[name].get("path")}
        if options.get(name) != value:
            raise InputError(
                f"the checkpoint has {name} {options.get(name)}, the configuration {value}: give the "
                "`model` of its own fit.yaml."
            )
