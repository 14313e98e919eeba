"""The configuration of a model of transformers, and whether it classifies single texts."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import transformers
from transformers import CONFIG_MAPPING, PretrainedConfig

from attnlight.errors import InputError, one_line
from attnlight.huggingface.folder import CONFIG
from attnlight.storage.files import read_json

# What a model's head does, and what its class is called in transformers.
Head = Literal["texts", "tokens", "next"]
ENDINGS: dict[Head, str] = {
    "texts": "ForSequenceClassification",
    "tokens": "ForTokenClassification",
    "next": "ForCausalLM",
}
HEADS: dict[Head, str] = {
    "texts": f"classifies texts ({ENDINGS['texts']})",
    "tokens": f"tags tokens ({ENDINGS['tokens']})",
    "next": "predicts the next token",
}
# Keys by which transformers would run other code, or read other files than the model's own.
_NOT_OBEYED = ("auto_map", "_name_or_path", "transformers_weights", "fusion_config")
_OTHER_HEADS = {
    ENDINGS["texts"]: "to classify texts",
    ENDINGS["tokens"]: "to tag tokens",
    "ForQuestionAnswering": "to find answers in texts",
    "ForMultipleChoice": "to choose among several texts",
    "ForNextSentencePrediction": "to tell whether one sentence follows another",
    "ForImageClassification": "to classify images",
}
_COUNTS = ("num_labels", "num_hidden_layers", "n_layer", "n_layers")
_LARGEST_COUNT = 100_000
_OTHER_PROBLEMS = {
    "regression": "is a regression model, whose output is a number",
    "multi_label_classification": "may assign several classes to a text",
}


def configuration(folder: Path) -> PretrainedConfig:
    """The configuration of the model in a folder."""
    return build_configuration(read_json(folder / CONFIG), str(folder))


def build_configuration(content: Mapping[str, Any], where: str) -> PretrainedConfig:
    """A configuration from the content of a `config.json` in `where`, without what would run code."""
    options = {name: value for name, value in content.items() if name not in _NOT_OBEYED}
    kind = options.get("model_type")
    if not isinstance(kind, str) or kind not in CONFIG_MAPPING:
        code = "its own code (auto_map) is never run, and " if "auto_map" in content else ""
        raise InputError(
            f"{where} has no model that can be read: {code}transformers {transformers.__version__} has no "
            f"model_type {kind!r}."
        )
    if options.get("quantization_config"):
        raise InputError(
            f"the weights in {where} are quantised: give the model that they were made from."
        )
    names, problem = options.get("architectures") or [], options.get("problem_type")
    try:
        # What transformers takes unchecked, or would make as many layers or names of.
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise TypeError(f"architectures is {names!r}, expected a list of names")
        if not isinstance(problem, str | None):
            raise TypeError(f"problem_type is {problem!r}, expected a name")
        for name in _COUNTS:
            if isinstance(count := options.get(name), int) and count > _LARGEST_COUNT:
                raise ValueError(f"{name} is {count}, expected at most {_LARGEST_COUNT:,}")
        config: PretrainedConfig = CONFIG_MAPPING[kind].from_dict(options)
        config._attn_implementation = "sdpa"  # not a kernel that the configuration names
        if not isinstance(config.get_text_config(), PretrainedConfig):
            raise TypeError("text_config is not a configuration")
    except Exception as error:
        raise InputError(
            f"the configuration in {where} describes no model: {one_line(error)[:200]}."
        ) from error
    return config


def require_single_label(
    config: PretrainedConfig, names: Sequence[str], where: object, head: Head = "texts"
) -> None:
    """Check that a model was trained for nothing but to assign one of several classes.

    `names` are those of its classes in transformers; `where` is its folder or class, for messages. The
    classes are of texts, or of pairs, or of tokens.
    """
    for name in names:
        for ending, use in _OTHER_HEADS.items():
            if name.endswith(ending) and ending != ENDINGS[head]:
                raise InputError(
                    f"{where} was trained {use} ({name}); expected a model that {HEADS[head]}."
                )
    if not has_head(names, head):
        return
    problem = "regression" if config.num_labels == 1 else config.problem_type
    if problem in _OTHER_PROBLEMS:
        raise InputError(
            f"{where} {_OTHER_PROBLEMS[problem]} (problem_type {config.problem_type}, num_labels "
            f"{config.num_labels}); expected a model that assigns one of several classes."
        )


def has_head(names: Sequence[str], head: Head = "texts") -> bool:
    """Whether classes of transformers have this head."""
    return any(ENDINGS[head] in name for name in names)


def class_names(config: PretrainedConfig, classes: Sequence[str] = ()) -> list[str]:
    """Names of a model's classes, as a corpus spells them, in the order of its logits.

    The corpus's names are taken in their order if the model names none, and matched without regard to
    case otherwise. Without a corpus, `classes` are empty.
    """
    names = [str(name) for _, name in sorted(config.id2label.items())]
    if sorted(config.id2label) != list(range(len(names))):
        numbers = ", ".join(map(str, sorted(config.id2label)))
        raise InputError(
            f"`id2label` of the model numbers its classes {numbers}; expected 0 to {len(names) - 1}."
        )
    if len({name.casefold() for name in names}) < len(names):
        raise InputError(f"the model gives several classes one name: {', '.join(names)}.")
    if not classes:
        return names
    if unnamed(config) and len(names) == len(classes):
        return list(classes)
    spelt = {name.casefold(): name for name in classes}
    if sorted(spelt) != sorted(name.casefold() for name in names):
        raise InputError(
            f"the corpus in `data` has the classes {', '.join(classes)}, the model {', '.join(names)}: "
            "rename them with `classes` of `data`."
        )
    return [spelt[name.casefold()] for name in names]


def unnamed(config: PretrainedConfig) -> bool:
    """Whether a model's classes have the names that transformers gives where there are none."""
    return all(name == f"LABEL_{number}" for number, name in config.id2label.items())
