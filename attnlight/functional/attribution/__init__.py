"""Importance of items to a prediction: gradients and leave-one-out."""
