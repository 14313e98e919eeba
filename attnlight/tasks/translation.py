"""Train a translation network whose attention is to be tested."""

from __future__ import annotations

from typing import Any

from attnlight.models.options import CustomNetwork, Seq2SeqNet
from attnlight.tasks.attention import AttentionTask


class Translator(AttentionTask):
    """A translation network, whose decoder attends to the words of the source.

    The loss is cross-entropy of the target's words and its end, with the words before given;
    validation and test log it with the accuracy of the next word.

    Args:
        spec: Description of the corpus; the command line supplies it. Classes are target words.
        net: The network.
        options: `optimizer`, `loss`, `vectors` and `objective`, see `AttentionTask`.
    """

    problem_name = "translation"

    def __init__(
        self,
        spec: dict[str, Any],
        net: Seq2SeqNet | CustomNetwork = Seq2SeqNet(),
        **options: Any,  # noqa: ANN401
    ) -> None:
        super().__init__(spec, "translation", net, **options)  # type: ignore[arg-type]
