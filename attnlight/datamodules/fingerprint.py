"""The fingerprint of a corpus: a hash of all that determines its content, and its folder's name."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnlight.data.dataset import TokenDataset
from attnlight.datamodules.prepared_format import FORMAT

if TYPE_CHECKING:
    from attnlight.datamodules.base import CorpusDataModule

_VERSION = 2  # version 1 had no prefix and included every file of a local folder


def fingerprint_of(corpus: CorpusDataModule) -> str:
    """Version and hash of recipe and format, such as `v2-0123456789abcdef`.

    Raises:
        InputError: A source cannot be read.
    """
    # Included only if used, so that fingerprints of other corpora do not change.
    used: dict[str, Any] = {"marks": corpus.marks} if corpus.marks else {}
    used |= {} if corpus.encoding is None else {"encoding": corpus.encoding.identity()}
    return f"v{_VERSION}-{_hash(corpus, FORMAT, corpus.recipe() | used)}"


def folder_of(corpus: CorpusDataModule, fingerprint: str) -> Path:
    """The folder of a corpus of this kind in the cache."""
    return corpus.cache / f"{type(corpus).__name__.lower()}-{fingerprint}"


def matches(corpus: CorpusDataModule, fingerprint: str) -> bool:
    """Whether a fingerprint belongs to a corpus with this vocabulary and these rows.

    A fingerprint of an earlier version matches if that version would give it to this corpus, or
    if the corpus prepared under it is in the cache and has equal content.
    """
    if fingerprint == corpus.fingerprint or "-" in fingerprint:
        return fingerprint == corpus.fingerprint
    former = {split: source.identity(every_file=True) for split, source in corpus.sources.items()}
    # The first recipe is for folders without the files beside the data that version 1 included.
    recipes = corpus.recipe(), corpus.recipe() | {"sources": former}
    if fingerprint in [_hash(corpus, 1, recipe) for recipe in recipes]:
        return True
    folder = folder_of(corpus, fingerprint)
    try:
        theirs = json.loads((folder / "corpus.json").read_text(encoding="utf-8"))
        tokenizer_json = (folder / "tokenizer.json").read_text(encoding="utf-8")
        ours = json.loads((corpus.prepare() / "corpus.json").read_text(encoding="utf-8"))
        expected = (ours["classes"], ours["splits"].keys(), corpus.tokenizer_json)
        return (theirs["classes"], theirs["splits"].keys(), tokenizer_json) == expected and all(
            TokenDataset(folder / split).table.equals(corpus.dataset(split).table)
            for split in theirs["splits"]
        )
    except (OSError, ValueError, KeyError, TypeError):  # missing or damaged
        return False


def _hash(corpus: CorpusDataModule, format_: int, recipe: dict[str, Any]) -> str:
    content = {"format": format_, "kind": type(corpus).__name__, "recipe": recipe}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]
