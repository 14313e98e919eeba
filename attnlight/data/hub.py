"""Check once whether the Hugging Face hub is reachable."""

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
    """Read from the hub's local cache within the block if the hub is unreachable.

    `datasets` falls back to its cache as well, but only after five attempts.
    """
    import datasets

    before = datasets.config.HF_HUB_OFFLINE
    datasets.config.HF_HUB_OFFLINE = before or not _is_reachable(datasets.config.HF_ENDPOINT)
    try:
        yield
    finally:
        datasets.config.HF_HUB_OFFLINE = before


@cache
def _is_reachable(endpoint: str) -> bool:
    """Whether the hub responds at all; an HTTP error is a response."""
    try:
        urlopen(Request(endpoint, method="HEAD"), timeout=_SECONDS).close()
    except HTTPError:
        return True
    except URLError as error:
        return isinstance(error.reason, ssl.SSLError)  # `datasets` uses its own certificates
    except OSError:
        return False
    return True
