"""Memory that the turns of a loop share: fresh pages cost a CPU more than the arithmetic on them."""

from __future__ import annotations

import math
import threading

import torch
from torch import Tensor


class Scratch(threading.local):
    """Large tensors by name, the same memory for each; every thread has its own.

    What `take` gives is overwritten by the next tensor of that name: copy what is to last.
    """

    def __init__(self) -> None:
        self._memory: dict[str, Tensor] = {}

    def take(
        self, name: str, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device
    ) -> Tensor:
        """An uninitialised tensor."""
        count = math.prod(shape)
        memory = self._memory.get(name)
        if (
            memory is None
            or (memory.dtype, memory.device) != (dtype, device)
            or len(memory) < count
        ):
            self._memory.pop(name, None)  # first, so that both are never held
            # A tensor made in inference mode could not be written outside it.
            with torch.inference_mode(False):
                memory = self._memory[name] = torch.empty(count, dtype=dtype, device=device)
        return memory[:count].view(shape)
