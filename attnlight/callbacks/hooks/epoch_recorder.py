"""One epoch's record on every rank: its instances, its shards and their merging."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import lightning.pytorch as pl
import numpy as np
import torch
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.trainer.states import TrainerFn
from torch import Tensor, nn
from torch.utils.data import DataLoader
from typing_extensions import override

from attnlight.data.digests import digests
from attnlight.data.selection import choose
from attnlight.errors import InputError
from attnlight.models.weights_digest import weights_digest
from attnlight.records import RecordError, ShardWriter, merge_shards

Stage = Literal["val", "test", "predict"]


class EpochRecorder:
    """Collect the rows of one epoch; construction and `finish` are collective over ranks.

    Args:
        trainer: The running trainer; records are in `records/<stage>/` under its `default_root_dir`,
            those of another corpus than the training corpus in `records/<stage>-<corpus>/`, and
            under `fast_dev_run` in a temporary folder.
        name: File name of the record without its suffix.
        stage: The running loop.
        max_instances: How many instances to choose by a seeded hash of their index; None: all.
        seed: Seed of that choice.
        metadata: Plain values stored in the file.
        target: The file to write; None: `records/<stage>/<name>.parquet`.

    Attributes:
        instances: Dataset rows of the texts to record without a limit of batches, (n,): from the
            dataset's `index` or, without one, from 0 to its length less one.
        split: The dataset of the running loop.
        writer: Writes this rank's shard.
    """

    def __init__(
        self,
        trainer: pl.Trainer,
        name: str,
        stage: Stage,
        *,
        metadata: Mapping[str, Any],
        max_instances: int | None = None,
        seed: int = 0,
        target: Path | None = None,
    ) -> None:
        self.stage = stage
        self._trainer = trainer
        root = trainer.default_root_dir
        if trainer.fast_dev_run:  # type: ignore[attr-defined]
            # A folder that is deleted with this object, the same on all ranks.
            if trainer.is_global_zero:
                self._temporary = tempfile.TemporaryDirectory(prefix="attnlight-")
            temporary = self._temporary.name if trainer.is_global_zero else ""
            root = trainer.strategy.broadcast(temporary)
        suffix = corpus_suffix(trainer)
        if target is None:
            target = Path("records", stage + suffix, f"{name}.parquet")
        else:
            target = target.with_stem(target.stem + suffix)
        self.path = Path(root) / target
        loaders = getattr(trainer, f"{stage}_dataloaders")
        limits = getattr(trainer, f"num_{stage}_batches")
        loader: DataLoader[Any] = loaders[0] if isinstance(loaders, list) else loaders
        limited = (limits[0] if isinstance(limits, list) else limits) < len(loader)
        self.split = loader.dataset
        index = getattr(loader.dataset, "index", None)
        index = range(len(loader.dataset)) if index is None else index  # type: ignore[arg-type]
        instances = np.asarray(index, dtype=np.int64)
        self._chosen: Tensor | None = None
        if max_instances is not None and max_instances < len(instances):
            instances = choose(instances, max_instances, seed)
            self._chosen = torch.from_numpy(instances)
        self.instances = instances
        self._expected = None if limited else instances
        self._metadata = dict(metadata) | {
            "stage": stage,
            "checkpoint": Path(trainer.ckpt_path).name if trainer.ckpt_path else None,
            "partial": limited or self._chosen is not None,
        }
        shards = (f".{self.path.stem}.rank{rank}.arrow" for rank in range(trainer.world_size))
        self._shards = [self.path.with_name(shard) for shard in shards]
        if trainer.is_global_zero:
            for stale in self.path.parent.glob(f".{self.path.stem}.rank*.arrow"):
                stale.unlink()
        trainer.strategy.barrier()
        self.writer = ShardWriter(self._shards[trainer.global_rank])

    def recorded(self, index: Tensor) -> Tensor:
        """Whether to record each text of a batch, (B,) bool, by their dataset rows (B,)."""
        real = index >= 0
        if self._chosen is None:
            return real
        self._chosen = self._chosen.to(index.device)
        return real & torch.isin(index, self._chosen)

    def add(self, rows: Tensor, columns: Mapping[str, Any]) -> None:
        """Append rows: keys (R, 2) and columns, (R,) or (R, K) tensors or Arrow arrays."""
        arrays = {
            name: on_cpu(values.detach()).numpy() if isinstance(values, Tensor) else values
            for name, values in columns.items()
        }
        self.writer.add(rows.cpu().numpy(), arrays)

    def finish(self) -> Path:
        """Merge the shards of all ranks.

        Raises:
            RecordError: On every rank, if a row is missing or repeated or the disk is full.
        """
        trainer, strategy = self._trainer, self._trainer.strategy
        failure: str | None = None
        try:
            self.writer.close()
        except InputError as error:
            failure = str(error)
        # All ranks must raise together: one that raises alone leaves the others in a collective.
        if not strategy.reduce_boolean_decision(failure is None, all=True):
            failure = failure or f"{self.path.name}: another rank could not write its rows."
        else:
            if trainer.is_global_zero:
                try:
                    merge_shards(
                        self._shards,
                        self.path,
                        metadata=self._metadata | _origin(trainer, self.stage),
                        expected=self._expected,
                        drop_repeats=trainer.state.fn == TrainerFn.FITTING,
                    )
                except InputError as error:
                    failure = str(error)
            failure = strategy.broadcast(failure)
        if failure is not None:
            raise RecordError(failure)
        return self.path


class RecordingCallback(Callback):
    """A callback that records an epoch, and discards the rows of an epoch that does not end."""

    _recorder: EpochRecorder | None = None

    @override
    def teardown(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        if self._recorder is not None:
            self._recorder.writer.path.unlink(missing_ok=True)
            self._recorder = None

    on_exception = teardown  # type: ignore[assignment]


def on_cpu(values: Tensor) -> Tensor:
    """The values on the CPU as records hold them: float32 in place of half precision.

    NumPy has no bfloat16.
    """
    half = values.dtype in (torch.float16, torch.bfloat16)
    return values.to("cpu", torch.float32 if half else None)


def corpus_suffix(trainer: pl.Trainer) -> str:
    """Suffix of the names of records: `-<corpus>` if the model was trained on another, else ""."""
    name: str | None = getattr(getattr(trainer, "datamodule", None), "recorded_as", None)
    return "" if name is None else f"-{name}"


def weights_without_checkpoint(trainer: pl.Trainer) -> str | None:
    """Digest of the weights of a network that was read from no checkpoint; None while it is trained."""
    network = getattr(getattr(trainer, "lightning_module", None), "model", None)
    fitting = trainer.state.fn == TrainerFn.FITTING
    return weights_digest(network) if isinstance(network, nn.Module) and not fitting else None


def checkpoint_hash(path: str | Path | None) -> str | None:
    """Hash of a checkpoint in records, 16 hexadecimal digits; None if there is none."""
    file = Path(path or "")
    if not file.is_file():
        return None
    (digest,) = digests(file.parent, [file]).values()  # computed once for all tests
    return digest[:16]


def _origin(trainer: pl.Trainer, stage: Stage) -> dict[str, Any]:
    """Corpus and checkpoint hash of a record, null if unknown, and else a digest of the weights.

    For a corpus that the model was not trained on also its name and the share of unknown words.
    """
    datamodule: Any = getattr(trainer, "datamodule", None)
    origin = {"corpus": getattr(datamodule, "fingerprint", None)}
    origin["checkpoint_hash"] = checkpoint_hash(trainer.ckpt_path)
    if origin["checkpoint_hash"] is None:
        origin["weights"] = weights_without_checkpoint(trainer)
    if not corpus_suffix(trainer):
        return origin
    split = {"val": "validation", "test": "test"}.get(stage, datamodule.predict_split)
    unknown = datamodule.unknown_share(split)
    return origin | {"corpus_name": datamodule.recorded_as, "unknown_words": unknown}
