"""A run folder as the report reads it: configuration, records and logged metrics."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from attnlight.errors import InputError
from attnlight.files import read_yaml
from attnlight.report.metrics import Metrics, read_metrics

STAGES = ("test", "val")
VERBS = ("fit", "test", "validate")
_EPOCH = re.compile(r"(?P<test>.+)-(?P<epoch>\d+)")


@dataclass(frozen=True)
class StoredRecord:
    """Where one record is.

    Attributes:
        path: The parquet file.
        stage: `test` or `val`.
        test: The test's name in snake case.
        epoch: Epoch of the validation during fit; None outside fit.
        corpus: Name of the corpus where it is another one than the model was trained on, else "".
    """

    path: Path
    stage: str
    test: str
    epoch: int | None
    corpus: str = ""

    @property
    def place(self) -> str:
        """The folder of the record."""
        return f"{self.stage}-{self.corpus}" if self.corpus else self.stage


@dataclass(frozen=True)
class Run:
    """What a run folder holds.

    Attributes:
        folder: The folder, as the user named it.
        configs: The flattened configuration of `fit`, `test` and `validate`, of those that ran.
        config_text: That of `fit` as it is written; empty where the run has none.
        records: Records outside fit, tests first, in order of stage and name.
        epochs: Records of validation epochs, by test and epoch.
        metrics: What the task logged.
        others: What it logged on corpora that it was not trained on, by their names.
    """

    folder: Path
    configs: dict[str, dict[str, Any]]
    config_text: str
    records: list[StoredRecord]
    epochs: list[StoredRecord]
    metrics: Metrics
    others: dict[str, Metrics] = field(default_factory=dict)

    @property
    def config(self) -> dict[str, Any]:
        """The configuration of `fit`; empty where the run has none."""
        return self.configs.get("fit", {})

    @property
    def name(self) -> str:
        """Experiment and run."""
        return "/".join(self.folder.resolve().parts[-2:])


def load_run(folder: Path) -> Run:
    """Read what a run folder holds; records themselves are read later.

    Raises:
        InputError: There is no such folder, it holds no records, or a file in it is damaged.
    """
    if not folder.is_dir():
        raise InputError(f"there is no run folder {folder}.")
    records = stored_records(folder / "records")
    if not records:
        raise InputError(
            f"{folder} holds no records: run `attnlight test` with `-c configs/tests/<test>.yaml` "
            "first."
        )
    corpora = list(dict.fromkeys(record.corpus for record in records if record.corpus))
    named = [*VERBS, *(f"{verb}-{corpus}" for verb in VERBS[1:] for corpus in corpora)]
    paths = {name: folder / f"{name}.yaml" for name in named}
    return Run(
        folder=folder,
        configs={verb: _read_config(path) for verb, path in paths.items() if path.is_file()},
        config_text=paths["fit"].read_text(encoding="utf-8") if paths["fit"].is_file() else "",
        records=[record for record in records if record.epoch is None],
        epochs=[record for record in records if record.epoch is not None],
        metrics=read_metrics(folder / "logs"),
        others={corpus: read_metrics(folder / "logs" / corpus) for corpus in corpora},
    )


def stored_records(records_dir: Path) -> list[StoredRecord]:
    """The records under a run's `records` folder, by stage, test and epoch."""
    found = [
        _stored(path, stage)
        for stage in STAGES
        for folder in (records_dir / stage, *records_dir.glob(f"{stage}-*"))
        for path in folder.glob("*.parquet")
    ]
    # A half-written record is a hidden file beside its target.
    shown = [record for record in found if not record.path.name.startswith(".")]
    return sorted(shown, key=_order)


def _order(record: StoredRecord) -> tuple[str, int, bool, str, int]:
    """By corpus and stage; what was predicted first, then the tests of attention."""
    epoch = -1 if record.epoch is None else record.epoch
    first = record.test != "predictions"
    return record.corpus, STAGES.index(record.stage), first, record.test, epoch


def _stored(path: Path, stage: str) -> StoredRecord:
    matched, corpus = _EPOCH.fullmatch(path.stem), path.parent.name[len(stage) + 1 :]
    if stage != "val" or corpus or matched is None:
        return StoredRecord(path, stage, path.stem, None, corpus)
    return StoredRecord(path, stage, matched["test"], int(matched["epoch"]))


def _read_config(path: Path) -> dict[str, Any]:
    config = read_yaml(path) or {}
    if not isinstance(config, dict):
        raise InputError(f"{path} holds a {type(config).__name__}; expected a mapping.")
    return config
