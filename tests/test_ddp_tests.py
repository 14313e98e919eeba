"""One device against two and three, by gloo on the CPU: the same records of the other tests."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
import yaml

from attnlight.records import read_record
from tests.commands import CONFIGS, QUIET, attnlight_here, attnlight_on, attnlight_on_one
from tests.test_ddp import compare, trained

pytestmark = [pytest.mark.ddp, pytest.mark.slow]
METHODS = ["attention", "gradient", "input_gradient", "integrated_gradients", "occlusion", "random"]
TESTS = {
    "planted": {
        "Sanity": {"methods": METHODS[:3], "max_instances": None},
        "ImpermissibleMass": {},
        "MeasuredUse": {},
        "StateTokenAgreement": {},
        "SaliencyAgreement": {"methods": METHODS, "keep_scores": True},
        "Plausibility": {"methods": METHODS, "column": "evidence"},
        "Faithfulness": {},
    },
    "layers": {"AttentionSinks": {}, "HeadAblation": {}},
}
ROWS = 31  # of which neither two nor three ranks have equal parts
SIZES = ["--data.train_size=60", "--data.validation_size=20", f"--data.test_size={ROWS}"]
# Planted words without which a text keeps its class; in some texts there is none of them.
MARKS = "--data.marks={impermissible: [filler3, filler7, good1, bad1]}"


def write_tests(path: Path, name: str) -> list[str]:
    tests = [
        {"class_path": f"attnlight.callbacks.{kind}", "init_args": options | {"figures": False}}
        for kind, options in TESTS[name].items()
    ]
    content = {"trainer": {"inference_mode": False, "callbacks+": tests}}
    path.write_text(yaml.safe_dump(content))
    return ["-c", str(path)]


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The command that tests a model of planted texts."""
    small = ["--model.net.embedding_size=12", "--model.net.hidden_size=8"]
    run = trained(tmp_path_factory, "planted_bilstm", *SIZES, *small, MARKS)
    return ["test", str(run), *write_tests(run / "tests.yaml", "planted")]


@pytest.fixture(scope="module")
def layers(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The command that tests a model of transformers with random weights."""
    pytest.importorskip("transformers")
    from tests.huggingface.folders import write_model

    folder = tmp_path_factory.mktemp("layers")
    write_model(folder / "bert", num_labels=2)
    words = ["a funny film", "dull and much too long", "the plot is thin", "an unfunny mess , too"]
    lines = [f"{words[row % 4]} the cast,{('neg', 'pos')[row % 2]}\n" for row in range(ROWS)]
    (folder / "texts.csv").write_text("text,label\n" + "".join(lines))
    place = ["--root", str(folder / "runs"), "--experiment=e", "--run=r"]
    model = ["--model", f"{CONFIGS}/models/huggingface_last.yaml", f"--model.net.path={folder}/bert"]
    data = ["--data=TextDataModule", f"--data.path={folder}/texts.csv", "--data.test=train"]
    data += ["--data.classes={LABEL_0: neg, LABEL_1: pos}", f"--data.tokenizer={folder}/bert"]
    return ["test", *model, *data, *place, *write_tests(folder / "tests.yaml", "layers")]


@pytest.mark.parametrize("name", TESTS)
def test_records_of_two_and_three_devices_are_those_of_one(
    name: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    command: Sequence[str] = request.getfixturevalue(name)
    options = [*QUIET, "--trainer.logger=false", "--overwrite"]
    found = {}
    for devices in (1, 2, 3):
        if devices == 1:
            attnlight_on_one(*command, *options, cwd=tmp_path)
        else:
            attnlight_on(devices, *command, *options, cwd=tmp_path)
        place = next(Path(command[1] if name == "planted" else command[8]).rglob("records/test"))
        found[devices] = shutil.move(place, tmp_path / str(devices))
    names = sorted(path.name for path in found[1].glob("*.parquet"))
    assert len(names) == len(TESTS[name])
    for test in names:
        one, *others = (read_record(folder / test).columns for folder in found.values())
        assert len(np.unique(one["index"])) == ROWS
        for other in others:
            compare(one, other)
