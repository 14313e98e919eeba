"""`attnlight` as a study starts it: a process that ends when the study does.

A study that is killed leaves no run behind that goes on alone, so that it can be started again at
once. Elsewhere than on Linux such a run goes on, and the lock that it inherited keeps others off.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

from attnlight.__main__ import main

_PR_SET_PDEATHSIG = 1


def end_with_parent() -> None:
    """Let the kernel end this process when its parent ends."""
    if sys.platform != "linux":
        return
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() == 1:  # it ended before
        sys.exit(1)


if __name__ == "__main__":
    end_with_parent()
    sys.exit(main())
