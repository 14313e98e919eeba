"""Pure functions on tensors: no Lightning, no files, no global state."""

from attnlight.functional.adversary.gradient_search import search_adversary
from attnlight.functional.adversary.opaque import blackbox_adversary
from attnlight.functional.adversary.worst_case import worst_case_attention, worst_case_js
from attnlight.functional.attribution.input_gradient import input_gradient
from attnlight.functional.attribution.leave_one_out import leave_one_out, left_out_logits, reencode
from attnlight.functional.attribution.weight_gradient import weight_gradient
from attnlight.functional.correlation import kendall_tau
from attnlight.functional.divergence import (
    js_divergence,
    js_share,
    kl_divergence,
    largest_js,
    total_variation,
)
from attnlight.functional.erasure.erase import erase_each, erase_ranking
from attnlight.functional.erasure.flips import first_flip, minimal_flip_set
from attnlight.functional.masking import attention_entropy, masked_softmax
from attnlight.functional.random import draw_keys, permutations
from attnlight.functional.ranking import dense_ranks, random_rankings, ranking
from attnlight.functional.readout.affine import permuted_logits, permuted_weights, read

__all__ = [
    "attention_entropy",
    "blackbox_adversary",
    "dense_ranks",
    "draw_keys",
    "erase_each",
    "erase_ranking",
    "first_flip",
    "input_gradient",
    "js_divergence",
    "js_share",
    "kendall_tau",
    "kl_divergence",
    "largest_js",
    "leave_one_out",
    "left_out_logits",
    "masked_softmax",
    "minimal_flip_set",
    "permutations",
    "permuted_logits",
    "permuted_weights",
    "random_rankings",
    "ranking",
    "read",
    "reencode",
    "search_adversary",
    "total_variation",
    "weight_gradient",
    "worst_case_attention",
    "worst_case_js",
]
