"""A frozen model's outputs for each text of a split, evaluated once and read by memory map.

A folder of flat arrays, rows in order of their key: `keys` (R,), dataset index and position in one
number; `ends` (R,), where a row's items end; `weights` (I, H), the attention of all rows' items,
one row after the other, padding left out; `logits` (R, C), unless classes are many: then the model
computes them again where they are read. `store.json` holds the sizes.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from attnlight.batch import MANY_CLASSES, AttentionModel, HasPairwiseCost, TextBatch
from attnlight.data.dataset import TokenDataset
from attnlight.errors import InputError, one_line
from attnlight.functional._cpu import blocks
from attnlight.storage.files import named_errors, write_text

MARKER = "store.json"
FORMAT = 1
_TYPES = {"keys": "<i8", "ends": "<i8", "weights": "<f4", "logits": "<f4"}
# Texts evaluated between writes; they are sorted by length, so that batches need little padding.
_PIECE_TEXTS = 8_192
_CPU_TOKENS, _ACCELERATOR_TOKENS = 1 << 14, 1 << 18
# For pairwise models: pairs of a token and an item per batch.
_CPU_PAIRS, _ACCELERATOR_PAIRS = 1 << 16, 1 << 20
_POSITIONS = 1 << 24  # above any position within a text; leaves 2^39 texts


@torch.no_grad()
def write_outputs(
    model: AttentionModel, texts: TokenDataset, folder: Path, **description: object
) -> None:
    """Evaluate a model on a split and write its outputs to an empty folder, in pieces of bounded size.

    The model is in evaluation mode, on the device of its embeddings; `store.json` keeps `description`.
    """
    order = np.argsort(texts.index, kind="stable")
    sizes = {"rows": 0, "items": 0, "heads": 0, "classes": 0}
    with named_errors(folder), ExitStack() as stack:
        files = {name: stack.enter_context((folder / name).open("wb")) for name in _TYPES}
        for start in range(0, len(order), _PIECE_TEXTS):
            arrays, classes = _evaluate(model, texts, order[start : start + _PIECE_TEXTS])
            arrays["ends"] = sizes["items"] + np.cumsum(arrays.pop("counts"))
            for name, array in arrays.items():
                files[name].write(np.ascontiguousarray(array, _TYPES[name]).data)
            sizes["rows"] += len(arrays["keys"])
            sizes["items"] += len(arrays["weights"])
            sizes |= {"heads": arrays["weights"].shape[1], "classes": classes}
    write_text(folder / MARKER, json.dumps({"format": FORMAT, **description, **sizes}, indent=1))


def _evaluate(
    model: AttentionModel, texts: TokenDataset, positions: NDArray[np.int64]
) -> tuple[dict[str, NDArray[Any]], int]:
    """A model's outputs for some texts as the arrays that are written, rows sorted by key.

    Returns:
        `keys` (R,), `counts` (R,) of items, `weights` (I, H) and `logits` (R, C), (R, 0) of many
        classes; and the number C of classes.
    """
    device = device_of(model)
    pairwise = isinstance(model, HasPairwiseCost) and model.pairwise
    on_cpu = device.type == "cpu"
    budget = _CPU_TOKENS if on_cpu else _ACCELERATOR_TOKENS
    if pairwise:
        budget = _CPU_PAIRS if on_cpu else _ACCELERATOR_PAIRS
    ordered = positions[np.argsort(texts.lengths[positions], kind="stable")]
    costs, parts = texts.lengths[ordered].astype(np.int64), []
    for block in blocks((costs**2 if pairwise else costs).tolist(), budget):
        output = model(texts[ordered[block].tolist()].to(device))
        attention = output.weights.transpose(1, 2)[output.mask].float()
        numbered = _numbered(output.rows)
        classes = output.logits.shape[1]
        logits = output.logits[:, : classes if classes <= MANY_CLASSES else 0].float()
        values = numbered, output.mask.sum(-1), attention, logits
        parts.append([value.cpu().numpy() for value in values])
    keys, counts, weights, stored = (np.concatenate(column) for column in zip(*parts, strict=True))
    order = np.argsort(keys)
    keys, stored, moved = keys[order], stored[order], counts[order]
    # Where each row's items are stored before the rows are sorted.
    starts = (np.cumsum(counts) - counts)[order]
    before = np.cumsum(moved) - moved
    places = np.arange(moved.sum()) + np.repeat(starts - before, moved)
    arrays = {"keys": keys, "counts": moved, "weights": weights[places], "logits": stored}
    return arrays, classes


def device_of(model: Any) -> torch.device:  # noqa: ANN401
    """The device of a model's parameters; the CPU where it has none."""
    parameters = model.parameters() if isinstance(model, torch.nn.Module) else ()
    return next((values.device for values in parameters), torch.device("cpu"))


class CachedOutputs:
    """Attention and logits of a frozen model by (index, position).

    The folder is one that `write_outputs` wrote, of R `rows`, H `heads` and C `classes`; `model`
    gives the model, in evaluation mode, which computes the logits of many classes.

    Raises:
        InputError: A file of the folder is missing, damaged or of another format.
    """

    def __init__(self, folder: Path, model: Callable[[], AttentionModel] | None = None) -> None:
        self.folder, self._model = folder, model
        try:
            description = json.loads((folder / MARKER).read_text(encoding="utf-8"))
            if description["format"] != FORMAT:
                raise ValueError(f"its format is {description['format']}, not {FORMAT}")
            self.rows: int = description["rows"]
            self.heads: int = description["heads"]
            self.classes: int = description["classes"]
            self._keys = self._map("keys", (self.rows,))
            self._ends = self._map("ends", (self.rows,))
            self._weights = self._map("weights", (description["items"], self.heads))
            self._stored = self.classes <= MANY_CLASSES
            self._logits = self._map("logits", (self.rows, self.classes * self._stored))
        except (OSError, ValueError, KeyError) as error:
            raise InputError(
                f"{folder} holds no readable outputs ({one_line(error)}): delete it, and they will "
                "be computed again."
            ) from error

    def _map(self, name: str, shape: tuple[int, ...]) -> NDArray[Any]:
        kind = np.dtype(_TYPES[name])
        size, expected = (self.folder / name).stat().st_size, int(np.prod(shape)) * kind.itemsize
        if size != expected:
            raise ValueError(f"{name} has {size} bytes; expected {expected}")
        if not expected:
            return np.empty(shape, kind)
        # As a plain array: indexing a memmap creates another memmap each time.
        return np.asarray(np.memmap(self.folder / name, kind, mode="r", shape=shape))

    def attention(self, rows: Tensor, mask: Tensor) -> Tensor:
        """Attention (R, H, N) of some rows, float32, 0 off the mask.

        Args:
            rows: Dataset index and position of each row, (R, 2) long. Rows of index -1, repeats of
                a padded sampler, are given uniform attention.
            mask: Where the items of each row stand, (R, N) bool.

        Raises:
            InputError: A row is not in the store, or has another number of items there.
        """
        lengths = mask.sum(dim=-1).cpu().numpy()
        keys, places = self._places(rows)
        real = keys >= 0
        starts = np.where(places > 0, self._ends[places - 1], 0)
        counts = np.where(real, self._ends[places] - starts, lengths)
        if (counts != lengths).any():
            wrong = int((counts != lengths).argmax())
            raise InputError(
                f"text {keys[wrong] // _POSITIONS} has {lengths[wrong]} items, but its cached "
                f"attention has {counts[wrong]}."
            )
        # Rows that are adjacent in the file are copied together.
        first, last = starts[real], (starts + counts)[real]
        begins, ends = first[first != np.r_[-1, last[:-1]]], last[last != np.r_[first[1:], -1]]
        runs = zip(begins, ends, strict=True)
        items = np.concatenate([self._weights[:0], *(self._weights[a:b] for a, b in runs)])
        if not real.all():
            stored = np.repeat(real, lengths)
            read, items = items, np.empty((len(stored), self.heads), np.float32)
            items[stored], items[~stored] = read, (1 / np.repeat(lengths, lengths))[~stored, None]
        flat = torch.from_numpy(items).to(mask.device)
        attention = flat.new_zeros(*mask.shape, self.heads).masked_scatter(mask.unsqueeze(-1), flat)
        # Contiguous, because elementwise operations on two different layouts are slow.
        return attention.transpose(1, 2).contiguous()

    @torch.no_grad()
    def logits(self, rows: Tensor, batch: TextBatch) -> Tensor:
        """Logits (R, C) of some rows, float32; those of repeats are arbitrary.

        Rows are as of `attention`; if logits are not stored, the model reads the batch of their
        texts.
        """
        if self._stored:
            return torch.from_numpy(self._logits[self._places(rows)[1]]).to(rows.device)
        assert self._model is not None
        output = self._model()(batch)
        if torch.equal(output.rows, rows):
            return output.logits.float()
        keys, order = _numbered(output.rows).sort()
        return output.logits[order[torch.searchsorted(keys, _numbered(rows))]].float()

    def _places(self, rows: Tensor) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Key of each row, negative for repeats, and its place in the store, 0 for repeats; (R,)."""
        keys: NDArray[np.int64] = _numbered(rows).cpu().numpy()
        real = keys >= 0
        places = np.minimum(np.searchsorted(self._keys, keys), self.rows - 1) * real
        missing = real & (self._keys[places] != keys)
        if missing.any():
            index, position = divmod(int(keys[missing.argmax()]), _POSITIONS)
            raise InputError(
                f"text {index} (position {position}) is missing from {self.folder}, the texts that "
                "the base was evaluated on."
            )
        return keys, places


def _numbered(rows: Tensor) -> Tensor:
    """Dataset index and position of rows (R, 2) in one number, (R,); negative for an index of -1."""
    return rows[:, 0] * _POSITIONS + rows[:, 1]
