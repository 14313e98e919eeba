"""What is trained: one LightningModule per task."""

from attnlight.tasks.classification import AttentionClassifier

__all__ = ["AttentionClassifier"]
