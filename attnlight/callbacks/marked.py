"""The items that a corpus marks: as evidence, or as what people called the reason of a label."""

from collections.abc import Sequence

from attnlight.callbacks.surroundings import Surroundings
from attnlight.data.dataset import TokenDataset
from attnlight.data.pairs import EVIDENCE
from attnlight.datamodules.base import CorpusDataModule
from attnlight.errors import InputError, did_you_mean


def marking_column(test: str, names: Sequence[str], available: Sequence[str]) -> str:
    """The first of `names` among the `available` per-token columns of a corpus; `test` needs it.

    Raises:
        InputError: The corpus has none of them.
    """
    for name in names:
        if name in available:
            return name
    wanted, found = " or ".join(f"`{name}`" for name in names), ", ".join(available) or "none"
    source = (
        ", such as PlantedEvidence" if EVIDENCE in names else " (`marks` or `extras` of `data`)"
    )
    raise InputError(
        f"{test} needs a corpus with a column {wanted} along the tokens{source}; the columns of this "
        f"one: {found}{did_you_mean(names[0], available)}."
    )


def tested_split(around: Surroundings) -> TokenDataset | None:
    """The split that is tested, if the corpus is of `datamodules`."""
    if not isinstance(around.corpus, CorpusDataModule):
        return None
    return around.corpus.dataset(around.split)
