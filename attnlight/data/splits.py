"""Where the splits of a corpus are read from, and what to do where one is missing."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from operator import attrgetter
from pathlib import Path

from attnlight.data.prepared import prepare_once
from attnlight.data.selection import Selection
from attnlight.data.sources import PLACE, Source
from attnlight.errors import InputError
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


def named_sources(
    main: Source, splits: Mapping[str, str | Source | None], selection: Selection
) -> dict[str, Source]:
    """The sources of the splits that are named, completed by the corpus's own.

    Args:
        main: The corpus.
        splits: Name of each split in the corpus, or its source; None where there is none.
        selection: What is split off the training texts.

    Raises:
        InputError: A split is named and also split off the training texts.
    """
    named = {split: source for split, source in splits.items() if source is not None}
    if selection.test_fraction is not None and named.pop("test", "test") != "test":
        raise InputError("give test or test_fraction, not both.")
    if selection.validation_fraction is not None and "validation" in named:
        raise InputError("give validation or validation_fraction, not both.")
    return {
        split: (Source(split=source) if isinstance(source, str) else source).over(main, split)
        for split, source in named.items()
    }


def complete_sources(
    main: Source, named: Mapping[str, Source], selection: Selection, cache: Path
) -> dict[str, Source]:
    """The sources in the order training, validation, test, with the corpus's own to validate on.

    That is the first of its splits `VALIDATION_NAMES` that no source reads, unless there is a source
    already or a share of the training texts validates.

    Args:
        main: The corpus.
        named: Sources of the splits that are named.
        selection: What is split off the training texts.
        cache: Folder where the names of a hub corpus's splits are kept, so that a prepared corpus
            needs no network.

    Raises:
        InputError: The corpus cannot be had.
    """
    found = dict(named)
    if "validation" not in named and selection.validation_fraction is None:
        place = attrgetter(*PLACE)
        if main.folder is not None:
            there = main.splits()
        else:
            digest = hashlib.sha256(json.dumps(place(main)).encode()).hexdigest()[:16]
            file = cache / f"splits-{digest}" / "names.json"
            prepare_once(
                file.parent, lambda new: write_text(new / file.name, json.dumps(main.splits()))
            )
            there = json.loads(file.read_text(encoding="utf-8"))
        used = {
            str(source.split).partition("[")[0]
            for source in named.values()
            if place(source) == place(main)
        }
        free = [name for name in VALIDATION_NAMES if name in there and name not in used]
        if free:
            found["validation"] = Source(split=free[0]).over(main, "validation")
    return {split: found[split] for split in CURES if split in found}
