"""The planted corpus: generated texts with known evidence, drawn in bulk."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

from attnlight.batch import SPECIAL_TOKENS
from attnlight.data.tokenization import boundary_processor
from attnlight.errors import InputError, did_you_mean, require_at_least

CHUNK = 10_000
DECOY_WORDS = 5  # distinct decoys, each of which is therefore frequent
Rule = Literal["majority", "strength", "order", "phrase", "conjunction"]
Place = Literal["anywhere", "first", "last", "together"]


class PlantedTexts(NamedTuple):
    """Texts of a chunk; `tokens`, `evidence` and `decoy` are concatenated, (sum of lengths,).

    `asked` are the numbers of their queries, (n,), 0 where there are none.
    """

    labels: NDArray[np.int64]
    lengths: NDArray[np.int32]
    tokens: NDArray[np.int32]
    evidence: NDArray[np.int8]
    decoy: NDArray[np.int8]
    asked: NDArray[np.int64]


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
        distractors: Keywords in each text of another class; with the rule `majority` fewer than
            `redundancy`.
        negation: Probability that a text is negated, in [0, 1); 0 plants no negators.
        negators: Number of distinct negators.
        corpus_seed: Seed of the texts, independent of the training seed.
        rule: How keywords decide on the label. `majority`: by their number. `strength`: keyword n has
            the strength 1 + n mod 3, and the class of the larger sum wins. `order`: those of the
            label's class come after all distractors, and the last keyword decides. `phrase`: each of
            the `redundancy` keywords is a pair of adjacent words of its class, and distractors, each
            before a filler, do not count; with twice as many of them as pairs every class's words
            are equally frequent if there are two classes. `conjunction`: a keyword counts only with
            a gate word (`gate0`, ...; their number is that of `negators`) anywhere in the text; a
            text of class 0 has either keywords or a gate.
        one_sided: Class 0 has no keywords: its texts have fillers alone.
        place: Where keywords are: `anywhere`, the `first` or the `last` words of the text, or
            `together`, in one run at a random place.
        copies: The keywords of a text have the same number: those of its class are one word.
        balance: Probability of class 0, in (0, 1); the others are equally likely. Null: all are.
        label_noise: Probability that the label is another class's than the evidence's, in [0, 1).
        decoys: Words in each text that are drawn from five words without any relation to the label
            (`decoy0`, ...); they are 1 in the extra column `decoy`, which other texts do not have.
        queries: Number of distinct queries (`ask0`, ...), one of which each text has; 0: texts have
            none. Each query asks for `keywords` of each class, the first one for the first of them. The
            keywords of a text that decide on its label are those that its query asks for, and its decoys
            are keywords of any class that another query asks for.
        boundary_tokens: Put a special token before and one after each text, as BERT reads it.
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
    rule: Rule = "majority"
    one_sided: bool = False
    place: Place = "anywhere"
    copies: bool = False
    balance: float | None = None
    label_noise: float = 0.0
    decoys: int = 0
    queries: int = 0
    boundary_tokens: bool = False

    def __post_init__(self) -> None:
        bounds = {"num_classes": 2, "vocabulary": 1, "keywords": 1, "redundancy": 1, "negators": 1}
        bounds |= {"distractors": 0, "zipf": 0, "corpus_seed": 0, "decoys": 0, "queries": 0}
        for name, bound in bounds.items():
            require_at_least(bound, **{name: getattr(self, name)})
        for name in ("negation", "label_noise"):
            if not 0 <= getattr(self, name) < 1:
                raise InputError(f"{name} is {getattr(self, name)}; it must be in [0, 1).")
        if self.balance is not None and not 0 < self.balance < 1:
            raise InputError(f"balance is {self.balance}; it must be in (0, 1), or null.")
        for name, kind in {"rule": Rule, "place": Place}.items():
            value, expected = getattr(self, name), list(get_args(kind))
            if value not in expected:
                hint = did_you_mean(value, expected)
                raise InputError(
                    f"{name} is {value!r}; expected one of {', '.join(expected)}{hint}."
                )
        if self.negation and (self.rule != "majority" or self.one_sided):
            raise InputError(
                "negation is for the rule majority and two-sided keywords: leave it out."
            )
        if self.rule != "majority" and self.one_sided:
            raise InputError(f"one_sided is for the rule majority, not {self.rule}: leave it out.")
        if self._class_0_lacks_keywords and self.distractors:
            raise InputError(
                f"distractors is {self.distractors}; it must be 0 with one_sided or the rule "
                "conjunction, whose class 0 is told by what its texts lack."
            )
        if self.queries == 1 and self.decoys:
            raise InputError("queries is 1; decoys need a second query, which asks for them.")
        varied = self.rule == "strength" and self.keywords > 1 and not self.copies
        counted = self.rule in ("majority", "strength")
        if counted and self.distractors >= self.redundancy + varied:
            raise InputError(
                f"distractors is {self.distractors} and redundancy {self.redundancy}; a text needs "
                f"{'at least as many' if varied else 'more'} keywords of its class than distractors."
            )
        phrase, gate = self.rule == "phrase", self.rule == "conjunction"
        needed = (1 - phrase) * self.planted + 2 * self.pairs + gate + self.decoys
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
        """Units of two words in each text: negators, or keywords of a phrase, with the next word."""
        return self.planted if self.negation or self.rule == "phrase" else 0

    @property
    def keywords_of_class(self) -> int:
        """Distinct keywords of each class, those of the first query first."""
        return self.keywords * max(1, self.queries)

    @property
    def _class_0_lacks_keywords(self) -> bool:
        return self.one_sided or self.rule == "conjunction"

    @property
    def classes(self) -> list[str]:
        """Names of the classes."""
        if self.num_classes == 2:
            return ["bad", "good"]
        return [f"topic{label}" for label in range(self.num_classes)]

    @property
    def first_negator(self) -> int:
        """Id of the first negator.

        The ids are those of the fillers by descending frequency, then of the negators or gates, then
        of the keywords, grouped by class in the order of labels, then of the decoys or queries.
        """
        return len(SPECIAL_TOKENS) + self.vocabulary

    @cached_property
    def words(self) -> list[str]:
        """The vocabulary by id, special tokens first."""
        joint = "" if self.num_classes == 2 else "word"
        negator = "gate" if self.rule == "conjunction" else "not"
        decoys = DECOY_WORDS if self.decoys and not self.queries else 0
        return [
            *SPECIAL_TOKENS,
            *(f"filler{rank}" for rank in range(self.vocabulary)),
            *(f"{negator}{number}" for number in range(self.negators)),
            *(f"{name}{joint}{n}" for name in self.classes for n in range(self.keywords_of_class)),
            *(f"decoy{number}" for number in range(decoys)),
            *(f"ask{number}" for number in range(self.queries)),
        ]

    @cached_property
    def counterfactuals(self) -> NDArray[np.int64]:
        """For each token id the ids of its counterfactuals, (V, C); -1 where there is none.

        Those of a keyword are the keyword of the same number of each other class, and the most
        frequent filler; that of a negator or a gate is the filler alone. Other tokens have none,
        keywords of a phrase neither: exchanging one word makes no phrase of another class.
        """
        filler, classes, size = len(SPECIAL_TOKENS), self.num_classes, self.keywords_of_class
        table = np.full((len(self.words), classes), -1, np.int64)
        if self.rule == "phrase":
            return table
        first = self.first_negator + self.negators
        numbers = np.arange(classes * size)
        end = first + len(numbers)
        table[self.first_negator : end, -1] = filler
        for step in range(1, classes):
            table[first:end, step - 1] = first + (numbers + step * size) % len(numbers)
        if self._class_0_lacks_keywords:
            table[(first <= table) & (table < first + size)] = -1
        return table

    def tokenizer_json(self) -> str:
        """A tokenizer that maps raw text ("filler12 not0 good3") to the corpus's ids."""
        vocabulary = {word: number for number, word in enumerate(self.words)}
        tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
        tokenizer.normalizer = normalizers.Lowercase()
        tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
        if self.boundary_tokens:
            tokenizer.post_processor = boundary_processor()
        return str(tokenizer.to_str())

    def draw(self, split: int, size: int) -> Iterator[PlantedTexts]:
        """The `size` texts of split number `split`, in chunks; determined by these and the spec."""
        for chunk, start in enumerate(range(0, size, CHUNK)):
            rng = np.random.default_rng((self.corpus_seed, split, chunk))
            yield self._chunk(rng, min(CHUNK, size - start))

    def _chunk(self, rng: np.random.Generator, n: int) -> PlantedTexts:
        """So many texts; options that are off draw nothing, so that other texts do not change."""
        classes, phrase = self.num_classes, self.rule == "phrase"
        zipf = np.cumsum(np.arange(1, self.vocabulary + 1, dtype=np.float64) ** -self.zipf)
        zipf /= zipf[-1]  # ends in exactly 1, above every draw
        lengths = rng.integers(self.min_tokens, self.max_tokens + 1, n, dtype=np.int32)
        labels = rng.integers(classes, size=n)
        negated = rng.random(n) < self.negation
        class_offsets = rng.integers(1, classes, (n, self.distractors))
        if self.balance is not None:
            labels = rng.integers(1, classes, n) * (rng.random(n) >= self.balance)
        class_offsets = np.pad(class_offsets, ((0, 0), (self.redundancy * (1 + phrase), 0)))
        # Class of each keyword without its negator, (n, planted).
        keyword_classes = ((labels - negated)[:, None] + class_offsets) % classes
        gated, alone = labels > 0, np.zeros(n, np.bool_)
        if self.rule == "conjunction":  # of class 0 half have a gate, half have keywords alone
            alone = (labels == 0) & (rng.random(n) < 0.5)
            gated |= ~alone
            keyword_classes[alone] = rng.integers(1, classes, (alone.sum(), 1))
        absent = (keyword_classes == 0) & self._class_0_lacks_keywords
        counted = (keyword_classes + negated[:, None]) % classes
        supports = np.where(counted == labels[:, None], 1, -1)
        starts, negator_at = self._places(rng, lengths, negated)
        keyword_at = starts[:, : self.planted] + (negated[:, None] if self.negation else 0)
        if phrase:
            keyword_at = np.insert(
                keyword_at, [self.redundancy], keyword_at[:, : self.redundancy] + 1, axis=1
            )
        elif self.rule == "order":  # the first columns are of the label's class
            keyword_at = np.sort(keyword_at, axis=1)[:, ::-1]

        tokens = np.searchsorted(zipf, rng.random((n, self.max_tokens)), side="right")
        tokens += len(SPECIAL_TOKENS)
        evidence, decoy = np.zeros((2, *tokens.shape), np.int8)
        chosen = rng.integers(self.keywords, size=supports.shape)
        if self.copies:
            chosen[:] = chosen[:, :1]
        elif self.rule == "strength":
            while (weaker := ((1 + chosen % 3) * supports).sum(1) <= 0).any():
                chosen[weaker] = rng.integers(self.keywords, size=chosen[weaker].shape)
        asked = rng.integers(self.queries, size=n) if self.queries else np.zeros(n, np.int64)
        first_keyword = self.first_negator + self.negators
        chosen += keyword_classes * self.keywords_of_class + first_keyword
        chosen += asked[:, None] * self.keywords
        chosen = np.where(absent, np.take_along_axis(tokens, keyword_at, axis=1), chosen)
        np.put_along_axis(tokens, keyword_at, chosen, axis=1)
        signs = np.where(absent, 0, np.where(negated[:, None], -1, supports))
        signs = signs.clip(0) if phrase or self.rule == "order" else signs
        np.put_along_axis(evidence, keyword_at, signs, axis=1)
        if self.negation:
            chosen = self.first_negator + rng.integers(self.negators, size=negator_at.shape)
            np.put_along_axis(tokens, negator_at, chosen, axis=1)
            signs = np.where(negated[:, None], supports, 0)
            np.put_along_axis(evidence, negator_at, signs, axis=1)
        used = self.planted + self.pairs
        if self.rule == "conjunction":
            texts, at = gated.nonzero()[0], starts[gated, used]
            tokens[texts, at] = self.first_negator + rng.integers(self.negators, size=len(texts))
            evidence[texts, at] = np.where(labels[texts] > 0, 1, -1)
            used += 1
        if self.decoys:
            decoy_at = starts[:, used : used + self.decoys]
            if self.queries:
                others = asked[:, None] + rng.integers(1, self.queries, decoy_at.shape)
                kinds = rng.integers(self._class_0_lacks_keywords, classes, decoy_at.shape)
                chosen = first_keyword + rng.integers(self.keywords, size=decoy_at.shape)
                chosen += kinds * self.keywords_of_class + others % self.queries * self.keywords
            else:
                chosen = rng.integers(DECOY_WORDS, size=decoy_at.shape)
                chosen += len(self.words) - DECOY_WORDS
            np.put_along_axis(tokens, decoy_at, chosen, axis=1)
            np.put_along_axis(decoy, decoy_at, 1, axis=1)
        if self.label_noise:
            noisy = rng.random(n) < self.label_noise
            labels = (labels + noisy * rng.integers(1, classes, n)) % classes
        real = np.arange(self.max_tokens) < lengths[:, None]
        return PlantedTexts(
            labels, lengths, tokens[real].astype(np.int32), evidence[real], decoy[real], asked
        )

    def _places(
        self, rng: np.random.Generator, lengths: NDArray[np.int32], negated: NDArray[np.bool_]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """First positions of all units, (n, units), and those of negators, (n, pairs).

        A text is an arrangement of units, uniform but for `place`: a word with the one after it, or a
        single word. The first `planted` units hold the keywords. In a negated text and in one of
        phrases these have two words, the first of which may be a negator; else the negators are in
        the next `planted` units, each with a filler after it.
        """
        units = self.max_tokens - self.pairs
        sizes = np.ones((len(lengths), units), np.int64)
        first = np.where(negated | (self.rule == "phrase"), 0, self.planted)
        lead = first[:, None] + np.arange(self.pairs)
        np.put_along_axis(sizes, lead, 2, axis=1)
        keys = rng.random(sizes.shape)
        if self.place == "together":  # closer than to any other unit
            keys[:, : self.planted] *= 1e-12
            keys[:, : self.planted] += rng.random((len(lengths), 1)) * (1 - 1e-12)
        elif self.place != "anywhere":
            keys[:, self.planted :] += 1 if self.place == "first" else -1
        keys[np.arange(units) >= (lengths - self.pairs)[:, None]] = 3  # beyond the text's end
        order = np.argsort(keys, axis=1)
        arranged = np.take_along_axis(sizes, order, axis=1)
        starts = np.empty_like(sizes)
        np.put_along_axis(starts, order, np.cumsum(arranged, axis=1) - arranged, axis=1)
        return starts, np.take_along_axis(starts, lead, axis=1)
