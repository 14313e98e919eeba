from collections.abc import Callable

import pytest

from attnlight.datamodules import PlantedEvidence
from tests.benchmarks import variants
from tests.benchmarks.measuring import Measurement


@pytest.mark.parametrize("benchmark", [variants.adversary, variants.guided])
def test_the_benchmarks_of_variants_run(
    benchmark: Callable[[int, int, PlantedEvidence], Measurement],
) -> None:
    corpus = PlantedEvidence(train_size=70, validation_size=8, test_size=9, batch_size=16)
    found = benchmark(1, 2, corpus)
    assert len(found.values) == 2
    assert min(found.values) > 0
