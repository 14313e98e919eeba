"""Pure functions on tensors: no Lightning, no files, no global state."""

from attnlight.functional.adversary import worst_case_attention, worst_case_js
from attnlight.functional.attribution import weight_gradient
from attnlight.functional.blackbox import blackbox_adversary
from attnlight.functional.collapse import collapse_share, frequency_loss
from attnlight.functional.comparison import (
    benjamini_hochberg,
    contingency,
    holm,
    mcnemar,
    paired_difference,
    paired_wilcoxon,
    ratio_of_shares,
)
from attnlight.functional.correlation import kendall_tau
from attnlight.functional.deletion import leave_one_out, left_out_logits, reencode
from attnlight.functional.divergence import js_divergence, kl_divergence, total_variation
from attnlight.functional.draws import draw_keys, permutations
from attnlight.functional.erasure import erase_each, erase_ranking
from attnlight.functional.exclusivity import (
    exclusivity,
    exclusivity_curve,
    exclusivity_difference,
)
from attnlight.functional.flips import first_flip, minimal_flip_set
from attnlight.functional.frontier import frontier
from attnlight.functional.input_gradient import input_gradient
from attnlight.functional.masking import attention_entropy, masked_mean, masked_softmax
from attnlight.functional.rankings import random_rankings, ranking
from attnlight.functional.readout import permuted_logits, permuted_weights, read
from attnlight.functional.search import search_adversary
from attnlight.functional.seeds import difference_of_groups, seeds_then_instances
from attnlight.functional.segments import fit_segments
from attnlight.functional.share import js_share, largest_js
from attnlight.functional.ties import dense_ranks

__all__ = [
    "attention_entropy",
    "benjamini_hochberg",
    "blackbox_adversary",
    "collapse_share",
    "contingency",
    "dense_ranks",
    "difference_of_groups",
    "draw_keys",
    "erase_each",
    "erase_ranking",
    "exclusivity",
    "exclusivity_curve",
    "exclusivity_difference",
    "first_flip",
    "fit_segments",
    "frequency_loss",
    "frontier",
    "holm",
    "input_gradient",
    "js_divergence",
    "js_share",
    "kendall_tau",
    "kl_divergence",
    "largest_js",
    "leave_one_out",
    "left_out_logits",
    "masked_mean",
    "masked_softmax",
    "mcnemar",
    "minimal_flip_set",
    "paired_difference",
    "paired_wilcoxon",
    "permutations",
    "permuted_logits",
    "permuted_weights",
    "random_rankings",
    "ranking",
    "ratio_of_shares",
    "read",
    "reencode",
    "search_adversary",
    "seeds_then_instances",
    "total_variation",
    "weight_gradient",
    "worst_case_attention",
    "worst_case_js",
]
