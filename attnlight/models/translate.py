"""Greedy and beam search for translations."""

from functools import partial

import torch
from torch import Tensor

from attnlight.batch import TextBatch
from attnlight.data.targets import IGNORED
from attnlight.errors import require_at_least
from attnlight.models.seq2seq import Seq2Seq

END = 0  # the class of the end of a translation


@torch.no_grad()
def translate(model: Seq2Seq, batch: TextBatch, longest: int = 100, beams: int = 1) -> Tensor:
    """Classes of the translations of a batch, their end included, (B, T), -100 on padding.

    Args:
        model: The network, in evaluation mode.
        batch: B sources.
        longest: Most words of a translation; one that does not end by then ends there.
        beams: Hypotheses that are kept of each source; 1 is greedy search. The best has the largest mean
            log probability of its words and its end.

    Raises:
        InputError: A number is not positive.
    """
    require_at_least(1, longest=longest, beams=beams)
    each = partial(torch.repeat_interleave, repeats=beams, dim=0)
    states, keys, state = map(each, model.begin(batch))
    mask, texts = each(batch.attendable()), len(batch)
    scores = states.new_full((texts, beams), -torch.inf)
    scores[:, 0] = 0.0
    words = torch.full((texts, beams, 1), -1, device=mask.device)
    lengths = torch.zeros_like(words[..., 0])
    ended = torch.zeros_like(lengths, dtype=torch.bool)
    first = torch.arange(texts, device=mask.device)[:, None] * beams
    for step in range(longest + 1):
        logits, state = model.next_word((states, keys, mask), words[..., -1].flatten(), state)
        odds = logits.log_softmax(-1).view(texts, beams, -1)
        only_end = torch.full_like(odds[0, 0], -torch.inf)
        only_end[END] = 0.0
        odds = torch.where((ended | (step == longest)).unsqueeze(-1), only_end, odds)
        classes = odds.shape[-1]
        scores, chosen = (scores.unsqueeze(-1) + odds).flatten(1).topk(beams, dim=-1)
        parent, word = chosen // classes, chosen % classes
        lengths = (lengths + ~ended).gather(1, parent)
        ended = ended.gather(1, parent) | (word == END)
        words = torch.cat(
            [words.gather(1, parent.unsqueeze(-1).expand_as(words)), word.unsqueeze(-1)], -1
        )
        state = state[(first + parent).flatten()]
        if ended.all():
            break
    best = (scores / lengths).argmax(-1)
    found = words[torch.arange(texts, device=best.device), best, 1:]
    count = lengths.gather(1, best[:, None])
    places = torch.arange(found.shape[1], device=found.device)
    return found.masked_fill(places >= count, IGNORED)
