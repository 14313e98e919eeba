"""Classifiers of one text: their base class, and the flat one."""

from typing import Any

from torch import Tensor, nn
from typing_extensions import override

from attnlight.batch import TextBatch
from attnlight.errors import InputError
from attnlight.models.attention import ATTENTIONS, RANDOM_ATTENTIONS, Attention, RandomAttention
from attnlight.models.context import PARTS, QUERY, ContextClassifier, refuse_queries
from attnlight.models.encoders import ENCODERS, Encoder
from attnlight.models.options import ClassifierNet, group_of


class AffineClassifier(ContextClassifier):
    """Base of the classifiers of one text, with an affine layer over the mean state.

    Its options are those of `ClassifierNet`; encoder and attention are the same at all levels.

    Raises:
        InputError: There are fewer than two classes, sizes do not fit, or an option is out of range or
            of the other kind of model, with or without sentences.
    """

    def __init__(self, vocab_size: int, num_classes: int, **options: Any) -> None:  # noqa: ANN401
        net = group_of(ClassifierNet, options)
        super().__init__(vocab_size, num_classes, net)
        if net.sentence_dropout and len(self.levels) == 1:
            raise InputError(
                f"sentence_dropout is {net.sentence_dropout}, but a model that is not hierarchical "
                "has no sentences."
            )
        if net.attention.startswith("random") and len(self.levels) > 1:
            raise InputError(
                f"attention {net.attention} is for texts of words, but the model is hierarchical."
            )
        self.sentence_dropout = nn.Dropout(net.sentence_dropout)
        self.dropout_on = net.dropout_on
        size = net.embedding_size
        for level in self.levels:
            encoder = ENCODERS[net.encoder](size, net.hidden_size)
            size = encoder.output_size + size * self.with_embeddings
            scorer = (ATTENTIONS | RANDOM_ATTENTIONS)[net.attention]
            attention = scorer(size, None, net.attention_size, net.normalizer)
            for kind, module in zip(PARTS, (encoder, attention), strict=True):
                self.add_module(level + kind, module)
        self.decoder = nn.Linear(size, num_classes if num_classes > 2 else 1)
        if net.initialization == "xavier":
            for part in self.modules():
                if isinstance(part, nn.Linear | nn.RNNBase):
                    for name, parameter in part.named_parameters():
                        if name.startswith("bias"):
                            nn.init.zeros_(parameter)
                        elif name.startswith("weight_hh"):
                            nn.init.orthogonal_(parameter)
                        else:
                            nn.init.xavier_uniform_(parameter)

    @override
    def _memory(self, batch: TextBatch) -> dict[str, Tensor]:
        refuse_queries(batch)
        return {}


class FlatClassifier(AffineClassifier):
    """Words to one text: the classifier of Jain and Wallace (2019), Serrano and Smith's FLAN."""

    levels = ("",)
    encoder: Encoder
    attention: Attention

    @override
    def _memory(self, batch: TextBatch) -> dict[str, Tensor]:
        refuse_queries(batch)
        attention = self.attention
        return {QUERY: attention.draw(batch)} if isinstance(attention, RandomAttention) else {}
