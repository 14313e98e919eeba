"""The sources of a corpus's splits, and advice for messages where one is missing."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path

from attnlight.data.prepared import prepare_once
from attnlight.data.selection import Selection
from attnlight.data.sources import PLACE, Source
from attnlight.errors import InputError
from attnlight.storage.files import write_text

# Names of the validation split on the hub and in `datasets`, in order of preference.
VALIDATION_NAMES = ("validation", "valid", "dev", "val")
MISSING_SPLIT_ADVICE = {
    "train": (
        "name the split to train on in `train`; if it is the only one, cut the others from it by "
        "`test_fraction: 0.2` and `validation_fraction: 0.1`"
    ),
    "validation": (
        "name one in `validation`, or validate on a fraction of the training texts: "
        "`validation_fraction: 0.1`"
    ),
    "test": (
        "name one in `test` (`test: train` tests a trained model on all texts), test on a fraction of "
        "the training texts (`test_fraction: 0.2`; without a validation split give "
        "`validation_fraction: 0.1` as well), or use none (`test: null`)"
    ),
}


@dataclass(frozen=True)
class Splits:
    """The splits of a corpus of texts.

    Args:
        train: Split of the corpus to train on (slices like `train[:10%]` are supported), or a
            separate source.
        validation: The same for validation. Null: the first of the splits validation, valid, dev
            and val that `path` has and that neither `train` nor `test` reads, or none if it has
            none of them.
        test: The same for testing; null where there is none.
    """

    train: str | Source = "train"
    validation: str | Source | None = None
    test: str | Source | None = "test"


@dataclass(frozen=True)
class SplitNames(Splits):
    """The splits of a corpus of tagged sentences.

    Args:
        train: Split to train on (slices like `train[:10%]` are supported), or a column file.
        validation: The same for validation; null: the first of the splits validation, valid, dev
            and val that the corpus has and that is neither `train` nor `test`; in column files, or
            where it has none of them, a fraction of the training sentences.
    """

    train: str = "train"
    validation: str | None = None
    test: str | None = "test"


def named_sources(main: Source, splits: Splits, selection: Selection) -> dict[str, Source]:
    """The sources of the named splits, with defaults from the corpus's main source.

    Raises:
        InputError: A split is named and also split off the training texts.
    """
    named = {split: source for split, source in vars(splits).items() if source is not None}
    if selection.test_fraction is not None and named.pop("test", "test") != "test":
        raise InputError("give test or test_fraction, not both.")
    if selection.validation_fraction is not None and "validation" in named:
        raise InputError("give validation or validation_fraction, not both.")
    sources = {n: Source(split=s) if isinstance(s, str) else s for n, s in named.items()}
    return {split: source.with_defaults(main, split) for split, source in sources.items()}


def complete_sources(
    main: Source, named: Mapping[str, Source], selection: Selection, cache: Path
) -> dict[str, Source]:
    """The sources in the order training, validation, test, with a default for validation.

    The default is the first split in `VALIDATION_NAMES` that the corpus has and no source reads. It
    is not added if a validation source is named or `validation_fraction` is set. The folder `cache`
    keeps the split names of hub corpora, so that a prepared corpus needs no network.

    Raises:
        InputError: The corpus cannot be read.
    """
    sources = dict(named)
    if "validation" not in named and selection.validation_fraction is None:
        corpus_of = attrgetter(*PLACE)
        if main.folder is not None:
            available = main.splits()
        else:
            digest = hashlib.sha256(json.dumps(corpus_of(main)).encode()).hexdigest()[:16]
            file = cache / f"splits-{digest}" / "names.json"
            prepare_once(
                file.parent, lambda new: write_text(new / file.name, json.dumps(main.splits()))
            )
            available = json.loads(file.read_text(encoding="utf-8"))
        used = {
            str(source.split).partition("[")[0]
            for source in named.values()
            if corpus_of(source) == corpus_of(main)
        }
        unused = [name for name in VALIDATION_NAMES if name in available and name not in used]
        if unused:
            sources["validation"] = Source(split=unused[0]).with_defaults(main, "validation")
    return {split: sources[split] for split in MISSING_SPLIT_ADVICE if split in sources}
