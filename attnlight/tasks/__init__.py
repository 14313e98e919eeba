"""Training: one LightningModule per task."""

from attnlight.tasks.adversarial import AdversarialVariant
from attnlight.tasks.attention import AttentionTask
from attnlight.tasks.classification import AttentionClassifier, ChunkTagger
from attnlight.tasks.guided import GuidedVariant
from attnlight.tasks.translation import Translator
from attnlight.tasks.variants import SeedVariant, UniformVariant

__all__ = [
    "AdversarialVariant",
    "AttentionClassifier",
    "AttentionTask",
    "ChunkTagger",
    "GuidedVariant",
    "SeedVariant",
    "Translator",
    "UniformVariant",
]
