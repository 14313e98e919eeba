"""Messages of other packages that nobody can act on, and what keeps them quiet."""

from __future__ import annotations

import logging
import warnings

# Warnings that are true and that nobody can act on.
WARNINGS = (
    r".*does not have many workers",  # batches come from a memory map
    r".*Checkpoint directory .* exists and is not empty",  # the run's folder holds its fit.yaml
    r".*isinstance\(treespec, LeafSpec\).* is deprecated",  # Lightning's own code
    r".*smaller than the logging interval",
)
_LIGHTNING = "lightning.pytorch.utilities.rank_zero"


def quieten() -> None:
    """Keep such warnings and Lightning's advertisements from being printed."""
    for message in WARNINGS:
        warnings.filterwarnings("ignore", message=message)
    logging.getLogger(_LIGHTNING).addFilter(_no_advertisement)


def _no_advertisement(record: logging.LogRecord) -> bool:
    return "Tip: For seamless cloud" not in str(record.msg)
