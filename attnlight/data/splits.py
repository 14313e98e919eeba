"""The sources of a corpus's splits, and advice for messages where one is missing."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from attnlight.data.digests import text_digest
from attnlight.data.prepared import prepare_once
from attnlight.data.selection import Selection
from attnlight.data.sources import PLACE, Source
from attnlight.errors import InputError
from attnlight.storage.files import write_text

# Names of the validation split on the hub and in `datasets`, in order of preference.
VALIDATION_NAMES = ("validation", "valid", "dev", "val")
FRACTIONS = {"test": 0.2, "validation": 0.1}  # of the training texts, where `fit` finds no split
MISSING_SPLIT_ADVICE = {
    "train": "name the split to train on in `train`",
    "validation": (
        "name one in `validation`, or validate on a fraction of the training texts: "
        "`validation_fraction: 0.1`"
    ),
    "test": (
        "name one in `test`, test on a fraction of the training texts (`test_fraction: 0.2`), or use "
        "none (`test_fraction: 0`)"
    ),
}


@dataclass(frozen=True)
class Splits:
    """The splits of a corpus of texts; those that are null are found in it.

    Args:
        train: Split of the corpus to train on (slices like `train[:10%]` are supported), or a
            separate source. Null: `train`, or the only split.
        validation: The same for validation. Null: the first of the splits validation, valid, dev
            and val that `path` has and that neither `train` nor `test` reads, or none if it has
            none of them; `fit` then cuts a tenth of the training texts.
        test: The same for testing. Null: `test`, or none; `fit` then cuts a fifth of the training
            texts, and `test` takes the only split.
    """

    train: str | Source | None = None
    validation: str | Source | None = None
    test: str | Source | None = None


def named_sources(main: Source, splits: Splits, selection: Selection) -> dict[str, Source]:
    """The sources of the named splits in order, with defaults from the corpus's main source."""
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
    names: Callable[[], Sequence[str]],
    verb: str | None = None,
) -> dict[str, Any]:
    """What a corpus has in place of the splits that are null, by option; `names` gives those it has.

    The `verb` `fit` cuts what is missing from the training texts; where it is a split that is
    evaluated, the only one of the corpus serves. None: only splits of these names are found.
    """
    fractions = {split: getattr(selection, f"{split}_fraction", None) for split in vars(splits)}
    null = [split for split in fractions if (vars(splits)[split], fractions[split]) == (None, None)]
    available = list(names()) if null else []
    used = {
        option: str(source.split).partition("[")[0]
        for option, source in named_sources(main, splits, selection).items()
        if all(getattr(source, name) == getattr(main, name) for name in PLACE)
    }
    found: dict[str, Any] = {}
    for split in null:
        wanted = VALIDATION_NAMES if split == "validation" else (split,)
        # A model may be validated on the texts that it is tested on, as published ones were.
        taken = {used[option] for option in used if (split, option) != ("test", "validation")}
        free = [name for name in wanted if name in available and name not in taken - {"train"}]
        found |= dict(zip([split], free, strict=False))
    only = available if len(available) == 1 else []
    if verb in null and verb not in found:
        return dict(zip([verb], only, strict=False))
    if verb == "fit":
        if "train" in null and not {*only} & {"test", *VALIDATION_NAMES}:
            found = dict(zip(["train"], only, strict=False)) | found
        cut = [split for split in FRACTIONS if split in null and split not in found]
        found |= {f"{split}_fraction": FRACTIONS[split] for split in cut}
    return found


def with_options(options: Mapping[str, Any], *groups: Any) -> tuple[Any, ...]:  # noqa: ANN401
    """Dataclasses with the options that are fields of each."""
    return tuple(
        replace(group, **{name: x for name, x in options.items() if name in vars(group)})
        for group in groups
    )


def split_names(main: Source, cache: Path) -> list[str]:
    """Names of a corpus's splits; the folder `cache` keeps those of the hub, for use without a network."""
    if main.folder is not None:
        return main.splits()
    place = json.dumps([getattr(main, name) for name in PLACE])
    file = cache / f"splits-{text_digest(place)}" / "names.json"
    prepare_once(file.parent, lambda new: write_text(new / file.name, json.dumps(main.splits())))
    return [str(name) for name in json.loads(file.read_text(encoding="utf-8"))]
