"""Commands and Python on a model's folder, and on a run that tested one."""

import json
import shlex
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import attnlight
from attnlight.__main__ import main
from attnlight.errors import InputError
from attnlight.huggingface import HuggingFaceClassifier
from attnlight.records import read_metadata, read_record
from attnlight.report.verdict.card import verdict_of
from tests.commands import CPU, NO_FIGURE, QUIET, Refused
from tests.data.local import write_table
from tests.huggingface.folders import NAMES, TEXTS, write_model
from tests.huggingface.test_folder import reweigh

pytestmark = pytest.mark.usefixtures("few_steps")

DATA = ["--data=films.csv", "--data.test=train", "--data.validation=train"]
FAST = [*CPU, *QUIET]
PREDICTIONS = [*DATA, "--tests=predictions", NO_FIGURE, *FAST]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("elsewhere")
    write_model(folder / "films", **NAMES)
    write_model(folder / "unnamed")
    return folder


@pytest.fixture(autouse=True)
def here(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place)
    write_table(Path("films.csv"), zip(TEXTS, ["pos", "neg", "pos", "neg"], strict=True))


@pytest.fixture
def tested(here: None) -> Path:
    run = Path("checkpoints/films/first")
    if not run.exists():
        assert main(["test", "films", "--run=first", *PREDICTIONS]) == 0
    return run


LONG = ["--model=huggingface_last", "--model.net.path=films"]


class TestCommands:
    @pytest.mark.parametrize(
        ("verb", "words"),
        [("test", ["films"]), ("test", ["--model=films"]), ("validate", LONG), ("predict", LONG)],
    )
    def test_a_corpus_must_be_named(self, verb: str, words: list[str], refused: Refused) -> None:
        said = "has no corpus here: name the texts that it reads"
        refused(verb, *words, *FAST, names=(said, f"attnlight {verb} ... --data FILE"))

    def test_a_run_stands_for_its_model_from_anywhere(
        self, tested: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (expected,), run = attnlight.explain("films", TEXTS[0]), tested.absolute()
        monkeypatch.chdir(tmp_path)
        (found,) = attnlight.explain(run, TEXTS[0])
        assert (found.items, found.attention) == (expected.items, expected.attention)
        assert expected.verdict.endswith("attnlight test films --data FILE --tests card")

    def test_a_run_of_others_imports_nothing(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: Refused
    ) -> None:
        (tmp_path / "harmful.py").write_text("raise AssertionError('was run')")
        monkeypatch.syspath_prepend(tmp_path)
        monkeypatch.delenv("PYTHONPATH", raising=False)
        net = {"class_path": "harmful.Net", "init_args": {"path": "films"}}
        model = {"class_path": "attnlight.tasks.AttentionTask", "init_args": {"net": net}}
        (tmp_path / "run").mkdir()
        (tmp_path / "run/test.yaml").write_text(json.dumps({"model": model}))
        for command in (["explain", f"{tmp_path}/run", TEXTS[0]], ["test", f"{tmp_path}/run"]):
            refused(*command, names=["names harmful.Net"])

    @pytest.mark.parametrize("left", ["fit.yaml", "best.ckpt"])
    def test_a_run_that_was_trained_here(self, left: str, refused: Refused) -> None:
        folder = Path("checkpoints/films/trained")
        folder.mkdir(parents=True, exist_ok=True)
        (folder / left).touch()
        said = "checkpoints/films/trained/best.ckpt"
        refused("test", "films", "--run=trained", *PREDICTIONS, names=[said])
        (folder / left).unlink()
        (folder / "notes.txt").touch()  # that a run has this name decides nothing
        assert main(["test", *PREDICTIONS, "--run=trained", "films"]) == 0
        shutil.rmtree(folder)

    def test_sanity_has_no_second_model(self, refused: Refused) -> None:
        said = "films was trained elsewhere, and sanity compares two runs"
        refused("sanity", "films", "unnamed", *DATA, names=(said, "leave out unnamed"))

    @pytest.mark.parametrize("words", [["--model=films"], LONG])
    def test_short_forms(self, tested: Path, words: list[str]) -> None:
        run = f"--run={len(words)}"
        assert main(["test", *words, "--experiment=e", run, *PREDICTIONS]) == 0
        folders = (Path(f"checkpoints/e/{len(words)}"), tested)
        found, expected = (read_record(f / "records/test/predictions.parquet") for f in folders)
        for name in ("label", "prediction", "probabilities"):
            one, other = ([*record.columns[name]] for record in (found, expected))
            np.testing.assert_array_equal(one, other)
        assert found.metadata["weights"] == expected.metadata["weights"]

    def test_the_commands_of_the_card_fill_it(self, tested: Path) -> None:
        unmeasured = [line for line in verdict_of(tested).lines if line.answer == "not measured"]
        (command,) = map(shlex.split, {line.command for line in unmeasured})
        assert command[:3] == ["attnlight", "test", str(tested)]
        assert main([*command[1:-1], f"{command[-1]},texts", *FAST]) == 0
        answers = {line.name: line.answer for line in verdict_of(tested).lines}
        assert "not measured" not in answers.values()
        assert answers["uniqueness"] == "caution"
        assert main(["predict", str(tested), *FAST]) == 0
        files = [*tested.glob("records/*/*.parquet"), tested / "predictions.parquet"]
        assert len(files) == 9
        assert len({read_metadata(path)["weights"] for path in files}) == 1
        sentence = verdict_of(tested).sentence
        assert attnlight.explain(tested, TEXTS[0])[0].verdict == f"On the test split: {sentence}"

    def test_weights_that_have_changed(self, refused: Refused) -> None:
        shutil.copytree("films", "changing")
        assert main(["test", "changing", "--run=r", *PREDICTIONS]) == 0
        record = Path("checkpoints/changing/r/records/test/predictions.parquet")
        before = read_metadata(record)["weights"]
        reweigh(Path("changing"), lambda state: state["classifier.bias"][0].add_(0.001))
        again = ["test", "checkpoints/changing/r", "--tests=predictions", NO_FIGURE, *FAST]
        said = f"predictions.parquet is of other weights ({before}) than the model has now"
        refused(*again, names=[said])
        another = [*again[:2], "--tests=attention_permutation", NO_FIGURE, *FAST]
        refused(*another)
        assert [path.name for path in record.parent.iterdir()] == [record.name]
        assert main([*another, "--overwrite"]) == 0
        said = "are of models with other weights: test the model again"
        refused("report", "checkpoints/changing/r", names=[said])
        assert main([*again, "--overwrite"]) == 0
        assert read_metadata(record)["weights"] != before

    def test_classes_without_names(self, capsys: pytest.CaptureFixture[str]) -> None:
        model = HuggingFaceClassifier("unnamed").eval()
        logits = model(model.raw.encode(list(TEXTS))).logits.detach()
        margin = logits[:, 1] - logits[:, 0]
        shift = margin.median() + 1e-3  # so that both classes are predicted
        reweigh(Path("unnamed"), lambda state: state["classifier.bias"][1].sub_(shift))
        predicted = (margin > shift).long().tolist()
        said = "names no classes, so they are taken in order: LABEL_0 is neg, LABEL_1 is pos"
        Path("films.yaml").write_text(
            "class_path: attnlight.datamodules.TextDataModule\n"
            "init_args: {path: films.csv, test: train, classes: {neg: neg, pos: pos}}\n"
        )
        for turned in (False, True):
            rows = zip(TEXTS, predicted, strict=True)
            write_table(Path("films.csv"), [(text, ("neg", "pos")[n ^ turned]) for text, n in rows])
            command = ["test", "unnamed", "--data=films.yaml", f"--run={turned}"]
            capsys.readouterr()
            assert main([*command, "--tests=predictions", NO_FIGURE, *FAST]) == 0
            told = capsys.readouterr().err
            assert told.count(said) == 1
            assert ("warning: the accuracy, 0.000, is below chance, 0.500" in told) is turned


MISTAKES = {
    "nowhere/at/all": ("there is no", "nowhere/at/all"),
    "filns": ("there is no", "did you mean 'films'?"),
    "empty": ("empty: the folder is empty",),
    "other": ("other: it has no fit.yaml, nor the config.json of a model of transformers",),
    "trained": ("output folder of a Trainer: give one of its checkpoints, such as", "trained/checkpoint-9"),
    "films/tokenizer.json": ("films/tokenizer.json",),
}  # fmt: skip


@pytest.mark.parametrize("name", MISTAKES)
def test_what_is_no_model(name: str, refused: Refused) -> None:
    for folder in ("empty", "other", "trained"):
        Path(folder).mkdir(exist_ok=True)
    Path("other/notes.txt").touch()
    shutil.copytree("films", "trained/checkpoint-9", dirs_exist_ok=True)
    for command in (["explain", name, TEXTS[0]], ["test", "--data=nothing.csv", name, *FAST]):
        refused(*command, names=MISTAKES[name])
    with pytest.raises(InputError):
        attnlight.load(name)


class TestPython:
    def test_folders_and_runs(self, tested: Path) -> None:
        model = HuggingFaceClassifier("films").eval()
        expected = model(model.raw.encode(list(TEXTS))).logits
        for path in ("films", Path("films"), str(tested)):
            loaded: Any = attnlight.load(path)
            torch.testing.assert_close(loaded.model(loaded.encode(list(TEXTS))).logits, expected)
        rows = [(text, "POS") for text in TEXTS]
        results = attnlight.run("films", rows, tests="predictions")
        probabilities = torch.tensor(results.table("predictions")["probabilities"].tolist())
        torch.testing.assert_close(probabilities, expected.softmax(-1))
