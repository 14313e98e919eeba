"""How a trained model's corpus was encoded, so that another corpus can be encoded alike."""

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
    """The encoding stored in a checkpoint.

    Attributes:
        corpus: Fingerprint of the corpus that the model was trained on.
        tokenizer_json: Its tokenizer as JSON text.
        classes: Its class names, in the order of the model's outputs.
        sentences: `SentenceRules.identity` and `nested`; None where texts are not split.
        paired: Whether texts are passages with a query each.
    """

    corpus: str
    tokenizer_json: str
    classes: tuple[str, ...]
    sentences: Mapping[str, Any] | None = None
    paired: bool = False

    @classmethod
    def from_checkpoint(
        cls, metadata: Mapping[str, Any], spec: Mapping[str, Any] | None = None
    ) -> Self | None:
        """The encoding in a checkpoint's metadata; None where the model had no corpus."""
        if metadata["corpus"] is None:
            return None
        classes = tuple(map(str, metadata["classes"]))
        sentences, paired = metadata.get("sentences"), bool((spec or {}).get("query"))
        return cls(metadata["corpus"], metadata["tokenizer"], classes, sentences, paired)

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer."""
        from tokenizers import Tokenizer

        return Tokenizer.from_str(self.tokenizer_json)

    def identity(self) -> dict[str, Any]:
        """The parts of the encoding that determine a corpus's content, as plain JSON."""
        digest = hashlib.sha256(self.tokenizer_json.encode()).hexdigest()[:16]
        return {"tokenizer": digest, "classes": list(self.classes), "sentences": self.sentences}

    def require_classes(self, names: Sequence[str], corpus: str) -> None:
        """Check that a corpus has the same class names, in any order.

        Raises:
            InputError: Its class names differ.
        """
        if set(names) != set(self.classes):
            raise InputError(
                f"{corpus} has the classes {', '.join(names)}; the checkpoint's model expects "
                f"{', '.join(self.classes)}: rename them with `classes` of `data`."
            )
