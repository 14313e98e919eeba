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

CLASSES = {
    "UniformClassifier": "UniformVariant",
    "UniformTagger": "UniformVariant",
    "SeedTagger": "SeedVariant",
    "GuidedMLP": "GuidedVariant",
    "GuidedTagger": "GuidedVariant",
    "AdversarialClassifier": "AdversarialVariant",
    "AdversarialTagger": "AdversarialVariant",
}
_PROBLEMS = {
    "AttentionClassifier": "classification",
    "UniformClassifier": "classification",
    "GuidedMLP": "classification",
    "AdversarialClassifier": "classification",
    "ChunkTagger": "tagging",
    "UniformTagger": "tagging",
    "SeedTagger": "tagging",
    "GuidedTagger": "tagging",
    "AdversarialTagger": "tagging",
}
OPTIONS = {
    "hierarchical": "net.hierarchical",
    "encoder": "net.encoder",
    "attention": "net.attention",
    "readout": "net.readout",
    "layers": "net.layers",
    "heads": "net.heads",
    "hidden_size": "net.hidden_size",
    "filter_size": "net.filter_size",
    "attention_size": "net.attention_size",
    "embedding_size": "net.embedding_size",
    "feature_size": "net.feature_size",
    "embedding_scale": "net.embedding_scale",
    "freeze_embeddings": "vectors.freeze",
    "embedding_dropout": "net.embedding_dropout",
    "sentence_dropout": "net.sentence_dropout",
    "dropout": "net.dropout",
    "dropout_on": "net.dropout_on",
    "attention_dropout": "net.attention_dropout",
    "relu_dropout": "net.relu_dropout",
    "initialization": "net.initialization",
    "uniform_heads": "net.uniform_heads",
    "uniform_below": "net.uniform_below",
    "optimizer": "optimizer.name",
    "learning_rate": "optimizer.learning_rate",
    "plateau_factor": "optimizer.plateau_factor",
    "warmup_steps": "optimizer.warmup_steps",
    "weight_decay": "optimizer.weight_decay",
    "betas": "optimizer.betas",
    "amsgrad": "optimizer.amsgrad",
    "fused": "optimizer.fused",
    "momentum": "optimizer.momentum",
    "loss_reduction": "loss.reduction",
    "class_weights": "loss.class_weights",
    "vectors": "vectors.path",
    "normalize_vectors": "vectors.normalize",
    "unknown_vectors": "vectors.unknown",
}
# Options of tests that are in a group now, by the class of the test.
TEST_OPTIONS = {
    "AdversarialAttention": {
        "search_instances": "search.instances",
        "starts": "search.starts",
        "steps": "search.steps",
        "learning_rate": "search.learning_rate",
        "amsgrad": "search.amsgrad",
        "penalty": "search.penalty",
        "search_epsilon": "search.epsilon",
        "start_scale": "search.start_scale",
        "spread": "search.spread",
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
_OURS = re.compile(r"(attnlight\.tasks(?:\.\w+)*\.)?(\w+)")
_OUR_TEST = re.compile(r"(?:attnlight\.callbacks\.(?:\w+\.)?)?(\w+)")
_FROZEN = re.compile(r"(--model\.(?:init_args\.)?)net\.freeze_embeddings(?=$|=)")
_OPTION = re.compile(r"--model\.(init_args\.)?(training\.)?(\w+)((?:\.[\w.]+)?)(=(.*))?", re.DOTALL)


def class_path(path: str) -> str:
    """The class path of today.

    Example:
        >>> class_path("attnlight.tasks.GuidedMLP")
        'attnlight.tasks.GuidedVariant'
    """
    found = _OURS.fullmatch(path)
    if found is None or found[2] not in CLASSES:
        return path
    return ("attnlight.tasks." if found[1] else "") + CLASSES[found[2]]


def problem_of(path: str) -> str | None:
    """Name of the problem of a task by its class path, of either format; None: that of its base."""
    return _PROBLEMS.get(path.rpartition(".")[2])


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
    """A `model` section of a configuration."""
    content = dict(given)
    path = content.get("class_path")
    if isinstance(path, str):
        content["class_path"] = class_path(path)
    # A section without a class changes options of the one before it.
    ours = not isinstance(path, str) or _OURS.fullmatch(path) is not None
    if ours and isinstance(content.get("init_args"), Mapping):
        content["init_args"] = arguments(content["init_args"])
    return content


def callback(given: Any) -> Any:  # noqa: ANN401
    """A callback of a configuration, with the options of the first format in their groups."""
    path = given.get("class_path") if isinstance(given, Mapping) else None
    found = _OUR_TEST.fullmatch(path) if isinstance(path, str) else None
    if found is None or not isinstance(given.get("init_args"), Mapping):
        return given
    return {**given, "init_args": callback_arguments(found[1], given["init_args"])}


def callback_arguments(name: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Constructor arguments of a test by the name of its class; those of a group that is off go.

    Example:
        >>> callback_arguments("AdversarialAttention", {"search": True, "starts": 2})
        {'search': {'starts': 2}}
    """
    moved = TEST_OPTIONS.get(name, {})
    found = {option: value for option, value in given.items() if option not in moved}
    for option in moved.keys() & given.keys():
        group, _, own = moved[option].partition(".")
        if found.get(group):
            held = found[group] if isinstance(found[group], Mapping) else {}
            found[group] = {own: given[option], **held}
    return found


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
