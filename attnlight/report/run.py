"""Reads a run folder for the report: configuration, records and logged metrics."""

import csv
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from attnlight.errors import InputError
from attnlight.records import KEY, TEXTS, RecordError, RecordFile, Source, read_record
from attnlight.storage.files import read_yaml, require_ordinary
from attnlight.storage.migration import require_migrated
from attnlight.storage.model_folder import require_run_or_tested

VERBS = {"test": "test", "val": "validate"}  # the verb that evaluates a split, by its stage


@dataclass(frozen=True)
class StoredRecord:
    """Location of a record."""

    path: Path  # the parquet file
    stage: str  # `test` or `val`
    test: str  # the test's name in snake case
    epoch: int | None  # epoch of the validation during fit; None outside fit
    corpus: str = ""  # name of the corpus if the model was trained on another one, else ""

    @cached_property
    def file(self) -> RecordFile:
        """Its content, read when it is asked for."""
        return RecordFile(self.path)

    @property
    def folder_name(self) -> str:
        """Name of the record's folder in `records`: its stage and, if it has one, its corpus."""
        return f"{self.stage}-{self.corpus}" if self.corpus else self.stage


@dataclass(frozen=True)
class Run:
    """Contents of a run folder, each file of which is read once; records when they are asked for."""

    folder: Path  # the folder as the user named it
    # The flattened configuration of `fit`, empty if the run has none, and of those of `test` and
    # `validate` that ran.
    configs: dict[str, dict[str, Any]]
    config_text: str  # the file of `fit`'s configuration; empty if the run has none
    records: list[StoredRecord]  # records outside fit, tests first, in order of stage and name
    epoch_records: list[StoredRecord]  # records of validation epochs, by test and epoch
    # The task's metrics on the validation split, by metric and epoch of fit.
    curves: Mapping[str, Mapping[int, float]]
    # The task's last metrics on the test split, by corpus and metric; "" is the corpus of training.
    # Metrics of the tests are read from records.
    test_metrics: Mapping[str, Mapping[str, float]]
    _texts: dict[str, RecordFile] = field(default_factory=dict, init=False, repr=False)

    def texts(self, stage: str, corpus: str) -> RecordFile:
        """The record of texts of a stage, or of the stage `predict` the predictions."""
        suffix = f"-{corpus}" if corpus else ""
        name = f"records/{stage}{suffix}/{TEXTS}.parquet"
        name = f"predictions{suffix}.parquet" if stage == "predict" else name
        return self._texts.setdefault(name, RecordFile(self.folder / name))


def load_run(folder: Path) -> Run:
    """Read a run folder without the contents of its records.

    Raises:
        InputError: There is no such folder, it holds no records, or a file in it is damaged.
    """
    records = stored_records(folder / "records")
    if not records:
        require_run_or_tested(folder)
        command = shlex.join(["attnlight", "test", str(folder), "--tests", "card"])
        raise InputError(f"{folder} holds no records of measures: run `{command}` first.")
    corpora = list(dict.fromkeys(["", *(record.corpus for record in records)]))
    verbs = [f"{v}-{c}" if c else v for c in corpora for v in VERBS.values()]
    return trained_run(folder, verbs, corpora)


def trained_run(folder: Path, verbs: Sequence[str] = (), corpora: Sequence[str] = ()) -> Run:
    """A run folder, which may have no records, without the contents of its records.

    `verbs` are names of the configurations to read besides that of `fit`, `corpora` of those whose
    logged metrics are read; "" is that of training.
    """
    records = stored_records(folder / "records")
    configs: dict[str, dict[str, Any]] = {"fit": {}}
    for verb in ("fit", *verbs):
        path = folder / f"{verb}.yaml"
        if path.is_file():
            configs[verb] = read_yaml(path)
            require_migrated(path, configs[verb])
    fit = folder / "fit.yaml"
    logged = {corpus: read_metrics(folder / "logs" / corpus) for corpus in corpora}
    return Run(
        folder=folder,
        configs=configs,
        config_text=fit.read_text(encoding="utf-8") if fit.is_file() else "",
        records=[record for record in records if record.epoch is None],
        epoch_records=[record for record in records if record.epoch is not None],
        curves=logged[""][0] if logged else {},
        test_metrics={corpus: tested for corpus, (_, tested) in logged.items()},
    )


def stored_records(records_dir: Path) -> list[StoredRecord]:
    """The records under a run's `records` folder, by corpus, stage, test and epoch.

    Predictions come before the tests of attention; `texts`, which has no measures, is left out.
    """
    records = []
    for stage in VERBS:
        for folder in (records_dir / stage, *records_dir.glob(f"{stage}-*")):
            corpus = folder.name[len(stage) + 1 :]
            for path in folder.glob("[!.]*.parquet"):  # hidden files are incomplete
                fitting = re.fullmatch(r"(.+)-(\d+)", path.stem) if folder.name == "val" else None
                test, epoch = (fitting[1], int(fitting[2])) if fitting else (path.stem, None)
                if test != TEXTS:
                    records.append(StoredRecord(path, stage, test, epoch, corpus))
    return sorted(
        records, key=lambda r: (r.corpus, r.stage, r.test != "predictions", r.test, r.epoch or 0)
    )


def read_metrics(logs: Path) -> tuple[dict[str, dict[int, float]], dict[str, float]]:
    """Read `version_*/metrics.csv` of Lightning's CSVLogger; later versions replace earlier ones.

    Returns:
        The task's validation metrics by epoch of fit, and its test metrics.
    """
    curves: dict[str, dict[int, float]] = {}
    test: dict[str, float] = {}
    # In numeric order: the path of version 10 is longer than that of version 9.
    for path in sorted(logs.glob("version_*/metrics.csv"), key=lambda path: (len(str(path)), path)):
        try:
            require_ordinary(path)
            with path.open(encoding="utf-8", newline="") as file:
                rows = [
                    {name: float(value) for name, value in row.items() if value}
                    for row in csv.DictReader(file)
                ]
        except (OSError, ValueError, TypeError, csv.Error) as error:
            raise InputError(f"{path} is not a readable file of metrics: {error}.") from error
        # `attnlight validate` logs epoch 0 for every checkpoint.
        fitted = any(name.startswith("train/") for row in rows for name in row)
        for row in rows:
            for name, value in row.items():
                stage, _, metric = name.partition("/")
                if "/" in metric:
                    continue  # a metric of a test
                if stage == "test":
                    test[metric] = value
                elif stage == "val" and fitted:
                    curves.setdefault(metric, {})[int(row["epoch"])] = value
    return {name: dict(sorted(points.items())) for name, points in curves.items()}, test


def require_one_run(records: Sequence[Source]) -> None:
    """Refuse records of several runs in one folder, judged by their metadata."""
    complaint = "come from different corpora: one is of another run"
    metadata = require_one_corpus(records, complaint)
    _require_same(metadata, "classes", "name different classes: one is of another run")
    complaint = "are of two checkpoints, {1} and {2}: test both with one of them and --overwrite"
    _require_same(metadata, "checkpoint", complaint)
    complaint = "come from different versions of {0}: test it again, or one is of another run"
    _require_same(metadata, "checkpoint_hash", complaint, within="checkpoint")
    _require_same(metadata, "weights", "are of models with other weights: test the model again")


def require_same_instances(first: Path, second: Path) -> None:
    """Refuse to compare two records row by row unless they have the same instances."""
    metadata = require_one_corpus((first, second), "come from different corpora")
    _require_same(metadata, "stage", "are of different splits")
    left, right = (read_record(path, KEY).columns for path in (first, second))
    if all(np.array_equal(left[name], right[name]) for name in KEY):
        return
    keys = (set(zip(*(c[name].tolist() for name in KEY), strict=True)) for c in (left, right))
    unshared = sorted(set.symmetric_difference(*keys))
    raise RecordError(
        f"{first} and {second} hold different instances: {len(unshared):,} are in one alone, the "
        f"first is index {unshared[0][0]} (position {unshared[0][1]})."
    )


def require_one_corpus(records: Iterable[Source], complaint: str) -> dict[Path, dict[str, Any]]:
    """Metadata of records of one corpus; `complaint` is what is said of two that are of different ones."""
    metadata = {file.path: file.metadata for file in map(RecordFile.of, records)}
    _require_same(metadata, "corpus", complaint)
    return metadata


def _require_same(
    metadata: Mapping[Path, Mapping[str, Any]], key: str, complaint: str, within: str = ""
) -> None:
    """Refuse records whose metadata differ in a key, among those that agree in `within` if given.

    Records without the key pass. The value of `within` and the two values fill {0}, {1} and {2} of
    the complaint.
    """
    first: dict[Any, tuple[Path, Any]] = {}
    for path, entry in metadata.items():
        if entry.get(key):
            other, expected = first.setdefault(entry.get(within), (path, entry[key]))
            if entry[key] != expected:
                found = complaint.format(entry.get(within), expected, entry[key])
                raise RecordError(f"{other} and {path} {found}.")
