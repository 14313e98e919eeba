"""Train a classifier or a tagger whose attention is to be tested."""

from typing import Any

from attnlight.models.options import ClassifierNet, CustomNetwork, TaggerNet
from attnlight.tasks.attention import AttentionTask


class AttentionClassifier(AttentionTask):
    """A classifier with attention over the words or the sentences of a text.

    The loss is cross-entropy; with two classes the logits are (0, z), and it is the binary
    cross-entropy of Jain & Wallace.

    Args:
        spec: Description of the corpus; the command line supplies it.
        net: The network.
        options: `optimizer`, `loss`, `vectors` and `objective`, see `AttentionTask`.
    """

    problem_name = "classification"

    def __init__(
        self,
        spec: dict[str, Any],
        net: ClassifierNet | CustomNetwork = ClassifierNet(),
        **options: Any,  # noqa: ANN401
    ) -> None:
        super().__init__(spec, "classification", net, **options)  # type: ignore[arg-type]


class ChunkTagger(AttentionTask):
    """A tagger with self-attention over the tokens of a sentence.

    The loss is cross-entropy of the real tokens, or of those of the corpus's `target`; validation
    and test log it with the accuracy of tokens and precision, recall and F1 of chunks or, if a
    sentence has one instance, accuracy and `f1`, the mean over classes.

    Args:
        spec: Description of the corpus; the command line supplies it. Classes are of the BIO scheme.
        net: The network.
        options: `optimizer`, `loss`, `vectors` and `objective`, see `AttentionTask`.
    """

    problem_name = "tagging"

    def __init__(
        self,
        spec: dict[str, Any],
        net: TaggerNet | CustomNetwork = TaggerNet(),
        **options: Any,  # noqa: ANN401
    ) -> None:
        super().__init__(spec, "tagging", net, **options)  # type: ignore[arg-type]
