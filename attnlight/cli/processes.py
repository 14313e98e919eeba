"""The processes of a job: their number, how signals and parents end them, how long they wait."""

import ctypes
import os
import signal
import sys
from types import FrameType
from typing import Any, NoReturn

from attnlight.errors import InputError

_PR_SET_PDEATHSIG = 1
RANK_ZERO = "ATTNLIGHT_RANK_ZERO"  # process id of the rank that started this one
_JOIN_TIMEOUT = "ATTNLIGHT_JOIN_TIMEOUT"
_received: list[int] = []  # signals


def exit_on_signals() -> None:
    """Let SIGTERM and Ctrl-C raise `SystemExit`, with status 143 and 130, where they are not ignored.

    A second one ends the process at once.
    """
    for number in (signal.SIGTERM, signal.SIGINT):
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, _exit)


def _exit(number: int, _: FrameType | None) -> NoReturn:
    signal.signal(number, signal.SIG_DFL)
    # A data loader raises where a worker ends, even while the interpreter exits; now all may end. With
    # SIG_DFL Python would complain of a worker that ended just before.
    signal.signal(signal.SIGCHLD, lambda *_: None)
    _received.append(number)
    sys.exit(128 + number)


def signal_status() -> int:
    """The exit status by the signal that this process has received; 0 without one."""
    return 128 + _received[0] if _received else 0


def end_with_parent(parent: int | None = None) -> None:
    """Let the kernel end this process when its parent, of this id if given, ends; Linux only."""
    if sys.platform != "linux":
        return
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    ended = os.getppid() == 1 if parent is None else os.getppid() != parent
    if ended:
        sys.exit(1)


def require_cores(accelerator: Any, devices: Any) -> None:  # noqa: ANN401
    """Raise `InputError` if the trainer would start more CPU processes than 4 and than 2 per core."""
    cores = os.cpu_count() or 1
    limit = max(4, 2 * cores)
    if accelerator in ("cpu", "auto") and str(devices).isdecimal() and int(devices) > limit:
        import torch

        if accelerator == "auto" and torch.accelerator.is_available():
            return
        raise InputError(
            f"trainer.devices is {devices}, but this machine has {cores} CPU cores: give at most "
            f"{limit} processes."
        )


def join_timeout() -> float:
    """Seconds for which a process waits for the others of its job to start, from the environment."""
    value = os.environ.get(_JOIN_TIMEOUT, "300")
    try:
        seconds = float(value)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise InputError(f"{_JOIN_TIMEOUT} is {value!r}; it must be a positive number of seconds.")
    return seconds
