"""The range of a measure by its name, to which intervals over seeds are clipped."""

import math
import re
from functools import cache

UNIT = (0.0, 1.0)
# Ranges by a name or a word of it; the first below that a name has decides.
_BOUNDS = {
    # A difference, also from chance, a number of items, or one of log odds.
    **dict.fromkeys(("excess", "delta", "effect", "odds"), (-math.inf, math.inf)),
    **dict.fromkeys(
        ("tau", "spearman", "pearson", "somers", "signed", "states", "words"), (-1.0, 1.0)
    ),
    **dict.fromkeys(("agreement_evidence", "agreement_resampled"), (-1.0, 1.0)),  # Somers' D
    "absolute": UNIT,
    "conicity": (-1.0, 1.0),
    **dict.fromkeys(("nll", "cost", "kl"), (0.0, math.inf)),
    "share": UNIT,
    "js": (0.0, math.log(2)),
    **dict.fromkeys(("accuracy", "agreement", "auprc", "auroc", "chance", "correct", "f1"), UNIT),
    **dict.fromkeys(("error", "flip", "flips", "fraction", "largest", "linked", "mass"), UNIT),
    **dict.fromkeys(("outdone", "precision", "recall", "tvd"), UNIT),
}


@cache
def measure_bounds(name: str) -> tuple[float, float]:
    """Lowest and highest value of a measure; infinite where its name does not tell.

    A name is that of a column of a record or of a study.

    Example:
        >>> measure_bounds("prediction_tvd"), measure_bounds("tau_attention_loo")
        ((0.0, 1.0), (-1.0, 1.0))
    """
    words = {name, *re.split(r"[_ ]", name)}
    return next((ends for word, ends in _BOUNDS.items() if word in words), (-math.inf, math.inf))
