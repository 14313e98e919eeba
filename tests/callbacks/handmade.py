"""Outputs of no model at all, and a model that hides that their readout is affine."""

from dataclasses import replace

import torch
from torch import Tensor, nn

from attnlight.batch import AttentionOutput, TextBatch
from attnlight.callbacks import InterpretabilityTest
from attnlight.functional import masked_softmax
from tests.callbacks.token_loops import Sentence, loop_of, paired


def output_of(
    weights: Tensor, item_logits: Tensor, bias: Tensor, mask: Tensor | None = None
) -> AttentionOutput:
    """An output of R rows from weights (R, H, N), item logits (R, H, N, C) and bias."""
    rows, _, items = weights.shape
    index = torch.arange(rows)
    left = weights.sum(-1, keepdim=True)
    empty = bias.expand(rows, -1)[:, None] / weights.shape[1]
    read = (weights.unsqueeze(2) @ item_logits.nan_to_num()).squeeze(2) + (1 - left) * empty
    return AttentionOutput(
        rows=torch.stack([index, torch.zeros_like(index)], dim=1),
        logits=read.sum(1),
        weights=weights,
        item_logits=item_logits,
        bias=bias,
        mask=torch.ones(rows, items, dtype=torch.bool) if mask is None else mask,
        states=torch.empty(rows, items, 0),
    )


def random_output(
    heads: int = 1, classes: int = 3, rows: int = 60, items: int = 7, zeros: float = 0.15
) -> AttentionOutput:
    """Rows of 1 to N items at any place, some without weight, with a class that is preferred."""
    random = torch.Generator().manual_seed(classes + 10 * heads)
    mask = torch.rand(rows, items, generator=random) < 0.8
    mask[:, 2] = True
    scores = 1.5 * torch.randn(rows, heads, items, dtype=torch.float64, generator=random)
    scores = scores.masked_fill(torch.rand(scores.shape, generator=random) < zeros, -2000.0)
    logits = torch.randn(rows, heads, items, classes, dtype=torch.float64, generator=random)
    logits[..., -1] += 0.8
    bias = torch.randn(rows, classes, dtype=torch.float64, generator=random)
    return output_of(masked_softmax(scores, mask), logits, bias, mask)


def batch_of(output: AttentionOutput) -> TextBatch:
    """The batch that the output would be of."""
    return TextBatch(index=output.rows[:, 0], tokens=output.mask.long(), mask=output.mask)


def marked(output: AttentionOutput, column: str) -> TextBatch:
    """A batch with random marks for, against and of no side, on padding too; none for in row 5."""
    random = torch.Generator().manual_seed(0)
    signs = torch.randint(-1, 2, output.mask.shape, generator=random).to(torch.int8)
    signs[5] = -1
    return replace(batch_of(output), extras={column: signs})


class Hidden(nn.Module):
    """The readout of an output, which is affine, for tests that are not told."""

    def __init__(self, output: AttentionOutput) -> None:
        super().__init__()
        self.items, self.bias = output.item_logits, output.bias
        self.output = replace(output, item_logits=None)

    def forward(
        self, batch: TextBatch, weights: Tensor | None = None, embeddings: Tensor | None = None
    ) -> AttentionOutput:
        return self.output

    def embed(self, batch: TextBatch) -> Tensor:
        return torch.empty(0)

    def readout(self, output: AttentionOutput, weights: Tensor) -> Tensor:
        items = self.items[output.rows[:, 0]]  # (R, H, N, C)
        bias = self.bias.expand(len(self.items), -1)[output.rows[:, 0]].unsqueeze(1)
        share = bias.unsqueeze(1) / weights.shape[1]
        return (weights @ (items - share)).sum(1) + bias


@torch.no_grad()
def columns_of(
    test: InterpretabilityTest, output: AttentionOutput, batch: TextBatch | None = None
) -> dict[str, Tensor]:
    """What a test measures of an output, of a batch if its marks count."""
    return dict(test.measure(batch or batch_of(output), output, Hidden(output)))  # type: ignore[arg-type]


class Row(Sentence):
    """A row of an output as a sentence of its items with one token, read by plain sums."""

    def __init__(self, output: AttentionOutput, row: int) -> None:
        items = output.mask[row].nonzero().squeeze(-1)
        self.values = output.item_logits[row, :, items]  # (H, N, C)
        self.bias = output.bias.expand(len(output.rows), -1)[row]
        self.index = int(output.rows[row, 0])
        self.output = replace(
            output,
            rows=output.rows[[row]],
            logits=output.logits[[row]],
            weights=output.weights[[row]][..., items],
            item_logits=self.values[None],
            bias=self.bias,
            mask=output.mask[[row]][:, items],
        )

    def __len__(self) -> int:
        return self.values.shape[1]

    def read(self, token: int, weights: Tensor) -> Tensor:
        """Logits of attention (H, N), of which a head without any reads its share of the bias."""
        empty = (1 - weights.sum(-1)).mean(-1, keepdim=True)
        return (weights.unsqueeze(-2) @ self.values).squeeze(-2).sum(-2) + empty * self.bias


def require_loops(
    test: InterpretabilityTest, output: AttentionOutput, atol: float = 1e-9
) -> dict[str, Tensor]:
    """The columns of an output of several items, which equal those of loops over its rows."""
    columns = columns_of(test, output)
    rows = [row for row in range(len(output.rows)) if output.mask[row].any()]
    found = [loop_of(test)(Row(output, row), 0) for row in rows]
    left = {name for name in columns if not name.endswith("_by_head")} - found[0].keys()
    assert all(name.endswith("_minimal") or name == "length" for name in left), left
    kept = {name: values[rows] for name, values in columns.items()}
    ours, theirs = torch.tensor(paired(kept, found), dtype=torch.float64).T
    torch.testing.assert_close(theirs, ours, rtol=0, atol=atol, equal_nan=True)
    return columns
