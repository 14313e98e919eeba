import itertools
import math
from collections.abc import Sequence

import pytest
import torch

from attnlight.batch import BOS, EOS, UNK, TextBatch
from attnlight.models import ATTENTIONS, ENCODERS, FlatClassifier
from tests.models.oracles import VOCABULARY, far_from_start, padded

COMBINATIONS = list(itertools.product(ENCODERS, ATTENTIONS))


def collate(texts: Sequence[Sequence[int]], padding: int = 0) -> TextBatch:
    tokens = padded(texts, padding)
    return TextBatch(index=torch.arange(len(texts)) + 100, tokens=tokens, mask=tokens != 0)


def corpus(boundaries: bool = True) -> list[list[int]]:
    random = torch.Generator().manual_seed(0)
    lengths = [1, 2, 18, *torch.randint(1, 15, (9,), generator=random).tolist()]
    texts = [torch.randint(4, VOCABULARY, (n,), generator=random).tolist() for n in lengths]
    texts[1] = [UNK, UNK]
    return [[BOS, *text, EOS] for text in texts] if boundaries else texts


def model(
    encoder: str = "bilstm",
    attention: str = "additive",
    classes: int = 2,
    dtype: torch.dtype = torch.float64,
    **options: object,
) -> FlatClassifier:
    sizes = {"encoder": encoder, "attention": attention, "embedding_scale": 1.0}
    return far_from_start(FlatClassifier, classes, dtype, ("attention",), **sizes | options)


@pytest.mark.parametrize("classes", [2, 12])
def test_dropout_on_the_logits_leaves_attention_alone(classes: int) -> None:
    made = model("none", classes=classes, dropout=0.5, dropout_on="logits")
    batch = collate(corpus())
    whole = made(batch)
    assert torch.equal(whole.logits, model("none", classes=classes)(batch).logits)
    torch.manual_seed(0)
    output = made.train()(batch)
    assert torch.equal(output.weights, whole.weights)
    kept = output.logits != 0
    assert 0.3 < kept.double().mean() < 0.7 or classes == 2
    torch.testing.assert_close(output.logits[kept], 2 * whole.logits[kept])
    assert classes > 2 or not kept[:, 0].any()
    assert 0 < kept[:, 1].sum() < len(batch)


def made(how: str, **options: object) -> dict[str, torch.Tensor]:
    """Parameters of a classifier of a large decoder, from one seed, by name."""
    torch.manual_seed(0)
    sizes = {"embedding_size": 10, "hidden_size": 16}
    model = FlatClassifier(9, 20, initialization=how, **(sizes | options))
    return dict(model.named_parameters())


def test_default_is_torch_s() -> None:
    torch.manual_seed(0)
    torch.nn.Embedding(9, 10)
    network = torch.nn.GRU(10, 16)
    found = made("default", encoder="bigru")
    for name, parameter in network.named_parameters():
        assert torch.equal(found[f"encoder.forwards.{name}"], parameter)


@pytest.mark.parametrize("encoder", ["bigru", "bilstm", "conv", "average"])
def test_xavier_is_that_of_serrano_and_smith(encoder: str) -> None:
    before, after = (made(how, encoder=encoder) for how in ("default", "xavier"))
    for name, parameter in after.items():
        kind = name.rpartition(".")[2]
        if name.startswith(("encoder.convolutions", "embedding")):
            assert torch.equal(parameter, before[name])
        elif kind.startswith("bias"):
            assert (parameter == 0).all()
        elif kind.startswith("weight_hh"):
            torch.testing.assert_close(parameter.T @ parameter, torch.eye(16), atol=1e-5, rtol=0)
        else:
            bound = math.sqrt(6 / sum(parameter.shape))
            assert bound / 2 < parameter.abs().max() <= bound
            if parameter.numel() > 150:
                assert parameter.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.15)
