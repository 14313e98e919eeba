"""One epoch's record on every rank: its instances, its shards and their merging."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import numpy as np
import torch
from lightning.pytorch.callbacks import Callback
from numpy.typing import NDArray
from torch import Tensor
from typing_extensions import override

from attnlight.callbacks.surroundings import Surroundings
from attnlight.data.dataset import TokenDataset
from attnlight.data.selection import choose
from attnlight.datamodules.base import CorpusDataModule
from attnlight.errors import InputError
from attnlight.records import RecordError, ShardWriter, merge_shards

# Rows that are held on an accelerator.
_HELD = 1 << 12


def recorded_instances(
    dataset: Any,  # noqa: ANN401
    max_instances: int | None,
    seed: int,
) -> tuple[NDArray[np.int64], bool]:
    """Dataset rows of the texts that a test records, (n,), and whether they are fewer than all.

    They are chosen by a seeded hash of their index, edits together with their originals; None: all.
    """
    index = getattr(dataset, "index", None)
    instances = np.asarray(range(len(dataset)) if index is None else index, dtype=np.int64)
    if max_instances is None or max_instances >= len(instances):
        return instances, False
    edit_of = dataset.edit_of if isinstance(dataset, TokenDataset) else None
    groups = None if edit_of is None else np.where(edit_of < 0, instances, edit_of)
    return choose(instances, max_instances, seed, groups), True


def read_recorded_texts(corpus: object, choices: Sequence[tuple[int | None, int]]) -> None:
    """Let `test` load only the texts that its tests record, where all of them choose some.

    `choices` are `max_instances` and `seed` of each test. A corpus that is not of attnlight loads
    all texts.
    """
    if not isinstance(corpus, CorpusDataModule) or any(most is None for most, _ in choices):
        return
    dataset = corpus.dataset("test")
    rows = np.unique(np.concatenate([recorded_instances(dataset, *each)[0] for each in choices]))
    if len(rows) < len(dataset):
        corpus.test_rows = rows
        print(
            f"test reads {len(rows):,} of {len(dataset):,} texts, those that its tests record; metrics "
            "are of these. Attach the test Predictions to read all.",
            file=sys.stderr,
        )


class EpochRecorder:
    """Collect the rows of one epoch; construction and `finish` are collective over ranks.

    Args:
        around: Who runs it, in a loop that has started.
        name: File name of the record without its suffix.
        max_instances: How many instances to choose, as `recorded_instances` does; None: all.
        seed: Seed of that choice.
        metadata: Plain values stored in the file.
        target: The file to write; None: `records/<stage>/<name>.parquet`, of
            `predict` in `records/predict-<split>`.

    Attributes:
        instances: Dataset rows of the texts to record without a limit of batches, (n,): from the
            dataset's `index` or, without one, from 0 to its length less one.
    """

    def __init__(
        self,
        around: Surroundings,
        name: str,
        *,
        metadata: Mapping[str, Any],
        max_instances: int | None = None,
        seed: int = 0,
        target: Path | None = None,
    ) -> None:
        self.around = around
        if target is None:
            split = f"-{around.split}" if around.stage == "predict" else ""
            target = Path("records", around.stage + split + around.suffix, f"{name}.parquet")
        else:
            target = target.with_stem(target.stem + around.suffix)
        self.path = around.folder / target
        self.instances, some = recorded_instances(around.dataset, max_instances, seed)
        self._chosen = torch.from_numpy(self.instances) if some else None
        self._expected = None if around.limited else self.instances
        self._metadata = dict(metadata) | {
            "stage": around.stage,
            "checkpoint": Path(around.checkpoint).name if around.checkpoint else None,
            "partial": around.limited or self._chosen is not None,
        }
        self.rank, processes = around.place
        shards = (f".{self.path.stem}.rank{rank}.arrow" for rank in range(processes))
        self._shards = [self.path.with_name(shard) for shard in shards]
        if self.rank == 0:
            for stale in self.path.parent.glob(f".{self.path.stem}.rank*.arrow"):
                stale.unlink()
        around.strategy.barrier()
        self.writer = ShardWriter(self._shards[self.rank])
        self._held: list[tuple[Tensor, Mapping[str, Any]]] = []

    def recorded(self, index: Tensor) -> Tensor:
        """Whether to record each text of a batch, (B,) bool, by their dataset rows (B,)."""
        real = index >= 0
        if self._chosen is None:
            return real
        self._chosen = self._chosen.to(index.device)
        return real & torch.isin(index, self._chosen)

    def add(self, rows: Tensor, columns: Mapping[str, Any]) -> None:
        """Append rows: keys (R, 2) and columns, (R,) or (R, K) tensors or Arrow arrays.

        Those of several batches leave an accelerator together.
        """
        self._held.append((rows, columns))
        if rows.is_cpu or sum(len(held) for held, _ in self._held) >= _HELD:
            self._flush()

    def _flush(self) -> None:
        """Give all rows that are held to the writer."""
        parts = [{"": rows, **columns} for rows, columns in self._held]
        tensors = [x.detach() for part in parts for x in part.values() if isinstance(x, Tensor)]
        if tensors and not tensors[0].is_cpu:  # doubles hold what all other kinds of columns have
            sizes = [values.numel() for values in tensors]
            flat = torch.cat([values.double().flatten() for values in tensors]).to("cpu")
            pieces = zip(torch.split(flat, sizes), tensors, strict=True)
            tensors = [piece.view(values.shape).to(values.dtype) for piece, values in pieces]
        each = (to_cpu(values).numpy() for values in tensors)
        for part in parts:
            arrays = {k: next(each) if isinstance(x, Tensor) else x for k, x in part.items()}
            self.writer.add(arrays.pop(""), arrays)
        self._held.clear()

    def finish(self) -> Path:
        """Merge the shards of all ranks.

        Raises:
            RecordError: On every rank, if a row is missing or repeated or the disk is full.
        """
        around, strategy = self.around, self.around.strategy
        failure: str | None = None
        try:
            self._flush()
            self.writer.close()
        except InputError as error:
            failure = str(error)
        # All ranks must raise together: one that raises alone leaves the others in a collective.
        if not strategy.reduce_boolean_decision(failure is None, all=True):
            failure = failure or f"{self.path.name}: another rank could not write its rows."
        else:
            if self.rank == 0:
                try:
                    merge_shards(
                        self._shards,
                        self.path,
                        metadata=self._metadata | around.origin(),
                        expected=self._expected,
                        drop_repeats=around.epoch is not None,
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

    def discard(self) -> None:
        """Discard the rows of an epoch that has not ended."""
        if self._recorder is not None:
            self._recorder.writer.path.unlink(missing_ok=True)
            self._recorder = None

    @override
    def teardown(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        self.discard()

    on_exception = teardown  # type: ignore[assignment]


def to_cpu(values: Tensor) -> Tensor:
    """The values on the CPU as records hold them: float32 in place of half precision.

    NumPy has no bfloat16.
    """
    half = values.dtype in (torch.float16, torch.bfloat16)
    return values.to("cpu", torch.float32 if half else None)
