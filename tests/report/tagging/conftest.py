"""One whole study of a tagger for the tests that only look at it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from attnlight.report.tagging import TaggingEstimates, TaggingStudy, read_tagging_study
from tests.report.tagging.fake import FakeTagging, whole

RESAMPLES = 30


@pytest.fixture(scope="session", autouse=True)
def quick() -> Iterator[None]:
    """Few resamples: the draws are told, and those of a loop are held against them."""
    with pytest.MonkeyPatch.context() as patch:
        for module in ("estimates", "conditions.reading", "conditions.tables"):
            patch.setattr(f"attnlight.report.tagging.{module}.RESAMPLES", RESAMPLES)
        yield


@pytest.fixture(scope="session")
def fake() -> FakeTagging:
    return whole()


@pytest.fixture(scope="session")
def folder(fake: FakeTagging, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fake.write(tmp_path_factory.mktemp("checkpoints") / "fake")


@pytest.fixture(scope="session")
def study(folder: Path) -> TaggingStudy:
    return read_tagging_study(folder)


@pytest.fixture(scope="session")
def estimates(study: TaggingStudy) -> TaggingEstimates:
    return TaggingEstimates(study)
