"""A whole study of a classifier or of a tagger for the tests that only look at it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from attnlight.report.study.estimates import Estimates
from attnlight.report.study.frame import Study, read_study
from tests.report.study.fake import whole

RESAMPLES = 30


@pytest.fixture(scope="package", autouse=True)
def quick() -> Iterator[None]:
    """Few resamples: the draws are told, and those of a loop are held against them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("attnlight.statistics.bootstrap.RESAMPLES", RESAMPLES)
        yield


@pytest.fixture(scope="module")
def fake(request: pytest.FixtureRequest) -> Any:
    """The study that a test module is about: what its `WHOLE` makes, else that of a classifier."""
    make = getattr(request.module, "WHOLE", None)
    return whole(texts=80) if make is None else make()


@pytest.fixture(scope="module")
def folder(fake: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path: Path = fake.write(tmp_path_factory.mktemp("checkpoints") / "fake")
    return path


@pytest.fixture(scope="module")
def study(folder: Path) -> Study:
    return read_study(folder)


@pytest.fixture(scope="module")
def estimates(study: Study) -> Estimates:
    return Estimates(study)
