"""Networks: plain modules, usable without Lightning."""

from attnlight.models.attention import (
    ATTENTIONS,
    AdditiveAttention,
    Attention,
    DotAttention,
    ScaledDotAttention,
    UniformAttention,
)
from attnlight.models.classifier import FlatClassifier
from attnlight.models.embedding import Embedding
from attnlight.models.encoders import CNN, ENCODERS, Average, BiGRU, BiLSTM, Encoder, NoEncoder
from attnlight.models.vectors import WordVectors, read_vectors

__all__ = [
    "ATTENTIONS",
    "CNN",
    "ENCODERS",
    "AdditiveAttention",
    "Attention",
    "Average",
    "BiGRU",
    "BiLSTM",
    "DotAttention",
    "Embedding",
    "Encoder",
    "FlatClassifier",
    "NoEncoder",
    "ScaledDotAttention",
    "UniformAttention",
    "WordVectors",
    "read_vectors",
]
