"""The interpretability tests, one file each, and the callbacks that run them."""

from attnlight.callbacks.adversarial_attention import AdversarialAttention, GradientSearch
from attnlight.callbacks.alignment_error import AlignmentError
from attnlight.callbacks.attention_interchange import AttentionInterchange
from attnlight.callbacks.attention_permutation import AttentionPermutation
from attnlight.callbacks.attention_sinks import AttentionSinks
from attnlight.callbacks.attribution_cost import AttributionCost
from attnlight.callbacks.base import InterpretabilityTest
from attnlight.callbacks.base_divergence import BaseDivergence
from attnlight.callbacks.conicity import Conicity
from attnlight.callbacks.context_ablation import ContextAblation
from attnlight.callbacks.counterfactual_use import CounterfactualUse
from attnlight.callbacks.decision_flip import DecisionFlip
from attnlight.callbacks.erased_accuracy import ErasedAccuracy
from attnlight.callbacks.evidence_mass import EvidenceMass
from attnlight.callbacks.faithfulness import Faithfulness
from attnlight.callbacks.head_ablation import HeadAblation
from attnlight.callbacks.head_roles import HeadRoles
from attnlight.callbacks.impermissible_mass import ImpermissibleMass
from attnlight.callbacks.importance_correlation import ImportanceCorrelation
from attnlight.callbacks.leave_one_out_agreement import LeaveOneOutAgreement
from attnlight.callbacks.measured_use import MeasuredUse
from attnlight.callbacks.plausibility import Plausibility
from attnlight.callbacks.predictions import Predictions
from attnlight.callbacks.saliency_agreement import SaliencyAgreement
from attnlight.callbacks.sanity import Sanity
from attnlight.callbacks.single_erasure import SingleErasure
from attnlight.callbacks.state_token_agreement import StateTokenAgreement
from attnlight.callbacks.texts import Texts

__all__ = [
    "AdversarialAttention",
    "AlignmentError",
    "AttentionInterchange",
    "AttentionPermutation",
    "AttentionSinks",
    "AttributionCost",
    "BaseDivergence",
    "Conicity",
    "ContextAblation",
    "CounterfactualUse",
    "DecisionFlip",
    "ErasedAccuracy",
    "EvidenceMass",
    "Faithfulness",
    "GradientSearch",
    "HeadAblation",
    "HeadRoles",
    "ImpermissibleMass",
    "ImportanceCorrelation",
    "InterpretabilityTest",
    "LeaveOneOutAgreement",
    "MeasuredUse",
    "Plausibility",
    "Predictions",
    "SaliencyAgreement",
    "Sanity",
    "SingleErasure",
    "StateTokenAgreement",
    "Texts",
]
