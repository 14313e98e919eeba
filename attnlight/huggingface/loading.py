"""Read a transformers model with the numbers of its tokens, from a folder, the hub or a checkpoint."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from attnlight.data.pieces import longest_text, read_tokenizer
from attnlight.errors import InputError
from attnlight.huggingface.configuration import (
    ENDINGS,
    Head,
    build_configuration,
    configuration,
    has_head,
    require_single_label,
)
from attnlight.huggingface.folder import fingerprint_of, model_folder
from attnlight.huggingface.load_model import draw_model, load_model


@dataclass(frozen=True)
class Source:
    """A model that has been read.

    Attributes:
        model: The model, a classifier of single texts in evaluation mode.
        numbers: The model's own number of each token id of a batch, (V,) long.
        new: Names of the parameters that were drawn at random: the head of a model that was not
            trained to classify.
        missing: Why its weights are not those that were asked for; None: they are.
        tokenizer: Its tokenizer with the ids of a batch, as JSON text; None: there is none.
    """

    model: PreTrainedModel
    numbers: Tensor
    new: tuple[str, ...] = ()
    missing: str | None = None
    tokenizer: str | None = None


def stored_options(options: dict[str, Any]) -> dict[str, Any]:
    """Options of a network with what a checkpoint needs beside its weights to build it."""
    if options.get("path") is None:
        return options
    folder = model_folder(str(options["path"]))
    config = configuration(folder).to_dict()
    config.pop("_name_or_path", None)
    return {"config": config, "fingerprint": fingerprint_of(folder)} | options


def open_model(
    path: str | PreTrainedModel | None,
    num_classes: int | None = None,
    vocab_size: int | None = None,
    config: Mapping[str, Any] | None = None,
    fingerprint: str | None = None,
    *,
    tokenizer: Any = None,  # noqa: ANN401
    head: Head | None = "texts",
) -> Source:
    """Read a model, in single precision.

    Args:
        path: Folder or hub id, or a model of transformers, which is used itself; None: parameters are
            drawn at random, and the ids of tokens are the corpus's.
        num_classes: Number of classes; None: the model's.
        vocab_size: Number of token ids of the corpus, for a model whose folder is gone.
        config: Its configuration as a checkpoint stores it; None: that of `path`.
        fingerprint: Fingerprint of the weights as a checkpoint stores it; None: any.
        tokenizer: The tokenizer of a model that is given, as for `read_tokenizer`; None: there is none.
        head: What its head classifies, or whether it predicts the next token; None: it is not used.

    Raises:
        InputError: There is no such model, it is damaged, it does not classify texts though its head is
            used, it computes attention by a kernel that has no weights, or the tokenizer is not its own.
    """
    if tokenizer is not None and not isinstance(path, PreTrainedModel):
        raise InputError(f"{path} has its own tokenizer: leave out `tokenizer`.")
    if isinstance(path, PreTrainedModel):
        kernel = str(path.config._attn_implementation)
        if "flash" in kernel or "flex" in kernel:
            raise InputError(
                f"the model computes attention by {kernel}, which has no weights: load it with "
                "attn_implementation='sdpa'."
            )
        numbers = torch.arange(path.config.get_text_config().vocab_size)
        source = Source(path.eval(), numbers)
        if tokenizer is not None:
            longest = longest_text(path.config.get_text_config().to_dict())
            read, own = read_tokenizer(tokenizer, longest)
            source = Source(path, _numbers(path, own, "the tokenizer"), tokenizer=read.to_str())
    else:
        source = _read(path, num_classes, vocab_size, config, fingerprint, head)
    if source.model.config.is_encoder_decoder:
        raise InputError(
            f"{type(source.model).__name__} is an encoder with a decoder: expected one of the two, which "
            "a text goes through once."
        )
    settings = source.model.config.get_text_config()
    if settings.pad_token_id is None:
        settings.pad_token_id = -1  # no token's: padding is masked
    settings.use_cache = False
    return source


def require_head(model: PreTrainedModel, num_classes: int | None, head: Head = "texts") -> None:
    """Refuse a model that does not decide by one token among as many classes as the corpus has."""
    name, labels = type(model).__name__, model.config.num_labels
    require_single_label(model.config, [name], name, head)
    if not has_head([name], head):
        raise InputError(f"{name} gives no classes: load it by AutoModel{ENDINGS[head]}.")
    if num_classes is not None and labels != num_classes:
        raise InputError(
            f"the model was trained to give {labels} classes, but the corpus in `data` has "
            f"{num_classes}."
        )
    pooling = model.config.to_dict().get("classifier_pooling", "cls")  # ModernBERT's
    if pooling != "cls":
        raise InputError(
            f"the model's head reads the {pooling} of all states (classifier_pooling), not one token: no "
            "row of its last layer is what it decides by."
        )


def _read(
    path: str | None,
    num_classes: int | None,
    vocab_size: int | None,
    stored: Mapping[str, Any] | None,
    fingerprint: str | None,
    head: Head | None,
) -> Source:
    """A model of a folder or of the hub; of a checkpoint alone where they have it no longer."""
    kind: Head = head or "texts"
    if path is None:
        if stored is None or num_classes is None or vocab_size is None:
            raise InputError(
                "a model of transformers needs `path`, or `config`, such as {model_type: bert}, and a "
                "corpus on which it is trained from random parameters."
            )
        config = build_configuration(stored, "`config`")
        config.num_labels, config.get_text_config().vocab_size = num_classes, vocab_size
        return Source(draw_model("`config`", config, kind).eval(), torch.arange(vocab_size))
    try:
        folder = model_folder(path, offline=stored is not None)
        if fingerprint is not None and fingerprint_of(folder) != fingerprint:
            raise InputError(f"the weights in {path} are not those that training started from.")
        config = configuration(folder)
        read, own = read_tokenizer(folder, longest_text(config.get_text_config().to_dict()))
    except InputError as error:
        if stored is None or vocab_size is None:
            raise
        config = build_configuration(stored, "the checkpoint")
        if num_classes is not None and config.num_labels != num_classes:
            config.num_labels = num_classes
        model = draw_model(path, config, kind)
        return Source(model.eval(), torch.zeros(vocab_size, dtype=torch.long), (), str(error))
    names = config.architectures or ()
    if head in ("texts", "tokens"):
        require_single_label(config, names, path, head)
    if not has_head(names, kind):
        config.problem_type = None
        config.num_labels = config.num_labels if num_classes is None else num_classes
    model, new = load_model(path, folder, config, kind)
    numbers = _numbers(model, own, f"the tokenizer.json in {path}")
    return Source(model.eval(), numbers, tuple(sorted(new)), tokenizer=read.to_str())


def _numbers(model: PreTrainedModel, own: list[int], tokenizer: str) -> Tensor:
    """The model's own numbers of tokens, all of which it must embed."""
    embedded = model.get_input_embeddings().num_embeddings
    if max(own) >= embedded:
        raise InputError(
            f"{tokenizer} is of another model: it has {max(own) + 1} tokens, the model embeddings of "
            f"{embedded}."
        )
    return torch.tensor(own)
