"""Former names of classes, options and hyperparameters, and their present names.

Names of the first format, and `net.freeze_embeddings` of the second (now `vectors.freeze`), are
translated wherever they are read: by `section` and `option` in configurations and commands, by
`hyperparameters` in checkpoints and in a variant's description of its base, by `callback` in tests,
by `study` in `study.json`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

# Present names of task classes by their former ones, and their problems.
_CLASSES = {
    "AttentionClassifier": ("AttentionClassifier", "classification"),
    "UniformClassifier": ("UniformVariant", "classification"),
    "GuidedMLP": ("GuidedVariant", "classification"),
    "AdversarialClassifier": ("AdversarialVariant", "classification"),
    "ChunkTagger": ("ChunkTagger", "tagging"),
    "UniformTagger": ("UniformVariant", "tagging"),
    "SeedTagger": ("SeedVariant", "tagging"),
    "GuidedTagger": ("GuidedVariant", "tagging"),
    "AdversarialTagger": ("AdversarialVariant", "tagging"),
}
_OF_NET = (
    *("hierarchical", "encoder", "attention", "readout", "layers", "heads", "initialization"),
    *("hidden_size", "filter_size", "attention_size", "embedding_size", "feature_size"),
    *("embedding_scale", "embedding_dropout", "sentence_dropout", "dropout", "dropout_on"),
    *("attention_dropout", "relu_dropout", "uniform_heads", "uniform_below"),
)
_OF_OPTIMIZER = (
    *("learning_rate", "plateau_factor", "warmup_steps", "weight_decay", "betas", "amsgrad"),
    *("fused", "momentum"),
)
OPTIONS = {
    **{name: f"net.{name}" for name in _OF_NET},
    **{name: f"optimizer.{name}" for name in _OF_OPTIMIZER},
    "optimizer": "optimizer.name",
    "loss_reduction": "loss.reduction",
    "class_weights": "loss.class_weights",
    "vectors": "vectors.path",
    "normalize_vectors": "vectors.normalize",
    "unknown_vectors": "vectors.unknown",
    "freeze_embeddings": "vectors.freeze",
}
# Options of tests that are now in a group, without its name as prefix, by the class of the test.
_TEST_OPTIONS = {
    "AdversarialAttention": {
        "search": (
            *("search_instances", "starts", "steps", "learning_rate", "amsgrad", "penalty"),
            *("search_epsilon", "start_scale", "spread"),
        )
    }
}
# Words for a study's problem, by task, or by task and target; the first format of `study.json` has
# none.
_WORDS = {
    "classification": {"instance": "text", "cluster": "text", "guided": "an MLP"},
    "tagging": {
        "instance": "token",
        "cluster": "sentence",
        "guided": "a tagger",
        "quality": "accuracy",
        "criterion": "macro F1",
    },
    "tagging tokens": {"quality": "chunk F1", "criterion": "chunk F1"},
}
_CONTEXTS = {"tagging": "full"}  # default context of guided models in a study
GROUPS = frozenset(path.partition(".")[0] for path in OPTIONS.values()) | {"objective"}
_SPEC = ("vocab_size", "num_classes", "tags", "features", "target")
_TASK_PATH = re.compile(r"(attnlight\.tasks(?:\.\w+)*\.)?(\w+)")
_TEST_PATH = re.compile(r"(?:attnlight\.callbacks\.(?:\w+\.)?)?(\w+)")
_FROZEN = re.compile(r"(--model\.(?:init_args\.)?)net\.freeze_embeddings(?=$|=)")
_OPTION = re.compile(r"--model\.(init_args\.)?(training\.)?(\w+)((?:\.[\w.]+)?)(=(.*))?", re.DOTALL)


def problem_of(path: str) -> str | None:
    """Problem of a task by its class path in either format; None: that of its base."""
    return _CLASSES.get(path.rpartition(".")[2], (None, None))[1]


def arguments(options: Mapping[str, Any]) -> dict[str, Any]:
    """Constructor arguments of a task, with the options of earlier versions in their groups.

    Example:
        >>> arguments({"encoder": "cnn", "optimizer": "sgd", "training": {"momentum": 0.9}})
        {'net': {'encoder': 'cnn'}, 'optimizer': {'name': 'sgd', 'momentum': 0.9}}
    """
    unset = {"training", *(name for name in ("optimizer", "vectors") if options.get(name) is None)}
    flat = {name: value for name, value in options.items() if name not in unset}
    grouped: dict[str, Any] = {}
    for name, value in (flat | (options.get("training") or {})).items():
        group, _, option = str(OPTIONS.get(name, name)).partition(".")
        is_group = not option or (group == name and isinstance(value, Mapping))
        content = value if is_group else {option: value}
        grouped[group] = (
            grouped.get(group, {}) | content if isinstance(content, Mapping) else content
        )
    net = grouped.get("net")
    if isinstance(net, Mapping) and "freeze_embeddings" in net:
        grouped["net"] = {name: value for name, value in net.items() if name != "freeze_embeddings"}
        grouped["vectors"] = {"freeze": net["freeze_embeddings"], **grouped.get("vectors", {})}
    return grouped


def section(config: object) -> dict[str, Any]:
    """A `model` section of a configuration; empty if it is not a mapping.

    Example:
        >>> section({"class_path": "attnlight.tasks.GuidedMLP"})
        {'class_path': 'attnlight.tasks.GuidedVariant'}
    """
    content = dict(config) if isinstance(config, Mapping) else {}
    path = content.get("class_path")
    match = _TASK_PATH.fullmatch(path) if isinstance(path, str) else None
    if match is not None and match[2] in _CLASSES:
        content["class_path"] = ("attnlight.tasks." if match[1] else "") + _CLASSES[match[2]][0]
    # A section without a class changes options of the one before it.
    if (match or not isinstance(path, str)) and isinstance(content.get("init_args"), Mapping):
        content["init_args"] = arguments(content["init_args"])
    return content


def callback(config: Any) -> Any:  # noqa: ANN401
    """A callback of a configuration; options of a disabled group are dropped.

    Example:
        >>> search = {"search": True, "starts": 2}
        >>> callback({"class_path": "AdversarialAttention", "init_args": search})["init_args"]
        {'search': {'starts': 2}}
    """
    path = config.get("class_path") if isinstance(config, Mapping) else None
    match = _TEST_PATH.fullmatch(path) if isinstance(path, str) else None
    if match is None or not isinstance(config.get("init_args"), Mapping):
        return config
    options = dict(config["init_args"])
    for group, names in _TEST_OPTIONS.get(match[1], {}).items():
        moved = {n.removeprefix(f"{group}_"): options.pop(n) for n in names if n in options}
        if moved and options.get(group):
            options[group] = moved | (options[group] if isinstance(options[group], Mapping) else {})
    return {**config, "init_args": options}


def option(word: str, value: str | None = None) -> str:
    """An option of a command, with its value in the same word or the next one.

    Example:
        >>> option("--model.encoder=cnn"), option("--model.training.momentum", "0.9")
        ('--model.net.encoder=cnn', '--model.optimizer.momentum')
    """
    word = _FROZEN.sub(r"\1vectors.freeze", word)
    match = _OPTION.fullmatch(word)
    if match is None or match[3] not in OPTIONS:
        return word
    init_args, _, name, rest, equals, argument = match.groups()
    group = OPTIONS[name].partition(".")[0]
    if group == name and (rest or (argument if equals else value or "").lstrip().startswith("{")):
        return word  # present form: --model.optimizer.name, --model.optimizer={name: sgd}
    return f"--model.{init_args or ''}{OPTIONS[name]}{rest}{equals or ''}"


def hyperparameters(hparams: Mapping[str, Any]) -> dict[str, Any]:
    """Hyperparameters of a checkpoint, or of a base as stored by its variant."""
    if "spec" in hparams:
        return arguments(hparams)
    tags = hparams.get("tags")
    count = hparams.get("num_classes", 0)
    others = {name: value for name, value in hparams.items() if name not in (*_SPEC, "training")}
    groups: dict[str, Any] = {"net": {}, "optimizer": {}, "loss": {}, "vectors": {}}
    return {
        "problem": "classification" if tags is None else "tagging",
        "spec": {
            "vocab_size": hparams.get("vocab_size"),
            "classes": [str(number) for number in range(count)] if tags is None else list(tags),
            "features": hparams.get("features"),
            "target": hparams.get("target") or "tokens",
        },
        **groups,
        **arguments(others),
    }


def study(content: Mapping[str, Any]) -> dict[str, Any]:
    """The content of a `study.json`, with the words for its problem.

    Raises:
        KeyError: The study has no classes or runs.
    """
    if content.get("problem"):
        return dict(content)
    task, classes = content.get("task", "classification"), content["classes"]
    quality = f"F1 of {classes[1]}" if len(classes) == 2 else "macro F1"
    words = {"problem": task, "quality": quality, "criterion": quality}
    words |= _WORDS.get(task, {}) | _WORDS.get(f"{task} {content.get('target')}", {})
    guided = {"context": _CONTEXTS.get(task)}
    runs = [
        run | guided if run.get("role") == "guide" and run.get("context") is None else run
        for run in content["runs"]
    ]
    return {**content, "problem": words, "runs": runs}
