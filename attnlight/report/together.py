"""Whether records belong together: of one run, or of the same instances."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnlight.records import KEY, RecordError, read_metadata, read_record


def require_one_run(paths: Sequence[Path]) -> None:
    """Refuse records of several runs in one folder, by what they say of themselves.

    Args:
        paths: The records; those written by older versions say less and pass more easily.

    Raises:
        RecordError: Two name other corpora or classes, or come from one checkpoint's name with
            different content.
    """
    found = [(path, read_metadata(path)) for path in paths]
    how = "come from different corpora: one is of another run"
    if _require_same_corpus(found, how) > 1:  # fingerprints of two versions cannot be compared
        _require_same_rows(found, how)
    _require_same(found, "classes", "name different classes: one is of another run")
    for name in sorted({str(about.get("checkpoint")) for _, about in found}):
        of_name = [entry for entry in found if entry[1].get("checkpoint") == name]
        how = f"come from different versions of {name}: test it again, or one is of another run"
        _require_same(of_name, "checkpoint_hash", how)


def require_same_instances(first: Path, second: Path) -> None:
    """Refuse to compare records row by row that do not hold the same instances.

    Raises:
        RecordError: They are of different corpora or splits, or one holds an instance that the
            other does not.
    """
    found = [(path, read_metadata(path)) for path in (first, second)]
    _require_same(found, "stage", "are of different splits")
    _require_same_corpus(found, "come from different corpora")
    one, other = (read_record(path, KEY).columns for path in (first, second))
    if all(np.array_equal(one[name], other[name]) for name in KEY):
        return
    rows, others = (
        set(zip(*(c[name].tolist() for name in KEY), strict=True)) for c in (one, other)
    )
    alone = sorted(rows ^ others)
    raise RecordError(
        f"{first} and {second} hold different instances: {len(alone):,} are in one alone, the "
        f"first is index {alone[0][0]} (position {alone[0][1]})."
    )


def _require_same_corpus(records: Sequence[tuple[Path, Mapping[str, Any]]], how: str) -> int:
    """Refuse different fingerprints of one version; the number of versions."""
    versions: dict[str, list[tuple[Path, Mapping[str, Any]]]] = {}
    for path, about in records:
        if about.get("corpus"):
            versions.setdefault(_version(about["corpus"]), []).append((path, about))
    for entries in versions.values():
        _require_same(entries, "corpus", how)
    return len(versions)


def _require_same_rows(records: Sequence[tuple[Path, Mapping[str, Any]]], how: str) -> None:
    """Refuse whole records of one split that hold different dataset indices."""
    rows: dict[str, tuple[Path, NDArray[np.int64]]] = {}
    for path, about in records:
        if about.get("corpus") and not about.get("partial"):
            index = np.unique(read_record(path, KEY[:1]).columns[KEY[0]])
            first, expected = rows.setdefault(str(about.get("stage")), (path, index))
            if not np.array_equal(index, expected):
                raise RecordError(f"{first} and {path} {how}.")


def _version(fingerprint: str) -> str:
    """Version of a corpus fingerprint; the first one has no prefix."""
    return fingerprint.rpartition("-")[0]


def _require_same(found: Sequence[tuple[Path, Mapping[str, Any]]], key: str, how: str) -> None:
    known = [(path, about[key]) for path, about in found if about.get(key)]
    for path, value in known[1:]:
        if value != known[0][1]:
            raise RecordError(f"{known[0][0]} and {path} {how}.")
