"""Logits after erasing items, and flips of the decision."""
