"""What models and their parts refuse, with the option or the corpus that is to be changed."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch

from attnlight.batch import TextBatch
from attnlight.errors import InputError
from attnlight.models import (
    ATTENTIONS,
    ENCODERS,
    DotAttention,
    Embedding,
    FlatClassifier,
    SelfAttentionTagger,
)
from attnlight.models.attention import RANDOM_ATTENTIONS
from attnlight.models.build import changed_net, plain_net
from attnlight.models.embedding import TokenFeatures
from attnlight.models.options import PairNet
from attnlight.models.parts import part_names
from attnlight.models.transformer import SelfAttention
from tests.models import test_classifier as flat
from tests.models import test_hierarchical as hierarchical
from tests.models import test_pair as pair
from tests.models.taggers import sentences, tagger
from tests.models.test_embedding import VECTORS
from tests.models.test_every_classifier import KINDS

TOKENS, NESTED = torch.ones(2, 5, dtype=torch.long), torch.ones(2, 3, 5, dtype=torch.long)
TEXTS, IN_SENTENCES = (TextBatch(torch.arange(2), ids, ids != 0) for ids in (TOKENS, NESTED))
UNLIKE = {"encoder": "cnn", "query_encoder": "bilstm"}
PLAIN_PAIRS = plain_net("pairs", PairNet())


class Forgetful(FlatClassifier):
    """A network with a layer of its own, which its parts leave out."""

    def __init__(self) -> None:
        super().__init__(9, 2, embedding_size=4, hidden_size=3)
        self.extra = torch.nn.Linear(2, 2)


REFUSED: list[tuple[Callable[[], Any], str]] = [
    *((partial(kind, 4, attention_size=0), "attention_size is 0") for kind in ATTENTIONS.values()),
    (partial(DotAttention, 4, query_size=3), r"states of size 4 needs .* query_size is 3"),
    (partial(RANDOM_ATTENTIONS["random_by_text"], 4, query_size=4), "for classifiers of single t"),
    (partial(hierarchical.model, attention="random_by_text"), "random_by_text is for texts of wor"),
    *(  # sizes that cannot be shared out
        (partial(ENCODERS[name], 5, size), f"hidden_size {size} of the {name}")
        for name, sizes in {"cnn": (0, 3, 126), "conv": (0, 1, 101)}.items()
        for size in sizes
    ),
    *(
        (partial(kind, normalizer=name), words)
        for kind in (*(kind.model for kind in KINDS.values()), tagger)
        for name, words in (
            (
                "sigmoid",
                "normalizer is sigmoid, whose weights do not sum to 1.*expected one of: soft",
            ),
            ("sparsmax", "normalizer is sparsmax; expected one of: softmax, sparsemax, entmax15"),
        )
    ),
    (partial(SelfAttention, 10, 4), "hidden_size 10 is not a multiple of heads 4"),
    (partial(Embedding(4, 3).start_from, VECTORS), "4 words of size 2"),
    (partial(Embedding(5, 2).start_from, VECTORS), "4 words of size 2"),
    (lambda: part_names(Forgetful()), "of Forgetful are decoder, .* but extra.bias is in none"),
    *(
        (partial(kind.model, **options), words)
        for kind in KINDS.values()
        for options, words in (
            ({"dropout": -0.1}, "^dropout is -0.1"),
            ({"embedding_dropout": 1.0}, "^embedding_dropout is 1.0"),
            ({"classes": 1}, "num_classes is 1"),
            ({"embeding_size": 6}, r"no option .embeding_size.*embedding_size"),
        )
    ),
    (partial(flat.model, sentence_dropout=0.2), r"sentence_dropout is 0\.2, but .* no sentences"),
    (partial(pair.model, **UNLIKE, share=True), "bilstm: leave query_encoder"),
    (partial(pair.model, **UNLIKE, attention="dot"), "size 16 needs queries .* query_size is 32"),
    *(
        (partial(tagger, **options), words)
        for options, words in (
            ({"layers": 0}, "layers is 0"),
            ({"heads": 3}, "not a multiple of heads 3"),
            ({"hidden_size": 7, "heads": 1}, "hidden_size is 7"),
            ({"dropout": 1.5}, "dropout is 1.5"),
            ({"attention_dropout": 1.0}, "attention_dropout is 1"),
            ({"relu_dropout": -1.0}, "relu_dropout is -1.0"),
        )
    ),
    (lambda: changed_net("pairs", PLAIN_PAIRS, "uniform_net", head=1), "head is 1"),
    (lambda: plain_net("classification", PairNet()), "of PairNet, which classification does not"),
    # Batches of another kind of corpus.
    (lambda: flat.model()(IN_SENTENCES), "set `sentences: false` in `data`"),
    (
        lambda: hierarchical.model()(TEXTS),
        "set `sentences: nested` and `boundary_tokens: false` in `data`",
    ),
    (lambda: tagger()(IN_SENTENCES), "reads single sentences"),
    (
        lambda: TokenFeatures({"tag": 3}, 3)(sentences()),
        "the feature tag, but .* has pos, case, char",
    ),
    (lambda: pair.model()(TEXTS), r"pairs of a passage and a query, but .* single texts"),
    *(
        (partial(kind(60, 2), pair.collate(pair.corpus())), "single texts, but the corpus gives pa")
        for kind in (FlatClassifier, SelfAttentionTagger)
    ),
]


@pytest.mark.parametrize(("ask", "message"), REFUSED)
def test_is_refused(ask: Callable[[], Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        ask()
