"""How many times as fast each test on tokens is as a loop over tokens."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from math import isnan

import torch
from torch import Tensor

from attnlight.batch import AttentionOutput, TextBatch
from attnlight.callbacks import (
    AdversarialAttention,
    AttentionPermutation,
    DecisionFlip,
    ImportanceCorrelation,
    InterpretabilityTest,
    SingleErasure,
)
from attnlight.functional import permutations
from attnlight.functional.ranking import random_rankings
from attnlight.models import SelfAttentionTagger
from tests.benchmarks import token_rivals as rivals
from tests.benchmarks.cheap import attached
from tests.benchmarks.measuring import Measurement, against, spread
from tests.benchmarks.suite import TOKEN_LOOPS
from tests.benchmarks.token_correlation import correlated, deleted
from tests.benchmarks.token_rivals import Found, Sentence
from tests.benchmarks.token_search import on_one_item, searched

REPETITIONS = 3
# Sentences of the batch that a loop goes through, and tokens of the first that the search does.
SENTENCES, SEARCHED = 2, 2
# How near numbers must come to be the same, and what share of them must.
_CLOSE, _AGREE = 1e-4, 0.97

Token = tuple[Sentence, int]


@dataclass(frozen=True)
class TokenScene:
    """A tagger and sentences of like length.

    Args:
        model: The tagger, in evaluation mode.
        batch: B sentences.
        output: What the model says of them.
    """

    model: SelfAttentionTagger
    batch: TextBatch
    output: AttentionOutput

    @classmethod
    def of(cls, model: SelfAttentionTagger, batch: TextBatch) -> TokenScene:
        """The scene of a batch, read by the model as in an evaluation."""
        return cls(model, batch, model(batch))

    def alone(self, row: int) -> TokenScene:
        """One of the sentences by itself, without padding."""
        items = int(self.batch.mask[row].sum())
        part = self.batch.apply(
            lambda v: v[row : row + 1] if v.ndim == 1 else v[row : row + 1, :items]
        )
        return TokenScene.of(self.model, part)

    def measure(self, test: InterpretabilityTest) -> Mapping[str, Tensor]:
        """What a test measures of the batch."""
        with torch.set_grad_enabled(test.needs_gradients):
            return test.measure(self.batch, self.output, self.model)


def configured() -> dict[str, InterpretabilityTest]:
    """Each of `TOKEN_LOOPS`: the cheap ones as configs/tests/cheap.yaml sets them."""
    cheap: dict[str, InterpretabilityTest] = {
        type(test).__name__: test for test in attached("cheap")
    }
    return {name: cheap.get(name) or ImportanceCorrelation() for name in TOKEN_LOOPS}


@torch.no_grad()
def speedup(
    scene: TokenScene,
    test: InterpretabilityTest,
    name: str,
    repetitions: int = REPETITIONS,
    sentences: int = SENTENCES,
    steps: int = 500,
) -> Measurement:
    """How many times as fast a test is, per token, as a loop over the tokens of some sentences.

    Args:
        scene: What the test measures as a whole.
        test: The test.
        name: What the details are of.
        repetitions: Runs of each, in turn.
        sentences: How many of the sentences the loop goes through.
        steps: Steps of the search.

    Raises:
        RuntimeError: The two disagree.
    """
    parts = [scene.alone(row) for row in range(sentences)]
    own = [Sentence(part.model, part.batch) for part in parts]
    tokens = [(sentence, token) for sentence in own for token in range(len(sentence))]
    if isinstance(test, AdversarialAttention):
        tokens = tokens[:SEARCHED]
        theirs: Callable[[], object] = partial(search_each, test, tokens, steps)
        said = compare_searches(test, scene, tokens, search_each(test, tokens, steps))
    else:
        theirs = partial(loop_over, test, tokens)
        said = compare_numbers(scene.measure(test), loop_over(test, tokens))
    others = other_loops(test, tokens)
    ways = {"theirs": theirs, "alone": lambda: [part.measure(test) for part in parts], **others}
    seconds = against(ways, lambda: scene.measure(test), repetitions, warm_ups=0)
    counts = dict.fromkeys(ways, len(tokens))
    counts |= {"ours": len(scene.output.rows), "alone": sum(map(len, own))}
    each = {way: [taken / counts[way] for taken in seconds[way]] for way in seconds}
    described = [f"ours {spread(each['ours'])}", f"a sentence at a time {spread(each['alone'])}"]
    described += [f"theirs, {len(tokens)} tokens, {spread(each['theirs'])}"]
    described += [f"{other} {spread(each[other])}" for other in others]
    details = {f"{name}, time a token": f"{', '.join(described)}; {said}"}
    return Measurement.of_speedups(each["ours"], each["theirs"], details)


def loop_over(test: InterpretabilityTest, tokens: Sequence[Token]) -> list[Found]:
    """What a test measures of tokens, by the same draws, a token at a time."""
    return [_loop(test, *token) for token in tokens]


def _loop(test: InterpretabilityTest, sentence: Sentence, token: int) -> Found:
    if isinstance(test, AttentionPermutation):
        orders = _shuffles(test, sentence)
        return rivals.shuffled(sentence, token, list(orders), list(orders[: test.head_draws]))
    if isinstance(test, DecisionFlip):
        return rivals.erased_in_turn(sentence, token, _rankings(test, sentence, token))
    if isinstance(test, SingleErasure):
        return rivals.erased_alone(sentence, token)
    return correlated(sentence, token)


def other_loops(
    test: InterpretabilityTest, tokens: Sequence[Token]
) -> dict[str, Callable[[], object]]:
    """Loops that do more at once, or less, by what they do."""
    if isinstance(test, AttentionPermutation):
        return {"all shuffles at once": lambda: [_at_once(test, *token) for token in tokens]}
    if isinstance(test, DecisionFlip):
        return {
            "without the fewest items": lambda: [
                rivals.erased_in_turn(*token, _rankings(test, *token), minimum=False)
                for token in tokens
            ]
        }
    if isinstance(test, AdversarialAttention):
        single = partial(on_one_item, epsilon=test.epsilon)
        return {"trying each item alone": lambda: [single(*token) for token in tokens]}
    if isinstance(test, ImportanceCorrelation):
        return {"encoding each shortened sentence once": lambda: _encoding_once(tokens)}
    return {}


def _at_once(test: AttentionPermutation, sentence: Sentence, token: int) -> Found:
    orders = _shuffles(test, sentence)
    return rivals.shuffled_at_once(sentence, token, orders, orders[: test.head_draws])


def _encoding_once(tokens: Sequence[Token]) -> list[Found]:
    delete = cache(deleted)
    return [correlated(s, token, partial(delete, s)) for s, token in tokens]


def _shuffles(test: AttentionPermutation, sentence: Sentence) -> Tensor:
    """The test's own shuffles (K, N) of a sentence."""
    rows = torch.tensor([[sentence.index, 0]])
    return permutations(torch.tensor([len(sentence)]), rows, test.draws, test.seed)[0]


def _rankings(test: DecisionFlip, sentence: Sentence, token: int) -> list[Tensor]:
    """The test's own random orders (N,) of a token."""
    whole = torch.ones(1, len(sentence), dtype=torch.bool)
    rows = torch.tensor([[sentence.index, token]])
    return list(random_rankings(whole, rows, test.draws, test.seed)[0])


def compare_numbers(columns: Mapping[str, Tensor], found: Sequence[Found]) -> str:
    """How many of a loop's numbers are the test's, whose first rows they are of.

    Raises:
        RuntimeError: Too few are.
    """
    pairs = paired(columns, found)
    same = sum(abs(a - b) <= _CLOSE or (isnan(a) and isnan(b)) for a, b in pairs)
    if same < _AGREE * len(pairs):
        raise RuntimeError(f"of {len(pairs)} numbers only {same} are the same")
    return f"{same:,} of {len(pairs):,} numbers the same"


def paired(columns: Mapping[str, Tensor], found: Sequence[Found]) -> list[tuple[float, float]]:
    """The test's and the loop's numbers of the first rows: of all heads together and of each."""
    pairs: list[tuple[float, float]] = []
    for row, numbers in enumerate(found):
        for name, values in numbers.items():
            ours = [float(columns[name][row])]
            for by_head in (f"{name}_by_head", f"{name}_heads"):
                if by_head in columns:
                    ours += columns[by_head][row].tolist()
            pairs += zip(ours, values, strict=True)
    return pairs


def search_each(
    test: AdversarialAttention, tokens: Sequence[Token], steps: int
) -> list[list[float]]:
    """What Jain and Wallace's search finds for each head of tokens, a head of a token at a time."""
    return [searched(*token, test.epsilon, steps=steps) for token in tokens]


def compare_searches(
    test: AdversarialAttention,
    scene: TokenScene,
    tokens: Sequence[Token],
    found: Sequence[Sequence[float]],
) -> str:
    """What searches find beside what the test says of its first rows.

    Raises:
        RuntimeError: A search, or attention on one item, is above what the test says nothing is.
    """
    columns = scene.measure(test)
    worst, upper = (columns[f"{name}_by_head"][: len(tokens)] for name in ("worst_js", "upper_js"))
    single = torch.tensor([on_one_item(*token, test.epsilon) for token in tokens])
    js = torch.tensor(found)
    above = int((js > worst + _CLOSE).sum())
    if (single > worst + _CLOSE).any() or (js > upper + _CLOSE).any():
        raise RuntimeError("attention is found further away than the test says that there is")
    return (
        f"mean JS {worst.mean():.3f} and {js.mean():.3f} nats, {above} of {js.numel()} searches end "
        "above ours"
    )
