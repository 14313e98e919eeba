"""The Hugging Face hub, asked once whether it answers."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

_SECONDS = 10


@contextmanager
def offline_if_unreachable() -> Iterator[None]:
    """Read from the hub's local cache in the block where the hub does not answer.

    `datasets` turns to its cache as well, but only after five tries of the same request.
    """
    import datasets

    before = datasets.config.HF_HUB_OFFLINE
    datasets.config.HF_HUB_OFFLINE = before or not _answers(datasets.config.HF_ENDPOINT)
    try:
        yield
    finally:
        datasets.config.HF_HUB_OFFLINE = before


@cache
def _answers(endpoint: str) -> bool:
    """Whether the hub answers at all; a refusal is an answer."""
    try:
        urlopen(Request(endpoint, method="HEAD"), timeout=_SECONDS).close()
    except HTTPError:
        return True
    except URLError as error:
        return isinstance(error.reason, ssl.SSLError)  # `datasets` has certificates of its own
    except OSError:
        return False
    return True
