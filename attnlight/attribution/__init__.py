"""Attribution: how much each item counts for the prediction of a class, by methods of one signature."""

from __future__ import annotations

from attnlight.attribution.attention import Attention
from attnlight.attribution.base import Attribution, Explanation
from attnlight.attribution.build import ATTRIBUTIONS, build_attribution
from attnlight.attribution.gradient import Gradient

__all__ = [
    "ATTRIBUTIONS",
    "Attention",
    "Attribution",
    "Explanation",
    "Gradient",
    "build_attribution",
]
