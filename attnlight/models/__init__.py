"""Networks: plain modules, usable without Lightning."""

from attnlight.models.attention import (
    ATTENTIONS,
    AdditiveAttention,
    Attention,
    DotAttention,
    ScaledDotAttention,
    UniformAttention,
)
from attnlight.models.classifier import AffineClassifier, FlatClassifier
from attnlight.models.embedding import Embedding
from attnlight.models.encoders import (
    CNN,
    ENCODERS,
    LSTM,
    Average,
    BiGRU,
    BiLSTM,
    Conv,
    Encoder,
    NoEncoder,
    OrthogonalLSTM,
)
from attnlight.models.hierarchical import HierarchicalClassifier
from attnlight.models.pair import PairClassifier
from attnlight.models.seq2seq import Seq2Seq
from attnlight.models.tagger import SelfAttentionTagger
from attnlight.models.vectors import WordVectors, read_vectors

__all__ = [
    "ATTENTIONS",
    "CNN",
    "ENCODERS",
    "LSTM",
    "AdditiveAttention",
    "AffineClassifier",
    "Attention",
    "Average",
    "BiGRU",
    "BiLSTM",
    "Conv",
    "DotAttention",
    "Embedding",
    "Encoder",
    "FlatClassifier",
    "HierarchicalClassifier",
    "NoEncoder",
    "OrthogonalLSTM",
    "PairClassifier",
    "ScaledDotAttention",
    "SelfAttentionTagger",
    "Seq2Seq",
    "UniformAttention",
    "WordVectors",
    "read_vectors",
]
