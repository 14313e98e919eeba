"""What earlier versions call classes, options and hyperparameters, and what they are called now.

This table translates the first format, and `net.freeze_embeddings` of the second (now
`vectors.freeze`), wherever they are read: `section` and `option` for configurations and commands,
`hyperparameters` for checkpoints and for what runs keep of their base, `callback` for tests, `study`
for `study.json`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

# What classes of tasks are called now, and the problem of each.
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
# Options of tests that are in a group now, without its name before theirs, by the class of the test.
_TEST_OPTIONS = {
    "AdversarialAttention": {
        "search": (
            *("search_instances", "starts", "steps", "learning_rate", "amsgrad", "penalty"),
            *("search_epsilon", "start_scale", "spread"),
        )
    }
}
# What pages call the parts of a study's problem, by task, or by task and target: the first format of
# `study.json` does not say.
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
_CONTEXTS = {"tagging": "full"}  # what guided models read where a study does not say
GROUPS = frozenset(path.partition(".")[0] for path in OPTIONS.values())
_SPEC = ("vocab_size", "num_classes", "tags", "features", "target")
_OUR_TASK = re.compile(r"(attnlight\.tasks(?:\.\w+)*\.)?(\w+)")
_OUR_TEST = re.compile(r"(?:attnlight\.callbacks\.(?:\w+\.)?)?(\w+)")
_FROZEN = re.compile(r"(--model\.(?:init_args\.)?)net\.freeze_embeddings(?=$|=)")
_OPTION = re.compile(r"--model\.(init_args\.)?(training\.)?(\w+)((?:\.[\w.]+)?)(=(.*))?", re.DOTALL)


def problem_of(path: str) -> str | None:
    """Name of the problem of a task by its class path, of either format; None: that of its base."""
    return _CLASSES.get(path.rpartition(".")[2], (None, None))[1]


def arguments(given: Mapping[str, Any]) -> dict[str, Any]:
    """Constructor arguments of a task, with the options of earlier versions in their groups.

    Example:
        >>> arguments({"encoder": "cnn", "optimizer": "sgd", "training": {"momentum": 0.9}})
        {'net': {'encoder': 'cnn'}, 'optimizer': {'name': 'sgd', 'momentum': 0.9}}
    """
    unset = {"training", *(name for name in ("optimizer", "vectors") if given.get(name) is None)}
    flat = {name: value for name, value in given.items() if name not in unset}
    found: dict[str, Any] = {}
    for name, value in (flat | (given.get("training") or {})).items():
        group, _, option = str(OPTIONS.get(name, name)).partition(".")
        whole = not option or (group == name and isinstance(value, Mapping))
        held = value if whole else {option: value}
        found[group] = found.get(group, {}) | held if isinstance(held, Mapping) else held
    net = found.get("net")
    if isinstance(net, Mapping) and "freeze_embeddings" in net:
        found["net"] = {name: value for name, value in net.items() if name != "freeze_embeddings"}
        found["vectors"] = {"freeze": net["freeze_embeddings"], **found.get("vectors", {})}
    return found


def section(given: Mapping[str, Any]) -> dict[str, Any]:
    """A `model` section of a configuration.

    Example:
        >>> section({"class_path": "attnlight.tasks.GuidedMLP"})
        {'class_path': 'attnlight.tasks.GuidedVariant'}
    """
    content = dict(given)
    path = content.get("class_path")
    ours = _OUR_TASK.fullmatch(path) if isinstance(path, str) else None
    if ours is not None and ours[2] in _CLASSES:
        content["class_path"] = ("attnlight.tasks." if ours[1] else "") + _CLASSES[ours[2]][0]
    # A section without a class changes options of the one before it.
    if (ours or not isinstance(path, str)) and isinstance(content.get("init_args"), Mapping):
        content["init_args"] = arguments(content["init_args"])
    return content


def callback(given: Any) -> Any:  # noqa: ANN401
    """A callback of a configuration; options of a group that is off go.

    Example:
        >>> search = {"search": True, "starts": 2}
        >>> callback({"class_path": "AdversarialAttention", "init_args": search})["init_args"]
        {'search': {'starts': 2}}
    """
    path = given.get("class_path") if isinstance(given, Mapping) else None
    found = _OUR_TEST.fullmatch(path) if isinstance(path, str) else None
    if found is None or not isinstance(given.get("init_args"), Mapping):
        return given
    options = dict(given["init_args"])
    for group, names in _TEST_OPTIONS.get(found[1], {}).items():
        held = {n.removeprefix(f"{group}_"): options.pop(n) for n in names if n in options}
        if held and options.get(group):
            options[group] = held | (options[group] if isinstance(options[group], Mapping) else {})
    return {**given, "init_args": options}


def option(word: str, value: str | None = None) -> str:
    """An option of a command, its value behind it or given apart.

    Example:
        >>> option("--model.encoder=cnn"), option("--model.training.momentum", "0.9")
        ('--model.net.encoder=cnn', '--model.optimizer.momentum')
    """
    word = _FROZEN.sub(r"\1vectors.freeze", word)
    found = _OPTION.fullmatch(word)
    if found is None or found[3] not in OPTIONS:
        return word
    init_args, _, name, rest, equals, given = found.groups()
    group = OPTIONS[name].partition(".")[0]
    if group == name and (rest or (given if equals else value or "").lstrip().startswith("{")):
        return word  # of today: --model.optimizer.name, --model.optimizer={name: sgd}
    return f"--model.{init_args or ''}{OPTIONS[name]}{rest}{equals or ''}"


def hyperparameters(held: Mapping[str, Any]) -> dict[str, Any]:
    """Hyperparameters of a checkpoint, or what is kept of those of a base."""
    if "spec" in held:
        return arguments(held)
    tags = held.get("tags")
    count = held.get("num_classes", 0)
    own = {name: value for name, value in held.items() if name not in (*_SPEC, "training")}
    groups: dict[str, Any] = {"net": {}, "optimizer": {}, "loss": {}, "vectors": {}}
    return {
        "problem": "classification" if tags is None else "tagging",
        "spec": {
            "vocab_size": held.get("vocab_size"),
            "classes": [str(number) for number in range(count)] if tags is None else list(tags),
            "features": held.get("features"),
            "target": held.get("target") or "tokens",
        },
        **groups,
        **arguments(own),
    }


def study(held: Mapping[str, Any]) -> dict[str, Any]:
    """The content of a `study.json`, with the words of its problem.

    Raises:
        KeyError: The study has no classes or runs.
    """
    if held.get("problem"):
        return dict(held)
    task, classes = held.get("task", "classification"), held["classes"]
    quality = f"F1 of {classes[1]}" if len(classes) == 2 else "macro F1"
    words = {"problem": task, "quality": quality, "criterion": quality}
    words |= _WORDS.get(task, {}) | _WORDS.get(f"{task} {held.get('target')}", {})
    guided = {"context": _CONTEXTS.get(task)}
    runs = [
        run | guided if run.get("role") == "guide" and run.get("context") is None else run
        for run in held["runs"]
    ]
    return {**held, "problem": words, "runs": runs}
