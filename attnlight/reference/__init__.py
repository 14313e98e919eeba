"""Frozen base models that variants are compared with, and their cached outputs."""

from attnlight.reference.base_spec import BaseModel, BaseSpec, read_base
from attnlight.reference.cached_outputs import CachedOutputs, write_outputs
from attnlight.reference.frozen_base import FrozenBase, running_split, using_split
from attnlight.reference.trained import TrainedModel, evaluating, network_of

__all__ = [
    "BaseModel",
    "BaseSpec",
    "CachedOutputs",
    "FrozenBase",
    "TrainedModel",
    "evaluating",
    "network_of",
    "read_base",
    "running_split",
    "using_split",
    "write_outputs",
]
