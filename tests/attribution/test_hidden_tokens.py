"""Hidden token attribution against Jacobians by torch, text by text."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from attnlight.attribution.hidden_tokens import hidden_token_attribution
from attnlight.batch import EOS, AttentionModel, AttentionOutput, TextBatch
from attnlight.errors import InputError
from attnlight.functional import draw_keys
from attnlight.models import ENCODERS
from tests.attribution.scenes import scene
from tests.bases import one_text
from tests.models import test_classifier as flat
from tests.models import test_hierarchical as hierarchical
from tests.models import test_pair as pair
from tests.models.taggers import sentences, tagger
from tests.probing.oracles import Hiding

Case = tuple[AttentionModel, TextBatch]
SHORT = [[*text[:size], EOS] for text, size in zip(flat.corpus()[2:], (9, 4, 2, 7), strict=False)]


def of_text(model: AttentionModel, batch: TextBatch, row: int) -> Tensor:
    """Shares (N, N) of one text alone, by torch's Jacobian of all its states at once."""
    alone = one_text(batch, row)
    jacobian = torch.autograd.functional.jacobian(
        lambda embeddings: model(alone, embeddings=embeddings).states, model.embed(alone).detach()
    )[0, :, :, 0]  # (N, D, N, E), or (N, D, N, W, E)
    norms = jacobian.double().square().sum((1, -1)).sqrt()
    norms = norms.sum(-1) if norms.ndim == 3 else norms
    items = model(alone).mask[0]
    shares = torch.zeros(batch.tokens.shape[1], batch.tokens.shape[1], dtype=torch.float64)
    found = norms / norms.sum(-1, keepdim=True)
    shares[: len(found), : len(found)] = found.masked_fill(~items[:, None], 0.0)
    return shares


def case(name: str) -> Case:
    """A model with a batch of texts of unequal length, with padding."""
    if name in ENCODERS:
        return flat.model(name, hidden_size=8), flat.collate(SHORT, padding=2)
    if name.startswith("han"):
        texts = [[[*words[:2], EOS] for words in text] for text in hierarchical.corpus()[:5]]
        model = hierarchical.model(name.removeprefix("han_"), hidden_size=8)
        return model, hierarchical.collate(texts, sentences=1, words=2)
    if name == "pair":
        return pair.model(hidden_size=8), pair.collate(pair.corpus()[:4], (0, 0))
    if name == "opaque heads":
        return scene(name)
    _, encoder, layers = name.split("_")
    model = tagger("study", encoder=encoder, layers=int(layers))
    return model.double(), sentences(extra=2)


def shares_of(
    model: AttentionModel, batch: TextBatch, **options: int | None
) -> tuple[Tensor, Tensor, AttentionOutput]:
    with torch.no_grad():
        output = model(batch)
    return *hidden_token_attribution(model, batch, output, **options), output


NAMES = [
    *ENCODERS,
    *("han_bigru", "han_conv", "han_none"),
    *("pair", "opaque heads"),
    *("tagger_tokens_1", "tagger_transformer_1", "tagger_transformer_2", "tagger_bilstm_1"),
]


@pytest.mark.parametrize("name", NAMES)
def test_equals_the_jacobian_of_each_text(name: str) -> None:
    model, batch = case(name)
    shares, errors, output = shares_of(model, batch)
    for row in (0, len(batch) - 1):
        expected = of_text(model, batch, row)
        torch.testing.assert_close(shares[row], expected, rtol=1e-9, atol=1e-12, equal_nan=True)
    assert errors.eq(0).all()
    assert not output.states.requires_grad
    summed = shares.sum(-1)[~shares.isnan().any(-1)]
    assert ((summed - 1).abs().lt(1e-12) | summed.eq(0)).all()
    assert summed.gt(0).sum() > 8


@pytest.mark.parametrize("name", ["none", "average", "han_none", "tagger_tokens_1", "opaque heads"])
@pytest.mark.parametrize("probes", [None, 3])
@pytest.mark.parametrize("known", [True, False])
def test_is_exactly_one_without_context(
    name: str, probes: int | None, known: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the model's reach, and by differentiating states of which it is not known."""
    model, batch = case(name)
    if not known and hasattr(type(model), "reach"):
        monkeypatch.setattr(type(model), "reach", None)
    shares, errors, _ = shares_of(model, batch, probes=probes)
    own = shares.diagonal(dim1=1, dim2=2)
    items = own > 0
    assert own[items].eq(1).all()
    assert shares.sum() == items.sum() > 8
    assert errors.eq(0).all()


def test_a_network_whose_forward_is_its_own_has_no_known_reach() -> None:
    class Shifted(type(flat.model("cnn"))):  # type: ignore[misc]
        def forward(
            self, batch: TextBatch, weights: Tensor | None = None, embeddings: Tensor | None = None
        ) -> AttentionOutput:
            output: AttentionOutput = super().forward(batch, weights, embeddings)
            return replace(output, states=output.states.cumsum(1))

    model = flat.model("none")
    assert model.reach == 0
    shifted = Shifted(60, 2, encoder="none", embedding_size=4).double().eval()
    assert shifted.reach is None
    batch = flat.collate([[4, 9, 5]])
    shares, _, _ = shares_of(shifted, batch)
    expected = [[1, 0, 0], [1 / 2, 1 / 2, 0], [1 / 3, 1 / 3, 1 / 3]]
    torch.testing.assert_close(shares[0], torch.tensor(expected).double())


def test_the_jackknife_by_hand() -> None:
    """Of a linear state the products are signs times columns: leave out one sign after the other."""
    model, batch = case("bilstm")
    one = batch.select(batch.mask.sum(1).argmax(keepdim=True))
    shares, errors, output = shares_of(model, one, probes=5)
    items = output.mask[0].nonzero().squeeze(-1)
    size = output.states.shape[-1]
    for rank in (0, 3):
        keys = draw_keys(0, one.index, torch.tensor([rank]), 5, size)[0]
        signs = torch.where(keys < 0, -1.0, 1.0).double()
        embeddings = model.embed(one).detach().requires_grad_()
        state = model(one, embeddings=embeddings).states[0, items[rank]]
        products = [
            torch.autograd.grad(state @ sign, embeddings, retain_graph=True)[0][0] for sign in signs
        ]
        squares = torch.stack(products).square().sum(-1)  # (5, N)

        def own(kept: list[int]) -> float:
            norms = squares[kept].sum(0).sqrt()  # noqa: B023
            return float(norms[items[rank]] / norms.sum())  # noqa: B023

        assert float(shares[0, items[rank], items[rank]]) == pytest.approx(own(list(range(5))))
        left = [own([n for n in range(5) if n != out]) for out in range(5)]
        spread = sum((value - sum(left) / 5) ** 2 for value in left)
        assert float(errors[0, items[rank]]) == pytest.approx((4 / 5 * spread) ** 0.5)


def test_a_dead_state_has_no_share_and_others_keep_theirs() -> None:
    model, batch = case("conv")
    with torch.no_grad():
        for layer in model.encoder.convolutions:  # type: ignore[attr-defined]
            layer.bias.sub_(1.0)
    shares, _, output = shares_of(model, batch)
    dead = output.states.eq(0).all(-1) & output.mask
    assert 0 < dead.sum() < output.mask.sum()
    assert torch.equal(shares.isnan().any(-1), dead)


@pytest.mark.parametrize("spoil", [Tensor.detach, lambda states: states[:, :-1]])
def test_states_that_do_not_come_from_the_embeddings_are_refused(
    spoil: Callable[[Tensor], Tensor],
) -> None:
    def spoiled(_: TextBatch, output: AttentionOutput) -> AttentionOutput:
        return replace(output, states=spoil(output.states))

    model, batch = Hiding(flat.model("none"), spoiled), flat.collate(flat.corpus()[:3])
    with pytest.raises(InputError, match=r"`states` .* computed from the `embeddings`"):
        hidden_token_attribution(model, batch, model(batch))


def test_a_text_without_items_has_no_shares() -> None:
    model = flat.model("bilstm")
    shares, _, _ = shares_of(model, flat.collate([[2, 3], [2, 9, 8, 3]]))
    assert shares[0].eq(0).all()
    assert shares[1].sum() == pytest.approx(2)
