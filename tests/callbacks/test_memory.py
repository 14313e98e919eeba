"""Memory that tests take beside a model of many classes, each in a fresh process."""

import pytest

from tests.benchmarks.processes import python
from tests.benchmarks.scene import configured_tests
from tests.callbacks.memory import FILES, LAYERS

MOST, MOST_OF_LAYERS = 2.0, 4.0  # GiB
NAMES = [test.name for file in FILES for test in configured_tests(file)]


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_test_takes_little_beside_a_model_of_many_classes(name: str) -> None:
    peak = float(python("-m", "tests.callbacks.memory", name).splitlines()[-1])
    assert 0 < peak <= MOST


@pytest.mark.slow
@pytest.mark.parametrize("name", LAYERS)
def test_all_layers_of_long_texts_take_little(name: str) -> None:
    pytest.importorskip("transformers")
    assert (
        0 < float(python("-m", "tests.callbacks.memory", name).splitlines()[-1]) <= MOST_OF_LAYERS
    )
