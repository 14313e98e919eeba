"""What a network of transformers reads: checks of batches, positions, and segments of pairs."""

import json
from inspect import signature
from typing import Any

from torch import Tensor, nn
from transformers import PreTrainedModel

from attnlight.batch import SEGMENT, TextBatch
from attnlight.errors import InputError
from attnlight.models.context import refuse_queries
from attnlight.probing.flat_texts import FlatTexts


def weights_are_there(network: Any, incompatible: Any) -> None:  # noqa: ANN401
    """A hook: note that a network has received the weights of a checkpoint."""
    network.missing, network.new = None, ()


def require_readable(network: Any, batch: TextBatch) -> FlatTexts:  # noqa: ANN401
    """The texts of a batch, if a network has its weights and can read them.

    The network has the attributes `missing`, `longest`, the most tokens of a text, and `whole_words`.
    """
    if network.missing is not None:
        raise InputError(f"the model has no weights: {network.missing}")
    refuse_queries(batch, "`joined: true` in `data`")
    if network.whole_words and batch.tokens.ndim != 3:
        raise InputError(
            "the model reads words (items: words), but the batch has tokens (B, N): encode texts by "
            "`encode`, or give tokens and mask as (B, W, P), of W words with P pieces each."
        )
    if not network.whole_words and batch.tokens.ndim != 2:
        raise InputError("a transformer reads flat texts: set `sentences` to none in `data`.")
    flat = FlatTexts.of(batch)
    most: int | None = network.longest
    longest = int(flat.batch.mask.sum(-1).amax()) if len(batch) else 0
    if most is not None and flat.batch.mask[:, most:].any():
        raise InputError(
            f"a text has {longest} tokens, but the model reads {most} at most: set `truncate` of `data`."
        )
    return flat


def require_tokenizer(network: Any, tokenizer: str | None) -> None:  # noqa: ANN401
    """Check that a corpus has the tokens of a network; one without a tokenizer has any.

    `tokenizer` is the corpus's, as JSON text; the network has its own, or None, and its `path`.
    """
    if network.tokenizer is None or tokenizer is None:
        return
    found, expected = (
        json.loads(text)["model"]["vocab"] for text in (tokenizer, network.tokenizer)
    )
    if found != expected:
        raise InputError(
            "the corpus in `data` has other tokens than the model: set `tokenizer` of `data` to its "
            f"folder or hub id, {network.path}."
        )


def positions(model: PreTrainedModel, mask: Tensor) -> dict[str, Tensor]:
    """`position_ids` (B, N) that count the tokens of each text alone; empty where no text needs them.

    Models, here without a head, count from the first place of a batch, or of given embeddings.
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
