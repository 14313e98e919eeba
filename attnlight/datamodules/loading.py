"""Dataloaders of a corpus's splits, whose batches are dealt to devices."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Literal

import torch
from lightning.pytorch import LightningDataModule
from lightning.pytorch.trainer.states import TrainerFn
from torch.utils.data import DataLoader

from attnlight.batch import TextBatch
from attnlight.data.dataset import TokenDataset
from attnlight.data.samplers import BucketSampler, OnceSampler
from attnlight.errors import InputError, require_at_least

Split = Literal["train", "validation", "test"]


class SplitDataModule(LightningDataModule, ABC):
    """Batches of the splits of a corpus; `CorpusDataModule` documents the arguments.

    Attributes:
        path: Where the corpus is read from; None for one that is made from a seed.
        max_pairs: Pairs of tokens at which `OnceSampler` cuts a batch; None: nowhere.

    Raises:
        InputError: A batch size is not positive.
    """

    path: str | None = None
    max_pairs: int | None = None

    def __init__(
        self,
        batch_size: int,
        eval_batch_size: int,
        seed: int,
        num_workers: int,
        predict_split: Split,
    ) -> None:
        super().__init__()
        require_at_least(1, batch_size=batch_size, eval_batch_size=eval_batch_size)
        self.batch_size = batch_size
        self.eval_batch_size = eval_batch_size
        self.seed = seed
        self.num_workers = num_workers
        self.predict_split: Split = predict_split

    @property
    def corpus_name(self) -> str:
        """What messages call the corpus: its path or, where it has none, its class."""
        return self.path or type(self).__name__

    @abstractmethod
    def dataset(self, split: str) -> TokenDataset:
        """One split of the corpus.

        Raises:
            InputError: The corpus lacks the split.
        """

    def train_dataloader(self) -> DataLoader[TextBatch]:
        """Training batches of similar lengths, a function of seed and epoch alone."""
        return self._loader("train", training=True)

    def val_dataloader(self) -> DataLoader[TextBatch]:
        """Every validation text once; inside fit on several devices, repeats fill the last batch."""
        # DDP broadcasts buffers at each forward of fit's validation, so all ranks need as many.
        fitting = self.trainer is not None and self.trainer.state.fn == TrainerFn.FITTING
        return self._loader("validation", pad=fitting)

    def test_dataloader(self) -> DataLoader[TextBatch]:
        """Every test text exactly once over all devices."""
        return self._loader("test")

    def predict_dataloader(self) -> DataLoader[TextBatch]:
        """Every text of `predict_split` exactly once over all devices."""
        return self._loader(self.predict_split)

    def _loader(
        self, split: str, training: bool = False, pad: bool = False
    ) -> DataLoader[TextBatch]:
        """This device's share of the batches of a split, each text once where it is not training."""
        dataset, trainer = self.dataset(split), self.trainer
        rank, world = (0, 1) if trainer is None else (trainer.global_rank, trainer.world_size)
        if len(dataset) < world:
            raise InputError(
                f"the {split} split of {self.corpus_name} has {len(dataset)} texts for {world} "
                "devices: use at most one device per text."
            )
        count, size, lengths = len(dataset), self.eval_batch_size, dataset.shapes
        return DataLoader(
            dataset=dataset,
            sampler=BucketSampler(lengths, self.batch_size, self.seed, rank, world)
            if training
            else OnceSampler(count, size, rank, world, pad, lengths, self.max_pairs),
            batch_size=None,  # the sampler yields whole batches
            num_workers=self.num_workers,
            persistent_workers=self.num_workers > 0,
            pin_memory=torch.cuda.is_available(),
        )
