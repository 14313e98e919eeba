"""LightningCLI for attnlight: links, run folders and additions for each verb."""

import logging
import os
import shlex
import signal
import sys
import time
import warnings
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from copy import deepcopy
from pathlib import Path
from typing import Any, cast

import lightning.pytorch as pl
import rich
import torch
import yaml
from jsonargparse import Namespace
from lightning.fabric.plugins.environments.slurm import SLURMEnvironment
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch.callbacks import Callback, ModelSummary, ProgressBar
from lightning.pytorch.cli import ArgsType, LightningArgumentParser, LightningCLI
from lightning.pytorch.loggers import CSVLogger, WandbLogger
from lightning.pytorch.strategies.launchers import _SubprocessScriptLauncher
from lightning.pytorch.utilities.exceptions import SIGTERMException
from lightning.pytorch.utilities.seed import isolate_rng
from typing_extensions import override

# Imported so that a YAML can name their classes without a path.
from attnlight import callbacks, datamodules, tasks  # noqa: F401
from attnlight.api.check import announce_broken
from attnlight.callbacks.hooks.epoch_lines import BatchLines, EpochLines
from attnlight.callbacks.hooks.prediction_writer import PredictionWriter
from attnlight.callbacks.hooks.run import RunConfig, SummaryTable
from attnlight.callbacks.hooks.trainer_surroundings import STAGES
from attnlight.cli.composition import DEFAULTS, compose
from attnlight.cli.configuration import (
    fill_placeholders,
    keep_wandb_offline_without_key,
    resolve_callbacks,
    use_wandb_run,
)
from attnlight.cli.joining import ExitOnSignals, JoinTimeout
from attnlight.cli.processes import RANK_ZERO, join_timeout, require_cores
from attnlight.cli.resuming import requeued, require_same_training
from attnlight.data.raw_text import RawText
from attnlight.datamodules import CorpusDataModule
from attnlight.errors import InputError, one_line
from attnlight.models.build import pretrained_network
from attnlight.report.verdict.commands import from_here
from attnlight.storage import checkpoints  # noqa: F401
from attnlight.storage.checkpoint_file import CHECKPOINT_KEY, read_checkpoint
from attnlight.storage.foreign_classes import import_class
from attnlight.storage.locking import require_creatable, sole_process
from attnlight.storage.parsing import OneSentenceParser
from attnlight.storage.run_folder import NOT_HASHED, Run, corpus_name, is_rank_zero
from attnlight.tasks.attention import AttentionTask
from attnlight.tasks.from_base import FromBase

_LARGEST_SEED = 2**32 - 1  # of numpy
# Correct warnings that need no action.
_WARNINGS = (
    r".*does not have many workers",  # batches come from a memory map
    r".*Checkpoint directory .* exists and is not empty",  # the run's folder holds its fit.yaml
    r".*isinstance\(treespec, LeafSpec\).* is deprecated",  # Lightning's own code
    r".*smaller than the logging interval",
    r"Average precision score for one or more classes was",  # which do not occur: the mean is of others
    r".*module\(s\) in eval mode at the start of training",  # those of a frozen model
)
_OPTIONS = {
    "experiment": "folder of the experiment (default: stem of the last config outside tests/, or of the "
    "data file)",
    "run": "folder of the run (default: the seed and a short hash of the configuration)",
    "overwrite": "fit: replace an existing run; validate, test: replace records of other settings",
    "corpus": "name, in records, of a corpus other than that of training (default: stem of its data "
    "file, or last part of its path)",
}
# Begin lines of Lightning's log: an advertisement, devices that are absent, what another line says.
_LINES = ("💡 Tip", "GPU available: False", "TPU available: False", "Restoring states from")


class AttnlightCLI(LightningCLI):
    """`fit`, `validate`, `test` and `predict` on one run folder.

    `stack` holds the folder's lock, and is closed when the verb ends; others are those of
    `LightningCLI`.
    """

    def __init__(self, stack: ExitStack, *arguments: Any, **options: Any) -> None:  # noqa: ANN401
        self._stack, self._locked, self._evaluated_step = stack, False, 0
        self._arguments = sys.argv[1:] if options.get("args") is None else options["args"]
        super().__init__(*arguments, **options)

    @override
    def subcommands(self) -> dict[str, set[str]]:  # type: ignore[override]
        """The verb that runs alone, since the options of each take a while to collect."""
        verb = self._arguments[0]
        return {verb: super().subcommands()[verb]}

    @override
    def add_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        parser.add_argument("--root", type=str, default="checkpoints", help="folder of all runs")
        flags = {"overwrite": {"action": "store_true"}}
        for name, what in _OPTIONS.items():
            parser.add_argument(f"--{name}", help=what, **flags.get(name, {"type": str | None}))
        for action in parser._actions:
            # The unions that typing keeps may name float first: 1 would be 1.0, which is all batches.
            if action.dest.startswith("trainer.limit_"):
                vars(action)["_typehint"] = int | float | None
        parser.link_arguments("seed_everything", "data.init_args.seed", compute_fn=int)
        parser.link_arguments("data.spec", "model.init_args.spec", apply_on="instantiate")

    @override
    def parse_arguments(self, parser: LightningArgumentParser, args: ArgsType) -> None:
        verb, *arguments = self._arguments
        parser = self._subcommand_parsers[verb]
        if arguments == ["--help"]:  # without files, whose classes would be imported
            parser.parse_args(arguments)
        keys = {action.dest for action in parser._actions}
        composed = compose(verb, arguments, keys)
        style: Any = {"default_flow_style": True, "default_style": '"'}  # values with their types
        text = yaml.safe_dump(composed.config, width=2**31, sort_keys=False, **style).strip()
        found = parser.parse_args(["--config", text, *composed.options])
        self.config = Namespace(subcommand=verb, **{verb: found})  # type: ignore[no-untyped-call]
        self.config[verb].config = composed.files
        seed = self.config[verb].seed_everything
        if not 0 <= int(seed) <= _LARGEST_SEED:
            raise InputError(f"--seed_everything is {seed}; expected 0 to {_LARGEST_SEED}.")
        self._corpus = composed.corpus
        self._names_corpus = composed.config["data"] != {"class_path": DEFAULTS["data"]}
        if not composed.tests and verb in ("validate", "test") and is_rank_zero():
            print("No test is selected, so only metrics are measured: --tests all adds all tests.")

    @override
    def _parse_ckpt_path(self) -> None:
        """Do nothing: Lightning would let the checkpoint silently override the command line."""

    @override
    def before_instantiate_classes(self) -> None:
        config = self.config[self.subcommand]
        require_cores(config.trainer.accelerator, config.trainer.devices)
        self._join_timeout = join_timeout()
        fitting = self.subcommand == "fit"
        self._pretrained = None if fitting else self._trained_elsewhere(config)
        if fitting or self._pretrained is not None:
            self._data = self._resolved_corpus(config)
        if fitting:
            named = deepcopy(config)
            for name in NOT_HASHED:
                named.pop(name, None)
            hashed = self._parser("fit").dump(named, skip_validation=True)
            self.current_run = Run.of_fit(config, hashed, self._corpus)
        elif self._pretrained is not None:
            self.current_run = Run.of_fit(config, f"{config.model}{config.data}")
        else:
            self.current_run = Run.of_checkpoint(config)
        config.experiment, config.run = self.current_run.experiment, self.current_run.name
        if fitting and config.ckpt_path is None:
            config.ckpt_path = requeued(self.current_run.folder, overwrite=config.overwrite)
        self._new = fitting and config.ckpt_path is None
        config.ckpt_path = self.current_run.checkpoint(
            config.ckpt_path or (None if fitting or self._pretrained else "best")
        )
        if self.current_run.folder.is_dir():
            self._lock_folder()
        else:
            require_creatable(self.current_run.folder)
        if not fitting and self.current_run.unfinished and is_rank_zero():
            print(
                f"{from_here(self.current_run.folder)} is unfinished: what follows is of its epochs so far; "
                "the command of its `fit` with --ckpt_path last resumes it."
            )
        self._prepare_corpus(config)
        self._replacing = self._new and config.overwrite
        if self.subcommand in ("validate", "test"):
            config.verbose = False  # SummaryTable prints it with intervals
        if self.subcommand == "predict":
            config.return_predictions = False  # they are written to disk, to bound memory
        resolve_callbacks(config.trainer)
        keep_wandb_offline_without_key(config.trainer.logger)

    def _trained_elsewhere(self, config: Any) -> tuple[Any, Any] | None:  # noqa: ANN401
        """Class and options of a network that was trained elsewhere; None: a checkpoint is read."""
        named = config.ckpt_path
        if named is None and config.run is not None:
            folder = Run.of_fit(config, "").folder
            named = next((n for n in ("fit.yaml", "best.ckpt") if (folder / n).is_file()), None)
        found = pretrained_network(config.model, named)
        if found is not None and not self._names_corpus:
            raise InputError(
                "the model was trained elsewhere and has no corpus here: name the texts that it reads, "
                f"`attnlight {self.subcommand} ... --data FILE`."
            )
        if found is not None:
            found[0].encoding_of(found[1], ())  # refused before a corpus is prepared
        return found

    def _resolved_corpus(
        self, config: Namespace, trained_on: str | None = None
    ) -> CorpusDataModule:
        """The corpus, with the options that it decides itself in the configuration too.

        If it then is the one that a model was trained on, by its fingerprint, these are those of `fit`.
        """
        # Without links, since the model's spec depends on the encoding that is set later.
        parser = OneSentenceParser()
        parser.add_subclass_arguments(CorpusDataModule, "data")
        corpus = Namespace(data=config.data)  # type: ignore[no-untyped-call]
        data, verb = parser.instantiate(corpus).data, str(self.subcommand)
        verb = {"validate": "validation", "predict": data.predict_split}.get(verb, verb)
        if trained_on is not None:
            with suppress(InputError):  # a corpus that is only tested need have no training texts
                data.resolve("fit")
                verb = "fit" if data.fingerprint == trained_on else verb
            data = parser.instantiate(corpus).data
        found = data.resolve(verb)
        found = {name: found[name] for name in found if config.data.init_args[name] is None}
        for name, value in found.items():
            config.data.init_args[name] = value
        options = shlex.join(
            word
            for name, value in found.items()
            if name != value
            for word in (f"--data.{name}", str(value))
        )
        if options and is_rank_zero():
            print(f"{data.corpus_name} is read with {options}, since nothing else is named.")
        return cast("CorpusDataModule", data)

    def _prepare_corpus(self, config: Namespace) -> None:
        """Encode the corpus for the model, and prepare the splits that the verb reads."""
        config.corpus, named = None, config.corpus
        if self._pretrained is not None:
            data, (kind, options) = self._data, self._pretrained
            data.evaluate_as(kind.encoding_of(options, data.classes), data.corpus_name)
            data.recorded_as, self._evaluated_step = None, 0
        elif self.subcommand != "fit":
            checkpoint = read_checkpoint(config.ckpt_path)
            # Lightning logs the last step of an epoch as one less.
            self._evaluated_step = max(0, int(checkpoint.get("global_step", 0)) - 1)
            encoding = RawText.from_dict(checkpoint[CHECKPOINT_KEY])
            encoding.paired = bool((checkpoint["hyper_parameters"].get("spec") or {}).get("query"))
            self._data = data = self._resolved_corpus(config, encoding.corpus)
            if encoding.corpus is not None and data.fingerprint != encoding.corpus:
                if not self._names_corpus:
                    raise InputError(
                        f"{config.ckpt_path} was trained on another corpus than {data.corpus_name}, which "
                        f"is read where none is named: add --data FILE, or write `attnlight "
                        f"{self.subcommand} {Path(config.ckpt_path).parent}`, which reads the run's own."
                    )
                config.corpus = corpus_name(named, self._corpus or data.corpus_name)
                data.evaluate_as(encoding, config.corpus)
        splits = {"fit": ("train", "validation"), "validate": ("validation",), "test": ("test",)}
        for split in splits.get(str(self.subcommand), (self._data.predict_split,)):
            self._data.dataset(split)

    @override
    def instantiate_classes(self) -> None:
        plain, verb = self.config.clone(), str(self.subcommand)
        config = self.config[verb]
        names = self.current_run.placeholders(config.corpus, another_id=self._replacing)
        task = import_class(config.model.class_path, AttentionTask)
        options = config.model.init_args.as_dict()
        names |= dict(zip(("monitor", "mode"), task.monitor(options), strict=True))
        config.trainer = fill_placeholders(config.trainer, names)
        loggers = config.trainer.logger
        for logger in loggers if isinstance(loggers, list) else [loggers]:
            if not isinstance(logger, Namespace):
                continue
            kind = import_class(logger.class_path, object)
            if config.corpus and issubclass(kind, CSVLogger):
                logger.init_args.name += f"/{config.corpus}"  # beside those of the training corpus
            elif kind is WandbLogger:
                role = "variant" if issubclass(task, FromBase) else "fit"
                verbs = () if self._replacing else self.current_run.verbs(config.corpus)
                use_wandb_run(
                    logger,
                    role="test" if config.corpus else role,
                    tags=[*sorted({*verbs, verb}), corpus_name(None, self._data.corpus_name)],
                    monitor=names["monitor"],
                    mode=names["mode"],
                    step=self._evaluated_step,
                )
        config.data = self._data
        super().instantiate_classes()
        plain[verb].pop("config", None)
        resolved = self.model.resolved_args if isinstance(self.model, FromBase) else {}
        for name, value in resolved.items():
            plain[verb].model.init_args[name] = value
        for callback in self.trainer.callbacks:  # type: ignore[attr-defined]
            if isinstance(callback, RunConfig):
                callback.config = plain[verb]
        if verb == "fit" and not self._new:
            dump = self._parser(verb).dump(plain[verb], skip_unset=False, skip_validation=True)
            now = yaml.safe_load(dump), self.model.hparams, self._data, self.trainer.world_size
            require_same_training(Path(config.ckpt_path), *now)
        if self._pretrained is not None:
            self.model.model.require_trained()
            if is_rank_zero():
                self.model.model.announce_classes(self._data.classes)
        # From here on, only the content of a checkpoint or a base can still be refused.
        if self._lock_folder() and verb == "fit":
            self.current_run.begin(names["wandb_id"], clear=self._replacing)
        if verb == "fit" and not config.trainer.fast_dev_run:
            # Lightning would continue from what it saved before it requeued a job: within an epoch,
            # whose remaining batches are not found again.
            for path in self.current_run.folder.glob("hpc_ckpt_*.ckpt"):
                if path.resolve() != Path(config.ckpt_path or "").resolve():
                    path.unlink(missing_ok=True)
        self._started = time.monotonic()

    def _lock_folder(self) -> bool:
        """Lock the run's folder; False where this process does not write there."""
        config = self.config[self.subcommand]
        if config.trainer.fast_dev_run or not is_rank_zero():
            return False
        if not self._locked:
            self._stack.enter_context(sole_process(self.current_run.folder))
            self._locked = True
            if self._new and not config.overwrite:
                self.current_run.require_new()
        return True

    @override
    def instantiate_trainer(self, **kwargs: object) -> pl.Trainer:
        options = self.config[self.subcommand].trainer
        try:
            place = str(self.current_run.folder)
            trainer = super().instantiate_trainer(default_root_dir=place, **kwargs)
        except (MisconfigurationException, ValueError, TypeError, ImportError) as error:
            reason = one_line(error).rstrip("!")
            raise InputError(
                f"the options --trainer.* cannot be used (accelerator {options.accelerator}, "
                f"devices {options.devices}): {reason}."
            ) from error
        extra = {"fit": EpochLines, "predict": PredictionWriter}
        extra |= {"validate": SummaryTable, "test": SummaryTable}
        attached = trainer.callbacks  # type: ignore[attr-defined]
        attached.extend(kind() for verb, kind in extra.items() if verb == self.subcommand)
        unwanted: tuple[type[Callback], ...] = (ModelSummary,)
        unwanted *= options.enable_model_summary is None
        if not rich.get_console().is_terminal:  # a bar would only be printed once, at the end
            unwanted += (ProgressBar,)
            if any(isinstance(callback, ProgressBar) for callback in attached):
                attached.append(BatchLines())
        attached[:] = [callback for callback in attached if not isinstance(callback, unwanted)]
        for logger in trainer.loggers:  # wandb warns of an argument that Lightning always passes
            if isinstance(logger, WandbLogger) and logger._wandb_init.get("anonymous") is None:
                logger._wandb_init.pop("anonymous", None)
        launcher = trainer.strategy.launcher
        if isinstance(launcher, _SubprocessScriptLauncher):  # one process per device
            attached.append(JoinTimeout(self._join_timeout))
            if not SLURMEnvironment.detect():
                attached.append(ExitOnSignals())
            if not launcher.cluster_environment.creates_processes_externally:
                os.environ[RANK_ZERO] = str(os.getpid())  # the ranks that it starts end with it
        return trainer

    def before_test(self) -> None:
        """Say which promises a network of the user's own breaks, on the first texts that are evaluated."""
        network = self.model.model
        if is_rank_zero() and not type(network).__module__.startswith("attnlight."):
            fitting = self.subcommand in ("fit", "validate")
            loader = self._data.val_dataloader() if fitting else self._data.test_dataloader()
            with isolate_rng():  # of which training draws next
                announce_broken(network, loader.dataset[next(iter(loader.sampler))])

    before_fit = before_validate = before_test

    def after_test(self) -> None:
        """Warn of a model from elsewhere that predicts worse than chance, whose classes may be mixed up."""
        accuracy = self.trainer.callback_metrics.get(f"{STAGES[str(self.subcommand)]}/accuracy")
        if self._pretrained is not None and accuracy is not None and is_rank_zero():
            self.model.model.announce_classes(self._data.classes, float(accuracy))

    after_validate = after_test

    def after_fit(self) -> None:
        """Record that the run has finished."""
        if not self.trainer.interrupted and not self.trainer.fast_dev_run:  # type: ignore[attr-defined]
            seconds = round(time.monotonic() - self._started, 1)
            self.current_run.finish(seconds=seconds, epochs=self.trainer.current_epoch)


def run(arguments: Sequence[str] | None) -> None:
    """Run one of the Trainer's verbs, and print the run's folder last.

    Without arguments they are those of the process, which DDP's launcher repeats for every rank.
    """
    for message in _WARNINGS:
        warnings.filterwarnings("ignore", message=message)
    logger = logging.getLogger("lightning.pytorch.utilities.rank_zero")
    logger.addFilter(lambda record: not str(record.msg).startswith(_LINES))
    os.environ.setdefault("WANDB_QUIET", "true")  # of its summary of a run
    if SLURMEnvironment.detect():  # Lightning saves and requeues, which its handlers wait for
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
    # cuDNN computes RNNs and convolutions in TF32 by default, with three digits; records need six.
    torch.backends.cudnn.allow_tf32 = False
    status = 1
    with ExitStack() as stack:
        try:
            cli = AttnlightCLI(
                stack,
                AttentionTask,
                CorpusDataModule,
                subclass_mode_model=True,
                subclass_mode_data=True,
                seed_everything_default=0,
                auto_configure_optimizers=False,
                load_from_checkpoint_support=False,
                save_config_callback=RunConfig,
                parser_kwargs={"prog": "attnlight"},
                parser_class=OneSentenceParser,
                args=None if arguments is None else list(arguments),
            )
            status = 0
        except SIGTERMException as error:  # in SLURM; its status would be 0
            raise SystemExit(128 + signal.SIGTERM) from error
        finally:  # a second command in this process needs a new W&B run
            if "wandb" in sys.modules:
                sys.modules["wandb"].finish(exit_code=status)
    if is_rank_zero() and not cli.trainer.fast_dev_run:  # type: ignore[attr-defined]
        print(from_here(cli.current_run.folder))
