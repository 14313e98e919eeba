"""Pure functions on tensors: no Lightning, no files, no global state."""

from importlib import import_module

from attnlight.functional.adversary.gradient_search import search_adversary
from attnlight.functional.adversary.opaque_adversary import opaque_adversary
from attnlight.functional.adversary.worst_case import worst_case_attention, worst_case_js
from attnlight.functional.attribution.log_odds import log_odds
from attnlight.functional.attribution.weight_gradient import weight_gradient
from attnlight.functional.correlation import (
    kendall_tau,
    pearson_r,
    rank_agreement,
    somers_d,
    spearman_rho,
    top_overlap,
)
from attnlight.functional.divergence import (
    js_divergence,
    kl_divergence,
    max_js,
    normalized_js,
    total_variation,
)
from attnlight.functional.erasure.erase import erase_each, erase_ranking
from attnlight.functional.erasure.flips import first_flip, minimal_flip_set
from attnlight.functional.masking import (
    attention_entropy,
    evidence_divergence,
    impermissible_penalty,
    masked_entmax,
    masked_softmax,
)
from attnlight.functional.random import draw_keys, permutations
from attnlight.functional.ranking import dense_ranks, random_rankings, ranking
from attnlight.functional.rationales import (
    annotator_agreement,
    average_precision,
    expected_average_precision,
    plausibility,
    span_f1,
    token_f1,
)
from attnlight.functional.readout.affine import permuted_logits, permuted_weights, read

__all__ = [
    "annotator_agreement",
    "attention_entropy",
    "average_precision",
    "dense_ranks",
    "draw_keys",
    "erase_each",
    "erase_ranking",
    "evidence_divergence",
    "expected_average_precision",
    "first_flip",
    "impermissible_penalty",
    "input_gradient",
    "js_divergence",
    "kendall_tau",
    "kl_divergence",
    "leave_one_out",
    "left_out_logits",
    "log_odds",
    "masked_entmax",
    "masked_softmax",
    "max_js",
    "minimal_flip_set",
    "normalized_js",
    "opaque_adversary",
    "pearson_r",
    "permutations",
    "permuted_logits",
    "permuted_weights",
    "plausibility",
    "random_rankings",
    "rank_agreement",
    "ranking",
    "read",
    "reencode",
    "search_adversary",
    "somers_d",
    "span_f1",
    "spearman_rho",
    "swap_flips",
    "swap_logits",
    "token_f1",
    "top_overlap",
    "total_variation",
    "weight_gradient",
    "worst_case_attention",
    "worst_case_js",
]

# What runs a model stands above this package, and is imported at its first use.
_PROBING = {
    "input_gradient": "input_gradient",
    "leave_one_out": "leave_one_out",
    "left_out_logits": "leave_one_out",
    "reencode": "leave_one_out",
    "swap_flips": "swaps",
    "swap_logits": "swaps",
}


def __getattr__(name: str) -> object:
    """A function of `attnlight.probing`."""
    if name not in _PROBING:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"attnlight.probing.{_PROBING[name]}"), name)
