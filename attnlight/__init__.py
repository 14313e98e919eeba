"""Train attention models and test whether their attention explains their predictions."""

__version__ = "0.1.0"
