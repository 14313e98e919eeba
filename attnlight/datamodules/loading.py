"""The batches of a split that one device reads."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch.utils.data import DataLoader

from attnlight.batch import TextBatch
from attnlight.data.samplers import BucketSampler, OnceSampler
from attnlight.errors import InputError

if TYPE_CHECKING:
    from attnlight.datamodules.base import CorpusDataModule


def loader(
    corpus: CorpusDataModule, split: str, training: bool = False, pad: bool = False
) -> DataLoader[TextBatch]:
    """This device's share of the batches of a split.

    Args:
        corpus: The corpus; its trainer, if it has one, says how many devices there are.
        split: The split.
        training: Batches of similar lengths, determined by seed and epoch; else each text once.
        pad: Give all devices the same number of batches, by marked repeats.

    Raises:
        InputError: The corpus lacks the split, or there are more devices than texts.
    """
    dataset, trainer = corpus.dataset(split), corpus.trainer
    rank, world = (0, 1) if trainer is None else (trainer.global_rank, trainer.world_size)
    if len(dataset) < world:
        raise InputError(
            f"the {split} split of {corpus.corpus_name} has {len(dataset)} texts for {world} "
            "devices: use at most one device per text."
        )
    lengths, size = dataset.shapes, corpus.eval_batch_size
    return DataLoader(
        dataset=dataset,
        sampler=BucketSampler(lengths, corpus.batch_size, corpus.seed, rank, world)
        if training
        else OnceSampler(lengths, size, rank, world, pad, corpus.max_pairs),
        batch_size=None,  # the sampler yields whole batches
        num_workers=corpus.num_workers,
        persistent_workers=corpus.num_workers > 0,
        pin_memory=torch.cuda.is_available(),
    )
