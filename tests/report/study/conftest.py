"""One whole study for the tests that only look at it."""

from pathlib import Path

import pytest

from attnlight.report.study import Study, read_study
from attnlight.report.study.estimates import Estimates
from tests.report.study.fake import FakeStudy, whole


@pytest.fixture(scope="session")
def fake() -> FakeStudy:
    return whole(texts=80)


@pytest.fixture(scope="session")
def folder(fake: FakeStudy, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fake.write(tmp_path_factory.mktemp("checkpoints") / "fake")


@pytest.fixture(scope="session")
def study(folder: Path) -> Study:
    return read_study(folder)


@pytest.fixture(scope="session")
def estimates(study: Study) -> Estimates:
    return Estimates(study)
