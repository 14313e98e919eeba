"""Answers in free text: the greedy one of a complete context, against all others."""

from collections.abc import Mapping
from typing import Any

import torch
from tokenizers import Tokenizer
from torch import Tensor

from attnlight.batch import TextBatch

CLASSES = ("the answer", "another answer")
# In `TextBatch.known`: tokens of free answers, (B, A), and what their log odds are raised by, (B,).
ANSWER, RAISED = "answer", "raised"


@torch.no_grad()
def free_answers(network: Any, batch: TextBatch) -> Tensor:  # noqa: ANN401
    """The model's own tokens of greedy answers, of `network.free` at most, (B, A); -1 after the end."""
    _, vectors, mask = network.prompts(batch)
    options = {"max_new_tokens": network.free, "do_sample": False, "pad_token_id": 0}
    options |= {"temperature": None, "top_p": None, "top_k": None}
    found = network.transformer.generate(
        inputs_embeds=vectors, attention_mask=mask.long(), **options
    )
    ends = network.transformer.generation_config.eos_token_id
    stops = torch.isin(found, torch.tensor(ends if ends is not None else [], device=found.device))
    over = stops.cumsum(-1) > 0
    over[:, 0] = False  # an answer has a token, even if it is that of the end
    answers: Tensor = found.masked_fill(over, -1)
    return answers


def free_logits(first: Tensor, rest: Tensor, known: Mapping[str, Tensor]) -> Tensor:
    """Log probabilities of the answer, with what they are raised by, and of all others, (..., 2).

    Args:
        first: Log probabilities of the first token, (..., V).
        rest: Those of the later tokens of the answer, (..., 1).
        known: The tokens of the answer (..., A), and what is added, (...).
    """
    token = known[ANSWER][..., :1].expand(*first.shape[:-1], 1)
    joint = (first.gather(-1, token) + rest).squeeze(-1).double()
    joint = joint.clamp(max=-torch.finfo(joint.dtype).eps)
    others = torch.log(-torch.expm1(joint))
    return torch.stack([joint + known[RAISED], others], dim=-1)


def free_texts(network: Any, batch: TextBatch) -> list[str] | None:  # noqa: ANN401
    """The answers in free text that a batch has; None without them."""
    if network.free is None or network.tokenizer is None:
        return None
    reader, numbers = Tokenizer.from_str(network.tokenizer), network.numbers.tolist()
    ids = {own: number for number, own in enumerate(numbers)}
    answers = batch.known[ANSWER].tolist()
    return [reader.decode([ids[x] for x in one if x in ids]).strip() for one in answers]
