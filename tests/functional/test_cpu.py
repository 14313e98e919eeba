"""Memory shared by the turns of a loop."""

from concurrent.futures import ThreadPoolExecutor

import torch

from attnlight.functional._cpu import Scratch

CPU = torch.device("cpu")


def test_threads_share_nothing() -> None:
    scratch = Scratch()
    mine = scratch.take("a", (4,), torch.int64, CPU).fill_(1)
    with ThreadPoolExecutor(1) as pool:
        pool.submit(lambda: scratch.take("a", (4,), torch.int64, CPU).fill_(2)).result()
    assert mine.tolist() == [1, 1, 1, 1]


def test_memory_taken_in_inference_mode_can_be_written_outside_it() -> None:
    scratch = Scratch()
    with torch.inference_mode():
        scratch.take("a", (4,), torch.int64, CPU)
    assert scratch.take("a", (4,), torch.int64, CPU).add_(1).shape == (4,)
