"""The benchmarks: what each asks, its bound, and how it is run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tests.benchmarks.measuring import Measurement


@dataclass(frozen=True)
class Benchmark:
    """One number and the bound that it must stay within.

    Args:
        name: What results know it by.
        asks: What is measured, for the page.
        bound: The largest value that passes.
        unit: Unit of value and bound; empty for a ratio.
    """

    name: str
    asks: str
    bound: float
    unit: str = ""

    def met(self, measurement: Measurement) -> bool:
        """Whether the median is within the bound."""
        return measurement.median <= self.bound

    def undecided(self, measurement: Measurement) -> bool:
        """Whether the bound lies within the range of the repetitions."""
        return min(measurement.values) <= self.bound < max(measurement.values)


@dataclass(frozen=True)
class Group:
    """Benchmarks that are measured together.

    Args:
        benchmarks: What is measured.
        threads: Threads of torch.
        run: Measures, for a number of threads.
    """

    benchmarks: tuple[Benchmark, ...]
    threads: int
    run: Callable[[int], Mapping[str, Measurement]]


def _training(threads: int) -> Mapping[str, Measurement]:
    from tests.benchmarks.training import epochs

    return epochs(threads)


def _permutation(threads: int) -> Mapping[str, Measurement]:
    from tests.benchmarks.permutation import addition

    return {"imdb_permutation": addition(threads)}


def _memory(threads: int) -> Mapping[str, Measurement]:
    from tests.benchmarks.memory import growth

    return {"memory_growth": growth(threads)}


def _startup(threads: int) -> Mapping[str, Measurement]:
    from tests.benchmarks.startup import help_cost

    return {"help_cost": help_cost()}


GROUPS = {
    "training": Group(
        (
            Benchmark(
                "sst_epoch_default",
                "An SST training epoch of `attnlight fit` over one of a plain PyTorch loop with "
                "default Adam and shuffled batches",
                0.4,
            ),
            Benchmark(
                "sst_epoch_fused",
                "An SST training epoch of `attnlight fit` over one of a plain PyTorch loop with "
                "fused Adam and our batches",
                1.15,
            ),
        ),
        2,
        _training,
    ),
    "permutation": Group(
        (
            Benchmark(
                "imdb_permutation",
                "What `AttentionPermutation` adds to `test` on IMDb (10 % is the aim)",
                15,
                "%",
            ),
        ),
        2,
        _permutation,
    ),
    "memory": Group(
        (
            Benchmark(
                "memory_growth",
                "Peak anonymous memory of fit, validate and test with `Predictions` over 1,000,000 "
                "planted documents, less that over 100,000",
                100,
                "MiB",
            ),
        ),
        1,
        _memory,
    ),
    "startup": Group(
        (
            Benchmark(
                "help_cost",
                "`attnlight --help` over `import lightning.pytorch`, each in a new process",
                1.3,
            ),
        ),
        1,
        _startup,
    ),
}
