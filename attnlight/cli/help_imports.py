"""Stand-ins for the packages that a list of options does not need, so that it appears sooner."""

import sys

# Lightning and torchmetrics import these packages, which takes most of the time of `fit --help`.
UNUSED = (
    "matplotlib",
    "matplotlib.axes",
    "matplotlib.pyplot",
    "scipy.signal",
    "torch._dynamo",
    "transformers",
)


def omit_unused_packages() -> None:
    """Put objects that have every attribute in their place, as Sphinx does for its autodoc.

    Only for a process that prints a list of options and ends.
    """
    from unittest.mock import MagicMock

    for name in UNUSED:
        sys.modules.setdefault(name, MagicMock(name=name))
