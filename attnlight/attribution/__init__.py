"""Attribution methods: scores of how much each item counts for the prediction of a class."""

from attnlight.attribution.alti import ALTI
from attnlight.attribution.answer_attention import AnswerAttention
from attnlight.attribution.attention import Attention, AttentionContribution, AttentionValueNorm
from attnlight.attribution.attention_flow import AttentionFlow
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
from attnlight.attribution.rollout import GradientRollout, Rollout
from attnlight.attribution.value_zeroing import ValueZeroing

__all__ = [
    "ALTI",
    "ATTRIBUTIONS",
    "DEFAULT_METHODS",
    "LRP",
    "AnswerAttention",
    "Attention",
    "AttentionContribution",
    "AttentionFlow",
    "AttentionValueNorm",
    "Attribution",
    "ContextCite",
    "Explanation",
    "External",
    "Gradient",
    "GradientRollout",
    "GradientXAttention",
    "InputGradient",
    "IntegratedGradients",
    "LearnedHeads",
    "Occlusion",
    "Random",
    "Rollout",
    "ValueZeroing",
    "build_attribution",
    "build_attributions",
    "fit_heads",
]
