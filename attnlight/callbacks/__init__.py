"""The interpretability tests, one file each, and what they share."""

from attnlight.callbacks.base import InterpretabilityTest
from attnlight.callbacks.permutation import AttentionPermutation
from attnlight.callbacks.predictions import Predictions

__all__ = ["AttentionPermutation", "InterpretabilityTest", "Predictions"]
