"""One device against two, by gloo on the CPU: the same rows, each once, and the same curves."""

import csv
import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from attnlight.records import read_record
from tests.commands import (
    CPU,
    QUIET,
    TWO,
    attached,
    attnlight,
    attnlight_here,
    attnlight_on,
    experiment,
    finish,
    free_port,
    start,
)

pytestmark = [pytest.mark.ddp, pytest.mark.slow]
CHEAP, ALL = attached("cheap"), attached("all")
EVIDENCE = attached("predictions", "importance_correlation", "evidence_swap")
CHEAP_TESTS = ("predictions", "attention_permutation", "adversarial_attention", "single_erasure")
CHEAP_TESTS += ("decision_flip",)
# Neither counts nor what follows from an order or a search.
CONTINUOUS = ("index", "position", "probabilities", "max_attention", "attention_entropy", "length")
CONTINUOUS += ("median_tvd", "median_js")
TESTS = (*CHEAP_TESTS, "importance_correlation")
PLANTED = ["--data.train_size=400", "--data.validation_size=131", "--data.test_size=203"]
STORIES = [*PLANTED, "--data.test=null", "--model.net.decoder=affine"]


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained(tmp_path_factory, "planted_bilstm", *PLANTED)


@pytest.fixture(scope="module")
def stories(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained(tmp_path_factory, "babi_1_bilstm", *STORIES)


def trained(factory: pytest.TempPathFactory, name: str, *options: str) -> Path:
    """A run of one epoch on one device."""
    folder = factory.mktemp(name)
    short = ["--trainer.max_epochs=1", "--trainer.logger=false", *CPU, *QUIET]
    place = [f"--root={folder}", "--experiment=e", "--run=r"]
    fit = ["fit", *experiment(name), *options, *short, *place]
    attnlight_here(*fit, cwd=folder)
    return folder / "e" / "r"


def evaluated(run: Path, verb: str, devices: list[str], tests: Sequence[str] = ALL) -> Path:
    """A copy of the run on which one verb was run with these devices, `test` with these tests."""
    copy = run.with_name(f"{verb}-{len(devices)}")
    if not copy.exists():
        shutil.copytree(run, copy)
        logger = ["--trainer.logger=lightning.pytorch.loggers.CSVLogger"]
        logger += [f"--trainer.logger.save_dir={copy}", "--trainer.logger.name=logs"]
        config = ["-c", f"{run}/fit.yaml", f"--ckpt_path={copy}/best.ckpt"]
        attached = tests if verb == "test" else []
        command = [verb, *config, *attached, *QUIET, *logger]
        if devices == TWO and verb == "test" and tests is ALL:
            attnlight(*command, *TWO, cwd=copy)
        else:
            attnlight_on(1 + (devices == TWO), *command, cwd=copy)
    return copy


def compare(one: dict[str, np.ndarray], two: dict[str, np.ndarray]) -> None:
    """Design, section 10: equal to tolerance, but for 0.2 % of rows where a margin is below it."""
    assert one.keys() == two.keys()
    for name, values in one.items():
        left, right = (
            np.asarray(np.concatenate(column) if column.dtype == object else column, np.float64)
            for column in (values, two[name])
        )
        unequal = ~np.isclose(left, right, rtol=0, atol=2e-6, equal_nan=True)
        share = unequal.reshape(len(unequal), -1).any(axis=1).mean()
        allowed = 0.0 if name in CONTINUOUS else 0.002
        assert share <= allowed, (name, share)


@pytest.mark.parametrize(
    ("corpus", "files", "tests"),
    [
        ("planted", ALL, TESTS),
        ("stories", EVIDENCE, ("predictions", "importance_correlation", "evidence_mass")),
    ],
)
def test_records_of_two_devices_are_those_of_one(
    corpus: str, files: list[str], tests: Sequence[str], request: pytest.FixtureRequest
) -> None:
    run: Path = request.getfixturevalue(corpus)
    one, two = (evaluated(run, "test", devices, files) for devices in (CPU, TWO))
    for test in tests:
        records = [read_record(folder / f"records/test/{test}.parquet") for folder in (one, two)]
        index = records[0].columns["index"]
        assert len(index) == len(np.unique(index)) == 203
        assert records[1].metadata["partial"] is False
        compare(records[0].columns, records[1].columns)
    logged, other = scalars(one, "logs"), scalars(two, "logs")
    assert logged == pytest.approx(other, abs=1e-5, nan_ok=True)


def test_validation_inside_fit_counts_each_text_once(planted: Path, tmp_path: Path) -> None:
    """A fit that changes no weight: its validation, padded on two devices, equals `validate`."""
    frozen = [f"--model.optimizer.{name}=0" for name in ("learning_rate", "weight_decay")]
    frozen.append("--trainer.max_epochs=1")
    logger = ["--trainer.logger=lightning.pytorch.loggers.CSVLogger"]
    logger += [f"--trainer.logger.save_dir={tmp_path}"]
    logged = []
    for devices, name in ((1, "one"), (2, "two")):
        place = [f"--root={tmp_path}", "--experiment=e", f"--run={name}"]
        options = [*PLANTED, *frozen, *QUIET, *place, *logger]
        options += [f"--trainer.logger.name=logs-{name}", *experiment("planted_bilstm"), *CHEAP]
        said = attnlight_on(devices, "fit", *options, cwd=tmp_path)
        if said is not None:  # of both ranks: one line for the epoch, and little else
            assert sum(line.startswith("1/1 ") for line in said.splitlines()) == 1
            assert "sync_dist" not in said
            assert len(said.splitlines()) < 20, said
        for test in CHEAP_TESTS:
            record = read_record(tmp_path / "e" / name / f"records/val/{test}-0.parquet")
            assert len(record.columns["index"]) == 131
        logged.append(scalars(tmp_path, f"logs-{name}"))
    one, two = ({n: v for n, v in each.items() if n.startswith("val/")} for each in logged)
    assert {"val/accuracy", "val/predictions/max_attention"} <= one.keys()
    assert {name: two[name] for name in one} == pytest.approx(one, abs=1e-5, nan_ok=True)


def test_predictions_of_two_devices_are_those_of_one(planted: Path) -> None:
    one, two = (
        pq.read_table(evaluated(planted, "predict", devices) / "predictions.parquet").to_pylist()
        for devices in (CPU, TWO)
    )
    assert len(one) == len(two) == 203
    for left, right in zip(one, two, strict=True):
        for name in ("index", "position", "tokens", "items", "label"):
            assert left[name] == right[name]
        for name in ("probabilities", "attention", "item_logits", "bias"):
            np.testing.assert_allclose(left[name], right[name], atol=2e-5)


def test_two_torchrun_agents_give_the_records_of_one_device(planted: Path, tmp_path: Path) -> None:
    one = evaluated(planted, "test", CPU)
    copy = tmp_path / "e" / "agents"
    shutil.copytree(planted, copy)
    command = ["-m", "attnlight", "test", "-c", f"{planted}/fit.yaml", *ALL, *QUIET]
    command += [f"--ckpt_path={copy}/best.ckpt", "--trainer.logger=false"]
    command += ["--trainer.accelerator=cpu", "--trainer.strategy=ddp"]
    command += ["--trainer.num_nodes=2", "--trainer.devices=1"]
    torchrun = ["-m", "torch.distributed.run", "--nnodes=2", "--nproc-per-node=1"]
    torchrun += ["--master-addr=127.0.0.1", f"--master-port={free_port()}"]
    agents = [
        start([*torchrun, f"--node-rank={rank}", *command], cwd=tmp_path) for rank in range(2)
    ]
    for agent in agents:
        finish(agent)
    for test in TESTS:
        records = [read_record(folder / f"records/test/{test}.parquet") for folder in (one, copy)]
        compare(records[0].columns, records[1].columns)


def scalars(folder: Path, logs: str) -> dict[str, float]:
    """The last value of each logged scalar."""
    last: dict[str, float] = {}
    for path in sorted(folder.glob(f"{logs}/version_*/metrics.csv")):
        with path.open() as file:
            for row in csv.DictReader(file):
                last |= {name: float(value) for name, value in row.items() if value}
    return last
