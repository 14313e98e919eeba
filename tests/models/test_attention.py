import pytest
import torch
from scipy.stats import kstest

from attnlight.batch import TextBatch
from attnlight.models import ATTENTIONS, AdditiveAttention
from attnlight.models.attention import RANDOM_ATTENTIONS

STATES = torch.ones(2, 3, 4)
MASK = torch.tensor([[True, True, False], [True, True, True]])


@pytest.mark.parametrize(("given", "size"), [(None, 128), (1, 1), (100, 100)])
def test_attention_size_is_that_of_the_hidden_layer(given: int | None, size: int) -> None:
    """By default half a state's, as of Jain & Wallace."""
    attention = AdditiveAttention(256, query_size=3, attention_size=given)
    assert {name: tuple(p.shape) for name, p in attention.named_parameters()} == {
        "key.weight": (size, 256),
        "key.bias": (size,),
        "query.weight": (size, 3),
        "query.bias": (size,),
        "value.weight": (1, size),
    }


@pytest.mark.parametrize("name", ATTENTIONS)
def test_queries_are_given_where_expected_and_only_there(name: str) -> None:
    query = torch.ones(2, 4)
    with pytest.raises(ValueError, match="expects no query"):
        ATTENTIONS[name](4)(STATES, MASK, query)
    with pytest.raises(ValueError, match=r"expects a query \(B, 4\)"):
        ATTENTIONS[name](4, query_size=4)(STATES, MASK)
    weights, _ = ATTENTIONS[name](4, query_size=4)(STATES, MASK, query)
    assert torch.equal(weights != 0, MASK)


def test_random_attention_is_of_the_token_alone_or_of_its_text() -> None:
    torch.manual_seed(0)
    by_token, by_text = (RANDOM_ATTENTIONS[f"random_by_{x}"](4) for x in ("token", "text"))
    tokens = torch.tensor([[5, 6, 7, 5], [6, 5, 9, 9]])
    batch = TextBatch(torch.tensor([3, 8]), tokens, tokens > 0)
    for attention in (by_token, by_text):
        scores = attention.draw(batch)
        assert scores[0, 0] == scores[0, 3], "the same word"
        assert (scores[0, 0] == scores[1, 1]) == (attention is by_token), "in another text"
        assert torch.equal(attention.draw(batch.select(torch.tensor([1, 0]))), scores[[1, 0]])
        weights, given = attention(torch.randn(2, 4, 4), batch.mask, scores)
        assert torch.allclose(weights, given.softmax(-1))
        assert not list(attention.parameters())
    torch.manual_seed(1)
    again = RANDOM_ATTENTIONS["random_by_token"](4)
    assert not torch.equal(again.draw(batch), by_token.draw(batch)), "another seed"
    again.load_state_dict(by_token.state_dict())
    assert torch.equal(again.draw(batch), by_token.draw(batch)), "of a checkpoint"


def test_random_scores_are_normal_with_the_drawn_spread() -> None:
    torch.manual_seed(0)
    attention = RANDOM_ATTENTIONS["random_by_token"](4)
    tokens = torch.arange(20_000).view(1, -1)
    scores = attention.draw(TextBatch(torch.zeros(1).long(), tokens, tokens >= 0))
    assert 0.5 <= float(attention.spread) <= 2
    assert scores.std() == pytest.approx(float(attention.spread), rel=0.02)
    assert scores.mean().abs() < 0.05
    assert kstest((scores[0] / attention.spread).numpy(), "norm").pvalue > 0.01
