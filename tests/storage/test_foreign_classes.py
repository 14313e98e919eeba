"""A stored configuration imports no class that its reader has not agreed to."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from attnlight.errors import InputError
from attnlight.storage.foreign_classes import is_trusted, require_trusted
from tests.commands import Refused

CALLBACKS = "lightning.pytorch.callbacks"
LOGGER = {"class_path": "stranger.Logger", "init_args": {"save_dir": "x"}}
LAMBDA = {"class_path": f"{CALLBACKS}.LambdaCallback", "init_args": {"on_test_start": "os.abort"}}
NETWORK = {"net": {"class_path": "stranger.Net"}}
HOSTILE: dict[str, dict[str, Any]] = {
    "a task": {"model": {"class_path": "stranger.Task"}},
    "a task's name alone": {"model": "stranger.Task"},
    "a network": {"model": {"class_path": "AttentionClassifier", "init_args": NETWORK}},
    "a problem": {"model": {"init_args": {"problem": "stranger.Problem"}}},
    "a network in text": {"model": {"init_args": {"net": json.dumps(NETWORK["net"])}}},
    "a corpus": {"data": {"class_path": "stranger.Corpus"}},
    "a section in a file": {"model": "model.yaml"},
    "a network in a file": {"model": {"init_args": {"net": "net.yaml"}}},
    "a test": {"trainer": {"callbacks": [{"class_path": "stranger.Test"}]}},
    "a test's name alone": {"trainer": {"callbacks+": "stranger.Test"}},
    "a logger": {"trainer": {"logger": [LOGGER]}},
    "a logger's name alone": {"trainer": {"logger": "stranger.Logger"}},
    "a logger in text": {"trainer": {"logger": f"\n{yaml.safe_dump(LOGGER)}"}},
    "a logger in a file": {"trainer": {"logger": "logger.yaml"}},
    "a profiler": {"trainer": {"profiler": "stranger.Profiler"}},
    "a function": {"trainer": {"callbacks": [LAMBDA]}},
}


@pytest.fixture
def run(here: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run's folder, in which a module lies that ends the process when it is imported."""
    (here / "stranger.py").write_text("raise SystemExit('imported')\n")
    (here / "net.yaml").write_text(yaml.safe_dump(NETWORK["net"]))
    (here / "logger.yaml").write_text(yaml.safe_dump(LOGGER))
    (here / "model.yaml").write_text("class_path: stranger.Task\n")
    monkeypatch.syspath_prepend(here)
    for name in ("PYTHONPATH", "ATTNLIGHT_TRUST"):
        monkeypatch.delenv(name, raising=False)
    return here


@pytest.mark.parametrize("named", HOSTILE)
def test_a_class_of_a_stranger_is_named_and_not_imported(
    run: Path, named: str, refused: Refused
) -> None:
    (run / "fit.yaml").write_text(yaml.safe_dump(HOSTILE[named]))
    said = refused("test", str(run))
    assert "fit.yaml" in said or "logger.yaml" in said
    assert "stranger" in said or "os.abort" in said or "logger.yaml" in said
    assert "stranger" not in sys.modules


class TestTrust:
    def test_of_what_attnlight_is_made_of(self, run: Path) -> None:
        assert all(map(is_trusted, ("attnlight.models.X", "lightning.pytorch.X", "torch.nn.X")))

    def test_by_the_variable(self, run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        assert not is_trusted("stranger.Task")
        monkeypatch.setenv("ATTNLIGHT_TRUST", "another, stranger")
        assert is_trusted("stranger.Task")
        assert not is_trusted("strangers.Task")

    def test_by_the_path(self, run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PYTHONPATH", "/nowhere")
        assert not is_trusted("stranger.Task")
        monkeypatch.setenv("PYTHONPATH", f"/nowhere:{run}")
        assert is_trusted("stranger.Task")
        assert not is_trusted("pandas.DataFrame")  # installed, which is no decision

    def test_not_by_a_path_where_another_module_is_found_first(
        self, run: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        mine = run / "mine"
        mine.mkdir()
        (mine / "stranger.py").write_text("")
        monkeypatch.setenv("PYTHONPATH", str(mine))
        assert not is_trusted("stranger.Task")
        monkeypatch.syspath_prepend(mine)
        assert is_trusted("stranger.Task")


@pytest.mark.parametrize("path", ["/elsewhere/logs", "../logs", "~/logs"])
def test_places_outside_the_run_are_named(
    run: Path, path: str, capsys: pytest.CaptureFixture[str]
) -> None:
    own = {"save_dir": "{run}", "version": str(run / "logs"), "name": "logs"}
    require_trusted(run / "fit.yaml", {"trainer": {"logger": [{"init_args": own}]}})
    assert capsys.readouterr().err == ""
    require_trusted(run / "fit.yaml", {"trainer": {"logger": {"init_args": {"save_dir": path}}}})
    (line,) = capsys.readouterr().err.splitlines()
    assert f"{run / 'fit.yaml'} names places outside its folder: " in line
    assert f"{path!r} (trainer.logger.init_args.save_dir)" in line


def test_text_that_expands_to_too_much_is_refused(run: Path) -> None:
    bomb = ["a0: &a0 [x, x]", *(f"a{i}: &a{i} [*a{i - 1}, *a{i - 1}]" for i in range(1, 40))]
    with pytest.raises(InputError, match=r"fit\.yaml: trainer\.logger has more"):
        require_trusted(run / "fit.yaml", {"trainer": {"logger": "\n".join(bomb)}})
