"""Short command lines, rewritten to long ones before any parser sees them.

    attnlight fit sst_bilstm --tests cheap    attnlight fit --config=.../experiments/sst_bilstm.yaml
                                              --config=.../tests/cheap.yaml
    attnlight test RUN --tests all            attnlight test --config=RUN/fit.yaml
                                              --ckpt_path=RUN/best.ckpt --config=.../tests/all.yaml
    attnlight test FOLDER --data FILE         attnlight test --model=.../models/huggingface_last.yaml
                                              --model.net.path=FOLDER --data=FILE
    attnlight test org/name --tests all       attnlight test checkpoints/org/name --tests all, if a run
                                              lies on the hub under that id
    attnlight fit --model FOLDER --data FILE  as `test FOLDER`, and --data.tokenizer=FOLDER
    attnlight test RUN --heads FILE           attnlight test RUN with the test `ContextAblation` of
                                              tests/context.yaml and its option `heads`; of
                                              validate: with `learn`

`-c`, `--data` and `--model` also take names of shipped files. Both forms give the same run folder;
Lightning starts the other ranks with the long one.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from attnlight.errors import InputError
from attnlight.storage.files import read_yaml
from attnlight.storage.hub import fetch_run
from attnlight.storage.model_folder import command_options, is_model, require_run
from attnlight.storage.shipped import find_config

# The folder of `configs/` in which the value of an option is looked up.
_FOLDERS = {
    "-c": "experiments",
    "--config": "experiments",
    "--tests": "tests",
    "--data": "data",
    "--model": "models",
}
_HEADS = {"validate": "learn", "test": "heads"}  # what `--heads` is of ContextAblation, by verb
SANITY = ("methods", "max_instances", "seed")  # options of `attnlight sanity` that are the test's
_FLAGS = ("--overwrite", "--print_config")  # all others take a value


def expand(arguments: Sequence[str]) -> list[str]:
    """The long form of the arguments of `fit`, `validate`, `test` or `predict`, the verb first.

    `sanity RUN RUN2` is `test RUN` with that test alone.

    Raises:
        InputError: A name is not that of a shipped file, a folder is neither a run's nor a model's, a
            value is missing or not YAML, or the verb takes fewer arguments.
    """
    verb, *words = arguments
    if not {"-h", "--help"}.isdisjoint(words):
        return ["test" if verb == "sanity" else verb, "--help"]
    named: list[str] = []
    options: list[str] = []
    tokenizer: list[str] = []  # the option that makes `fit` split texts as the model does
    test: dict[str, Any] = {}  # arguments of `Sanity`
    while words:
        word = words.pop(0)
        option, equals, value = word.partition("=")
        if not option.startswith("-"):
            named.append(word)
            continue
        if not equals and option not in _FLAGS and words and not words[0].startswith("--"):
            equals, value = "=", words.pop(0)
        if verb == "sanity" and option[2:] in SANITY:
            test[option[2:]] = plain_value(option, value)
            continue
        folder, heads = _FOLDERS.get(option), option == "--heads" and verb in _HEADS
        if folder is None and not heads:
            options.append(f"{option}{equals}{value}")
            continue
        if not value:
            raise InputError(f"{option} needs a value")
        if folder is None:  # the test that learns heads and writes their file, or that reads it
            shipped = read_yaml(Path(find_config("context", "tests")))["trainer"]["callbacks+"]
            (found,) = (one for one in shipped if one["class_path"].endswith("ContextAblation"))
            found["init_args"][_HEADS[verb]] = value
            options.append(f"--trainer.callbacks+={json.dumps([found])}")
            continue
        if option == "--model" and is_model(Path(value)):
            if verb != "fit":
                named.append(value)
                continue
            options += command_options(Path(value)) or []
            tokenizer = [options[-1].replace("model.net.path", "data.tokenizer")]
            continue
        long = option if folder in ("data", "models") else "--config"
        values = value.split(",") if option == "--tests" else [value]
        options += [f"{long}={find_config(name, folder)}" for name in values]
    if verb == "fit" and not any(option.startswith("--data.tokenizer") for option in options):
        options += tokenizer
    root = next((word[7:] for word in options if word.startswith("--root=")), "checkpoints")
    second: list[str] = []
    if verb == "sanity":
        if not 0 < len(named) < 3:
            raise InputError(f"sanity takes one or two folders of runs, not {len(named)}")
        verb, second = "test", [str(fetch_run(Path(name), Path(root))) for name in named[1:]]
        named = named[:1]
        test |= {"against": second[0]} if second else {}
        test = {"class_path": "attnlight.callbacks.Sanity", "init_args": test}
        options.append(f"--trainer.callbacks+={json.dumps([test])}")
    if len(named) > 1:
        raise InputError(f"{verb} takes one name or folder, not {len(named)}: {', '.join(named)}")
    if not named:
        return [verb, *options]
    if verb == "fit" and Path(named[0]).is_dir() and is_model(Path(named[0])):
        raise InputError(
            f"{named[0]} is a model: attnlight fit --model {named[0]} --data FILE trains it"
        )
    if verb == "fit":
        return [verb, f"--config={find_config(named[0], 'experiments')}", *options]
    run = fetch_run(Path(named[0]), Path(root))
    elsewhere = command_options(run)
    if elsewhere is not None:
        if second:
            raise InputError(
                f"{run} was trained elsewhere, and sanity compares two runs of `attnlight fit`: leave out "
                f"{second[0]}"
            )
        named_here = any(option.startswith("--experiment") for option in [*elsewhere, *options])
        elsewhere += [] if named_here else [f"--experiment={run.resolve().name}"]
        return [verb, *elsewhere, *options]
    require_run(run)
    best, last = (f"--ckpt_path={run / name}.ckpt" for name in ("best", "last"))
    of_run = {"--ckpt_path=best": best, "--ckpt_path=last": last}
    options = [of_run.get(option, option) for option in options]
    return [verb, f"--config={run / 'fit.yaml'}", best, *options]


def plain_value(option: str, text: str) -> Any:  # noqa: ANN401
    """The value of an option, which must be YAML; methods may be listed without brackets."""
    listed = option == "--methods" and not text.lstrip().startswith("[")
    try:
        value = yaml.safe_load(f"[{text}]" if listed else text)
    except yaml.YAMLError:
        value = None
    if not text or (value is None and text != "null"):
        example = " such as gradient,lrp" if option == "--methods" else ""
        raise InputError(f"{option} is {text!r}; expected a value{example}, written as YAML")
    return value
