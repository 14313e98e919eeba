"""Pure functions on tensors: no Lightning, no files, no global state."""

from attnlight.functional.adversary import search_adversary, worst_case_attention
from attnlight.functional.attribution import weight_gradient
from attnlight.functional.correlation import kendall_tau
from attnlight.functional.divergence import js_divergence, kl_divergence, total_variation
from attnlight.functional.draws import draw_keys, permutations
from attnlight.functional.erasure import erase_each, erase_ranking
from attnlight.functional.flips import first_flip, minimal_flip_set
from attnlight.functional.masking import attention_entropy, masked_mean, masked_softmax
from attnlight.functional.readout import permuted_logits, permuted_weights, read

__all__ = [
    "attention_entropy",
    "draw_keys",
    "erase_each",
    "erase_ranking",
    "first_flip",
    "js_divergence",
    "kendall_tau",
    "kl_divergence",
    "masked_mean",
    "masked_softmax",
    "minimal_flip_set",
    "permutations",
    "permuted_logits",
    "permuted_weights",
    "read",
    "search_adversary",
    "total_variation",
    "weight_gradient",
    "worst_case_attention",
]
