"""A run in words and in command lines."""

import builtins
import io
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from attnlight.report.page import write_report
from attnlight.report.run import Run, StoredRecord
from attnlight.report.run_description import commands, describe_run
from attnlight.report.summary import RecordSummary
from tests.report.fake import write_run
from tests.report.test_texts import row, write

FIT: dict[str, Any] = {
    "seed_everything": 3,
    "trainer": {"callbacks": [{"class_path": "attnlight.callbacks.Predictions"}]},
    "model": {
        "class_path": "attnlight.tasks.AttentionClassifier",
        "init_args": {"net": {"encoder": "cnn", "attention": {"class_path": "my.own.Dot"}}},
    },
    "data": {"class_path": "my.Corpus", "init_args": {"path": "SetFit/sst5", "name": None}},
}


def run(**configs: Mapping[str, Any]) -> Run:
    folder = Path("checkpoints/sst/seed 3")
    held: dict[str, dict[str, Any]] = {"fit": {}}
    held |= {verb: dict(config) for verb, config in configs.items()}
    return Run(folder, held, "# lightning.pytorch==2.6.6\nx: 1\n", [], [], {}, {"": {}})


def part(test: str, stage: str = "test", rows: int = 1_821, **metadata: object) -> RecordSummary:
    return RecordSummary(StoredRecord(Path("x"), stage, test, None), {"rows": rows} | metadata, {})


class TestWords:
    def test_names_model_corpus_and_classes(self) -> None:
        parts = [part("predictions", classes=["bad", "good"], checkpoint="best.ckpt")]
        facts = describe_run(run(fit=FIT), parts)
        expected = {"Model": ["AttentionClassifier"], "Corpus": ["SetFit/sst5", "Corpus"]}
        expected |= {"Classes": ["bad", "good"], "Seed": ["3"], "Checkpoint": ["best.ckpt"]}
        assert facts == expected | {"Partial records": []}
        planted = FIT | {"data": {"class_path": "attnlight.datamodules.PlantedEvidence"}}
        assert describe_run(run(fit=planted), parts)["Corpus"] == ["PlantedEvidence"]

    def test_names_partial_records(self) -> None:
        parts = [part("predictions"), part("attention_permutation", rows=500, partial=True)]
        assert describe_run(run(fit=FIT), parts)["Partial records"] == ["attention_permutation"]

    def test_nothing_is_known(self) -> None:
        assert not any(describe_run(run(), []).values())


class TestCommands:
    def test_attach_the_tests_that_the_configuration_lacks(self) -> None:
        names = ("predictions", "attention_permutation")
        parts = [part(name, checkpoint="best.ckpt") for name in names]
        parts.append(part("attention_permutation", stage="val", checkpoint="last.ckpt"))
        at = "'checkpoints/sst/seed 3"
        every = "--tests predictions,attention_permutation"
        tests = "--tests attention_permutation"
        assert commands(run(fit=FIT), parts) == [
            f"attnlight fit -c {at}/fit.yaml' --experiment sst --run 'seed 3-again'",
            f"attnlight test -c {at}/fit.yaml' {every} --ckpt_path {at}/best.ckpt'",
            f"attnlight validate -c {at}/fit.yaml' {tests} --ckpt_path {at}/last.ckpt'",
            f"attnlight report {at}'",
        ]

    def test_use_the_configuration_of_the_test_itself(self) -> None:
        callbacks = [{"class_path": "attnlight.callbacks.AttentionPermutation"}]
        test = FIT | {"trainer": {"callbacks": callbacks}}
        lines = commands(run(fit=FIT, test=test), [part("attention_permutation")])
        assert lines[1] == "attnlight test -c 'checkpoints/sst/seed 3/test.yaml'"
        without = commands(run(), [part("predictions")])
        assert without == ["attnlight report 'checkpoints/sst/seed 3'"]


def test_each_file_of_the_run_is_opened_at_most_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_run(tmp_path / "sst" / "seed7", stages=("test", "val"))
    texts = [row(index=index) for index in range(60)]
    write(folder / "records/test/texts.parquet", texts)
    opened: Counter[Path] = Counter()

    def counted(open_file: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(file: Any, *args: Any, **options: Any) -> Any:
            if isinstance(file, str | Path) and Path(file).is_relative_to(folder):
                opened[Path(file).relative_to(folder)] += 1
            return open_file(file, *args, **options)

        return wrapped

    readers = ((pq, "ParquetFile"), (pq, "read_schema"), (io, "open"), (builtins, "open"))
    for module, name in readers:
        monkeypatch.setattr(module, name, counted(getattr(module, name)))
    page = write_report(folder, tmp_path / "report").read_text()
    assert 'href="#text=' in page
    read = {path for path in folder.rglob("*") if path.suffix in (".parquet", ".yaml", ".csv")}
    assert opened.keys() == {path.relative_to(folder) for path in read}
    assert max(opened.values()) <= 2, opened.most_common(5)
