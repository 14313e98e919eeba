import socket
import time
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError

import datasets
import huggingface_hub
import pytest

from attnlight.data import sources as hub
from attnlight.data.sources import Source
from attnlight.errors import InputError


@pytest.fixture(autouse=True)
def _online(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    hub._is_reachable.cache_clear()


@pytest.mark.parametrize(
    ("error", "offline"),
    [
        (URLError(socket.gaierror(-2, "Name or service not known")), True),
        (TimeoutError(), True),
        (HTTPError("https://hub", 403, "no", {}, None), False),  # type: ignore[arg-type]
    ],
)
def test_a_hub_that_does_not_answer_is_asked_once(
    monkeypatch: pytest.MonkeyPatch, error: Exception, offline: bool
) -> None:
    calls: list[Any] = []

    def fail(*arguments: Any, **options: Any) -> None:
        calls.append((arguments, options))
        raise error

    monkeypatch.setattr(hub, "urlopen", fail)
    for _ in range(2):
        with hub.offline_if_unreachable():
            assert datasets.config.HF_HUB_OFFLINE is offline
        assert datasets.config.HF_HUB_OFFLINE is False
    assert len(calls) == 1


def test_no_retries_without_a_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        monkeypatch.setattr(
            datasets.config, "HF_ENDPOINT", f"http://127.0.0.1:{free.getsockname()[1]}"
        )
    slept: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)  # as between tries
    with pytest.raises(InputError, match=r"not a local folder or file.*ATTNLIGHT_DATA"):
        Source(path="a/b", split="train").load(tmp_path / "scratch")
    assert slept == []
