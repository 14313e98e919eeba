"""A frozen model's outputs on a corpus, computed on first use and cached beside the corpus."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from attnlight.batch import AttentionModel, HasKeptStates
from attnlight.data.dataset import TokenDataset
from attnlight.data.digests import text_digest
from attnlight.data.prepared import prepare_once
from attnlight.errors import InputError
from attnlight.reference.base_spec import BaseModel, BaseSpec, read_base
from attnlight.reference.cached_outputs import CachedOutputs, write_outputs

if TYPE_CHECKING:
    import lightning.pytorch as pl

    from attnlight.datamodules import CorpusDataModule


class FrozenBase:
    """A frozen model, given by its checkpoint, with its cached outputs for each split of a corpus.

    The outputs are stored beside the prepared corpus under the fingerprints of model and corpus, so
    that all runs with one base share them and can use them after its checkpoint is deleted. Of many
    classes only attention is: the model computes logits whenever they are read. The model's
    description is read from the checkpoint where no `identity` is given.

    Raises:
        InputError: No identity is given, and the checkpoint is missing, damaged or holds a model
            without attention.
    """

    def __init__(self, path: str | Path, identity: BaseSpec | None = None) -> None:
        self.path = Path(path)
        self._confirmed = identity is None
        if identity is None:
            file = self.path / "best.ckpt" if self.path.is_dir() else self.path
            state = file.stat() if file.is_file() else None
            known = state and (state.st_mtime_ns, state.st_size, state.st_ino)
            identity = _read_identity(self.path, known)
        self.identity = identity
        self._model: Any = None
        self._stores: dict[tuple[str, str], CachedOutputs] = {}

    def require_unchanged(self) -> None:
        """Check that the checkpoint, if it exists, still holds the model of `identity`."""
        if not self._confirmed and self.path.exists():
            self._frozen()
        self._confirmed = True

    def require_corpus(self, corpus: CorpusDataModule | None) -> None:
        """Check that the model was trained on this corpus, or that the corpus is encoded alike."""
        if corpus is None or not hasattr(corpus, "fingerprint"):
            raise InputError(
                f"the base {self.path} needs its corpus, a datamodule of attnlight: run `attnlight test`."
            )
        if text_digest(corpus.tokenizer_json) != self.identity.vocabulary:
            raise InputError(
                f"the base {self.path} was trained with a vocabulary other than that of `data`: "
                "give the `data` of its fit.yaml."
            )
        # A corpus encoded with the model's vocabulary may be any corpus.
        if corpus.encoding is None and corpus.fingerprint != self.identity.corpus:
            raise InputError(
                f"the base {self.path} was trained on another corpus or on other splits of it: "
                f"expected {self.identity.corpus}, but `data` is {corpus.fingerprint}; give the "
                "`data` of its fit.yaml."
            )

    def outputs(
        self, corpus: CorpusDataModule, split: str, device: torch.device | str = "cpu"
    ) -> CachedOutputs:
        """Outputs for one split, evaluated on the first call on this machine.

        If several processes call it at once, one evaluates, on `device`, and the others wait. Must not
        be called while any rank is inside a collective.

        Raises:
            InputError: The model was trained on another corpus; or the outputs are not cached, and
                the checkpoint is missing, damaged or has been replaced by another model's.
        """
        key = (corpus.fingerprint, split)
        if key not in self._stores:
            self.require_corpus(corpus)
            texts = corpus.dataset(split)
            name = f"outputs-{self.identity.fingerprint}-{corpus.fingerprint}-{split}"
            folder = texts.folder.parents[1] / name
            prepare_once(folder, partial(self._write, texts, split, torch.device(device)))
            self._stores[key] = CachedOutputs(folder, partial(self._running, device))
        return self._stores[key]

    def _write(self, texts: TokenDataset, split: str, device: torch.device, folder: Path) -> None:
        base = self._frozen()
        print(f"{self.path}: evaluating {len(texts):,} {split} texts, once", file=sys.stderr)
        description = {"base": str(self.path), "split": split}
        model: Any = base.model
        if isinstance(model, HasKeptStates):
            model.keep_states([texts])
        write_outputs(model.to(device), texts, folder, **description)

    def _running(self, device: torch.device | str) -> AttentionModel:
        """The model on a device, for outputs that are not stored."""
        if self._model is None:
            self._model = self._frozen().model
        return self._model.to(device)  # type: ignore[no-any-return]

    def _frozen(self) -> BaseModel:
        base = read_base(self.path)
        if base.identity.fingerprint != self.identity.fingerprint:
            raise InputError(
                f"{self.path} has been replaced: it holds model {base.identity.fingerprint}; "
                f"expected the base {self.identity.fingerprint}."
            )
        return base


_SPLIT: ContextVar[str | None] = ContextVar("split", default=None)


@contextmanager
def using_split(split: str) -> Iterator[None]:
    """Make `running_split` return this split instead of that of the trainer's current loop."""
    token = _SPLIT.set(split)
    try:
        yield
    finally:
        _SPLIT.reset(token)


def running_split(trainer: pl.Trainer) -> str:
    """The split that the trainer's current loop reads, unless `using_split` sets another."""
    split = _SPLIT.get()
    if split is not None:
        return split
    if trainer.predicting:
        datamodule: Any = trainer.datamodule  # type: ignore[attr-defined]
        return str(datamodule.predict_split)
    if trainer.testing:
        return "test"
    return "validation" if trainer.validating or trainer.sanity_checking else "train"


@lru_cache(maxsize=4)
def _read_identity(path: Path, _: tuple[int, ...] | None) -> BaseSpec:
    """The identity of a checkpoint's model; an unchanged file is not read again."""
    return read_base(path).identity
