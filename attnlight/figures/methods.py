"""Attribution methods in words, and which of them a record has."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from attnlight.figures.tables import Rows

# In the order of tables; a method that is not here comes last, by the words of its name.
METHODS = {
    "attention": "attention",
    "gradient_x_attention": "gradient × attention",  # noqa: RUF001
    "attention_contribution": "attention × contribution",  # noqa: RUF001
    "answer_attention": "mean attention of all layers",
    "best_head": "the best single head",
    "answer_value_norm": "attention × value norm, all layers",  # noqa: RUF001
    "answer_rollout": "rollout of attention",
    "learned_heads": "learned heads",
    "context_cite": "ContextCite",
    "leave_one_out": "leave-one-out",
    "rollout": "rollout of attention",
    "gradient_rollout": "rollout of gradient × attention",  # noqa: RUF001
    "attention_flow": "attention flow",
    "value_zeroing": "value zeroing",
    "alti": "ALTI",
    "attention_value_norm": "attention × value norm",  # noqa: RUF001
    "gradient": "gradient",
    "input_gradient": "gradient × input",  # noqa: RUF001
    "integrated_gradients": "integrated gradients",
    "occlusion": "occlusion",
    "lrp": "LRP",
    "external": "external",
    "random": "random",
}


# Scores that `ImportanceCorrelation` compares.
COMPARED = {
    "attention": "attention",
    "input_gradient": "gradient",
    "input_gradient_attached": "gradient through attention",
    "loo": "leave-one-out",
}


def method_words(label: str) -> str:
    """A method's label in words.

    Example:
        >>> method_words("gradient_x_attention"), method_words("my_own")
        ('gradient × attention', 'my own')
        >>> method_words("occlusion_by_size")
        'occlusion by size'
    """
    name, by_size, _ = label.partition("_by_size")
    return METHODS.get(name, name.replace("_", " ")) + by_size.replace("_", " ")


def method_panels(
    rows: Rows, labels: Mapping[str, str], of: str
) -> dict[str, dict[str, NDArray[np.floating]]]:
    """Values (R,) of some measures by their labels, and by the methods with a column `<of>_<method>`."""
    methods = recorded_methods(rows, of).items()
    return {
        label: {words: rows[f"{measure}_{name}"] for name, words in methods}
        for measure, label in labels.items()
    }


def recorded_methods(rows: Rows, measure: str) -> dict[str, str]:
    """Methods with a column `<measure>_<method>`, in words, in the order of the record."""
    start, columns = f"{measure}_", (name for name, column in rows.items() if column.ndim == 1)
    labels = [name.removeprefix(start) for name in columns if name.startswith(start)]
    return {label: method_words(label) for label in labels}
