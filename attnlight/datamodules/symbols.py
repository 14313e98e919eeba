"""Generated translations of symbols, whose alignment is known."""

from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from attnlight.batch import EOS, SPECIAL_TOKENS, SURE
from attnlight.data.dataset import split_writer
from attnlight.data.tokenization import TextRules, make_tokenizer
from attnlight.datamodules.base import CorpusDataModule, CorpusOptions
from attnlight.datamodules.flat_options import flat_options
from attnlight.datamodules.prepared_format import describe_splits
from attnlight.errors import InputError, require_at_least
from attnlight.records import list_column

END = SPECIAL_TOKENS[EOS]  # the first class: a translation ends
_CHUNK = 4096  # sequences drawn at a time


class SymbolSequences(CorpusDataModule):
    """Sequences of symbols and their copies, reversals or flips, as of Pruthi et al. (2020).

    Symbols are drawn uniformly, and lengths from `min_length` to `max_length`. `copy` repeats them,
    `reverse` gives the last one first, and `flip` exchanges the two of each pair, of an odd number
    all but the last. Target tokens are aligned to the source token that they come from; the end of
    the target to none.

    Args:
        task: What the target is.
        symbols: Number of different symbols.
        min_length: Smallest number of symbols of a sequence.
        max_length: Largest number.
        train_size: Number of training sequences.
        validation_size: Number of validation sequences.
        test_size: Number of test sequences.
        data_seed: Seed of the sequences.
        common: The options of every corpus.

    Raises:
        InputError: A number is not positive, there is one symbol, or lengths are exchanged.
    """

    path = ""

    @flat_options
    def __init__(
        self,
        task: Literal["copy", "reverse", "flip"] = "copy",
        symbols: int = 1000,
        min_length: int = 1,
        max_length: int = 32,
        train_size: int = 100_000,
        validation_size: int = 1000,
        test_size: int = 1000,
        data_seed: int = 0,
        *,
        common: CorpusOptions,
    ) -> None:
        super().__init__(common=common)
        self.sizes = {"train": train_size, "validation": validation_size, "test": test_size}
        require_at_least(
            1, min_length=min_length, **{f"{k}_size": n for k, n in self.sizes.items()}
        )
        require_at_least(2, symbols=symbols)
        require_at_least(min_length, max_length=max_length)
        if task not in ("copy", "reverse", "flip"):
            raise InputError(f"task is {task!r}; expected copy, reverse or flip.")
        self.task, self.symbols, self.lengths = task, symbols, (min_length, max_length)
        self.data_seed = data_seed

    @override
    def recipe(self) -> dict[str, Any]:
        drawn = [self.task, self.symbols, *self.lengths, self.data_seed]
        return {"sizes": self.sizes, "symbols": drawn}

    @override
    def build(self, folder: Path) -> None:
        for split, (name, size) in enumerate(self.sizes.items()):
            random = np.random.default_rng([self.data_seed, split])
            with split_writer(folder / name) as write:
                for start in range(0, size, _CHUNK):
                    write(self._draw(random, np.arange(start, min(start + _CHUNK, size))))
        words = [f"s{number}" for number in range(self.symbols)]
        rows = {split: {"rows": size} for split, size in self.sizes.items()}
        tokenizer = make_tokenizer(TextRules(splitting="whitespace"), words).to_str()
        describe_splits(folder, tokenizer, classes=[END, *words], splits=rows, extras=[])

    def _draw(self, random: np.random.Generator, index: NDArray[np.int64]) -> dict[str, Any]:
        """The columns of the sequences of some rows."""
        low, high = self.lengths
        lengths = random.integers(low, high + 1, len(index))
        symbols = random.integers(0, self.symbols, int(lengths.sum()))
        starts = np.cumsum(lengths) - lengths
        place = np.arange(len(symbols)) - np.repeat(starts, lengths)
        last = np.repeat(lengths, lengths) - 1
        source = {
            "copy": place,
            "reverse": last - place,
            "flip": np.minimum(place ^ 1, last),
        }[self.task]
        targets = symbols[np.repeat(starts, lengths) + source] + 1
        ends = np.insert(targets, np.cumsum(lengths), 0)  # the end of each target is class 0
        links = np.stack([place, source, np.full_like(place, SURE)], axis=1).ravel()
        return {
            "index": index,
            "length": lengths,
            "tokens": list_column((symbols + len(SPECIAL_TOKENS)).astype(np.int32), lengths),
            "target": list_column(ends.astype(np.int32), lengths + 1),
            "links": list_column(links.astype(np.int32), 3 * lengths),
        }
