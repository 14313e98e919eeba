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
        at_least: The bound is the smallest value that passes instead.
    """

    name: str
    asks: str
    bound: float
    unit: str = ""
    at_least: bool = False

    def met(self, measurement: Measurement) -> bool:
        """Whether the median is within the bound."""
        return self._passes(measurement.median)

    def undecided(self, measurement: Measurement) -> bool:
        """Whether some repetitions are within the bound and others are not."""
        return len({self._passes(value) for value in measurement.values}) > 1

    def _passes(self, value: float) -> bool:
        return value >= self.bound if self.at_least else value <= self.bound


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


def _variants(threads: int) -> Mapping[str, Measurement]:
    from tests.benchmarks import variants

    return {
        "adversarial_epoch": variants.adversary(threads),
        "guided_epoch": variants.guided(threads),
    }


def _memory(threads: int) -> Mapping[str, Measurement]:
    from tests.benchmarks.memory import growth

    return {"memory_growth": growth(threads)}


def _startup(threads: int) -> Mapping[str, Measurement]:
    from tests.benchmarks.startup import help_cost

    return {"help_cost": help_cost()}


def _cheap_tests(threads: int) -> Mapping[str, Measurement]:
    from tests.benchmarks.cheap import cheap_tests

    return {"cheap_tests": cheap_tests(threads)}


def _shuffling(threads: int) -> Mapping[str, Measurement]:
    from tests.benchmarks.speedups import shuffling

    return {"permutation_speedup": shuffling(threads)}


def _erasing(threads: int) -> Mapping[str, Measurement]:
    from tests.benchmarks.speedups import erasing

    return {"erasure_speedup": erasing(threads)}


def _adversary(threads: int) -> Mapping[str, Measurement]:
    from tests.benchmarks.speedups import adversary

    return {"adversary_speedup": adversary(threads)}


def _several_classes(threads: int) -> Mapping[str, Measurement]:
    from tests.benchmarks.several_classes import several_classes

    return {"several_classes": several_classes(threads)}


def _leave_one_out(threads: int) -> Mapping[str, Measurement]:
    from tests.benchmarks.leaving_out import leave_one_out

    return leave_one_out(threads)


def _tagging(threads: int) -> Mapping[str, Measurement]:
    from tests.benchmarks.tagging import tagging
    from tests.benchmarks.tagging_training import tagging_epoch

    return {"tagging_epoch": tagging_epoch(threads), **tagging(threads)}


def _tagging_cheap(threads: int) -> Mapping[str, Measurement]:
    from tests.benchmarks.tagging import tagging_cheap

    return tagging_cheap(threads)


def _of_tokens(test: str, readout: str) -> Benchmark:
    """How a test on tokens stands against a loop over tokens."""
    return Benchmark(
        f"tokens_{test}_{readout}",
        f"How many times as fast `{test}` is on the tokens of `{readout}` as {TOKEN_LOOPS[test]}",
        50,
        "times",
        at_least=True,
    )


# What the loop over tokens does that a test is held against.
TOKEN_LOOPS = {
    "AttentionPermutation": "reading shuffle by shuffle of a token",
    "SingleErasure": "reading erasure by erasure of a token",
    "DecisionFlip": "erasing item by item from a token",
    "AdversarialAttention": "Jain & Wallace's search, a head of a token at a time",
    "ImportanceCorrelation": "differentiating a token and encoding each shortened sentence for it",
}
# Readouts of the tagger: that of the study, which is not affine in attention, and an affine one.
READOUTS = ("study", "residual")

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
    "cheap_tests": Group(
        (
            Benchmark(
                "cheap_tests",
                "The tests of configs/tests/cheap.yaml together over a plain forward pass, two "
                "classes (0.3 is the aim)",
                0.6,
            ),
        ),
        2,
        _cheap_tests,
    ),
    "shuffling": Group(
        (
            Benchmark(
                "permutation_speedup",
                "How many times as fast `AttentionPermutation` is as weighting the hidden states by "
                "each of 100 shuffles, adding them up and reading out",
                15,
                "times",
                at_least=True,
            ),
        ),
        2,
        _shuffling,
    ),
    "erasing": Group(
        (
            Benchmark(
                "erasure_speedup",
                "How many times as fast erasing a whole ranking is as reading each step out of "
                "hidden states",
                50,
                "times",
                at_least=True,
            ),
        ),
        2,
        _erasing,
    ),
    "adversary": Group(
        (
            Benchmark(
                "adversary_speedup",
                "How many times as fast the exact worst-case attention is as Jain & Wallace's "
                "search, 500 steps from 5 starts",
                100,
                "times",
                at_least=True,
            ),
        ),
        2,
        _adversary,
    ),
    "several_classes": Group(
        (
            Benchmark(
                "several_classes",
                "Processor time of the worst-case attention of a row with 20 classes and 200 items, "
                "its upper bound included",
                80,
                "ms",
            ),
        ),
        1,
        _several_classes,
    ),
    "leave_one_out": Group(
        (
            Benchmark(
                "leave_one_out_imdb",
                "How many times as fast leave-one-out is as encoding the batch anew for every "
                "position, 32 IMDb reviews drawn at random",
                3,
                "times",
                at_least=True,
            ),
            Benchmark(
                "leave_one_out_equal",
                "How many times as fast leave-one-out is as encoding the batch anew for every "
                "position, 32 texts of 200 tokens",
                1.5,
                "times",
                at_least=True,
            ),
        ),
        2,
        _leave_one_out,
    ),
    "variants": Group(
        (
            Benchmark(
                "adversarial_epoch",
                "An SST epoch of adversarial training over one of plain training of the same model",
                1.2,
            ),
            Benchmark(
                "guided_epoch",
                "An IMDb epoch of the MLP guided by the base's attention over one of the BiLSTM",
                0.3,
            ),
        ),
        2,
        _variants,
    ),
    "tagging": Group(
        (
            Benchmark(
                "tagging_epoch",
                "An epoch of the tagger `study` on CoNLL-2000 by `attnlight fit` over one of a plain "
                "PyTorch loop with the same optimiser, schedule and batches",
                1.2,
            ),
            *(_of_tokens(test, readout) for readout in READOUTS for test in TOKEN_LOOPS),
        ),
        2,
        _tagging,
    ),
    "tagging_cheap": Group(
        tuple(
            Benchmark(
                f"tagging_cheap_{readout}",
                "`Trainer.test` with the tests of configs/tests/cheap.yaml, without linear programs, "
                f"on all test sentences of CoNLL-2000, tagger `{readout}`",
                3,
                "min",
            )
            for readout in READOUTS
        ),
        2,
        _tagging_cheap,
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
