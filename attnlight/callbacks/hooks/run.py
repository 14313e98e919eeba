"""Write a run's configuration, and print the table at the end of a test."""

import os
import shlex
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import rich
import yaml
from jsonargparse import Namespace
from lightning.pytorch.callbacks import Callback, EarlyStopping
from lightning.pytorch.cli import SaveConfigCallback
from rich.markup import escape
from typing_extensions import override

from attnlight.callbacks.base import attached_tests, record_name
from attnlight.callbacks.hooks.receivers import receivers
from attnlight.callbacks.hooks.trainer_surroundings import trainer_surroundings
from attnlight.callbacks.surroundings import checkpoint_hash
from attnlight.errors import InputError
from attnlight.figures import describe, figure_rows, tables
from attnlight.records import RecordError, read_metadata
from attnlight.report.headlines import headline_table
from attnlight.report.run import stored_records
from attnlight.report.verdict.card import verdict_of
from attnlight.report.verdict.commands import from_here
from attnlight.storage.checkpoint_file import GLOBAL_BATCH_SIZE, SLURM_JOB
from attnlight.storage.files import read_yaml, write_text
from attnlight.storage.shipped import CONFIGS

_TESTING = ("validate", "test")  # the Trainer's verbs that write records


class RunConfig(SaveConfigCallback):
    """Write `<run>/<verb>.yaml`, the complete configuration, and log it to W&B.

    The checkpoint and `--overwrite` of this call are omitted, so that the file starts the same run
    again. It is written when checkpoint and corpus have been accepted. That of `validate` and `test`
    also lists the tests of earlier calls whose records still exist; a record that was measured with
    other settings is an error, unless `--overwrite` was given.

    Where `LearningRateFinder` was attached, `fit.yaml` has the rate that it found in its place.

    A run that was killed after early stopping's last epoch is not trained further when resumed.
    """

    @override
    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        """Refuse to replace a test's record of other settings, or to add to those of another checkpoint."""
        if stage not in _TESTING or self.config.overwrite:
            return
        around = trainer_surroundings(trainer, pl_module)
        suffix, attached = around.suffix, attached_tests(trainer)
        folder = around.folder / "records" / (around.stage + suffix)
        weights = None if self.config.ckpt_path else around.weights()
        for record in stored_records(folder.parent):
            if record.epoch is None and record.corpus == around.corpus_name:
                again = record.path.parent == folder and record.test in [t.name for t in attached]
                _require_checkpoint(record.path, self.config.ckpt_path, weights, again)
        for test in attached:
            path = folder / f"{test.name}.parquet"
            try:
                metadata = read_metadata(path)
            except RecordError:  # none, or a damaged one
                continue
            expected: dict[str, Any] = {"settings": test.settings(around)}
            if suffix:
                expected["corpus"] = around.corpus.fingerprint
            for name, value in expected.items():
                _require_same(path, name, metadata.get(name), value)

    @override
    def on_fit_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        # Now that checkpoint and corpus have been accepted.
        if not trainer.is_global_zero or self.already_saved:
            return
        self.already_saved = True
        stage = str(trainer.state.fn.value)  # type: ignore[union-attr]
        config = self.config.clone()
        config.ckpt_path, config.overwrite = None, False
        around = trainer_surroundings(trainer, pl_module)
        suffix, path = around.suffix, around.folder / f"{stage}{around.suffix}.yaml"
        if stage in _TESTING:
            current = {test.name for test in attached_tests(trainer)}
            records = path.parent / "records" / (around.stage + suffix)
            try:
                earlier = read_yaml(path)["trainer"]["callbacks"] or []
                names = [record_name(c["class_path"], c.get("init_args")) for c in earlier]
            except (InputError, LookupError, TypeError):
                earlier, names = [], []  # no such file yet, or a damaged one
            config.trainer.callbacks += [
                Namespace(**callback)  # type: ignore[no-untyped-call]
                for callback, name in zip(earlier, names, strict=True)
                if name not in current and (records / f"{name}.parquet").is_file()
            ]
        if stage == "fit":
            path.with_name("status.json").unlink(missing_ok=True)  # of the training that is resumed
            callbacks = config.trainer.callbacks or []
            kept = [c for c in callbacks if not c.class_path.endswith(".LearningRateFinder")]
            if len(kept) < len(callbacks):  # it has found the rate
                config.trainer.callbacks = kept
                config.model.init_args.optimizer.learning_rate = pl_module.learning_rate
        text = self.parser.dump(config, skip_unset=False, skip_validation=True)
        write_text(path, text)
        for logger in trainer.loggers:
            if isinstance(logger, pl.loggers.WandbLogger):
                logged = {stage + suffix: yaml.safe_load(text)}
                logger.experiment.config.update(logged, allow_val_change=True)

    on_validation_start = on_test_start = on_predict_start = on_fit_start

    @override
    def on_save_checkpoint(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        # Not called for best.ckpt, which has only weights.
        batch_size = trainer.datamodule.batch_size  # type: ignore[attr-defined]
        checkpoint[GLOBAL_BATCH_SIZE] = batch_size * trainer.world_size
        if "SLURM_JOB_ID" in os.environ:
            checkpoint[SLURM_JOB] = os.environ["SLURM_JOB_ID"]

    @override
    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        # Checkpoints store the wait count of early stopping, but not that training was stopped.
        stoppers = (c for c in trainer.callbacks if isinstance(c, EarlyStopping))  # type: ignore[attr-defined]
        if any(stopper.wait_count >= stopper.patience for stopper in stoppers):
            trainer.should_stop = True


def _require_checkpoint(
    path: Path, checkpoint: str | None, weights: str | None, again: bool
) -> None:
    """Refuse a record of another checkpoint or, unless measured `again`, of an earlier version of it.

    A network that was trained elsewhere has no checkpoint, but a digest of its weights.
    """
    try:
        metadata = read_metadata(path)
    except RecordError:  # a damaged one
        return
    name = None if checkpoint is None else Path(checkpoint).name
    found, hashed = metadata.get("checkpoint"), metadata.get("checkpoint_hash")
    if found == name and weights != metadata.get("weights"):
        raise InputError(
            f"{path} is of other weights ({metadata.get('weights')}) than the model has now ({weights}): "
            "give another --run, or delete the records."
        )
    same = again or name is None or hashed == checkpoint_hash(checkpoint)
    if found == name and same:
        return
    raise InputError(
        f"{path} was measured with {'an earlier ' * (found == name)}{found}, now {name}, and a card "
        "and a page are of one checkpoint: --overwrite goes on, and other tests must then be "
        "measured again, too."
    )


def _require_same(path: Path, name: str, recorded: object, value: object) -> None:
    """Refuse a setting that differs from the record's; of mappings name the first such key."""
    if isinstance(recorded, dict) and isinstance(value, dict):
        for key in {**recorded, **value}:
            _require_same(path, key, recorded.get(key), value.get(key))
    elif recorded != value:
        callbacks = read_yaml(CONFIGS / "tests/card.yaml")["trainer"]["callbacks+"]
        card = [record_name(c["class_path"]) for c in callbacks]
        last = ", and --tests card --overwrite goes last, since the verdict card reads its settings"
        raise InputError(
            f"{path} was measured with other settings ({name} {recorded}, now {value}); "
            f"--overwrite replaces it{last if path.stem in card else ''}."
        )


class SummaryTable(Callback):
    """Print the task's metrics and the tests' headlines, and of the test split the verdict card.

    The card is also written to `report/verdict.json`, to the summary of W&B and to other loggers that take
    texts.
    """

    @override
    def on_test_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if not trainer.is_global_zero:
            return
        attached = attached_tests(trainer)
        tests = {test.name for test in attached}
        around = trainer_surroundings(trainer, pl_module)
        metrics = {
            name.removeprefix(f"{around.stage}/"): f"{float(value):.4f}"
            for name, value in trainer.callback_metrics.items()
            if name.split("/")[1] not in tests
        }
        rich.print(", ".join(f"{name} {value}" for name, value in metrics.items()))
        records, corpus = around.folder / "records", around.corpus_name
        if trainer.fast_dev_run:  # type: ignore[attr-defined]
            return
        if not all(test.shows_table for test in attached):
            shown = headline_table(records, corpus, around.stage)
            if shown.row_count:
                rich.print(shown)
                place = shlex.quote(str(from_here(around.folder)))
                print(f"All measures: attnlight report {place}")
        for test in attached:
            path = records / f"{around.stage}{around.suffix}" / f"{test.name}.parquet"
            if test.shows_table:
                rows, _ = figure_rows(path, describe(test.name).columns)
                own = tables(test.name, rows, metadata=read_metadata(path))
                for table in own[:1]:
                    rich.print(table.to_rich(), f"\n{escape(table.note)}", sep="")
        if around.stage != "test" or (attached and all(test.shows_table for test in attached)):
            return  # the card is of the test split; a test's own table is what was asked for
        try:
            verdict = verdict_of(around.folder, corpus)
        except RecordError as error:  # of a test that is not attached
            print(f"No verdict: {error}")
            return
        verdict.write(around.folder / "report", corpus)
        print(f"\n{verdict}")
        for logger in trainer.loggers:
            if isinstance(logger, pl.loggers.WandbLogger) and not corpus:
                logger.experiment.summary.update(verdict.summary())
        for send in receivers(trainer.loggers, "text"):
            send(f"test{around.suffix}/verdict", str(verdict), trainer.global_step)

    on_validation_end = on_test_end
