"""The interpretability tests, one file each, and what they share."""

from attnlight.callbacks.adversary import AdversarialAttention
from attnlight.callbacks.base import InterpretabilityTest
from attnlight.callbacks.divergence import BaseDivergence
from attnlight.callbacks.erasure import SingleErasure
from attnlight.callbacks.flips import DecisionFlip
from attnlight.callbacks.importance import ImportanceCorrelation
from attnlight.callbacks.permutation import AttentionPermutation
from attnlight.callbacks.predictions import Predictions

__all__ = [
    "AdversarialAttention",
    "AttentionPermutation",
    "BaseDivergence",
    "DecisionFlip",
    "ImportanceCorrelation",
    "InterpretabilityTest",
    "Predictions",
    "SingleErasure",
]
