"""A model from plain options, such as those that a checkpoint keeps."""

from __future__ import annotations

from collections.abc import Mapping
from inspect import signature
from typing import Any

from attnlight.models.classifier import AffineClassifier, FlatClassifier
from attnlight.models.guided import (
    GuidedFlatClassifier,
    GuidedHierarchicalClassifier,
    GuidedSelfAttentionTagger,
)
from attnlight.models.hierarchical import HierarchicalClassifier
from attnlight.models.tagger import SelfAttentionTagger


def is_tagger(options: Mapping[str, Any]) -> bool:
    """Whether the options are a tagger's: it has names of tags, a classifier a number of classes."""
    return options.get("tags") is not None


def model_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Those of the options that decide what is built; one that is missing has its default."""
    if is_tagger(options):
        return _named(SelfAttentionTagger, options) | {"num_classes": len(options["tags"])}
    return classifier_options(options)


def build_model(
    options: Mapping[str, Any], *, guided: bool = False
) -> AffineClassifier | SelfAttentionTagger:
    """Build a classifier or, from options with `tags`, a tagger.

    Args:
        options: Arguments of its class, for a classifier with `hierarchical`; others are passed
            over.
        guided: Build one whose last attention is given.
    """
    if not is_tagger(options):
        return build_classifier(options, guided=guided)
    kind = GuidedSelfAttentionTagger if guided else SelfAttentionTagger
    return kind(**model_options(options))


def classifier_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """`model_options` of a classifier."""
    return _named(_kind(options), options)


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


def _named(kind: type, options: Mapping[str, Any]) -> dict[str, Any]:
    return {name: options[name] for name in signature(kind).parameters if name in options}
