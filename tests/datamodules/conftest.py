"""Fixtures of the tests of corpora."""

from pathlib import Path

import pytest


@pytest.fixture
def real(corpora: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of real corpora, which configurations read in place of the hub."""
    monkeypatch.setenv("ATTNLIGHT_DATA", str(corpora))
    return corpora


@pytest.fixture(params=["short_corpora", pytest.param("corpora", marks=pytest.mark.slow)])
def part(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, bool]:
    """The same with some hundred rows of each file, or whole, and whether it is whole."""
    folder = request.getfixturevalue(request.param)
    monkeypatch.setenv("ATTNLIGHT_DATA", str(folder))
    return folder, request.param == "corpora"
