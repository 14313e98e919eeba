"""Short command lines, written out in full before any parser sees them.

    attnlight fit sst_bilstm --tests cheap      attnlight fit -c .../experiments/sst_bilstm.yaml
                                                -c .../tests/cheap.yaml
    attnlight test RUN --tests all              attnlight test -c RUN/fit.yaml -c .../tests/all.yaml
                                                --ckpt_path RUN/best.ckpt

`-c`, `--data` and `--model` take names of shipped files too. A run's folder, what it is called, and
what Lightning starts other ranks with are those of the full command line.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from attnlight.errors import InputError, did_you_mean
from attnlight.shipped import find_config

# The folder of what each option names.
_OPTIONS = {"-c": "experiments", "--config": "experiments", "--data": "data", "--model": "models"}
_TESTS, _CHECKPOINT = "--tests", "--ckpt_path"
_FLAGS = ("-h", "--help", "--overwrite", "--print_config")  # all others take a value


def written_out(arguments: Sequence[str]) -> list[str]:
    """The full form of the arguments of `fit`, `validate`, `test` or `predict`, the verb first.

    Raises:
        InputError: A name is none of a shipped file, a run's folder has no `fit.yaml`, or there is a
            second word without an option.
    """
    verb, *words = arguments
    named: list[str] = []
    options: list[str] = []
    while words:
        word = words.pop(0)
        option, equals, value = word.partition("=")
        if not option.startswith("-"):
            named.append(word)
            continue
        if not equals and option not in _FLAGS and words:
            equals, value = " ", words.pop(0)
        kind = _OPTIONS.get(option)
        if option == _TESTS and equals:
            paths = [find_config(name, "tests") for name in value.split(",")]
            options += [part for path in paths for part in ("-c", path)]
        elif kind and equals:
            options += [option, find_config(value, kind)]
        else:
            options += [word, value] if equals == " " else [word]
    if len(named) > 1:
        raise InputError(f"{verb} takes one name or folder, but {', '.join(named)} are given.")
    if not named:
        return [verb, *options]
    if verb == "fit":
        return [verb, "-c", find_config(named[0], "experiments"), *options]
    run = Path(named[0])
    if not (run / "fit.yaml").is_file():
        there = [path.name for path in run.parent.glob("*/")] if run.parent.is_dir() else []
        raise InputError(f"{run} is no run: it has no fit.yaml{did_you_mean(run.name, there)}.")
    given = any(option.partition("=")[0] == _CHECKPOINT for option in options)
    best = [] if given else [_CHECKPOINT, str(run / "best.ckpt")]
    return [verb, "-c", str(run / "fit.yaml"), *best, *options]
