"""The attention that differs most from a model's own while the prediction stays."""
