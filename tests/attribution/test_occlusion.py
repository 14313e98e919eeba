"""Occlusion against one changed text at a time."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from attnlight.attribution import Occlusion
from attnlight.batch import PAD, UNK, TextBatch
from attnlight.probing.leave_one_out import left_out_logits
from tests.attribution.scenes import SCENES, evaluated, one_text, targets, words
from tests.data.test_word_sampler import word_sampler


@torch.no_grad()
def odds(model: Any, batch: TextBatch, targets: Tensor, embeddings: Tensor) -> Tensor:
    """Log odds of a class in each row of one text, from the exponents of the others."""
    logits = model(batch, embeddings=embeddings).logits
    found = []
    for row, target in zip(logits.double(), targets.tolist(), strict=True):
        others = [value for c, value in enumerate(row) if c != target]
        found.append(row[target] - torch.stack(others).exp().sum().log())
    return torch.stack(found)


KINDS = ("zero", "pad", "unk", "resample")
# Of models that read texts as another does, two by turns; of others all, less one token of two.
FEW = ("cnn", "average", "recurrent", *(name for name in SCENES if name.startswith("sparse")))


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        (name, kind)
        for place, name in enumerate(SCENES)
        for kind in (KINDS[place % 2 :: 2] if name in FEW else KINDS)
        if kind != KINDS[1 + place % 2] or name in FEW
    ],
)
def test_equals_one_changed_text_at_a_time(name: str, kind: Any) -> None:
    model, batch, output, choice = evaluated(name)
    target = targets(output)[0]
    expected = torch.zeros(output.mask.shape, dtype=torch.float64)
    tokens_of: dict[str, Any] = {"zero": [None], "pad": [PAD], "unk": [UNK]}
    sampler = word_sampler()
    for text, index in enumerate(batch.index):
        of_text, part = output.rows[:, 0] == index, one_text(batch, text)
        embeddings = model.embed(part).detach()
        before = odds(model, part, target[of_text], embeddings)
        for item in output.mask[of_text].any(0).nonzero().flatten().tolist():
            item_words = torch.zeros_like(part.mask)
            item_words[0, item] = words(part)[0, item]
            after = []
            for token in tokens_of[kind] if kind in tokens_of else sampler.draw(part, 2, seed=5):
                changed = embeddings.clone()
                if token is None:
                    changed[item_words] = 0
                else:
                    tokens = torch.where(item_words, token, part.tokens)
                    extras = {name: x.masked_fill(item_words, 0) for name, x in part.extras.items()}
                    changed = model.embed(replace(part, tokens=tokens, extras=extras)).detach()
                after.append(odds(model, part, target[of_text], changed))
            expected[of_text, item] = before - sum(after) / len(after)
    expected[~choice] = 0
    expected[~output.mask] = 0
    for budget in (None, 1, 50):
        method = Occlusion(replacement=kind, budget=budget, resamples=2, seed=5)
        method.word_sampler = sampler if kind == "resample" else None
        found = method(model, batch, output, target)
        assert expected.abs().max() > 0.1
        torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", SCENES)
def test_deletion_is_that_of_leave_one_out(name: str) -> None:
    model, batch, output, choice = evaluated(name)
    target, each = output.logits.argmax(-1), torch.arange(len(output.logits))
    left = left_out_logits(model, batch, output).detach()
    p, q = output.logits.softmax(-1)[each, target], left.softmax(-1)[each, :, target]
    expected = p.logit()[:, None] - q.logit()  # of a sigmoid, unlike the code
    expected = expected.masked_fill(~output.mask | ~choice[:, None], 0.0)
    found = Occlusion(replacement="delete")(model, batch, output, target)
    torch.testing.assert_close(found, expected, rtol=1e-8, atol=1e-8, equal_nan=True)
    alone = choice[:, None] & output.mask & (output.mask.sum(-1, keepdim=True) == 1)
    assert found[alone].isnan().all()
