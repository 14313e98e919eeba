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


def quieten() -> None:
    """Keep such warnings and Lightning's advertisements from being printed."""
    for message in WARNINGS:
        warnings.filterwarnings("ignore", message=message)
    logger = logging.getLogger("lightning.pytorch.utilities.rank_zero")
    logger.addFilter(lambda record: "Tip: For seamless cloud" not in str(record.msg))
