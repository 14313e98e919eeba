"""What a frozen model says of a corpus: evaluated once, on first need, and kept beside it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lightning.pytorch as pl
import torch

from attnlight.data.dataset import TokenDataset
from attnlight.data.prepared import prepare_once
from attnlight.errors import InputError
from attnlight.reference.base import BaseModel, Identity, read_base, text_digest
from attnlight.reference.store import OutputStore, are_of, write_outputs

if TYPE_CHECKING:
    from attnlight.datamodules import CorpusDataModule


class Reference:
    """A frozen model by its checkpoint, and its outputs for each split of a corpus.

    The outputs lie beside the prepared corpus, under the fingerprints of model and corpus, so that
    all runs against one base share them, and they are still there when its checkpoint is gone.

    Args:
        path: The checkpoint.
        identity: What the model is known to be; None reads it from the checkpoint.

    Raises:
        InputError: There is no identity, and the checkpoint is missing, damaged or no model with
            attention.
    """

    def __init__(self, path: str | Path, identity: Identity | None = None) -> None:
        self.path = Path(path)
        self._confirmed = identity is None
        if identity is None:
            file = self.path / "best.ckpt" if self.path.is_dir() else self.path
            written = file.stat() if file.is_file() else None
            identity = _read_identity(
                self.path, written and (written.st_mtime_ns, written.st_size, written.st_ino)
            )
        self.identity = identity
        self._stores: dict[tuple[str, str], OutputStore] = {}

    def require_unchanged(self) -> None:
        """Refuse a checkpoint that is there and holds another model than the one that is known.

        Raises:
            InputError: It does, or it is damaged.
        """
        if not self._confirmed and self.path.exists():
            self._frozen()
        self._confirmed = True

    def require_corpus(self, corpus: CorpusDataModule | None) -> None:
        """Refuse a corpus other than the one that the model was trained on, or encoded like it.

        Raises:
            InputError: There is no corpus, or it differs in vocabulary, source or splits.
        """
        if corpus is None or not hasattr(corpus, "fingerprint"):
            raise InputError(f"the base {self.path} needs its corpus: a datamodule of attnlight.")
        if text_digest(corpus.tokenizer_json) != self.identity.vocabulary:
            raise InputError(
                f"the base {self.path} was trained with another vocabulary than that of the corpus "
                "in `data`: give the `data` of its fit.yaml."
            )
        if getattr(corpus, "encoding", None) is None and not corpus.is_known_as(
            self.identity.corpus
        ):  # one that is encoded as the model's own may be any
            raise InputError(
                f"the base {self.path} was trained on another corpus, or on other splits of it "
                f"({self.identity.corpus}), than `data` is ({corpus.fingerprint}): give the `data` "
                "of its fit.yaml."
            )

    def outputs(
        self, corpus: CorpusDataModule, split: str, device: torch.device | str = "cpu"
    ) -> OutputStore:
        """Outputs for one split, evaluated on the first call on this machine.

        Of processes that start together one evaluates, the others wait for it. Nobody may wait for
        another in a collective meanwhile.

        Args:
            corpus: The corpus that the model was trained on.
            split: One of its splits.
            device: Where to evaluate.

        Raises:
            InputError: The corpus is another one, or the outputs are not there and the checkpoint
                is missing, damaged or another model's by now.
        """
        key = (corpus.fingerprint, split)
        if key not in self._stores:
            self.require_corpus(corpus)
            texts = corpus.dataset(split)
            # Under the corpus as the base knows it, so that what an earlier version of the
            # fingerprint named is found again.
            name = f"outputs-{self.identity.fingerprint}-{self.identity.corpus}-{split}"
            folder = texts.folder.parents[1] / name
            former = None if "-" in self.identity.corpus else partial(are_of, texts.index)
            prepare_once(folder, partial(self._write, texts, split, torch.device(device)), former)
            self._stores[key] = OutputStore(folder)
        return self._stores[key]

    def _write(self, texts: TokenDataset, split: str, device: torch.device, folder: Path) -> None:
        base = self._frozen()
        print(f"{self.path}: evaluated on {len(texts):,} {split} texts, once", file=sys.stderr)
        description = {"base": str(self.path), "split": split}
        model: Any = base.model
        write_outputs(model.to(device), texts, folder, **description)

    def _frozen(self) -> BaseModel:
        base = read_base(self.path)
        if base.identity.fingerprint != self.identity.fingerprint:
            raise InputError(
                f"{self.path} holds another model ({base.identity.fingerprint}) than the base that "
                f"was asked for ({self.identity.fingerprint})."
            )
        return base


_ASIDE: ContextVar[str | None] = ContextVar("split read aside", default=None)


@contextmanager
def reading(split: str) -> Iterator[None]:
    """Read another split than the one that the trainer's present loop reads."""
    token = _ASIDE.set(split)
    try:
        yield
    finally:
        _ASIDE.reset(token)


def running_split(trainer: pl.Trainer) -> str:
    """The split that the trainer's present loop reads, or the one that is read aside (`reading`)."""
    aside = _ASIDE.get()
    if aside is not None:
        return aside
    if trainer.predicting:
        datamodule: Any = trainer.datamodule  # type: ignore[attr-defined]
        return str(datamodule.predict_split)
    if trainer.testing:
        return "test"
    return "validation" if trainer.validating or trainer.sanity_checking else "train"


@lru_cache(maxsize=4)
def _read_identity(path: Path, _: tuple[int, ...] | None) -> Identity:
    """What the model of a checkpoint is; a file that has not changed since is not read again."""
    return read_base(path).identity
