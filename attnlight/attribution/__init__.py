"""Attribution methods: scores of how much each item counts for the prediction of a class."""

from attnlight.attribution.answer_attention import AnswerAttention
from attnlight.attribution.attention import Attention, AttentionContribution, AttentionValueNorm
from attnlight.attribution.base import ATTRIBUTIONS, Attribution, Explanation
from attnlight.attribution.build import DEFAULT_METHODS, build_attribution, build_attributions
from attnlight.attribution.context_cite import ContextCite
from attnlight.attribution.external import External
from attnlight.attribution.gradients import Gradient, GradientXAttention, InputGradient
from attnlight.attribution.integrated_gradients import IntegratedGradients
from attnlight.attribution.learned_heads import LearnedHeads, fit_heads
from attnlight.attribution.lrp import LRP
from attnlight.attribution.occlusion import Occlusion
from attnlight.attribution.random import Random
from attnlight.attribution.rollout import Rollout

__all__ = [
    "ATTRIBUTIONS",
    "DEFAULT_METHODS",
    "LRP",
    "AnswerAttention",
    "Attention",
    "AttentionContribution",
    "AttentionValueNorm",
    "Attribution",
    "ContextCite",
    "Explanation",
    "External",
    "Gradient",
    "GradientXAttention",
    "InputGradient",
    "IntegratedGradients",
    "LearnedHeads",
    "Occlusion",
    "Random",
    "Rollout",
    "build_attribution",
    "build_attributions",
    "fit_heads",
]
