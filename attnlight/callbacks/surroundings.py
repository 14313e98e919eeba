"""What a test knows of its run: folder, stage, model, texts and processes."""

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, Protocol, runtime_checkable

from lightning.pytorch import LightningModule
from lightning.pytorch.strategies import Strategy
from torch import nn

from attnlight.batch import HasItems, HasScope
from attnlight.data.dataset import TokenDataset
from attnlight.data.digests import digests
from attnlight.data.word_sampler import WordSampler
from attnlight.datamodules.base import CorpusDataModule
from attnlight.errors import InputError
from attnlight.models.parts import weights_digest
from attnlight.reference.rows import GivenTexts
from attnlight.reference.trained import TrainedModel

Stage = Literal["val", "test", "predict"]


@runtime_checkable
class _HasFingerprint(Protocol):
    """A datamodule that names its content."""

    fingerprint: str


@dataclass(frozen=True, kw_only=True)
class Surroundings:
    """What a test knows of whoever runs it: Lightning's Trainer, or `attnlight.run`.

    Attributes:
        folder: The run; records are in `records/<stage>/` in it, those of another corpus than the
            training corpus in `records/<stage>-<corpus>/`.
        stage: What is run; `val` also for validation epochs of `fit`.
        owner: The task or the `TrainedModel` that has the network.
        model: The network.
        strategy: Its device, and what ranks do together: `broadcast`, `barrier`, `reduce`.
        place: Number of this process, and number of processes.
        epoch: The epoch of `fit`; None outside of it.
        corpus: The datamodule; None: texts were given without one.
        dataset: The texts that are read; None before the loop starts.
        limited: Whether only some batches of the dataset are read.
        limit: The Trainer's limit of batches, a number or a share; None: all.
        checkpoint: The file that the weights were read from, if there is one.
    """

    folder: Path
    stage: Stage
    owner: Any
    model: Any
    strategy: Strategy
    place: tuple[int, int] = (0, 1)
    epoch: int | None = None
    corpus: Any = None
    dataset: Any = None
    limited: bool = False
    limit: float | None = None
    checkpoint: str | Path | None = None

    @property
    def classes(self) -> list[str]:
        """Names of the classes; empty if the owner has none."""
        names = getattr(self.owner, "classes", None)
        return list(names) if isinstance(names, list | tuple) else []

    @property
    def hparams(self) -> dict[str, Any]:
        """The owner's hyperparameters; empty if it has none."""
        known = isinstance(self.owner, LightningModule | TrainedModel)
        return dict(self.owner.hparams) if known else {}

    @property
    def model_metadata(self) -> dict[str, Any]:
        """The problem of the task, the options, `scope` and `items` of its network, where it has them."""
        found = {name: x for name, x in self.hparams.items() if name in ("problem", "net")}
        if isinstance(self.model, HasScope) and self.model.scope:
            found["scope"] = self.model.scope
        if isinstance(self.model, HasItems):
            found["items"] = self.model.items
        plain: dict[str, Any] = json.loads(json.dumps(found, default=str))
        return plain

    @property
    def corpus_name(self) -> str:
        """Name of the corpus if the model was trained on another, else ""."""
        known = isinstance(self.corpus, CorpusDataModule)
        return (self.corpus.recorded_as if known else None) or ""

    @property
    def suffix(self) -> str:
        """Suffix of the names of records: `-<corpus>` if the model was trained on another, else ""."""
        return f"-{self.corpus_name}" if self.corpus_name else ""

    @property
    def split(self) -> str:
        """The split of the corpus that is read."""
        split = {"val": "validation", "test": "test"}.get(self.stage)
        return split or str(self.corpus.predict_split)

    @cached_property
    def word_sampler(self) -> WordSampler:
        """The words of the training texts or, where there are none, of the texts that are read.

        Raises:
            InputError: The texts are not known, or contain only one word.
        """
        if isinstance(self.corpus, CorpusDataModule) and "train" in self.corpus.splits:
            return self.corpus.word_sampler
        return self.sampler_of_texts

    @cached_property
    def sampler_of_texts(self) -> WordSampler:
        """The words of the texts that are read; errors are those of `word_sampler`."""
        if not isinstance(self.dataset, TokenDataset | GivenTexts):
            raise InputError("replacement resample needs a corpus or texts, whose words it draws.")
        if isinstance(self.corpus, CorpusDataModule):
            return WordSampler(self.corpus.tokenizer_json, self.dataset)
        reader = TrainedModel.of(self.owner).raw
        return WordSampler(reader.parsed_tokenizer.to_str(), self.dataset)

    def weights(self) -> str | None:
        """Digest of the weights of a network that was read from no checkpoint; None in `fit`."""
        trained = isinstance(self.model, nn.Module) and self.epoch is None
        return weights_digest(self.model) if trained else None

    def origin(self) -> dict[str, Any]:
        """Corpus and checkpoint hash of a record, null if unknown, and else a digest of the weights.

        For a corpus that the model was not trained on also its name and the share of unknown words.
        """
        known = isinstance(self.corpus, _HasFingerprint)
        origin = {"corpus": self.corpus.fingerprint if known else None}
        origin["checkpoint_hash"] = checkpoint_hash(self.checkpoint)
        if origin["checkpoint_hash"] is None:
            origin["weights"] = self.weights()
        if not self.corpus_name:
            return origin
        unknown = self.corpus.unknown_share(self.split)
        return origin | {"corpus_name": self.corpus_name, "unknown_words": unknown}


def checkpoint_hash(path: str | Path | None) -> str | None:
    """Hash of a checkpoint in records, 16 hexadecimal digits; None if there is none."""
    file = Path(path or "")
    if not file.is_file():
        return None
    (digest,) = digests(file.parent, [file]).values()  # computed once for all tests
    return digest[:16]
