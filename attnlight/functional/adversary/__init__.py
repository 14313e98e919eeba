"""Attention that differs most from the original and preserves the prediction."""
