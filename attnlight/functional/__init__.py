"""Pure functions on tensors: no Lightning, no files, no global state."""

from attnlight.functional.divergence import js_divergence, kl_divergence, total_variation
from attnlight.functional.draws import draw_keys, permutations
from attnlight.functional.masking import attention_entropy, masked_mean, masked_softmax
from attnlight.functional.readout import permuted_logits, permuted_weights, read

__all__ = [
    "attention_entropy",
    "draw_keys",
    "js_divergence",
    "kl_divergence",
    "masked_mean",
    "masked_softmax",
    "permutations",
    "permuted_logits",
    "permuted_weights",
    "read",
    "total_variation",
]
