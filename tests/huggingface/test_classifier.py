"""`HuggingFaceClassifier` against full passes of the models that it reads."""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor

import attnlight
from attnlight.batch import BOS, EOS, TextBatch
from attnlight.callbacks.sanity import initial_parameters
from attnlight.errors import InputError
from attnlight.functional.readout.instances import empty_logits
from attnlight.huggingface import HuggingFacePooledClassifier
from attnlight.huggingface.attention import intercept
from attnlight.huggingface.classifier import HuggingFaceClassifier
from tests.huggingface.folders import write_model
from tests.huggingface.models import DECODERS, HEADS, MODELS, SMALL, assert_near, assert_same

LENGTHS = (9, 4, 6, 3, 7)


def texts(padding: str = "right") -> TextBatch:
    """Texts with a token before and one after each."""
    tokens = torch.randint(4, 50, (5, 9), generator=torch.Generator().manual_seed(1))
    mask = torch.zeros(5, 9, dtype=torch.bool)
    for text, length in enumerate(LENGTHS):
        place = slice(length) if padding == "right" else slice(9 - length, 9)
        mask[text, place] = True
        tokens[text, place.start or 0] = BOS
        tokens[text, (place.stop or 9) - 1] = EOS
    return TextBatch(torch.arange(5) + 3, tokens * mask, mask)


def random_weights(output: Any, candidates: int, seed: int = 0) -> Tensor:
    """Attention (B, H, K, N) over the items."""
    size = (*output.weights.shape[:2], candidates, output.weights.shape[2])
    scores = 3 * torch.randn(size, generator=torch.Generator().manual_seed(seed))
    return scores.masked_fill(~output.mask[:, None, None], -torch.inf).softmax(-1)


@torch.no_grad()
def full_pass(model: Any, batch: TextBatch, rows: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Logits of the model by itself with a row of its last layer substituted; that row."""
    transformer, last = model.transformer, len(model.attention_layers) - 1
    decoder, mask = model.last_layer.causal, batch.mask.long()
    count = mask.shape[1]
    last_places = (max(n for n in range(count) if row[n]) for row in batch.mask)
    query = torch.tensor([place if decoder else 0 for place in last_places])

    def substituted(weights: Tensor, allowed: Tensor) -> Tensor:
        changed = weights.clone()
        for text, place in enumerate(query.tolist()):
            changed[text, :, place] = weights[text, :, place] if rows is None else rows[text]
        return changed

    with intercept(record=[last], patch={last: substituted}) as found:
        logits = transformer(input_ids=batch.tokens, attention_mask=mask).logits
    return logits, found[last].weights[torch.arange(len(query)), :, query]


def built(name: str, attn_implementation: str | None = None, **options: Any) -> Any:
    model = MODELS[name]("AutoModelForSequenceClassification", **options)
    if attn_implementation is not None:
        model.config._attn_implementation = attn_implementation
    return model


def classifier(name: str, classes: int = 3, **options: Any) -> HuggingFaceClassifier:
    return HuggingFaceClassifier(built(name, num_labels=classes), **options).eval()


def pooled_classifier(name: str, **options: Any) -> HuggingFacePooledClassifier:
    torch.manual_seed(0)
    return HuggingFacePooledClassifier(MODELS[name](), 3, **options).eval()


def require_full_passes(model: Any, batch: TextBatch, candidates: int = 2) -> None:
    """Check logits, the row that the head reads, and the readout against full passes."""
    output = model(batch)
    expected, row = full_pass(model, batch)
    assert_near(output.logits, expected)
    torch.testing.assert_close(model.substituted(output, output.weights), row, atol=1e-6, rtol=0)
    weights = random_weights(output, candidates)
    logits = model.readout(output, weights)
    for number, rows in enumerate(weights.unbind(2)):
        expected, _ = full_pass(model, batch, model.substituted(output, rows))
        assert_near(logits[:, number], expected)
    moved = (logits[:, 0] - logits[:, 1]).abs().amax(-1)
    assert (moved[output.mask.sum(-1) > 1] > 1e-3).all()


class TestLastLayer:
    def test_logits_are_those_of_the_model(self, name: str, special_tokens: Any) -> None:
        model, batch = classifier(name, special_tokens=special_tokens), texts()
        output = model(batch)
        require_full_passes(model, batch, 3)
        _, row = full_pass(model, batch)
        for text, length in enumerate(LENGTHS):
            items = range(length) if special_tokens == "attended" else range(1, length - 1)
            reached = [n for n in items if row[text, 0, n] > 0]
            assert output.mask[text].nonzero().flatten().tolist() == reached
            for head in range(HEADS):
                total = sum(float(row[text, head, n]) for n in reached)
                for n in reached:
                    expected = float(row[text, head, n]) / total
                    assert float(output.weights[text, head, n]) == pytest.approx(expected, rel=1e-4)

    @pytest.mark.parametrize("padding", ["right", "left"])
    @pytest.mark.parametrize("name", ["bert", "gpt2", "llama"])
    def test_a_decoders_first_token_is_no_item(self, name: str, padding: str) -> None:
        """All later tokens see it, special or not; it is an item where there is no other."""
        batch = texts(padding)
        batch.tokens[batch.mask] = batch.tokens[batch.mask].clamp(min=EOS + 1)
        batch.mask[0], batch.mask[0, 4] = False, True  # a text of one token
        expected = batch.mask.clone()
        if name in DECODERS:
            for text in range(1, 5):
                expected[text, batch.mask[text].nonzero()[0]] = False
        assert torch.equal(classifier(name, special_tokens="fixed")(batch).mask, expected)

    def test_left_padding(self, name: str) -> None:
        model, batch, left = classifier(name), texts(), texts("left")
        left.tokens[left.mask] = batch.tokens[batch.mask]
        expected, output = model(batch), model(left)
        assert_near(output.logits, expected.logits)
        assert_near(output.states[left.mask], expected.states[batch.mask])
        assert_near(output.weights.mT[left.mask], expected.weights.mT[batch.mask])
        assert_near(pooled_classifier(name)(left).logits, pooled_classifier(name)(batch).logits)

    @pytest.mark.parametrize("padding", [EOS, None])
    @pytest.mark.parametrize("name", ["gpt2", "llama"])
    @torch.no_grad()
    def test_an_end_that_is_the_token_for_padding(self, name: str, padding: int | None) -> None:
        """The head of transformers then reads the token before it."""
        own, batch = built(name, pad_token_id=padding), texts()
        pairs = zip(batch.tokens, batch.mask, strict=True)
        expected = [own(input_ids=ids[seen][None]).logits[0] for ids, seen in pairs]
        model = HuggingFaceClassifier(own).eval()
        assert_near(model(batch).logits, torch.stack(expected))
        ends = torch.tensor(LENGTHS) - (1 if padding is None else 2)
        assert_same(model.read_tokens(batch), ends)

    def test_blocks_change_nothing(self, monkeypatch: pytest.MonkeyPatch) -> None:
        model, batch = classifier("llama"), texts()
        output = model(batch)
        candidates = random_weights(output, 7)
        whole = model.readout(output, candidates)
        for block in (1, 3 * 4 * 32, 20 * 4 * 32):
            monkeypatch.setattr("attnlight.huggingface.last_layer._BLOCK", block)
            torch.testing.assert_close(model.readout(output, candidates), whole)

    def test_a_copy_reads_its_own_parameters(self) -> None:
        model, batch = classifier("bert"), texts()
        before = model(batch).logits
        again = copy.deepcopy(model)
        with torch.no_grad():
            for parameter in again.parameters():
                parameter.mul_(0.5)
        assert float((again(batch).logits - before).abs().max()) > 1e-3
        assert_same(model(batch).logits, before)


class TestProtocol:
    def test_empty_context_keeps_special_tokens(self, name: str) -> None:
        model, batch = classifier(name), texts()
        output = model(batch)
        _, row = full_pass(model, batch)
        expected, _ = full_pass(model, batch, row * ~output.mask[:, None])
        assert_near(empty_logits(model, output), expected)

    def test_uniform_heads(self, name: str) -> None:
        model, batch = classifier(name, uniform_heads=[1]), texts()
        output, own = model(batch), classifier(name)(batch)
        equal = output.mask / output.mask.sum(-1, keepdim=True)
        torch.testing.assert_close(output.weights[:, 1], equal)
        torch.testing.assert_close(output.weights[:, [0, 2, 3]], own.weights[:, [0, 2, 3]])
        expected, _ = full_pass(model, batch, model.substituted(output, output.weights))
        assert_near(output.logits, expected)

    def test_gradients_reach_all_parameters_or_the_last_layer(self, name: str) -> None:
        for freeze in (False, True):
            model = classifier(name, freeze=freeze).train()
            model(texts()).logits.square().sum().backward()
            parameters, parts = dict(model.named_parameters()), model.parameter_parts
            reached = {n for n, p in parameters.items() if p.grad is not None and p.grad.any()}
            assert set(sum(parts.values(), ())) == parameters.keys()
            top = {*parts["head"], *parts[f"layer_{len(model.attention_layers)}"]}
            lower = set(parts["layer_1"])
            assert len(reached & top) > 2
            assert bool(reached & lower) is not freeze
            assert not freeze or reached <= top


TOO_LONG = TextBatch(torch.zeros(1).long(), torch.full((1, 70), 5), torch.ones(1, 70).bool())
REFUSED: dict[str, Callable[[], object]] = {  # by what is said of it
    "flash_attention_2, which has no weights": lambda: HuggingFaceClassifier(
        built("bert", attn_implementation="flash_attention_2")
    ),
    "BertModel gives no classes": lambda: HuggingFaceClassifier(MODELS["bert"]()),
    "3 classes, but the corpus in `data` has 2": lambda: classifier("bert", num_classes=2),
    "no head 4; heads are 0 to 3": lambda: classifier("bert", uniform_heads=[4]),
    "mean of all states": lambda: HuggingFaceClassifier(
        built("modernbert", classifier_pooling="mean")
    ),
    "70 tokens, but the model reads 64 at most": lambda: classifier("bert")(TOO_LONG),
}


@pytest.mark.parametrize("said", REFUSED)
def test_is_refused(said: str) -> None:
    with pytest.raises(InputError, match=said):
        REFUSED[said]()


class TestDrawnParameters:
    """What `Sanity` compares explanations with: nothing of the pretrained model is left."""

    @pytest.mark.parametrize("pooled", [False, True])
    def test_are_those_of_the_architecture(self, name: str, pooled: bool) -> None:
        model: Any = pooled_classifier(name).train() if pooled else classifier(name)
        before = {n: p.detach().clone() for n, p in model.named_parameters()}
        model.draw_parameters()
        above = ("attention.", "decoder.") if pooled else ("nothing",)  # drawn when it was built
        for key, parameter in model.named_parameters():
            if parameter.ndim > 1 and not key.startswith(above):
                assert float(parameter.std()) < 0.2 < float(before[key].std())
        assert attnlight.check(model, texts()) == []

    def test_sanity_uses_them(self, tmp_path: Path) -> None:
        folder = str(write_model(tmp_path, auto="AutoModel"))
        network = "attnlight.huggingface.HuggingFaceClassifier"
        net = {"network": network, "options": {"path": folder}}
        spec = {"vocab_size": 90, "classes": ["a", "b"], "features": {}, "target": "tokens"}
        hparams = {"problem": "classification", "net": net, "spec": spec}
        first, again, other = (initial_parameters(hparams, 0, draw) for draw in (0, 0, 1))
        pretrained = dict(HuggingFaceClassifier(folder).named_parameters())
        for key, drawn in first.items():
            assert_same(drawn, again[key])
            if drawn.ndim > 1:
                assert float((drawn - other[key]).abs().max()) > 0
                assert float((drawn - pretrained[key]).abs().max()) > 0


def test_candidates_project_nothing_but_their_contexts(name: str) -> None:
    model = classifier(name)
    output = model(texts())
    called: list[int] = []
    for module in model.modules():  # projections; GPT-2's are `Conv1D`
        if type(module).__name__ in ("Linear", "Conv1D", "Embedding"):
            module.register_forward_hook(lambda *_: called.append(1))
    model.readout(output, random_weights(output, 2))
    # One or two of attention's output, two or three of the feed-forward layer, and the head's.
    gated, head = name in ("llama", "qwen3", "gemma3"), 1 + (name not in DECODERS)
    assert len(called) == 1 + 2 + gated + head


def test_a_norm_that_the_feed_forward_layer_reads_too() -> None:
    config = transformers.PhiConfig(**SMALL | {"num_labels": 3, "num_key_value_heads": HEADS})
    torch.manual_seed(0)
    model = HuggingFaceClassifier(transformers.PhiForSequenceClassification(config).eval()).eval()
    blanked = {name.rpartition(".")[2] for name in model.last_layer._blanks}
    assert "input_layernorm" not in blanked
    assert blanked >= {"q_proj", "k_proj", "v_proj"}
    require_full_passes(model, texts())


def test_a_text_is_read_up_to_the_attention_of_its_last_layer() -> None:
    model, batch = classifier("bert"), texts()
    sizes: list[int] = []
    last = model.transformer.bert.encoder.layer[-1]
    last.intermediate.register_forward_hook(lambda _, args, __: sizes.append(args[0].shape[1]))
    expected, _ = full_pass(model, batch)
    assert sizes == [9]
    assert_near(model(batch).logits, expected)
    assert sizes == [9, 1]  # for the logits the classifying token alone
