"""What is trained: one LightningModule per task."""

from attnlight.tasks.adversarial import AdversarialClassifier
from attnlight.tasks.adversarial_tagging import AdversarialTagger
from attnlight.tasks.classification import AttentionClassifier
from attnlight.tasks.guided import GuidedMLP
from attnlight.tasks.guided_tagging import GuidedTagger
from attnlight.tasks.tagging import ChunkTagger
from attnlight.tasks.tagging_variants import SeedTagger, UniformTagger
from attnlight.tasks.variants import SeedVariant, UniformClassifier

__all__ = [
    "AdversarialClassifier",
    "AdversarialTagger",
    "AttentionClassifier",
    "ChunkTagger",
    "GuidedMLP",
    "GuidedTagger",
    "SeedTagger",
    "SeedVariant",
    "UniformClassifier",
    "UniformTagger",
]
