"""Suppress messages of other packages that need no action."""

import logging
import os
import warnings

# Correct warnings that need no action.
WARNINGS = (
    r".*does not have many workers",  # batches come from a memory map
    r".*Checkpoint directory .* exists and is not empty",  # the run's folder holds its fit.yaml
    r".*isinstance\(treespec, LeafSpec\).* is deprecated",  # Lightning's own code
    r".*smaller than the logging interval",
    r".*module\(s\) in eval mode at the start of training",  # those of a frozen model
)


# Begin lines of Lightning's log: an advertisement, devices that are absent, what another line says.
_LINES = ("💡 Tip", "GPU available: False", "TPU available: False", "Restoring states from")


def quieten() -> None:
    """Suppress these warnings and lines, and W&B's summary of a run."""
    for message in WARNINGS:
        warnings.filterwarnings("ignore", message=message)
    logger = logging.getLogger("lightning.pytorch.utilities.rank_zero")
    logger.addFilter(lambda record: not str(record.msg).startswith(_LINES))
    os.environ.setdefault("WANDB_QUIET", "true")
