"""LightningCLI for attnlight: links, run folders, and what each verb adds."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence

import lightning.pytorch as pl
import rich
import torch
from lightning.pytorch.callbacks import ProgressBar
from lightning.pytorch.cli import ArgsType, LightningArgumentParser, LightningCLI
from typing_extensions import override

# Imported so that a YAML can name their classes without a path.
from attnlight import callbacks, datamodules, tasks  # noqa: F401
from attnlight.callbacks.epoch_lines import EpochLines
from attnlight.callbacks.predict import PredictionWriter
from attnlight.callbacks.run import RunConfig, SummaryTable
from attnlight.configuration import (
    fill_placeholders,
    keep_wandb_offline_without_key,
    selection,
    settle_callbacks,
    with_default_classes,
)
from attnlight.datamodules import CorpusDataModule
from attnlight.noise import quieten, quieten_wandb
from attnlight.parsing import OneSentenceParser
from attnlight.runs import NOT_HASHED, Run
from attnlight.tasks.text import TextTask

DEFAULTS = {
    "model": "attnlight.tasks.AttentionClassifier",
    "data": "attnlight.datamodules.PlantedEvidence",
}


class AttnlightCLI(LightningCLI):
    """`fit`, `validate`, `test` and `predict` on one run folder."""

    @override
    def add_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        parser.add_argument("--root", type=str, default="checkpoints", help="folder of all runs")
        parser.add_argument(
            "--experiment",
            type=str | None,
            help="folder of the experiment (default: stem of the last config outside tests/)",
        )
        parser.add_argument(
            "--run",
            type=str | None,
            help="folder of the run (default: the seed and a short hash of the configuration)",
        )
        parser.add_argument("--overwrite", action="store_true", help="replace a run that is there")
        parser.link_arguments("seed_everything", "data.init_args.seed", compute_fn=int)
        for name in ("vocab_size", "num_classes"):
            parser.link_arguments(f"data.{name}", f"model.init_args.{name}", apply_on="instantiate")
        of_taggers = (("classes", "tags"), ("features", "features"), ("target", "target"))
        for source, name in of_taggers:
            parser.link_arguments(
                f"data.{source}", f"model.init_args.{name}", apply_on="instantiate"
            )

    @override
    def parse_arguments(self, parser: LightningArgumentParser, args: ArgsType) -> None:
        arguments = sys.argv[1:] if args is None else args
        assert isinstance(arguments, list)
        self.config = parser.parse_args(with_default_classes(arguments, DEFAULTS))

    @override
    def _parse_ckpt_path(self) -> None:
        """Do nothing: Lightning would let the checkpoint beat the command line in silence."""

    @override
    def before_instantiate_classes(self) -> None:
        config = self.config[self.subcommand]
        fitting = self.subcommand == "fit"
        self.home = Run.of_fit(config, self._flattened()) if fitting else Run.of_checkpoint(config)
        config.experiment, config.run = self.home.experiment, self.home.name
        resume = config.ckpt_path is not None
        config.ckpt_path = self.home.checkpoint(config.ckpt_path or (None if fitting else "best"))
        if fitting and not config.trainer.fast_dev_run:
            self.home.begin(resume=resume, overwrite=config.overwrite)
        if self.subcommand == "test":
            config.verbose = False  # SummaryTable says it with intervals
        if self.subcommand == "predict":
            config.return_predictions = False  # they are on disk; memory must not grow
        settle_callbacks(config.trainer)
        keep_wandb_offline_without_key(config.trainer.logger)

    @override
    def instantiate_classes(self) -> None:
        plain = self.config.clone()
        config = self.config[self.subcommand]
        names = self.home.placeholders() | selection(config.model.class_path)
        config.trainer = fill_placeholders(config.trainer, names)
        super().instantiate_classes()
        for callback in self.trainer.callbacks:  # type: ignore[attr-defined]
            if isinstance(callback, RunConfig):
                callback.config = plain[self.subcommand]

    @override
    def instantiate_trainer(self, **kwargs: object) -> pl.Trainer:
        trainer = super().instantiate_trainer(default_root_dir=str(self.home.folder), **kwargs)
        extra = {"fit": EpochLines, "predict": PredictionWriter, "test": SummaryTable}
        attached = trainer.callbacks  # type: ignore[attr-defined]
        attached.extend(kind() for verb, kind in extra.items() if verb == self.subcommand)
        if not rich.get_console().is_terminal:  # a bar would be printed once, when all is over
            attached[:] = [c for c in attached if not isinstance(c, ProgressBar)]
        quieten_wandb(trainer.loggers)
        return trainer

    def before_fit(self) -> None:
        """Start the clock."""
        self._began = time.monotonic()

    def after_fit(self) -> None:
        """Note that the run came to its end."""
        if not self.trainer.interrupted and not self.trainer.fast_dev_run:  # type: ignore[attr-defined]
            seconds = round(time.monotonic() - self._began, 1)
            self.home.finish(seconds=seconds, epochs=self.trainer.current_epoch)

    def _flattened(self) -> str:
        config = self.config[self.subcommand].clone()
        for name in NOT_HASHED:
            config.pop(name, None)
        text: str = self._parser(self.subcommand).dump(config, skip_validation=True)
        return text


def run(arguments: Sequence[str] | None) -> None:
    """Run one of the Trainer's verbs.

    Args:
        arguments: The verb and its options; None takes those of the process, which DDP's launcher
            repeats for every rank.

    Raises:
        InputError: A mistake in the input.
    """
    quieten()
    # cuDNN computes RNNs and convolutions in TF32 by default: three digits, where records need six.
    torch.backends.cudnn.allow_tf32 = False
    AttnlightCLI(
        TextTask,
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
    if "wandb" in sys.modules:
        sys.modules["wandb"].finish()  # a second command in this process starts a run of its own
