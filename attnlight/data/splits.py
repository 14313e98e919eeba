"""Which split of a corpus validates, and what to do where one is missing."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from attnlight.data.prepared import prepare_once
from attnlight.data.sources import Source
from attnlight.files import write_text

# The names by which the hub's corpora and `datasets` itself call it, the first that exists first.
VALIDATION_NAMES = ("validation", "valid", "dev", "val")
CURES = {
    "train": "name the split to train on in `train`",
    "validation": (
        "name one in `validation`, or validate on a share of the training texts: "
        "`validation_fraction: 0.1`"
    ),
    "test": (
        "name one in `test`, test on a share of the training texts (`test_fraction: 0.2`), or "
        "do without (`test: null`)"
    ),
}


def ordered(splits: Mapping[str, Any]) -> dict[str, Any]:
    """The same in the order training, validation, test."""
    return {split: splits[split] for split in CURES if split in splits}


def default_validation(
    main: Source, others: Mapping[str, Source], cache: Path
) -> dict[str, Source]:
    """The source of the corpus's validation split, by its name; empty where it has none.

    Args:
        main: The corpus.
        others: Sources of the other splits; what they read does not validate.
        cache: Folder where the names of a hub corpus's splits are kept, so that a prepared corpus
            needs no network.

    Raises:
        InputError: The corpus cannot be had.
    """
    used = {source.split_name for source in others.values() if source.place == main.place}
    there = main.splits() if main.folder else _hub_splits(main, cache)
    names = [name for name in VALIDATION_NAMES if name in there and name not in used]
    return {"validation": Source(split=names[0]).over(main, "validation")} if names else {}


def _hub_splits(source: Source, cache: Path) -> list[str]:
    digest = hashlib.sha256(json.dumps(source.place).encode()).hexdigest()[:16]
    folder = cache / f"splits-{digest}"

    def write(new: Path) -> None:
        write_text(new / "names.json", json.dumps(source.splits()))

    prepare_once(folder, write)
    names: list[str] = json.loads((folder / "names.json").read_text(encoding="utf-8"))
    return names
