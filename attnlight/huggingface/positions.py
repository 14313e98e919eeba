"""The positions of texts that are padded on the left, and the segments of pairs."""

from __future__ import annotations

from inspect import signature

from torch import Tensor, nn
from transformers import PreTrainedModel

from attnlight.batch import SEGMENT, TextBatch
from attnlight.errors import InputError


def positions(model: PreTrainedModel, mask: Tensor) -> dict[str, Tensor]:
    """`position_ids` (B, N) that count the tokens of each text alone; empty where no text needs them.

    Models, here without a head, count from the first place of a batch, or of given embeddings.

    Raises:
        InputError: A text is padded on the left, and the model takes no positions.
    """
    if not mask.shape[1] or not (mask.any(-1) & ~mask[:, 0]).any():
        return {}
    if "position_ids" not in signature(model.forward).parameters:
        raise InputError(
            f"texts are padded on the left, and {type(model).__name__} takes no positions: pad them on the "
            "right."
        )
    parts = (dict(module.named_children()) for module in model.modules())
    tables = (part.get("position_embeddings") for part in parts)
    paddings = (table.padding_idx for table in tables if isinstance(table, nn.Embedding))
    first = next((padding + 1 for padding in paddings if padding is not None), 0)  # RoBERTa's
    return {"position_ids": (mask.cumsum(-1) - 1).clamp(min=0) + first}


def segments(model: PreTrainedModel, batch: TextBatch) -> dict[str, Tensor]:
    """`token_type_ids` (B, N) of pairs, 1 on queries; empty where a model has one type, or texts no `segment`."""
    if SEGMENT not in batch.extras:
        return {}
    types = model.config.get_text_config().to_dict().get("type_vocab_size") or 0
    return {"token_type_ids": batch.extras[SEGMENT].long()} if types > 1 else {}
