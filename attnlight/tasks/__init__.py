"""What is trained: one LightningModule per task."""

from attnlight.tasks.adversarial import AdversarialClassifier
from attnlight.tasks.classification import AttentionClassifier
from attnlight.tasks.guided import GuidedMLP
from attnlight.tasks.tagging import ChunkTagger
from attnlight.tasks.variants import SeedVariant, UniformClassifier

__all__ = [
    "AdversarialClassifier",
    "AttentionClassifier",
    "ChunkTagger",
    "GuidedMLP",
    "SeedVariant",
    "UniformClassifier",
]
