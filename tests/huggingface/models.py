"""Small random models of ten architectures, built from configurations: no network, no files."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import pytest
import torch

transformers = pytest.importorskip("transformers")

VOCABULARY, HIDDEN, HEADS, LENGTH = 50, 32, 4, 64  # LENGTH: the most tokens of a text
_PLAIN = {"vocab_size": VOCABULARY, "pad_token_id": 0}
_HIDDEN = {**_PLAIN, "hidden_size": HIDDEN, "num_attention_heads": HEADS}
_BASE = {**_HIDDEN, "intermediate_size": 48, "max_position_embeddings": LENGTH}
_NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
_BOUNDARIES = {"bos_token_id": 1, "eos_token_id": 2}
SMALL = {**_BASE, **_BOUNDARIES, "num_hidden_layers": 2}  # of other architectures
GROUPED = {**_BASE, **_BOUNDARIES, "num_key_value_heads": 2, "head_dim": 8}
# Class of the configuration, layers, and the rest of its arguments. What differs between layers is
# there: sliding windows shorter than the texts of the tests, scaling by layer.
CONFIGURATIONS: Mapping[str, tuple[str, int, Mapping[str, Any]]] = {
    "bert": ("BertConfig", 2, {**_BASE, **_NO_DROPOUT}),
    "distilbert": (
        "DistilBertConfig",
        2,
        {**_PLAIN, "dim": HIDDEN, "n_heads": HEADS, "hidden_dim": 48}
        | {"max_position_embeddings": LENGTH, "dropout": 0.0, "attention_dropout": 0.0},
    ),
    "roberta": (
        "RobertaConfig",
        2,
        {**_BASE, **_NO_DROPOUT, **_BOUNDARIES, "max_position_embeddings": LENGTH + 1},
    ),
    "electra": ("ElectraConfig", 2, {**_BASE, **_NO_DROPOUT, "embedding_size": 16}),
    "modernbert": (
        "ModernBertConfig",
        3,
        {**_BASE, **_BOUNDARIES, "cls_token_id": 1, "sep_token_id": 2, "local_attention": 4}
        | {"global_attn_every_n_layers": 2},
    ),
    "gpt2": (
        "GPT2Config",
        2,
        {**_PLAIN, **_BOUNDARIES, "n_embd": HIDDEN, "n_head": HEADS, "n_positions": LENGTH}
        | {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
        | {"scale_attn_by_inverse_layer_idx": True},
    ),
    "llama": ("LlamaConfig", 2, GROUPED),
    "qwen3": ("Qwen3Config", 2, GROUPED),
    "gemma3": (
        "Gemma3TextConfig",
        3,
        {**GROUPED, "sliding_window": 3, "query_pre_attn_scalar": 8}
        | {"layer_types": ["sliding_attention", "full_attention", "sliding_attention"]},
    ),
    "gpt_neox": ("GPTNeoXConfig", 2, {**_BASE, **_BOUNDARIES}),
}
ENCODERS = ("bert", "distilbert", "roberta", "electra", "modernbert")
DECODERS = tuple(name for name in CONFIGURATIONS if name not in ENCODERS)


def build(name: str, auto: str = "AutoModel", **options: Any) -> Any:
    """One of the models, in evaluation mode; the same weights on every call."""
    kind, layers, arguments = CONFIGURATIONS[name]
    count = {"distilbert": "n_layers", "gpt2": "n_layer"}.get(name, "num_hidden_layers")
    config = getattr(transformers, kind)(**{**arguments, count: layers, **options})
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = getattr(transformers, auto).from_config(config)
        with torch.no_grad():
            for parameter in model.parameters():  # the usual weights attend almost uniformly
                if parameter.ndim > 1:
                    parameter.normal_(std=0.3)
    return model.eval()


MODELS: Mapping[str, Callable[..., Any]] = {name: partial(build, name) for name in CONFIGURATIONS}
assert_same = partial(torch.testing.assert_close, atol=0, rtol=0)
assert_near = partial(torch.testing.assert_close, atol=1e-5, rtol=1e-5)
