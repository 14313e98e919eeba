"""What was written before 0.1.0 is refused, and the script that migrates it is named."""

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from attnlight.errors import InputError
from attnlight.problems import problem_of_task
from attnlight.storage import migration
from attnlight.storage.checkpoint_file import read_checkpoint
from attnlight.storage.migration import require_migrated
from attnlight.tasks import AttentionClassifier, ChunkTagger, SeedVariant
from tests.bases import Planted, save_base
from tests.commands import ROOT, Refused
from tests.kept import archived
from tests.report.fake import write_run


def described(kind: str, **options: Any) -> dict[str, Any]:
    return {"class_path": f"attnlight.{kind}", "init_args": options}


UNGROUPED = {"encoder": "cnn", "optimizer": "adam", "learning_rate": 0.001}
TESTS = [described("callbacks.Predictions"), described("callbacks.SingleErasure", compat=True)]
FORMER: dict[str, dict[str, Any]] = {
    "options without groups": {"model": described("tasks.AttentionClassifier", **UNGROUPED)},
    "options of a variant": {"model": described("tasks.GuidedMLP", training=None)},
    "frozen embeddings": {"model": {"init_args": {"net": {"freeze_embeddings": True}}}},
    "a released loss": {"model": described("tasks.AdversarialVariant", compat=False)},
    "a corpus": {"data": described("datamodules.BabiStories", compat=True)},
    "a test": {"trainer": {"callbacks": TESTS}},
}
SCRIPT = rf"was written before version 0\.1\.0 .* docs/migrate\.py of commit {migration._COMMIT}\."


@pytest.mark.parametrize("config", FORMER.values(), ids=FORMER)
def test_configurations(config: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=rf"a/fit\.yaml {SCRIPT}"):
        require_migrated(Path("a/fit.yaml"), config)


@pytest.mark.parametrize(
    "config",
    [
        {"model": {"class_path": "mine.Task", "init_args": {"learning_rate": 1}}},
        {"model": {"init_args": {"net": {"class_path": "mine.N", "init_args": {"compat": 1}}}}},
        {"model": "bilstm_additive", "data": None, "trainer": {"callbacks": None}},
        {"trainer": [], "model": {"init_args": None}},
        {"trainer": {"callbacks": 3}, "data": [1]},
    ],
)
def test_ones_own_classes_keep_their_options(config: dict[str, Any]) -> None:
    require_migrated(Path("fit.yaml"), config)


@pytest.mark.parametrize("verb", ["report", "test", "fit"])
def test_verbs_refuse_a_run(verb: str, tmp_path: Path, refused: Refused) -> None:
    folder = write_run(tmp_path / "e/r", epochs=())
    config = yaml.safe_load((folder / "fit.yaml").read_text())
    config["model"] = FORMER["options without groups"]["model"]
    (folder / "fit.yaml").write_text(yaml.safe_dump(config))
    named = [str(folder)] if verb == "report" else ["-c", str(folder / "fit.yaml")]
    assert re.search(rf"fit\.yaml {SCRIPT}", refused(verb, *named, alone=True))


def test_checkpoints(tmp_path: Path) -> None:
    path = save_base(tmp_path / "a.ckpt", Planted())
    held = torch.load(path, weights_only=True)
    for changed in (
        {"attnlight": held["attnlight"] | {"format": 1}},
        {"hyper_parameters": held["hyper_parameters"] | {"compat": False}},
    ):
        torch.save(held | changed, path)
        with pytest.raises(InputError, match=rf"a\.ckpt {SCRIPT}"):
            read_checkpoint(path)
    torch.save(held | {"attnlight": held["attnlight"] | {"format": 3}}, path)
    with pytest.raises(InputError, match="has checkpoint format 3; this version reads format 2"):
        read_checkpoint(path)


@pytest.mark.parametrize("change", [{"problem": None}, {"best": {"compat": {"lambda": 1}}}])
def test_studies(change: dict[str, Any], tmp_path: Path, refused: Refused) -> None:
    kept = archived() / "studies/minilm_last/study.json"
    content = json.loads(kept.read_text()) | change
    content = {name: value for name, value in content.items() if value is not None}
    (tmp_path / "study.json").write_text(json.dumps(content))
    assert re.search(rf"study\.json {SCRIPT}", refused("report", str(tmp_path)))


def test_the_commit_has_the_script() -> None:
    def git(words: str) -> bool:
        command = ["git", *words.split()]
        return not subprocess.run(command, cwd=ROOT, capture_output=True, check=False).returncode

    if not git(f"cat-file -e {migration._COMMIT}"):
        pytest.skip("no clone of the whole history")
    assert git(f"cat-file -e {migration._COMMIT}:docs/migrate.py")
    assert git(f"merge-base --is-ancestor {migration._COMMIT} HEAD")


def test_problems_of_tasks_are_those_of_their_classes() -> None:
    for kind in (AttentionClassifier, ChunkTagger, SeedVariant):
        assert problem_of_task(f"attnlight.tasks.{kind.__name__}") == kind.problem_name
