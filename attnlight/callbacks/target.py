"""The class of which a test takes gradients, by its name."""

from collections.abc import Sequence

from attnlight.functional.attribution.weight_gradient import Target
from attnlight.reference.rows import class_reader


def class_of_target(
    test: str, target: int | str | None, classes: Sequence[str], count: int = 0
) -> Target:
    """A test's option `target`, of a class its number.

    Args:
        test: The test's name.
        target: The class's name or number, as labels of rows are read; `runner_up`; or None.
        classes: Names of the classes; empty: these are the numbers from 0 to `count` - 1.
        count: Number of classes.

    Raises:
        InputError: There is no such class.
    """
    if target == "runner_up":
        return "runner_up"
    names, has = classes or [*map(str, range(count))], f"target of {test} names"
    return None if target is None else class_reader(names)(target, has)
