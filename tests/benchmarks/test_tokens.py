"""What searches and loops over tokens find is compared with what the tests measure."""

import pytest
import torch

from attnlight.batch import TextBatch
from attnlight.callbacks import AdversarialAttention, SingleErasure
from attnlight.models import SelfAttentionTagger
from tests.benchmarks import tokens
from tests.callbacks.token_loops import loop_of, measured, searched, tokens_of
from tests.models.taggers import sentences, tagger

Scene = tuple[SelfAttentionTagger, TextBatch]


@pytest.fixture(params=tokens.READOUTS)
def scene(request: pytest.FixtureRequest) -> Scene:
    """A tagger in double precision whose decisions hang on single tokens, and padded sentences."""
    return tagger(request.param).double().requires_grad_(False), sentences((5, 1, 4, 6))


@pytest.mark.slow
def test_a_search_is_never_above_the_upper_bound(scene: Scene) -> None:
    (model, batch), test = scene, AdversarialAttention(epsilon=0.05, program_instances=0)
    torch.manual_seed(0)
    found = [searched(*token, test.epsilon, steps=25) for token in tokens_of(model, batch)]
    output = model(batch)
    text = tokens.compare_searches(measured(test, batch, output, model), found)
    if output.item_logits is not None:
        assert text.endswith(", 0 of 32 searches end above ours")
    assert max(map(max, found)) > 0.1


def test_what_disagrees_is_no_measurement(scene: Scene) -> None:
    (model, batch), test = scene, SingleErasure()
    found = [loop_of(test)(*token) for token in tokens_of(model, batch)]
    columns = measured(test, batch, model(batch), model)
    assert tokens.compare_numbers(columns, found).startswith("1,152 of 1,152")
    wrong = {name: column + 0.5 for name, column in columns.items()}
    with pytest.raises(RuntimeError, match="of 1152 numbers only"):
        tokens.compare_numbers(wrong, found)
    bounds = dict.fromkeys(("worst_js_by_head", "upper_js_by_head"), torch.full((1, 2), 0.6))
    with pytest.raises(RuntimeError, match="further away"):
        tokens.compare_searches(bounds, [[0.7, 0.0]])
