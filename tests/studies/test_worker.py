"""The commands of a run, one after the other in one process."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable

import pytest
import torch

from attnlight.studies import executor

COMMANDS = [["fit", "--run=a"], ["validate"], ["test", "-c", "b"]]


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[list[str]]]:
    """Let commands do nothing but end with some status; what each finds in its arguments."""

    def prepare(*statuses: int) -> list[list[str]]:
        calls: list[list[str]] = []

        def main() -> int:
            assert "LEFT_BEHIND" not in os.environ
            monkeypatch.setenv("LEFT_BEHIND", "1")
            calls.append(sys.argv[1:])
            return statuses[len(calls) - 1]

        monkeypatch.setattr(sys, "argv", ["attnlight"])
        monkeypatch.setattr(executor, "main", main)
        return calls

    return prepare


def test_each_follows_the_one_before(
    told: Callable[..., list[list[str]]], capsys: pytest.CaptureFixture[str]
) -> None:
    calls = told(0, 0, 0)
    assert executor.run_commands(json.dumps(COMMANDS)) == 0
    assert calls == COMMANDS
    assert capsys.readouterr().out == "$ attnlight validate\n$ attnlight test -c b\n"
    assert "LEFT_BEHIND" not in os.environ


@pytest.mark.parametrize("statuses", [(2,), (0, 1)])
def test_none_follows_one_that_fails(
    told: Callable[..., list[list[str]]], statuses: tuple[int, ...]
) -> None:
    calls = told(*statuses)
    assert executor.run_commands(json.dumps(COMMANDS)) == statuses[-1]
    assert len(calls) == len(statuses)


def test_after_several_ranks_another_process_goes_on(
    told: Callable[..., list[list[str]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = told(0)

    class Gone(BaseException):
        """This process became another."""

    def become(program: str, words: list[str]) -> None:
        assert program == sys.executable
        assert words[:3] == [program, "-m", "attnlight.studies.executor"]
        assert [json.loads(word) for word in words[3:]] == [COMMANDS[1:]]
        assert "LEFT_BEHIND" not in os.environ
        raise Gone

    monkeypatch.setattr(os, "execv", become)
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    with pytest.raises(Gone):
        executor.run_commands(json.dumps(COMMANDS))
    assert len(calls) == 1
