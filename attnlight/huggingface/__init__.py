"""Models of the library transformers, which the extra `transformers` installs."""

from importlib.util import find_spec

from attnlight.errors import InputError

if find_spec("transformers") is None:
    raise InputError("this model needs transformers: pip install 'transformers>=5.4'.")

from attnlight.huggingface.answers import AnswerModel
from attnlight.huggingface.classifier import HuggingFaceClassifier
from attnlight.huggingface.pooled import HuggingFacePooledClassifier
from attnlight.huggingface.tagger import HuggingFaceTagger

__all__ = [
    "AnswerModel",
    "HuggingFaceClassifier",
    "HuggingFacePooledClassifier",
    "HuggingFaceTagger",
]
