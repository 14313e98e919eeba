"""The fingerprint of a corpus: a hash of all that determines its content."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from attnlight.datamodules.prepared_format import FORMAT

_VERSION = 2  # of the recipe that is hashed


def fingerprint(kind: str, recipe: Mapping[str, Any]) -> str:
    """Version and hash of a recipe and the format, such as `v2-0123456789abcdef`.

    Args:
        kind: Name of the class of the datamodule.
        recipe: What its content is made from.
    """
    content = {"format": FORMAT, "kind": kind, "recipe": recipe}
    digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]
    return f"v{_VERSION}-{digest}"
