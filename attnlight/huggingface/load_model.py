"""Build a model of transformers from a folder's weights, or from its configuration alone."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import (
    MODEL_FOR_CAUSAL_LM_MAPPING,
    MODEL_FOR_MASKED_LM_MAPPING,
    MODEL_FOR_PRETRAINING_MAPPING,
    MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING,
    MODEL_FOR_TOKEN_CLASSIFICATION_MAPPING,
    MODEL_MAPPING,
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    PretrainedConfig,
    PreTrainedModel,
)
from transformers.modeling_outputs import SequenceClassifierOutput
from transformers.utils import logging
from typing_extensions import override

from attnlight.errors import InputError, one_line
from attnlight.huggingface.configuration import HEADS, Head
from attnlight.huggingface.folder import read_weights
from attnlight.probing.leave_one_out import last_places

# By head: the classes of each configuration, and the function that chooses one of them.
_MODELS: dict[Head, tuple[Any, Any]] = {
    "texts": (MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING, AutoModelForSequenceClassification),
    "tokens": (MODEL_FOR_TOKEN_CLASSIFICATION_MAPPING, AutoModelForTokenClassification),
    "next": (MODEL_FOR_CAUSAL_LM_MAPPING, AutoModelForCausalLM),
}
_PRETRAINING = (
    MODEL_MAPPING,
    MODEL_FOR_PRETRAINING_MAPPING,
    MODEL_FOR_MASKED_LM_MAPPING,
    MODEL_FOR_CAUSAL_LM_MAPPING,
)


def load_model(
    path: str, folder: Path, config: PretrainedConfig, head: Head = "texts"
) -> tuple[PreTrainedModel, set[str]]:
    """The model in a folder, which the user calls `path`, and its head's new parameters by name.

    Raises:
        InputError: Its weights cannot be read, are of other sizes than the configuration, are not all of
            the model's, or are more than those of the model and of heads for pretraining.
    """
    mapping, _ = _MODELS[head]
    known = type(config) in mapping
    if head != "texts" and not known:
        raise InputError(f"{path} has no model that {HEADS[head]} ({config.model_type}).")
    state = read_weights(folder)
    with _one_sentence(path, HEADS[head]):
        (kind, *_) = _listed((mapping if known else MODEL_MAPPING)[type(config)])
        text = config.get_text_config()
        # Given its content, transformers opens no file of the folder.
        model, found = kind.from_pretrained(
            None,
            config=text if kind.config_class is type(text) else config,
            state_dict=state,
            dtype=torch.float32,
            attn_implementation="sdpa",
            ignore_mismatched_sizes=True,  # they are named below
            output_loading_info=True,
            local_files_only=True,
        )
        for name, given, expected in sorted(found["mismatched_keys"])[:1]:
            raise InputError(
                f"{path} has weights of other sizes than its configuration: {name} is {tuple(given)}, "
                f"expected {tuple(expected)}."
            )
        left_out = _left_out(model, found["unexpected_keys"])
        with torch.no_grad():
            model(input_ids=torch.ones(1, 2, dtype=torch.long))  # what else is wrong shows now
    if left_out:
        raise InputError(
            f"{path} has weights that are no part of {kind.__name__} with its configuration, "
            f"{_some(left_out)}: without them another model would be tested."
        )
    base, new = f"{model.base_model_prefix}." if known else "", set(found["missing_keys"])
    # A pooler is part of the head of those that classify.
    parts = new if head == "next" else (name for name in new if name.startswith(base))
    lacking = [name for name in parts if "pooler." not in name]
    if lacking:
        raise InputError(f"{path} lacks weights of its model, {_some(lacking)}.")
    if not known:
        model = LinearForSequenceClassification(config, model)
        new = {f"model.{name}" for name in new} | {"score.weight", "score.bias"}
    return model, new


def draw_model(path: str, config: PretrainedConfig, head: Head = "texts") -> PreTrainedModel:
    """The model of a configuration, with random weights."""
    mapping, kind = _MODELS[head]
    with _one_sentence(path, HEADS[head]):
        if head != "texts" or type(config) in mapping:
            return kind.from_config(config, dtype=torch.float32, trust_remote_code=False)
        return LinearForSequenceClassification(config).float()


def _left_out(model: PreTrainedModel, unexpected: set[str]) -> list[str]:
    """Names of the weights that neither a model nor its forms for pretraining have."""
    config, base = model.config, f"{model.base_model_prefix}."
    known: set[str] = set()
    for mapping in _PRETRAINING if unexpected else ():
        for kind in _listed(mapping.get(type(config), ())):
            with torch.device("meta"):
                known |= {name.removeprefix(base) for name in kind(config).state_dict()}
    return [name for name in unexpected if name.removeprefix(base) not in known]


def _listed(kinds: Any) -> tuple[Any, ...]:  # noqa: ANN401
    """The classes of an entry of a mapping of transformers, which may be one."""
    return kinds if isinstance(kinds, tuple) else (kinds,)


def _some(names: list[str]) -> str:
    return min(names) + (f" and {len(names) - 1} more" if names[1:] else "")


@contextmanager
def _one_sentence(path: str, does: str) -> Iterator[None]:
    """Keep transformers silent about new heads, and say in one sentence what it refuses."""
    verbosity, bar = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        reason = f"{path} has no model that {does}: {one_line(error)[:300]}."
        if "does not support an attention implementation" in str(error):
            kind = str(error).partition(" ")[0]
            reason = (
                f"{path} cannot be intercepted: {kind} does not compute attention through "
                "transformers' AttentionInterface."
            )
        raise InputError(reason) from error
    finally:
        logging.set_verbosity(verbosity)
        if bar:
            logging.enable_progress_bar()


class LinearForSequenceClassification(PreTrainedModel):  # type: ignore[misc]  # it has no types
    """A model of transformers with an affine map of one token's last state to classes.

    It is that of the last token where tokens read no later ones, otherwise that of the first.

    Args:
        config: The model's configuration; `num_labels` is the number of classes.
        model: The model; None: it is made from the configuration, with random parameters.
    """

    base_model_prefix = "model"
    _supports_sdpa = True  # if the model does, which its own class says

    def __init__(self, config: PretrainedConfig, model: PreTrainedModel | None = None) -> None:
        super().__init__(config)
        self.model = (
            AutoModel.from_config(config, trust_remote_code=False) if model is None else model
        )
        settings = config.get_text_config()
        self.score = nn.Linear(settings.hidden_size, config.num_labels)
        nn.init.normal_(self.score.weight, std=getattr(settings, "initializer_range", 0.02))
        nn.init.zeros_(self.score.bias)
        self.reads_last = any(getattr(part, "is_causal", False) for part in self.model.modules())

    @override
    def get_input_embeddings(self) -> Any:
        return self.model.get_input_embeddings()

    @override
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        **options: Any,
    ) -> SequenceClassifierOutput:
        """Logits (B, C) of texts (B, N), whose arguments are those of the model."""
        options |= {"input_ids": input_ids, "attention_mask": attention_mask}
        states = self.model(inputs_embeds=inputs_embeds, **options).last_hidden_state
        mask = torch.ones(states.shape[:2], dtype=torch.bool, device=states.device)
        mask = mask if attention_mask is None else attention_mask.bool()
        read = last_places(mask) if self.reads_last else mask.int().argmax(-1)
        texts = torch.arange(len(states), device=states.device)
        return SequenceClassifierOutput(logits=self.score(states[texts, read]))
