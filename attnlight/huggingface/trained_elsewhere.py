"""What a command or `attnlight.run` asks of a model that was trained elsewhere."""

import sys
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from torch import Tensor, nn

from attnlight.batch import TextBatch
from attnlight.data.pieces import longest_text, read_tokenizer
from attnlight.data.raw_text import RawText
from attnlight.errors import InputError
from attnlight.huggingface.configuration import (
    Head,
    class_names,
    configuration,
    require_single_label,
    unnamed,
)
from attnlight.huggingface.folder import model_folder
from attnlight.problems import Classification

# Classes and tasks by which a model says that it was trained on pairs of texts.
_OF_PAIRS = {
    "entailment",
    "not_entailment",
    "contradiction",
    "equivalent",
    "not_equivalent",
    "duplicate",
}
_PAIR_TASKS = ("mnli", "mrpc", "qnli", "qqp", "rte", "snli", "stsb", "wnli", "xnli")


class TrainedElsewhere(nn.Module):
    """A network that reads its weights when it is built, from a folder or the hub.

    Attributes:
        path: Folder or hub id; None: the model was given.
        tokenizer: Its tokenizer with the ids of batches, as JSON text; None: there is none.
        transformer: The model of transformers.
        numbers: The model's own number of each token id, (V,) long.
        whole_words: Whether items are words.
        head: What the model's head does.
        new: Names of the parameters that were drawn at random.
        hparams: What names the model on pages, as there is no task.
    """

    path: str | None
    tokenizer: str | None
    transformer: Any
    numbers: Tensor
    whole_words: bool
    new: tuple[str, ...]
    hparams: Mapping[str, Any]
    head: ClassVar[Head] = "texts"

    @classmethod
    def encoding_of(cls, options: Mapping[str, Any], classes: Sequence[str]) -> RawText:
        """The encoding of texts of a model that was trained elsewhere, with a corpus's classes."""
        if options.get("path") is None:
            raise InputError(
                "a model of `config` has no weights: train it by `attnlight fit` first."
            )
        path = str(options["path"])
        folder = model_folder(path)
        config = configuration(folder)
        require_single_label(config, config.architectures or (), path, cls.head)
        settings = config.get_text_config().to_dict()
        tokenizer, _ = read_tokenizer(str(folder), longest_text(settings))
        return _raw(tokenizer.to_str(), config, cls.head, class_names(config, classes), corpus=path)

    @property
    def raw(self) -> RawText:
        """The encoder of raw text."""
        self.require_trained()
        if self.tokenizer is None:
            raise InputError(
                "a model in memory has no tokenizer: give it to `run` as `tokenizer`, or build "
                "`HuggingFaceClassifier(model, tokenizer)`."
            )
        config, options = self.transformer.config, {"whole_words": self.whole_words}
        return _raw(self.tokenizer, config, self.head, class_names(config), **options)

    def encode(self, texts: Sequence[str], queries: Sequence[str] | None = None) -> TextBatch:
        """An unlabelled batch of raw texts, each with a query or none, see `RawText.encode`."""
        return self.raw.encode(texts, queries=queries)

    @property
    def problem(self) -> Classification:
        """The problem."""
        classes, vocab_size = class_names(self.transformer.config), len(self.numbers)
        spec = {"vocab_size": vocab_size, "classes": classes, "features": {}, "target": "tokens"}
        return Classification(spec)

    def require_trained(self) -> None:
        """Refuse a model whose head is as it was drawn at random."""
        if self.new:
            raise InputError(
                f"the model in {self.path} has no trained head ({self.new[0]} is missing): train it by "
                "`attnlight fit` first."
            )

    def announce_classes(self, classes: Sequence[str], accuracy: float | None = None) -> None:
        """Print on stderr how the model's classes were taken, if it does not name them.

        They are the corpus's, in the order of the logits. Once the accuracy is known, a warning is
        printed only if it is below chance.
        """
        own = self.transformer.config.id2label
        if not unnamed(self.transformer.config) or list(own.values()) == list(classes):
            return
        pairs = ", ".join(f"{a} is {b}" for a, b in zip(own.values(), classes, strict=True))
        if accuracy is None:
            said = f"the model names no classes, so they are taken in order: {pairs}"
            print(said, file=sys.stderr)
        elif accuracy < 1 / len(classes):
            print(
                f"warning: the accuracy, {accuracy:.3f}, is below chance, {1 / len(classes):.3f}: the "
                f"classes of the model may have another order than the corpus's ({pairs}); write their "
                f"names into `id2label` of {self.path}/config.json",
                file=sys.stderr,
            )


def _raw(
    tokenizer: str,
    config: Any,  # noqa: ANN401
    head: Head,
    classes: list[str],
    **options: Any,  # noqa: ANN401
) -> RawText:
    """The encoder of a model's texts: of words to tag, or of single texts and pairs.

    It refuses single texts if the model was trained on pairs.
    """
    tags = head == "tokens"
    labels = {str(name).casefold() for name in config.id2label.values()}
    task = str(config.to_dict().get("finetuning_task")).lower()
    paired = not tags and (task in _PAIR_TASKS or bool(labels & _OF_PAIRS))
    encoder = RawText(tokenizer, classes, first_pieces=tags, joined=paired, **options)
    encoder.joins = not tags
    return encoder
