"""Passes from a layer on against full passes with the same patches."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from attnlight.callbacks import AttentionSinks
from attnlight.errors import InputError
from attnlight.huggingface.classifier import HuggingFaceClassifier
from attnlight.probing.interception import intercept, number_layers
from attnlight.probing.patches import Patch, off, restrict, uniform
from attnlight.probing.replay import Replay, layer_modules
from tests.huggingface.models import CONFIGURATIONS, HEADS, MODELS, assert_near
from tests.huggingface.test_classifier import classifier, texts
from tests.models import test_classifier as flat
from tests.models.taggers import sentences, tagger


def candidates(layers: int, heads: int) -> list[dict[int, Patch]]:
    """Single heads, a layer, pairs of layers, all of them."""
    single = [{n: restrict(off, heads=[h])} for n in range(layers) for h in range(heads)]
    every = {n: uniform for n in range(layers)}
    ends = {0: restrict(uniform, heads=[0]), layers - 1: off}
    return [*single, *({n: uniform} for n in range(layers)), every, ends, every]


@torch.no_grad()
def full_passes(model: Any, batch: Any, patches: list[dict[int, Patch]]) -> Tensor:
    logits = []
    for patch in patches:
        with intercept(patch=patch):
            logits.append(model(batch).logits)
    return torch.stack(logits, dim=1)


@pytest.mark.parametrize("padding", ["right", "left"])
@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_equal_full_passes(name: str, padding: str) -> None:
    model, batch = classifier(name, special_tokens="attended"), texts(padding)
    patches = candidates(len(model.attention_layers), HEADS)
    replay = Replay(model, batch, "the test")
    expected = full_passes(model, batch, patches)
    assert float((expected - replay.output.logits[:, None]).abs().amax((0, 2)).min()) > 1e-3
    for budget in (None, 1, 5 * batch.mask.numel()):
        found = replay.logits(patches, budget)
        assert_near(found, expected)
    with intercept(record="all") as recorded:
        again = model(batch)
    torch.testing.assert_close(again.logits, replay.output.logits)
    for number, kept in enumerate(replay.attention):
        torch.testing.assert_close(kept.weights, recorded[number].weights)


@pytest.mark.parametrize("encoder", ["transformer", "bilstm"])
@pytest.mark.parametrize("layers", [1, 3])
def test_of_a_tagger(encoder: str, layers: int) -> None:
    model, batch = tagger(encoder=encoder, layers=layers).double(), sentences()
    patches = candidates(layers, 2)
    found = Replay(model, batch, "the test").logits(patches)
    expected = full_passes(model, batch, patches)
    torch.testing.assert_close(found, expected)
    assert float((expected - model(batch).logits[:, None]).abs().amax((0, 2)).min()) > 1e-3


def test_patched_attention_of_a_tagger_is_what_it_returns() -> None:
    model, batch = tagger(layers=2), sentences()
    with intercept(record="all", patch={0: uniform, 1: restrict(off, heads=[1])}) as found:
        output = model(batch)
    text, position = torch.nonzero(batch.mask).unbind(-1)
    assert output.layers is not None
    torch.testing.assert_close(output.weights, found[1].weights[text, :, position])
    assert not output.weights[:, 1].any()
    lengths = batch.mask.sum(-1)[:, None, None]
    mass = output.layers[0].sum(-1)[batch.mask[:, None].expand(-1, 2, -1)]
    torch.testing.assert_close(mass, torch.ones_like(mass))
    torch.testing.assert_close(output.layers[0].amax((-1, -2)), (1 / lengths[..., 0]).expand(-1, 2))
    by_readout = model.readout(output, output.weights.unsqueeze(2))
    torch.testing.assert_close(by_readout.squeeze(1), output.logits)


def test_a_module_that_computes_several_layers() -> None:
    model, batch = tagger(layers=3), sentences()
    model.layers = nn.ModuleList([model.layers[0]] * len(model.layers))
    number_layers(lambda: model(batch))
    assert len(set(model.attention_layers)) < 3
    patches = candidates(3, 2)
    found = Replay(model, batch, "the test").logits(patches)
    assert_near(found, full_passes(model, batch, patches))


def test_layers_and_heads_that_do_not_exist() -> None:
    needs = r"the test needs a model with layers .* FlatClassifier has"
    with pytest.raises(InputError, match=needs):
        Replay(flat.model("bilstm"), flat.collate(flat.corpus()[:2]), "the test")
    replay = Replay(tagger(layers=2), sentences(), "the test")
    with pytest.raises(InputError, match="no layer 2; layers are 0 to 1"):
        replay.logits([{2: off}])
    with pytest.raises(InputError, match="no head 2; heads are 0 to 1"):
        replay.logits([{1: restrict(off, heads=[2])}])
    torch.testing.assert_close(replay.model(sentences()).logits, replay.output.logits)


def test_sinks_with_and_without_special_tokens(special_tokens: Any) -> None:
    model, batch = classifier("bert", special_tokens=special_tokens), texts()
    output = model(batch)
    columns = AttentionSinks().measure(batch, output, model)  # type: ignore[arg-type]
    erased = columns["erased_special"]
    tops = (columns[f"erased_top{end}"].nan_to_num() for end in ("", "_without_special"))
    fixed = special_tokens == "fixed"
    assert erased.isnan().all() == torch.equal(*tops) == fixed
    if not fixed:
        kept = output.weights * batch.attendable()[:, None]
        logits = model.readout(output, (kept / kept.sum(-1, keepdim=True)).unsqueeze(2))[:, 0]
        change = (logits.softmax(-1) - output.logits.softmax(-1)).abs().sum(-1) / 2
        torch.testing.assert_close(erased, change.detach().double(), atol=1e-6, rtol=0)


def test_layers_computed_for_all_heads_of_six_layers() -> None:
    """6 layers of 12 heads one by one: 12 (6 + 5 + ... + 1) layers and one pass, 43 passes."""
    sizes = {"hidden_size": 24, "num_attention_heads": 12, "num_hidden_layers": 6}
    net = MODELS["bert"]("AutoModelForSequenceClassification", **sizes)
    model, batch = HuggingFaceClassifier(net), texts()
    computed = 0

    def count(module: nn.Module, args: Any, options: Any) -> None:
        nonlocal computed
        states = args[0] if args else options["hidden_states"]
        if states.shape[1] > 1:  # not the readout's, of one token each
            computed += len(states)

    for layer in layer_modules(model):
        layer.get_submodule("attention").register_forward_pre_hook(count, with_kwargs=True)
    replay = Replay(model, batch, "the test")
    replay.logits([{n: restrict(off, heads=[h])} for n in range(6) for h in range(12)])
    assert computed / len(batch) / 6 == 43
