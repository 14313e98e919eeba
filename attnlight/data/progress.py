"""Progress of a loop: a bar on a terminal, elsewhere a line every 30 seconds."""

import sys
import time
from collections.abc import Collection, Iterator
from typing import TypeVar

from rich.console import Console
from rich.progress import Progress

SECONDS = 30
_Item = TypeVar("_Item")


class ProgressLine:
    """Print the number of finished steps on stderr, at most every 30 seconds.

    The line says `what` is done, and the `total` of steps, infinite if unknown.
    """

    def __init__(self, what: str, total: float) -> None:
        self._what, self._total = what, total
        self._began = self._said = time.monotonic()

    def __call__(self, done: int) -> None:
        """Print it if the time has come."""
        now = time.monotonic()
        if now - self._said >= SECONDS:
            self._said = now
            line = f"{self._what} {done:,} of {self._total:,} after {now - self._began:.0f} s"
            print(line, file=sys.stderr, flush=True)


def progress(items: Collection[_Item], what: str) -> Iterator[_Item]:
    """Iterate over items and report progress on stderr."""
    console = Console(stderr=True)
    if console.is_terminal and len(items) > 1:
        # What the loop prints stays on stdout, which may be a pipe.
        with Progress(console=console, transient=True, redirect_stdout=False) as bar:
            yield from bar.track(items, description=what)
        return
    line = ProgressLine(f"{what}:", len(items))
    for done, item in enumerate(items):
        line(done)
        yield item
