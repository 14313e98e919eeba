"""The planted corpus: generated texts with known evidence, drawn in bulk."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from attnlight.batch import SPECIAL_TOKENS
from attnlight.errors import InputError, require_at_least

CHUNK = 10_000


class PlantedTexts(NamedTuple):
    """Texts of a chunk; `tokens` and `evidence` are concatenated over texts, (sum of lengths,)."""

    labels: NDArray[np.int64]
    lengths: NDArray[np.int32]
    tokens: NDArray[np.int32]
    evidence: NDArray[np.int8]


@dataclass(frozen=True)
class PlantedSpec:
    """What the texts of a planted corpus are drawn from.

    Args:
        num_classes: Number of classes.
        min_tokens: Minimum number of words of a text.
        max_tokens: Maximum number of words; lengths are uniform between the two.
        vocabulary: Number of distinct fillers.
        zipf: Exponent s of the fillers' law, frequency proportional to 1 / rank^s.
        keywords: Number of distinct keywords of each class.
        redundancy: Keywords in each text that count for its label.
        distractors: Keywords in each text that count for another class; fewer than `redundancy`.
        negation: Probability that a text is negated, in [0, 1); 0 plants no negators.
        negators: Number of distinct negators.
        corpus_seed: Seed of the texts, independent of the training seed.

    Raises:
        InputError: A value is out of range, distractors are not a minority, or `min_tokens` words
            cannot hold the evidence.
    """

    num_classes: int = 2
    min_tokens: int = 20
    max_tokens: int = 40
    vocabulary: int = 1000
    zipf: float = 1.0
    keywords: int = 10
    redundancy: int = 3
    distractors: int = 1
    negation: float = 0.0
    negators: int = 3
    corpus_seed: int = 0

    def __post_init__(self) -> None:
        bounds = {"num_classes": 2, "vocabulary": 1, "keywords": 1, "redundancy": 1, "negators": 1}
        for name, bound in {**bounds, "distractors": 0, "zipf": 0, "corpus_seed": 0}.items():
            require_at_least(bound, **{name: getattr(self, name)})
        if not 0 <= self.negation < 1:
            raise InputError(f"negation is {self.negation}; it must be in [0, 1).")
        if self.distractors >= self.redundancy:
            raise InputError(
                f"distractors is {self.distractors} and redundancy {self.redundancy}; a text needs "
                "more keywords of its class than distractors."
            )
        needed = self.planted + 2 * self.pairs
        if not needed <= self.min_tokens <= self.max_tokens:
            raise InputError(
                f"min_tokens is {self.min_tokens} and max_tokens {self.max_tokens}; these texts "
                f"need {needed} <= min_tokens <= max_tokens."
            )

    @property
    def planted(self) -> int:
        """Keywords in each text."""
        return self.redundancy + self.distractors

    @property
    def pairs(self) -> int:
        """Negators in each text."""
        return self.planted if self.negation else 0

    @property
    def classes(self) -> list[str]:
        """Names of the classes."""
        if self.num_classes == 2:
            return ["bad", "good"]
        return [f"topic{label}" for label in range(self.num_classes)]

    @property
    def first_negator(self) -> int:
        """Id of the first negator.

        The ids are those of the fillers by descending frequency, then of the negators, then of the
        keywords, grouped by class in the order of labels.
        """
        return len(SPECIAL_TOKENS) + self.vocabulary

    @cached_property
    def words(self) -> list[str]:
        """The vocabulary by id, special tokens first."""
        joint = "" if self.num_classes == 2 else "word"
        return [
            *SPECIAL_TOKENS,
            *(f"filler{rank}" for rank in range(self.vocabulary)),
            *(f"not{number}" for number in range(self.negators)),
            *(f"{name}{joint}{n}" for name in self.classes for n in range(self.keywords)),
        ]

    @cached_property
    def counterfactuals(self) -> NDArray[np.int64]:
        """For each token id the ids of its counterfactuals, (V, C); -1 where there is none.

        Those of a keyword are the keyword of the same number of each other class, and the most
        frequent filler; that of a negator is the filler alone. Other tokens have none.
        """
        filler, classes = len(SPECIAL_TOKENS), self.num_classes
        table = np.full((len(self.words), classes), -1, np.int64)
        table[self.first_negator :, -1] = filler
        first = self.first_negator + self.negators
        numbers = np.arange(classes * self.keywords)
        for step in range(1, classes):
            table[first:, step - 1] = first + (numbers + step * self.keywords) % len(numbers)
        return table

    def tokenizer_json(self) -> str:
        """A tokenizer that maps raw text ("filler12 not0 good3") to the corpus's ids."""
        from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

        vocabulary = {word: number for number, word in enumerate(self.words)}
        tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
        tokenizer.normalizer = normalizers.Lowercase()
        tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
        return str(tokenizer.to_str())

    def draw(self, split: int, size: int) -> Iterator[PlantedTexts]:
        """The `size` texts of split number `split`, in chunks; determined by these and the spec."""
        zipf = np.cumsum(np.arange(1, self.vocabulary + 1, dtype=np.float64) ** -self.zipf)
        zipf /= zipf[-1]  # ends in exactly 1, above every draw
        for chunk, start in enumerate(range(0, size, CHUNK)):
            n = min(CHUNK, size - start)
            rng = np.random.default_rng((self.corpus_seed, split, chunk))
            lengths = rng.integers(self.min_tokens, self.max_tokens + 1, n, dtype=np.int32)
            labels = rng.integers(self.num_classes, size=n)
            negated = rng.random(n) < self.negation
            class_offsets = rng.integers(1, self.num_classes, (n, self.distractors))
            class_offsets = np.pad(class_offsets, ((0, 0), (self.redundancy, 0)))
            # Class of each keyword without its negator, (n, planted).
            keyword_classes = ((labels - negated)[:, None] + class_offsets) % self.num_classes
            counted = (keyword_classes + negated[:, None]) % self.num_classes
            supports = np.where(counted == labels[:, None], 1, -1)
            keyword_at, negator_at = self._places(rng, lengths, negated)

            tokens = np.searchsorted(zipf, rng.random((n, self.max_tokens)), side="right")
            tokens += len(SPECIAL_TOKENS)
            evidence = np.zeros(tokens.shape, np.int8)
            chosen = rng.integers(self.keywords, size=keyword_classes.shape)
            chosen += keyword_classes * self.keywords + self.first_negator + self.negators
            np.put_along_axis(tokens, keyword_at, chosen, axis=1)
            signs = np.where(negated[:, None], -1, supports)
            np.put_along_axis(evidence, keyword_at, signs, axis=1)
            if self.negation:
                chosen = self.first_negator + rng.integers(self.negators, size=negator_at.shape)
                np.put_along_axis(tokens, negator_at, chosen, axis=1)
                signs = np.where(negated[:, None], supports, 0)
                np.put_along_axis(evidence, negator_at, signs, axis=1)
            real = np.arange(self.max_tokens) < lengths[:, None]
            yield PlantedTexts(labels, lengths, tokens[real].astype(np.int32), evidence[real])

    def _places(
        self, rng: np.random.Generator, lengths: NDArray[np.int32], negated: NDArray[np.bool_]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Positions of keywords and of negators, both (n, planted), uniform over arrangements.

        A text is an arrangement of units: a negator with the word after it, or a single word. The
        first `planted` units hold the keywords. In a negated text the negators precede these; else
        they precede the next `planted` units, which hold fillers.
        """
        units = self.max_tokens - self.pairs
        sizes = np.ones((len(lengths), units), np.int64)
        lead = np.where(negated, 0, self.planted)[:, None] + np.arange(self.pairs)
        np.put_along_axis(sizes, lead, 2, axis=1)
        keys = rng.random(sizes.shape)
        keys[np.arange(units) >= (lengths - self.pairs)[:, None]] = 1  # beyond the text's end
        order = np.argsort(keys, axis=1)
        arranged = np.take_along_axis(sizes, order, axis=1)
        starts = np.empty_like(sizes)
        np.put_along_axis(starts, order, np.cumsum(arranged, axis=1) - arranged, axis=1)
        keyword_at = starts[:, : self.planted] + (negated[:, None] if self.pairs else 0)
        return keyword_at, np.take_along_axis(starts, lead, axis=1)
