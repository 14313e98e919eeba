"""Recorded and replaced attention against transformers' eager and sdpa implementations."""

import importlib
import sys
import threading
from functools import partial
from typing import Any

import pytest
import torch
import transformers
from packaging.version import Version
from torch import Tensor
from torch.nn.functional import rms_norm
from transformers.integrations.sdpa_attention import repeat_kv, sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

import attnlight.huggingface
from attnlight.errors import InputError
from attnlight.huggingface.attention import attention_layers, intercept
from attnlight.probing.patches import Patch, off, restrict, uniform
from tests.huggingface.models import DECODERS, GROUPED, HEADS, MODELS, SMALL, assert_same

# Attention with what the ten do not have: a cap on scores, sinks, a bias on scores, a shared layer.
OTHERS: dict[str, dict[str, Any]] = {
    "Gemma2": {**SMALL, **GROUPED, "attn_logit_softcapping": 2.0, "sliding_window": 3},
    "GptOss": {**SMALL, **GROUPED, "num_local_experts": 2, "num_experts_per_tok": 1},
    "T5": {"vocab_size": 50, "d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2}
    | {"num_heads": 4, "dropout_rate": 0.0},
    "Albert": {**SMALL, "embedding_size": 16},
}


def texts(padding: str = "none") -> dict[str, Tensor]:
    """Three texts of 9 tokens, the second with padding of 3."""
    tokens = torch.randint(3, 50, (3, 9), generator=torch.Generator().manual_seed(1))
    mask = torch.ones_like(tokens)
    if padding != "none":
        mask[1, {"right": slice(6, None), "left": slice(3)}[padding]] = 0
    return {"input_ids": tokens * mask, "attention_mask": mask}


@torch.no_grad()
def states(model: Any, batch: dict[str, Tensor], **options: Any) -> Any:
    return model(**batch, output_hidden_states=True, **options)


def given(weights: Tensor) -> Patch:
    return lambda own, allowed: weights


def recorded(model: Any, batch: dict[str, Tensor], **patch: Any) -> tuple[Any, Any]:
    with intercept(record="all", **patch) as found:
        output = states(model, batch)
    return output, found


def largest(one: Any, other: Any) -> float:
    return max(float((a - b).detach().abs().max()) for a, b in zip(one, other, strict=True))


def in_double_precision(model: Any) -> Any:
    """The model, with norms that transformers would compute in single precision."""
    for module in model.double().modules():
        if type(module).__name__.endswith("RMSNorm"):
            gemma = "Gemma" in type(module).__name__
            epsilon = module.eps if gemma else module.variance_epsilon
            size, weight = module.weight.shape, module.weight + float(gemma)
            module.forward = partial(rms_norm, normalized_shape=size, weight=weight, eps=epsilon)
    return model


def random_weights(like: Tensor, seed: int = 0) -> Tensor:
    drawn = torch.randn(like.shape, generator=torch.Generator().manual_seed(seed))
    return drawn.to(like.dtype).softmax(-1)


def intercepted(name: str, **options: Any) -> Any:
    model = MODELS[name](**options)
    attention_layers(model)
    return model


@pytest.fixture
def model(name: str) -> Any:
    return intercepted(name)


@pytest.mark.parametrize("padding", ["none", "right", "left"])
def test_same_as_transformers(model: Any, padding: str) -> None:
    """As eager attention where it is recorded, on what may be reached; else as sdpa."""
    batch = texts(padding)
    plain, (output, found) = states(model, batch), recorded(model, batch)
    for one in found.values():
        assert not (one.allowed & ~batch["attention_mask"].bool()[:, None, None]).any()
        reaching = one.allowed.any(-1)
        assert reaching[batch["attention_mask"].bool()[:, None].expand_as(reaching)].all()
        on = (one.weights * one.allowed).sum(-1)[reaching]
        torch.testing.assert_close(on, torch.ones_like(on), atol=1e-6, rtol=0)
        assert (one.weights.masked_fill(one.allowed, 0.0)[reaching] == 0).all()
    model.config._attn_implementation = "sdpa"
    assert largest(plain.hidden_states, states(model, batch).hidden_states) <= 2e-6
    model.config._attn_implementation = "eager"
    eager = states(model, batch, output_attentions=True)
    assert list(found) == list(range(len(eager.attentions)))
    assert largest([one.weights for one in found.values()], eager.attentions) <= 1e-6
    assert largest(output.hidden_states, eager.hidden_states) <= 1e-5


@pytest.mark.parametrize("padding", ["right", "left"])
@pytest.mark.parametrize("name", DECODERS)
def test_padding_changes_no_weights(name: str, padding: str) -> None:
    model, batch = intercepted(name), texts(padding)
    real = batch["attention_mask"][1].bool()
    positions = {"position_ids": (batch["attention_mask"].cumsum(-1) - 1).clamp(min=0)}
    _, found = recorded(model, batch | positions)
    _, alone = recorded(model, {key: value[1:2, real] for key, value in batch.items()})
    for layer, one in found.items():
        weights = one.weights[1][:, real][..., real]
        torch.testing.assert_close(weights, alone[layer].weights[0], atol=2e-6, rtol=0)
        torch.testing.assert_close(one.values[1][:, real], alone[layer].values[0])


def test_values_are_those_of_each_head(model: Any) -> None:
    values = []

    def eager(
        module: Any, query: Tensor, key: Tensor, value: Tensor, *args: Any, **options: Any
    ) -> Any:
        values.append(repeat_kv(value, query.shape[1] // value.shape[1]))
        return sdpa_attention_forward(module, query, key, value, *args, **options)

    transformers.AttentionInterface.register("capturing", eager)
    transformers.AttentionMaskInterface.register("capturing", sdpa_mask)
    _, found = recorded(model, texts())
    model.config._attn_implementation = "capturing"
    states(model, texts())
    assert largest([one.values for one in found.values()], values) <= 1e-5


class TestPatches:
    @pytest.mark.parametrize("heads", [[2], [1, 3], [0, 1, 2, 3]])
    def test_given_weights_replace_no_others(self, model: Any, heads: list[int]) -> None:
        batch, layer = texts(), len(attention_layers(model)) - 1
        output, found = recorded(model, batch)
        own = found[layer].weights
        new = random_weights(own[:, heads])
        patched, after = recorded(model, batch, patch={layer: restrict(given(new), heads)})
        expected = own.clone()
        for place, head in enumerate(heads):
            expected[:, head] = new[:, place]
        assert_same(after[layer].weights, expected)
        assert largest(patched.hidden_states[:-1], output.hidden_states[:-1]) == 0
        assert largest(patched.hidden_states[-1:], output.hidden_states[-1:]) > 1e-3

    def test_transforms(self, model: Any) -> None:
        batch = texts("left")
        _, found = recorded(model, batch)
        patch = {0: restrict(uniform, heads=[0]), 1: restrict(off, heads=[1])}
        output, after = recorded(model, batch, patch=patch)
        allowed = found[0].allowed[:, 0]
        equal = torch.tensor(
            [[[float(one) / max(int(row.sum()), 1) for one in row] for row in t] for t in allowed]
        )
        torch.testing.assert_close(after[0].weights[:, 0], equal)
        torch.testing.assert_close(after[0].weights[:, 1:], found[0].weights[:, 1:])
        assert (after[1].weights[:, 1] == 0).all()
        assert all(part.isfinite().all() for part in output.hidden_states)

    def test_patches_are_before_dropout(self) -> None:
        model = intercepted("bert", attention_probs_dropout_prob=0.5).train()
        with intercept(record="all", patch={0: uniform}) as found:
            torch.manual_seed(0)
            first = model(**texts()).last_hidden_state
            second = model(**texts()).last_hidden_state
        torch.testing.assert_close(found[0].weights, torch.full((3, HEADS, 9, 9), 1 / 9))
        assert largest([first], [second]) > 1e-2

    def test_inner_patches_win_and_both_record(self, model: Any) -> None:
        batch = texts()
        own, both = recorded(model, batch)[1][0].weights, {}
        ones, threes = (given(torch.full((1, 1, 1, 9), value)) for value in (0.1, 0.3))
        outer = {0: restrict(ones, heads=[0, 1])}
        with intercept(record=[0], patch=outer) as both["outer"]:
            with intercept(record=[0], patch={0: restrict(threes, heads=[1])}) as both["inner"]:
                states(model, batch)
            inner = both["outer"][0].weights
            states(model, batch)
        assert inner is both["inner"][0].weights
        for head, (within, after) in enumerate([(0.1, 0.1), (0.3, 0.1)]):
            assert (inner[:, head] == within).all()
            assert (both["outer"][0].weights[:, head] == after).all()
        torch.testing.assert_close(inner[:, 2:], own[:, 2:])


class TestGradients:
    def test_by_given_weights_equal_finite_differences(self, model: Any) -> None:
        model, layers = in_double_precision(model), attention_layers(model)
        batch, numbers = texts("right"), range(len(layers))
        with intercept(record="all") as found:
            torch.manual_seed(0)
            goal = torch.randn(states(model, batch).last_hidden_state.shape).double()
        given_weights = [found[layer].weights.clone().requires_grad_() for layer in numbers]

        def value(weights: list[Tensor]) -> Tensor:
            with intercept(patch={layer: given(weights[layer]) for layer in numbers}):
                total: Tensor = (model(**batch).last_hidden_state * goal).mean()
            return total

        gradients = torch.autograd.grad(value(given_weights), given_weights)
        for layer in numbers:
            torch.manual_seed(layer)
            step = 1e-5 * torch.randn(given_weights[layer].shape).double()
            sides = []
            for sign in (-1, 1):
                moved = [part.detach().clone() for part in given_weights]
                moved[layer] += sign * step
                sides.append(value(moved).item())
            expected = (sides[1] - sides[0]) / 2
            assert (gradients[layer] * step).sum().item() == pytest.approx(expected, rel=1e-4)
            assert abs(expected) > 1e-10

    def test_flow_through_recorded_weights(self, model: Any) -> None:
        with intercept(record="all") as found:
            output = model(**texts()).last_hidden_state
        last = max(found)
        one = found[last]
        gradients = torch.autograd.grad(output[..., 0].sum(), (one.weights, one.values))
        assert all(float(gradient.abs().max()) > 0 for gradient in gradients)


class TestThreads:
    def test_have_their_own_interceptions(self) -> None:
        model = intercepted("llama")
        plain, meet = states(model, texts()).last_hidden_state, threading.Barrier(2)
        results: dict[str, Any] = {}

        def run(name: str, patch: dict[int, Patch]) -> None:
            with intercept(record=[0], patch=patch) as found:
                meet.wait()  # both intercept now
                results[name] = states(model, texts()).last_hidden_state, found[0].weights
                meet.wait()

        given_to = (("off", {0: off}), ("own", {}))
        threads = [threading.Thread(target=run, args=arguments) for arguments in given_to]
        with intercept(record=[1]) as found:
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert not found
            states(model, texts())
        assert (results["off"][1] == 0).all()
        assert (results["own"][1].sum(-1) > 0.99).all()
        assert largest([results["own"][0]], [plain]) <= 1e-5
        assert largest([results["off"][0]], [plain]) > 1e-2


class TestLayers:
    def test_are_in_the_order_of_calls(self, model: Any) -> None:
        layers, called = attention_layers(model), []
        for layer in layers:
            layer.register_forward_hook(lambda module, *rest: called.append(module))
        states(model, texts())
        assert called == layers
        assert len(set(map(id, layers))) == len(layers) == model.config.num_hidden_layers

    @pytest.mark.parametrize("name", OTHERS)
    def test_of_other_architectures(self, name: str) -> None:
        if name == "T5" and Version(transformers.__version__) < Version("5.15"):
            pytest.skip("before transformers 5.15, T5 computes attention itself and is refused")
        torch.manual_seed(0)
        made = transformers.T5EncoderModel if name == "T5" else transformers.AutoModel.from_config
        config = getattr(transformers, f"{name}Config")(**OTHERS[name])
        model, batch = made(config).eval(), texts("right")
        for parameter in model.parameters():
            torch.nn.init.normal_(parameter, std=0.3)
        assert len(attention_layers(model)) == 2
        plain, (output, found) = states(model, batch), recorded(model, batch)
        model.config._attn_implementation = "eager"
        eager = states(model, batch, output_attentions=True)
        assert largest([one.weights for one in found.values()], eager.attentions) <= 1e-6
        assert largest(output.hidden_states, eager.hidden_states) <= 1e-5
        assert largest(plain.hidden_states, eager.hidden_states) <= 1e-4
        if name == "GptOss":  # the sink has the rest
            assert float(found[0].weights.sum(-1).max()) < 0.999


ONES = torch.ones(3, 3, 9, 9)


class TestMistakes:
    def test_attention_that_is_not_the_interfaces(self) -> None:
        model = transformers.AutoModel.from_config(transformers.DebertaV2Config(**SMALL))
        with pytest.raises(InputError, match="DebertaV2Model cannot be intercepted"):
            attention_layers(model)

    @pytest.mark.parametrize(
        ("wrong", "said"),
        [
            ({"record": [2]}, "no layer 2; layers are 0 to 1"),
            ({"patch": {2: off}}, "no layer 2; layers are 0 to 1"),
            ({"patch": {0: restrict(off, heads=[-1])}}, "no head -1; heads are 0 to 3"),
            ({"patch": {0: restrict(off, heads=[HEADS])}}, "no head 4; heads are 0 to 3"),
            ({"patch": {0: given(ONES)}}, r"have the shape \(3, 3, 9, 9\), not \(3, "),
            (
                {"patch": {0: restrict(given(ONES), heads=[0, 1])}},
                r"have the shape \(3, 3, 9, 9\), not \(3, ",
            ),
        ],
    )
    def test_what_does_not_exist(self, wrong: Any, said: str) -> None:
        with pytest.raises(InputError, match=said), intercept(**wrong):
            states(intercepted("bert"), texts())

    def test_a_model_without_numbers(self) -> None:
        model = MODELS["bert"]()
        with pytest.raises(InputError, match="no attention was computed"), intercept("all"):
            states(model, texts())
        model.config._attn_implementation = "attnlight"
        with pytest.raises(InputError, match="call attention_layers"), intercept("all"):
            states(model, texts())

    def test_transformers_is_not_installed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "transformers", None)
        with pytest.raises(InputError, match=r"pip install 'transformers>="):
            importlib.reload(attnlight.huggingface)

    def test_an_error_ends_the_interception(self) -> None:
        model = intercepted("bert")
        plain = states(model, texts()).last_hidden_state
        with pytest.raises(ZeroDivisionError), intercept(patch={0: lambda own, _: own / (1 // 0)}):
            states(model, texts())
        assert largest([states(model, texts()).last_hidden_state], [plain]) == 0
