"""How the corpus of a trained model was encoded, so that another one can be encoded alike."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

from attnlight.errors import InputError

if TYPE_CHECKING:
    from tokenizers import Tokenizer


@dataclass(frozen=True)
class Encoding:
    """The encoding that a checkpoint holds.

    Attributes:
        corpus: Fingerprint of the corpus that the model was trained on.
        tokenizer_json: Its tokenizer as JSON text.
        classes: Its class names, in the order of the model's outputs.
        sentences: `SentenceRules.identity` and `nested`; None where texts are not split.
    """

    corpus: str
    tokenizer_json: str
    classes: tuple[str, ...]
    sentences: Mapping[str, Any] | None = None

    @classmethod
    def of(cls, held: Mapping[str, Any]) -> Self | None:
        """From what a task keeps in its checkpoint; None where it was trained without a corpus."""
        if held["corpus"] is None:
            return None
        classes = tuple(map(str, held["classes"]))
        return cls(held["corpus"], held["tokenizer"], classes, held.get("sentences"))

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer."""
        from tokenizers import Tokenizer

        return Tokenizer.from_str(self.tokenizer_json)

    def identity(self) -> dict[str, Any]:
        """What decides the content of a corpus that is encoded so, as plain JSON."""
        digest = hashlib.sha256(self.tokenizer_json.encode()).hexdigest()[:16]
        return {"tokenizer": digest, "classes": list(self.classes), "sentences": self.sentences}

    def require_classes(self, names: Sequence[str], corpus: str) -> None:
        """Refuse a corpus whose classes have other names; their order does not matter.

        Raises:
            InputError: They have.
        """
        if set(names) != set(self.classes):
            raise InputError(
                f"{corpus} has the classes {', '.join(names)}, the checkpoint "
                f"{', '.join(self.classes)}: a model is evaluated on a corpus with its own classes, "
                "which `classes` of `data` can name alike."
            )
