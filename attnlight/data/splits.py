"""The sources of a corpus's splits, and advice for messages where one is missing."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from operator import attrgetter
from pathlib import Path
from typing import Any, TypeVar

from attnlight.data.prepared import prepare_once
from attnlight.data.selection import Selection
from attnlight.data.sources import PLACE, VALIDATION_NAMES, Source
from attnlight.errors import InputError
from attnlight.storage.files import write_text

FRACTIONS = {"test": 0.2, "validation": 0.1}  # of the training texts, where `fit` finds no split
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
        "`validation_fraction: 0.1` as well), or use none (`test_fraction: 0`)"
    ),
}


@dataclass(frozen=True)
class Splits:
    """The splits of a corpus of texts; those that are null are found in it (`find_splits`).

    Args:
        train: Split of the corpus to train on (slices like `train[:10%]` are supported), or a
            separate source. Null: `train`, or the only split.
        validation: The same for validation. Null: the first of the splits validation, valid, dev
            and val that `path` has and that neither `train` nor `test` reads; where it has none of
            them, `fit` cuts a tenth of the training texts, and `validate` takes the only split.
        test: The same for testing. Null: `test`; where there is none, `fit` cuts a fifth of the
            training texts, and `test` takes the only split.
    """

    train: str | Source | None = None
    validation: str | Source | None = None
    test: str | Source | None = None


@dataclass(frozen=True)
class SplitNames(Splits):
    """The splits of a corpus of tagged sentences: of a folder of column files, names of files.

    Args:
        train: Split to train on (slices like `train[:10%]` are supported), or a column file. Null:
            `train`, or the only split.
        validation: The same for validation. Null: the first of the splits validation, valid, dev
            and val that the corpus has and that is neither `train` nor `test`, or a fraction of the
            training sentences.
        test: The same for testing. Null: `test`; where there is none, `fit` cuts a fifth of the
            training sentences.
    """

    train: str | None = None
    validation: str | None = None
    test: str | None = None


AnySplits = TypeVar("AnySplits", bound=Splits)
AnySelection = TypeVar("AnySelection", bound=Selection)


def named_sources(main: Source, splits: Splits, selection: Selection) -> dict[str, Source]:
    """The sources of the named splits in order, with defaults from the corpus's main source.

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


def find_splits(
    main: Source,
    splits: Splits,
    selection: Selection,
    names: Callable[[], Mapping[str, str]],
    verb: str | None = None,
) -> dict[str, Any]:
    """What a corpus has in place of the splits that are null, by option.

    Args:
        main: The main source.
        splits: The splits.
        selection: Which has the fractions that are given in place of splits.
        names: Gives the corpus's splits, as options name them, by name.
        verb: `fit`, which cuts what is missing from the training texts; or the split that is
            evaluated, for which the only one of the corpus serves. None: splits of these names alone.
    """
    null = [
        split
        for split, source in vars(splits).items()
        if source is None and fraction_of(split, selection) is None
    ]
    if not null:
        return {}
    available, corpus_of = names(), attrgetter(*PLACE)
    used = {
        str(source.split).partition("[")[0]
        for source in named_sources(main, splits, selection).values()
        if corpus_of(source) == corpus_of(main)
    }
    found: dict[str, Any] = {}
    for split in null:
        wanted = VALIDATION_NAMES if split == "validation" else (split,)
        free = [available[name] for name in wanted if name in available]
        free = [name for name in free if split == "train" or name not in used]
        found |= {split: name for name in free[:1]}
    only = list(available) if len(available) == 1 else []
    if verb in null and verb not in found:
        return {str(verb): available[name] for name in only}
    if verb == "fit":
        if "train" in null and not {*only} & {"test", *VALIDATION_NAMES}:
            found = {"train": available[name] for name in only} | found
        cut = {f"{split}_fraction": FRACTIONS[split] for split in null if split in FRACTIONS}
        found |= {name: cut[name] for name in cut if name.removesuffix("_fraction") not in found}
    return found


def fraction_of(split: str, selection: Selection) -> float | None:
    """The fraction of the training texts that is cut for a split; None where none is given."""
    fraction: float | None = getattr(selection, f"{split}_fraction", None)
    return fraction


def replaced(
    found: Mapping[str, Any], splits: AnySplits, selection: AnySelection
) -> tuple[AnySplits, AnySelection]:
    """Splits and selection with the options that `find_splits` found."""
    names = {name: found[name] for name in found if name in vars(splits)}
    fractions = {name: found[name] for name in found if name not in names}
    return replace(splits, **names), replace(selection, **fractions)


def split_names(main: Source, cache: Path) -> list[str]:
    """Names of a corpus's splits.

    The folder `cache` keeps those of hub corpora, so that a prepared corpus needs no network.

    Raises:
        InputError: The corpus cannot be read.
    """
    if main.folder is not None:
        return main.splits()
    place = json.dumps(attrgetter(*PLACE)(main))
    digest = hashlib.sha256(place.encode()).hexdigest()[:16]
    file = cache / f"splits-{digest}" / "names.json"
    prepare_once(file.parent, lambda new: write_text(new / file.name, json.dumps(main.splits())))
    names: list[str] = json.loads(file.read_text(encoding="utf-8"))
    return names
