"""A shell that has sourced the script completes verbs, options and shipped names without Python."""

import shutil
import subprocess
from pathlib import Path

import pytest

from attnlight.__main__ import main
from attnlight.storage.shipped import shipped_configs
from tests.commands import Printed

ASK = """\
source "$1"; shift; PATH=/nowhere; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
_attnlight; printf '%s\\n' "${COMPREPLY[@]}"
"""
# TAB after each line in an interactive zsh, which tells the completions and then what was typed.
PRESS = """\
zmodload zsh/zpty && zpty z zsh -fi
zpty -w z 'source "'$1'"; PATH=/nowhere; told() { print -r -- $BUFFER >>told; BUFFER= }'
zpty -w z 'compadd() { local -a w; builtin compadd -O w "$@"; print -rl -- $w >>told; (( $#w )) }'
zpty -w z "zle -N told; bindkey '^O' told"
for line in "${@:2}"; do zpty -w -n z "$line"$'\t\x0f'; done
zpty -w z exit
while zpty -r z; do :; done
"""
LINES = [
    "rep",
    "fit sst_bil",
    "test RUN --tests cheap,decision",
    "fit --model cnn_a",
    "sanity RUN --ck",
]
LINES += ["fit sst_bilstm --trainer.max_ep", "explain sst --htm", "study pruthi_pro"]


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("completion") / "attnlight"
    with path.open("w") as file, pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.stdout", file)
        assert main(["completion", "bash"]) == 0
    return path


def completed(script: Path, *words: str) -> list[str]:
    command = ["/bin/bash", "-uc", ASK, "bash", str(script), "attnlight", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return done.stdout.split()


def test_verbs_names_and_options(script: Path) -> None:
    assert completed(script, "rep") == ["report"]
    assert completed(script, "fit", "sst_bil") == sorted(
        name.split("/")[1] for name in shipped_configs() if name.startswith("experiments/sst_bil")
    )
    assert completed(script, "test", "RUN", "--tests", "cheap,decision") == ["cheap,decision_flip"]
    assert completed(script, "fit", "--model", "cnn_a") == ["cnn_additive"]
    assert completed(script, "fit", "sst_bilstm", "--trainer.max_ep") == ["--trainer.max_epochs"]
    assert "--ckpt_path" in completed(script, "sanity", "RUN", "--ck")
    assert completed(script, "explain", "sst", "--htm") == ["--html"]
    assert completed(script, "study", "pruthi_pro") == ["pruthi_pronoun", "pruthi_pronoun_minilm"]
    assert completed(script, "report", "nothing-of-that") == []


@pytest.mark.skipif(shutil.which("zsh") is None, reason="no zsh on this machine")
def test_zsh_completes_the_same(
    script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, printed: Printed
) -> None:
    monkeypatch.setenv("ZDOTDIR", str(tmp_path))
    of_zsh = tmp_path / "of zsh"
    of_zsh.write_text(printed("completion", "zsh"))
    lines = [f"attnlight {line}" for line in LINES]
    command = ["zsh", "-fc", PRESS, "zsh", str(of_zsh), *lines]
    subprocess.run(command, cwd=tmp_path, stdout=subprocess.DEVNULL, check=True, timeout=60)
    told = [line for line in (tmp_path / "told").read_text().splitlines() if line]
    expected = [[*completed(script, *line.split()), f"attnlight {line}"] for line in LINES]
    assert told == [line for group in expected for line in group]


def test_environment_names_versions_and_cache(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "corpus").write_bytes(bytes(10_000_000))
    monkeypatch.setenv("ATTNLIGHT_CACHE", str(tmp_path))
    assert main(["env"]) == 0
    said = capsys.readouterr().out
    assert f"cache: {tmp_path}, 1 files, 0.01 GB" in said
    assert f"ATTNLIGHT_CACHE={tmp_path}" in said
    assert "torch 2." in said
    assert "cores" in said
