"""What this machine's torch can compute in half precision."""

import pytest
import torch
from torch import nn


def require_bfloat16(encoder: str) -> None:
    """Skip where torch itself cannot run the encoder's LSTM in bfloat16, as on a CPU with AVX2 alone."""
    if encoder not in ("bilstm", "lstm"):
        return
    try:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            nn.LSTM(4, 4, bidirectional=True, batch_first=True).eval()(torch.zeros(1, 2, 4))
    except RuntimeError as error:
        pytest.skip(f"torch runs no LSTM in bfloat16 on this processor: {error}")
