"""What a run trained and tested, in words and in command lines."""

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from attnlight.report.run import VERBS, Run
from attnlight.report.summary import RecordSummary
from attnlight.report.verdict.estimate import rules
from attnlight.storage.files import read_yaml
from attnlight.storage.model_folder import tested_config
from attnlight.storage.shipped import shipped_configs


def describe_run(run: Run, summaries: Sequence[RecordSummary]) -> dict[str, list[str]]:
    """What the page says about the run: the values of each fact, none where they are not known."""
    model, data = (run.configs["fit"].get(name) for name in ("model", "data"))
    corpus = corpus_name(data)
    metadata = [summary.metadata for summary in summaries]
    facts = {
        "Model": [_class(model)],
        "Corpus": [corpus, *([_class(data)] if _class(data) != corpus else [])],
        "Classes": next((entry["classes"] for entry in metadata if entry.get("classes")), []),
        "Seed": [str(run.configs["fit"].get("seed_everything", ""))],
        "Checkpoint": sorted({entry.get("checkpoint") or "" for entry in metadata}),
        "Partial records": sorted({p.record.test for p in summaries if p.metadata.get("partial")}),
    }
    return {name: [value for value in values if value] for name, values in facts.items()}


def model_name(net: Mapping[str, Any]) -> str:
    """A network in a few words, from its options; "" if they do not say what it is."""
    options = net.get("options") or net  # those of a custom network
    if isinstance(path := options.get("path"), str):  # of a model that was trained elsewhere
        return _short(path)
    encoder, attention = (_class(net.get(name)) for name in ("encoder", "attention"))
    if not encoder:
        return ""
    words = rules()["networks"]
    kind = f"{'hierarchical ' * bool(net.get('hierarchical'))}{words.get(encoder, encoder)}"
    return f"{kind} with {attention.replace('_', ' ')} attention" if attention else kind


def tested_corpus(run: Run, corpus: str) -> str:
    """Name of the corpus of a run's tests in a few words; "" if it is not known.

    It is named as in records: "" is that of training, or of a model trained elsewhere.
    """
    file = tested_config(run.folder)
    config = run.configs["fit"] or (read_yaml(file) if file else {})
    return corpus or _short(corpus_name(config.get("data")))


def _short(name: str) -> str:
    """A name without the folders that it lies in; hub ids are whole."""
    path = Path(name)
    return path.name if path.is_absolute() or path.suffix or name.startswith(".") else name


def corpus_name(data: object) -> str:
    """The name of a corpus: its hub id or path, else of the shipped data file that has its options.

    Of the files that agree in all of their options, the one with the most; the class if there is
    none; "" without a class.
    """
    options = [_config_value(data, "init_args", option) for option in ("path", "name")]
    if any(isinstance(value, str) for value in options):
        return " ".join(value for value in options if isinstance(value, str))
    found = _class(data), 0
    for name, path in shipped_configs().items():
        shipped = read_yaml(path) if name.startswith("data/") and _class(data) else {}
        arguments = shipped.get("init_args") or {}
        given = _config_value(data, "init_args")
        agree = _class(shipped) == _class(data) and _contains(given, arguments)
        if agree and len(arguments) > found[1]:
            found = name.removeprefix("data/"), len(arguments)
    return found[0]


def _contains(config: object, part: object) -> bool:
    """Whether a configuration has all values of another one, nested ones included."""
    if not isinstance(part, dict):
        return config == part
    return isinstance(config, dict) and all(
        name in config and _contains(config[name], value) for name, value in part.items()
    )


def _config_value(config: object, *keys: str) -> object:
    """The value under nested keys of a configuration; None if it has no such key."""
    for key in keys:
        config = config.get(key) if isinstance(config, dict) else None
    return config


def _class(named: object) -> str:
    """Last part of a class path or of a mapping's `class_path`; "" without one."""
    path = named if isinstance(named, str) else _config_value(named, "class_path")
    return path.rpartition(".")[2] if isinstance(path, str) else ""


def commands(run: Run, summaries: Sequence[RecordSummary]) -> list[str]:
    """Command lines that repeat the run under another name, its evaluations, and this report."""
    lines = []
    tests: dict[tuple[str, str, str], list[str]] = {}
    if run.configs["fit"]:
        experiment, name = run.folder.resolve().parts[-2:]
        names = ["--experiment", experiment, "--run", f"{name}-again"]
        lines.append(["fit", "-c", str(run.folder / "fit.yaml"), *names])
        for summary in summaries:
            record = summary.record
            key = VERBS[record.stage], record.corpus, summary.metadata.get("checkpoint") or ""
            tests.setdefault(key, []).append(record.test)
    for (verb, corpus, checkpoint), test_names in tests.items():
        config_name = f"{verb}-{corpus}" if corpus else verb
        if corpus and config_name not in run.configs:
            continue  # without its configuration, the path of that corpus is unknown
        callbacks = _config_value(run.configs, config_name, "trainer", "callbacks")
        listed = callbacks if isinstance(callbacks, list) else [callbacks]
        attached = {_class(callback).lower() for callback in listed}
        config = run.folder / f"{config_name if config_name in run.configs else 'fit'}.yaml"
        line = [verb, "-c", str(config)]
        lacking = [name for name in test_names if name.replace("_", "") not in attached]
        line += ["--tests", ",".join(lacking)] if lacking else []
        line += ["--ckpt_path", str(run.folder / checkpoint)] if checkpoint else []
        lines.append(line)
    lines.append(["report", str(run.folder)])
    return [shlex.join(["attnlight", *line]) for line in lines]
