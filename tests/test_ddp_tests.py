"""One device against two and three, by gloo on the CPU: the same records of the other tests."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
import yaml

from attnlight.records import read_record
from tests.callbacks.every import METHODS, NEEDS, OPTIONS, every
from tests.commands import CONFIGS, CPU, QUIET, attnlight_here, attnlight_on
from tests.test_ddp import CHEAP_TESTS as OF_CHEAP
from tests.test_ddp import compare, trained

pytestmark = [pytest.mark.ddp, pytest.mark.slow]
OF_ALL = {*OF_CHEAP, "importance_correlation", "evidence_mass"}  # of `tests.test_ddp`
WITHOUT_LAYERS = every("marks", "planted texts", "random networks")
TESTS = {
    "planted": [name for name, kind in WITHOUT_LAYERS.items() if kind.name not in OF_ALL],
    "layers": sorted(NEEDS["layers"] | NEEDS["partners"]),
    "translation": [
        *("AdversarialAttention", "AlignmentError", "AttentionPermutation", "DecisionFlip"),
        *("Faithfulness", "LeaveOneOutAgreement", "SingleErasure"),
    ],
    "edits": sorted(NEEDS["edits"]),
}
OPTIONS_OF_RUNS = OPTIONS | {
    "ImpermissibleMass": {},
    "Sanity": {"methods": METHODS, "max_instances": None},
}
ROWS = 31  # of which neither two nor three ranks have equal parts
SIZES = ["--data.train_size=60", "--data.validation_size=20", f"--data.test_size={ROWS}"]
# Planted words without which a text keeps its class; in some texts there is none of them.
MARKS = "--data.marks={impermissible: [filler3, filler7, good1, bad1]}"


def write_tests(path: Path, name: str) -> list[str]:
    tests = [
        {
            "class_path": f"attnlight.callbacks.{kind}",
            "init_args": OPTIONS_OF_RUNS.get(kind, {}) | {"figures": False},
        }
        for kind in TESTS[name]
    ]
    path.write_text(yaml.safe_dump({"trainer": {"inference_mode": False, "callbacks+": tests}}))
    return ["-c", str(path)]


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """The folder of a model of planted texts, and the command that tests it."""
    small = ["--model.net.embedding_size=12", "--model.net.hidden_size=8"]
    run = trained(tmp_path_factory, "planted_bilstm", *SIZES, *small, MARKS)
    command = ["test", str(run), *write_tests(run / "tests.yaml", "planted")]
    # Margins of this small model are below the rounding of float32, in which ranks depend on batches.
    return run, [*command, "--trainer.precision=64-true"]


@pytest.fixture(scope="module")
def translation(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """The folder of a network that copies symbols, a row for each, and the command that tests it."""
    small = ["--model.net.embedding_size=12", "--model.net.hidden_size=8"]
    symbols = ["--data.symbols=9", "--data.max_length=5"]
    run = trained(tmp_path_factory, "symbols_copy", *SIZES, *small, *symbols)
    command = ["test", str(run), *write_tests(run / "tests.yaml", "translation")]
    return run, [*command, "--trainer.precision=64-true"]


@pytest.fixture(scope="module")
def edits(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """The folder of a model of texts, some of whose edits turn it, and the command that tests it."""
    folder, words = tmp_path_factory.mktemp("edits"), ("bad", "good", "fine")
    for split, count in (("train", 400), ("dev", 20), ("test", ROWS)):
        # An original, and an edit of it with the word of the other class, or with one of neither.
        rows = (
            (n // 2, words[n // 2 % 2 ^ n % 2] if n % 6 < 5 else words[2]) for n in range(count)
        )
        lines = [
            f"{split} {k % 7} is {w} and {k},{k % 2 ^ n % 2},{k}\n" for n, (k, w) in enumerate(rows)
        ]
        (folder / f"{split}.csv").write_text("".join(["text,label,id\n", *lines]))
    small = ["--model.net.embedding_size=12", "--model.net.hidden_size=8"]
    small += ["--model.optimizer.learning_rate=0.02", "--trainer.max_epochs=3"]
    data = [f"--data={folder}", "--data.edit_of=id", "--data.edits_in=[test]"]
    place = [
        f"--root={folder}",
        "--experiment=e",
        "--run=r",
        "--trainer.logger=false",
        *CPU,
        *QUIET,
    ]
    attnlight_here("fit", "--model=bilstm_additive", *data, *small, *place, cwd=folder)
    run = folder / "e" / "r"
    command = ["test", str(run), *write_tests(run / "tests.yaml", "edits")]
    return run, [*command, "--trainer.precision=64-true"]


@pytest.fixture(scope="module")
def layers(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """The folder of a model of transformers with random weights, and the command that tests it."""
    pytest.importorskip("transformers")
    from tests.huggingface.folders import write_model

    folder = tmp_path_factory.mktemp("layers")
    write_model(folder / "bert", num_labels=2)
    words = ["a funny film", "dull and much too long", "the plot is thin", "an unfunny mess"]
    lines = [f"{words[row % 4]} the cast,{('neg', 'pos')[row % 2]}\n" for row in range(ROWS)]
    (folder / "texts.csv").write_text("text,label\n" + "".join(lines))
    place = [f"--root={folder}/runs", "--experiment=e", f"--model.net.path={folder}/bert"]
    model = ["--model", f"{CONFIGS}/models/huggingface_last.yaml"]
    data = ["--data=TextDataModule", f"--data.path={folder}/texts.csv", "--data.test=train"]
    data += ["--data.classes={LABEL_0: neg, LABEL_1: pos}", f"--data.tokenizer={folder}/bert"]
    command = ["test", *model, *data, *place, *write_tests(folder / "tests.yaml", "layers")]
    return folder, command


@pytest.mark.parametrize("name", TESTS)
def test_records_of_two_and_three_devices_are_those_of_one(
    name: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    folder: Path
    folder, command = request.getfixturevalue(name)
    options = [*QUIET, "--trainer.logger=false", "--overwrite"]
    found = {}
    for devices in (1, 2, 3):
        attnlight_on(devices, *command, *options, cwd=tmp_path)
        found[devices] = tmp_path / str(devices)
        shutil.move(next(folder.rglob("records/test")), found[devices])
    names = sorted(path.name for path in found[1].glob("*.parquet"))
    assert len(names) == len(TESTS[name])
    for test in names:
        one, *others = (read_record(place / test).columns for place in found.values())
        shown = [
            {
                name: [x is None for x in columns.pop(name)]
                for name in sorted(columns)
                if "shown_" in name
            }
            for columns in (one, *others)
        ]
        assert shown == [shown[0]] * len(shown)
        assert len(np.unique(one["index"])) == ROWS
        for other in others:
            compare(one, other)
