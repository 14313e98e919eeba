"""Models of the library transformers; needs `pip install attnlight[transformers]`."""

from importlib.util import find_spec

from attnlight.errors import InputError

if find_spec("transformers") is None:
    raise InputError("this model needs transformers: pip install 'attnlight[transformers]'.")

from attnlight.huggingface.classifier import HuggingFaceClassifier
from attnlight.huggingface.pooled import HuggingFacePooledClassifier

__all__ = ["HuggingFaceClassifier", "HuggingFacePooledClassifier"]
