"""Fixtures of the tests of corpora."""

from pathlib import Path

import pytest


@pytest.fixture
def real(corpora: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of real corpora, which configurations read in place of the hub."""
    monkeypatch.setenv("ATTNLIGHT_DATA", str(corpora))
    return corpora
