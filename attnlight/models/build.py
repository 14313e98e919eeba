"""A classifier from plain options, such as those that a checkpoint keeps."""

from __future__ import annotations

from collections.abc import Mapping
from inspect import signature
from typing import Any

from attnlight.models.classifier import AffineClassifier, FlatClassifier
from attnlight.models.guided import GuidedFlatClassifier, GuidedHierarchicalClassifier
from attnlight.models.hierarchical import HierarchicalClassifier


def classifier_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Those of the options that decide what is built; one that is missing has its default."""
    names = signature(_kind(options)).parameters
    return {name: options[name] for name in names if name in options}


def build_classifier(options: Mapping[str, Any], *, guided: bool = False) -> AffineClassifier:
    """Build a classifier.

    Args:
        options: `hierarchical`, and arguments of `FlatClassifier` or `HierarchicalClassifier`;
            others are passed over.
        guided: Build one whose last attention is given.
    """
    kind: type[AffineClassifier] = _kind(options)
    if guided:
        kind = GuidedHierarchicalClassifier if options.get("hierarchical") else GuidedFlatClassifier
    return kind(**classifier_options(options))


def _kind(options: Mapping[str, Any]) -> type[FlatClassifier | HierarchicalClassifier]:
    return HierarchicalClassifier if options.get("hierarchical") else FlatClassifier
