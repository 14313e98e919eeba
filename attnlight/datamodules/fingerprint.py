"""The fingerprint of a corpus: a hash of all that determines its content, and its folder's name."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnlight.datamodules.prepared_format import FORMAT

if TYPE_CHECKING:
    from attnlight.datamodules.base import CorpusDataModule

_VERSION = 2  # of the recipe that is hashed


def fingerprint_of(corpus: CorpusDataModule) -> str:
    """Version and hash of recipe and format, such as `v2-0123456789abcdef`.

    Raises:
        InputError: A source cannot be read.
    """
    # Included only if used: a corpus without them is the same corpus.
    used: dict[str, Any] = {"marks": corpus.marks} if corpus.marks else {}
    used |= {} if corpus.encoding is None else {"encoding": corpus.encoding.identity()}
    content = {"format": FORMAT, "kind": type(corpus).__name__, "recipe": corpus.recipe() | used}
    digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]
    return f"v{_VERSION}-{digest}"


def folder_of(corpus: CorpusDataModule, fingerprint: str) -> Path:
    """The folder of a corpus of this kind in the cache."""
    return corpus.cache / f"{type(corpus).__name__.lower()}-{fingerprint}"
