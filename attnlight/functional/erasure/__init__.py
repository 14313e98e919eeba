"""Logits after items are erased, and the decisions that flip."""
