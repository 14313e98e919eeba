"""A run in words: what was trained on what, how many instances were tested, and how to repeat it."""

from __future__ import annotations

import platform
import shlex
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from attnlight import __version__
from attnlight.compatibility import section
from attnlight.report.runs import Run
from attnlight.report.tables import RecordSummary

_VERBS = {"test": "test", "val": "validate"}
_PACKAGES = ("numpy", "matplotlib", "torch", "lightning")


def sentence(run: Run, summaries: Sequence[RecordSummary]) -> str:
    """What was trained on which corpus, and what it was tested on."""
    model, corpus = _class(run.config, "model"), _class(run.config, "data")
    if model:
        parts = [
            f"{name} {value}" for name, value in _settings(run.config, "model", "encoder attention")
        ]
        trained = model + (f" ({', '.join(parts)})" if parts else "")
    else:
        trained = "A model whose configuration is not in the run folder"
    source = dict(_settings(run.config, "data", "path name"))
    told = " ".join(source.values()) or corpus
    tested = _tested(summaries)
    return f"{trained}{f', trained on {told}' if told else ''}{f'; {tested}' if tested else ''}."


def _tested(summaries: Sequence[RecordSummary]) -> str:
    found = {part.rows for part in summaries if part.record.place == "test"}
    if not found:
        return "no record of the test split yet"
    most = f"{max(found):,}"
    amount = most if len(found) == 1 else f"up to {most}"
    return f"tested on {amount} instances of the test split"


def facts(run: Run, summaries: Sequence[RecordSummary]) -> list[tuple[str, list[str]]]:
    """What identifies the run: names, and the values of each."""
    checkpoints = {str(part.metadata.get("checkpoint") or "") for part in summaries}
    classes = next((part.classes for part in summaries if part.classes), [])
    partial = sorted({part.record.test for part in summaries if part.partial})
    found = [
        ("Model", [_class(run.config, "model")]),
        ("Corpus", [_class(run.config, "data")]),
        ("Classes", classes),
        ("Seed", [str(run.config.get("seed_everything", ""))]),
        ("Checkpoint", sorted(checkpoints)),
        ("Partial records", partial),
    ]
    given = [(name, [value for value in values if value]) for name, values in found]
    return [(name, values) for name, values in given if values]


def _class(config: Mapping[str, Any], part: str) -> str:
    """Last part of the class path of `model` or `data`."""
    held = config.get(part)
    path = held.get("class_path") if isinstance(held, dict) else held
    return path.rpartition(".")[2] if isinstance(path, str) else ""


def _settings(config: Mapping[str, Any], part: str, names: str) -> Iterator[tuple[str, str]]:
    """Those of the named constructor arguments that the configuration gives."""
    held = config.get(part)
    arguments = held.get("init_args") if isinstance(held, dict) else None
    if part == "model" and isinstance(held, dict):
        arguments = (section(held).get("init_args") or {}).get("net")
    for name in names.split():
        value = arguments.get(name) if isinstance(arguments, dict) else None
        if isinstance(value, dict):
            value = _class({name: value}, name)
        if isinstance(value, str):
            yield name, value


def commands(run: Run, summaries: Sequence[RecordSummary]) -> list[str]:
    """Command lines that repeat the run beside itself, its evaluations, and this report."""
    lines = []
    if run.config:
        experiment, _, name = run.name.rpartition("/")
        again = ["--experiment", experiment, "--run", f"{name}-again"]
        lines.append(["fit", "-c", str(run.folder / "fit.yaml"), *again])
        lines += _evaluations(run, summaries)
    lines.append(["report", str(run.folder)])
    return [shlex.join(["attnlight", *line]) for line in lines]


def _evaluations(run: Run, summaries: Sequence[RecordSummary]) -> Iterator[list[str]]:
    """One for each checkpoint that was tested or validated."""
    tests: dict[tuple[str, str, str], list[str]] = {}
    for part in summaries:
        checkpoint = str(part.metadata.get("checkpoint") or "")
        key = _VERBS[part.record.stage], part.record.corpus, checkpoint
        tests.setdefault(key, []).append(part.record.test)
    for (verb, corpus, checkpoint), names in tests.items():
        named = f"{verb}-{corpus}" if corpus else verb
        if corpus and named not in run.configs:
            continue  # nothing says where that corpus is
        config = named if named in run.configs else "fit"
        attached = _attached(run.configs[config]) if config == named else set()
        added = [name for name in names if name.replace("_", "") not in attached]
        line = [verb, "-c", str(run.folder / f"{config}.yaml")]
        line += [word for name in added for word in ("-c", f"configs/tests/{name}.yaml")]
        yield line + (["--ckpt_path", str(run.folder / checkpoint)] if checkpoint else [])


def _attached(config: Mapping[str, Any]) -> set[str]:
    """Names of the callbacks that the configuration already attaches, in lower case."""
    trainer = config.get("trainer")
    callbacks = trainer.get("callbacks") if isinstance(trainer, dict) else None
    listed = callbacks if isinstance(callbacks, list) else [callbacks]
    return {_class({"callback": callback}, "callback").lower() for callback in listed}


def versions(run: Run) -> list[tuple[str, str]]:
    """Versions that wrote the report, and those that the configuration names."""
    found = [("attnlight", __version__), ("Python", platform.python_version())]
    for package in _PACKAGES:
        try:
            found.append((package, version(package)))
        except PackageNotFoundError:
            continue
    header = run.config_text.partition("\n")[0]
    if header.startswith("# ") and "==" in header:
        found.append(("configuration written by", header[2:]))
    return found
