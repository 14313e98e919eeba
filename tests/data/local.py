"""Small corpora in the hub's local layout."""

from pathlib import Path
from typing import Any

import datasets


def write_corpus(
    folder: Path, names: list[str] | None = None, **splits: dict[str, list[Any]]
) -> Path:
    """Write `<folder>/data/<split>-00000-of-00001.parquet`; `names` are those of the classes."""
    (folder / "data").mkdir(parents=True, exist_ok=True)
    for split, columns in splits.items():
        rows = datasets.Dataset.from_dict(columns)
        if names is not None:
            rows = rows.cast_column("label", datasets.ClassLabel(names=names))
        rows.to_parquet(str(folder / "data" / f"{split}-00000-of-00001.parquet"))
    return folder
