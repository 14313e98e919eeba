"""Statistics on finished records: intervals, tests, F1, change points and frontiers."""

from attnlight.statistics.changepoint import fit_segments
from attnlight.statistics.collapse import collapse_threshold, frequency_loss
from attnlight.statistics.exclusivity import exclusivity, exclusivity_curve, exclusivity_difference
from attnlight.statistics.frontier import frontier
from attnlight.statistics.paired import holm, mcnemar, paired_wilcoxon, ratio_of_shares
from attnlight.statistics.seed_bootstrap import difference_of_groups, seeds_then_instances

__all__ = [
    "collapse_threshold",
    "difference_of_groups",
    "exclusivity",
    "exclusivity_curve",
    "exclusivity_difference",
    "fit_segments",
    "frequency_loss",
    "frontier",
    "holm",
    "mcnemar",
    "paired_wilcoxon",
    "ratio_of_shares",
    "seeds_then_instances",
]
