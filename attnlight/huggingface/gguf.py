"""Convert a GGUF file to a folder of transformers: `python -m attnlight.huggingface.gguf FILE FOLDER`."""

import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from attnlight.errors import InputError, one_line
from attnlight.storage.files import named_errors, suggest_file

_NEEDED = ("gguf", "accelerate")


def convert_gguf(file: Path, folder: Path) -> None:
    """Write the model of a GGUF file in single precision, and its tokenizer, to a new folder.

    Raises:
        InputError: The file is missing, no GGUF or of a model that transformers does not read, the folder
            is not empty or cannot be written, or a package is missing.
    """
    if not file.is_file():
        raise InputError(f"there is no file {file}{suggest_file(file)}.")
    with file.open("rb") as stream:
        if stream.read(4) != b"GGUF":
            raise InputError(f"{file} is no GGUF file, which begins with these four letters.")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(f"{folder} is not empty: name a new folder.")
    if missing := [name for name in _NEEDED if find_spec(name) is None]:
        packages = " ".join(missing)
        raise InputError(f"GGUF files need packages: `pip install --no-deps {packages}`.")
    with named_errors(folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".gguf-", dir=folder.parent) as scratch:
            # transformers would read other files beside the given one.
            (Path(scratch) / "model.gguf").symlink_to(file.resolve())
            try:
                tokenizer = AutoTokenizer.from_pretrained(scratch, gguf_file="model.gguf")
                options = {"gguf_file": "model.gguf", "dtype": torch.float32}
                model = AutoModelForCausalLM.from_pretrained(scratch, **options)
            except Exception as error:
                reason = f"transformers does not read the model in {file}: {one_line(error)[:300]}."
                raise InputError(reason) from error
            # Weights are no longer quantized, and a folder that says so needs the package.
            model.hf_quantizer = None
            del model.config.quantization_config
            for part in (model, tokenizer):
                part.save_pretrained(Path(scratch) / "model")
            (Path(scratch) / "model").replace(folder)


def main() -> int:
    """The exit status of the command, after one sentence on a mistake in the input."""
    if len(sys.argv) != 3:
        print("usage: python -m attnlight.huggingface.gguf FILE FOLDER", file=sys.stderr)
        return 2
    try:
        convert_gguf(*map(Path, sys.argv[1:]))
    except InputError as error:
        print(f"attnlight: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
