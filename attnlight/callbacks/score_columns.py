"""Columns of the scores of items, which tests keep with `keep_scores`."""

from collections.abc import Mapping

import pyarrow as pa
from torch import Tensor

from attnlight.records import SCORES, list_column


def score_columns(scores: Mapping[str, Tensor], mask: Tensor) -> dict[str, pa.ListArray]:
    """Columns `scores_<name>` of scores (R, N): for each row those of its items, by a mask (R, N)."""
    lengths = mask.sum(-1).cpu().numpy()
    return {
        f"{SCORES}{name}": list_column(values.detach()[mask].double().cpu().numpy(), lengths)
        for name, values in scores.items()
    }
