"""A run that is pushed is the same model under its id, and what the hub or a stranger refuses is a sentence."""

import json
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import attnlight
from attnlight.storage.shipped import TRAINED
from tests.commands import CPU, finish, start
from tests.hub import TOKEN, Hub

COMMANDS = """\
import json, sys
from attnlight.__main__ import main
for words in json.loads(sys.argv[1]):
    print("status", main(words), flush=True)
"""
LOAD = """\
import json, sys
import attnlight
for name in sys.argv[1:]:
    try:
        print(json.dumps(attnlight.explain(name, "a gripping film")[0].probabilities), flush=True)
    except attnlight.errors.InputError as error:
        print("refused:", error, flush=True)
"""
_OTHERS = (
    "Fetching",
    "No files matched",
    "sst/report",
)  # lines of huggingface_hub and the card's path
TEXT = "a gripping film"
TABLE = ["--data=t.csv", "--data.test=train", "--tests=predictions"]


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Hub]:
    server = Hub()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    given = {"HF_HUB_DISABLE_PROGRESS_BARS": "1"}
    given |= {"HF_ENDPOINT": server.address, "HF_HUB_DISABLE_XET": "1", "HF_HUB_OFFLINE": "0"}
    for name, value in (given | {"HF_HOME": str(tmp_path / "home")}).items():
        monkeypatch.setenv(name, value)
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture
def run(tmp_path: Path) -> Path:
    shutil.copytree(TRAINED / "sst", tmp_path / "sst")
    return tmp_path / "sst"


def said(run: Path, code: str, *arguments: str, token: str = TOKEN) -> list[str]:
    """What a process with the hub's address from its start prints, without lines of others."""
    process = start(["-c", code, *arguments], cwd=run.parent, HF_TOKEN=token)
    lines = finish(process).splitlines()
    return [line for line in lines if line and not line.startswith(_OTHERS)]


def push(run: Path, *commands: list[str], token: str = TOKEN) -> list[str]:
    words = [["push", "sst", "me/films", *options] for options in commands or [[]]]
    return said(run, COMMANDS, json.dumps(words), token=token)


def test_a_token_that_may_not_write(hub: Hub, run: Path) -> None:
    for token, reason in (("hf_no", "not know your token"), ("hf_reader", "not let your token")):
        sentence, status = push(run, token=token)
        assert sentence.startswith("attnlight: me/films: the Hugging Face hub does ")
        assert reason in sentence
        assert status == "status 2"
    assert hub.repositories == {}


def test_half_an_upload_leaves_nothing_and_is_repeated(hub: Hub, run: Path) -> None:
    for hub.breaks in ("/upload/", "/commit/"):  # of the checkpoint, and when it is there
        sentence, status = push(run)
        assert "cannot take the files (" in sentence
        assert status == "status 2"
        assert hub.repositories == {"me/films": {".gitattributes": b""}}
        assert len(hub.objects) == (hub.breaks == "/commit/")
    hub.breaks = "?"
    assert push(run) == [f"{hub.address}/me/films/commit/{'c' * 40}", "status 0"]
    files = hub.repositories["me/films"]
    for name in ("fit.yaml", "best.ckpt", "report/verdict.json"):
        assert files[name] == (run / name).read_bytes()
    sent = {"README.md", "fit.yaml", "best.ckpt", "report/verdict.json"}
    assert set(files) == {".gitattributes", *sent}
    card = (run / "report/card.md").read_text()
    assert files["README.md"].decode().startswith(card)
    assert 'attnlight.explain("me/films", "a text")' in files["README.md"].decode()


def test_a_repository_with_files_is_replaced_only_if_asked(hub: Hub, run: Path) -> None:
    before = {"README.md": b"mine", "report/verdict-other.json": b"{}", "notes.txt": b"mine"}
    hub.repositories["me/films"] = dict(before)
    sentence, status = push(run)
    assert "me/films holds README.md and other files on the hub" in sentence
    assert status == "status 2"
    assert hub.repositories["me/films"] == before
    assert push(run, ["--overwrite"])[-1] == "status 0"
    files = hub.repositories["me/films"]
    assert sorted(files) == [
        "README.md",
        "best.ckpt",
        "fit.yaml",
        "notes.txt",
        "report/verdict.json",
    ]
    assert files["README.md"].startswith(b"---\nlibrary_name: attnlight\n")


def test_a_verdict_of_another_checkpoint_is_not_sent(hub: Hub, run: Path) -> None:
    shutil.copy(TRAINED / "babi_answers/best.ckpt", run / "best.ckpt")
    sentence, status = push(run)
    assert "verdict.json is the verdict of another checkpoint" in sentence
    assert status == "status 2"
    (run / "best.ckpt").unlink()
    assert "there is no checkpoint sst/best.ckpt" in push(run)[0]
    assert hub.asked == []


@pytest.mark.slow
def test_what_lies_there_decides(hub: Hub, run: Path) -> None:
    files = {name: (run / name).read_bytes() for name in ("fit.yaml", "best.ckpt")}
    config = {"config.json": b'{"model_type": "t5"}'}
    stranger = files["fit.yaml"].replace(b"attnlight.tasks.AttentionClassifier", b"antigravity.Fly")
    assert stranger != files["fit.yaml"]
    hub.repositories |= {
        "me/films": files | config | {"harm.py": b"1 / 0"},
        "me/else": config,
        "me/empty": {".gitattributes": b""},
        "a/stranger": files | {"fit.yaml": stranger},
    }
    found = said(run, LOAD, "me/films", "me/else", "me/empty", "a/stranger", "me/none")
    assert json.loads(found[0]) == pytest.approx(attnlight.explain("sst", TEXT)[0].probabilities)
    assert not [path for path in hub.asked if "harm" in path]
    assert "there is no tokenizer.json" in found[1], "a model of transformers"
    assert found[2] == "refused: me/empty on the Hugging Face hub holds no model and no run."
    assert "fit.yaml names antigravity.Fly (model.class_path)" in found[3]
    assert "the Hugging Face hub has no model of that name" in found[4]


@pytest.mark.slow
def test_verbs_take_a_run_from_the_hub(hub: Hub, run: Path) -> None:
    (run.parent / "t.csv").write_text("text,label\na joy,positive\na bore,negative\n")
    files = {name: (run / name).read_bytes() for name in ("fit.yaml", "best.ckpt")}
    stranger = files["fit.yaml"].replace(b"attnlight.tasks.AttentionClassifier", b"antigravity.Fly")
    hub.repositories |= {"me/films": files, "me/again": files}
    hub.repositories |= {"a/stranger": files | {"fit.yaml": stranger}}
    options = [*TABLE, *CPU, "--trainer.callbacks.figures=false"]
    words = [["test", name, *options] for name in ("a/stranger", "me/films", "me/films")]
    words[2].append("--overwrite")
    words.append(["sanity", "me/films", "me/again", *TABLE[:2], *CPU])
    found = said(run, COMMANDS, json.dumps(words))
    statuses = [int(line.removeprefix("status ")) for line in found if "status" in line]
    assert statuses == [2, 0, 0, 2]
    same = "checkpoints/me/again has the parameters of this run: compare with another seed."
    assert [line for line in found if same in line]
    assert [line for line in found if "fit.yaml names antigravity.Fly (model.class_path)" in line]
    folder = run.parent / "checkpoints"
    assert [path.name for path in folder.iterdir()] == ["me"], "nothing of a stranger's"
    assert (folder / "me/films/records/test-t/predictions.parquet").is_file()
    fetched = [path for path in hub.asked if "/resolve/" in path and "films/" in path]
    assert {path.rpartition("/")[2] for path in fetched} == {"fit.yaml", "best.ckpt"}
