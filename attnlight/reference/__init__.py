"""Frozen models that others are compared with, and what they say of a corpus's texts."""

from attnlight.reference.base import BaseModel, Identity, read_base
from attnlight.reference.outputs import (
    Reference,
    reading,
    running_split,
)
from attnlight.reference.store import OutputStore, write_outputs

__all__ = [
    "BaseModel",
    "Identity",
    "OutputStore",
    "Reference",
    "read_base",
    "reading",
    "running_split",
    "write_outputs",
]
