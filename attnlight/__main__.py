"""The command line: the verbs of Lightning's Trainer, and the others."""

import errno
import os
import re
import select
import signal
import sys
from collections.abc import Sequence
from importlib import import_module
from io import TextIOWrapper
from traceback import walk_tb

from attnlight import __version__
from attnlight.cli.processes import RANK_ZERO, end_with_parent, exit_on_signals, signal_status
from attnlight.cli.shorthand import expand
from attnlight.errors import InputError, did_you_mean, one_line, printable

HELP = """\
usage: attnlight VERB [options]

Train attention models and test whether their attention explains what they
predict.

  fit          train a model on a corpus and test it on every validation epoch
  validate     run tests of a checkpoint on the validation split
  test         run tests of a checkpoint on the test split
  predict      write attention, item logits and probabilities of every instance
  report       write a page, tables and figures from a run's records
  browse       show texts on a page where attention can be changed
  study        train and test all runs of a study, and write its tables
  sanity       test whether explanations depend on what a run has learned
  reliability  measure how far runs of several seeds agree on which words matter
  explain      show what attention and other scores say of a text
  card         write a model card with what the verdict of a run says
  push         send a run and its card to the Hugging Face hub
  export       write explanations as JSON lines or for other packages
  vectors      train word vectors on the text of one or several corpora
  configs      list the shipped configuration files, or print one
  demo         train, test and report on a generated corpus, in a few minutes
  env          print versions, devices and the cache, for a report of a fault
  completion   print a script by which bash or zsh completes commands

  attnlight fit sst_bilstm --tests cheap
  attnlight test RUN --tests all
  attnlight report RUN

attnlight VERB --help                          options of a verb
attnlight fit --model.help AttentionClassifier options of a model
attnlight fit --data.help TextDataModule       options of a corpus
"""
_EVALUATION = """\
usage: attnlight {verb} RUN [-c FILE ...] [options]

  attnlight {verb} RUN{tests}
  attnlight {verb} RUN --data OTHER.yaml{tests}

RUN stands for -c RUN/fit.yaml --ckpt_path RUN/best.ckpt.

attnlight {verb} --help lists the options.
"""
_TESTS = " --tests all"
USAGE = {
    "fit": """\
usage: attnlight fit NAME [-c FILE ...] [--tests NAME,...] [options]

  attnlight fit sst_bilstm --tests cheap --run seed0
  attnlight fit --model cnn_additive --data sst

NAME is one of the experiments that `attnlight configs` lists; -c FILE gives one
of your own.

attnlight fit --help lists the options.
""",
    "validate": _EVALUATION.format(verb="validate", tests=_TESTS),
    "test": _EVALUATION.format(verb="test", tests=_TESTS),
    "predict": _EVALUATION.format(verb="predict", tests=""),
    "sanity": """\
usage: attnlight sanity RUN [RUN2] [--methods NAME,...] [options]

  attnlight sanity RUN RUN2
  attnlight sanity RUN --methods 'lrp, {name: occlusion, replacement: delete}'

Parameters are drawn anew from the decoder down, one part more at each step, and
explanations are compared with those of the trained model (Adebayo et al. 2018).
RUN2, a run of the same configuration with another seed, decides which methods
fail. The record is RUN/records/test/sanity.parquet, and --overwrite replaces
one of other settings.

  --methods        attribution methods: names or mappings of options
  --max_instances  texts, chosen by a seeded hash (default: 500); null: all
  --seed           seed of the random parameters and of that choice (default: 0)

attnlight sanity --help lists the other options, those of attnlight test.
""",
}
OTHER_VERBS = (
    *("report", "browse", "study", "reliability", "explain", "export", "vectors", "configs"),
    *("demo", "env", "completion", "card", "push"),
)
# Lightning and torchmetrics import these packages, which takes most of the time of `fit --help`.
UNUSED = (
    *("matplotlib", "matplotlib.axes", "matplotlib.pyplot"),
    *("scipy.signal", "torch._dynamo", "transformers"),
)
# Errors that the user can resolve: a full or read-only disk, missing permissions, a long name.
_USER_ERRORS = frozenset(
    {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EPERM}
    | {errno.ENAMETOOLONG}
)
# Text of other errors, and what the user reads of them; ranks are lost by gloo or by NCCL.
_ENDED = {
    r"MemoryError|OutOfMemory|can't allocate memory|not enough memory": (
        "there is not enough memory ({}): give a smaller --data.batch_size or "
        "--data.eval_batch_size, or a smaller model"
    ),
    r"DataLoader worker \(pid[^)]*\) (is killed|exited unexpectedly)": (
        "a process that loads batches was killed ({}), perhaps since memory ran out: give a smaller "
        "--data.num_workers"
    ),
    r"primitive descriptor for the LSTM": (
        "torch computes no LSTM in half precision on this processor: leave out --trainer.precision, or "
        "take a GPU or an encoder without an LSTM"
    ),
    r"gloo/.*(Connection (reset|closed) by peer|Broken pipe)|remote process exited": (
        "another process of this job has ended: look at its output, and whether it was killed since "
        "memory ran out"
    ),
}
# How jsonargparse begins what a constructor raised of the arguments that it was given.
_REFUSED = "Does not validate against"
_READERS = ("yaml", "json", "jsonargparse")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        argv: The arguments; None takes those of the process.

    Returns:
        The exit status: 0, or 2 after a mistake in the input, which one sentence on stderr describes.

    Raises:
        SystemExit: With 128 and the number of the signal that ended the command.
    """
    if argv is None:
        exit_on_signals()
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, TextIOWrapper):  # a name that it cannot encode ends no command
                stream.reconfigure(errors="backslashreplace")
    try:
        status = _run(sys.argv[1:] if argv is None else argv, inside=argv is not None)
        sys.stdout.flush()
        return status
    except Exception as error:
        if status := signal_status():  # workers of a data loader that it ended, too, are an error
            return status
        if isinstance(error, BrokenPipeError):
            poll = select.poll()
            poll.register(sys.stdout.fileno(), select.POLLOUT)
            if any(event & select.POLLERR for _, event in poll.poll(0)):  # as behind `| head`
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
                return 128 + signal.SIGPIPE
        sentence = _sentence(error)
        if sentence is None or os.environ.get("ATTNLIGHT_DEBUG") == "1":
            raise
        print(f"attnlight: {printable(sentence.rstrip('.'))}.", file=sys.stderr)
        return 2


def _run(words: Sequence[str], inside: bool) -> int:
    """The exit status of a command, which another process of Python may run `inside` itself."""
    verb, *arguments = words or ["--help"]
    if verb in ("-h", "--help", "--version"):
        print(__version__ if verb == "--version" else HELP.rstrip())
        return 0
    if verb in OTHER_VERBS:
        place = "attnlight.studies.cli" if verb == "study" else f"attnlight.cli.{verb}"
        return int(import_module(place).main(arguments))
    if verb not in USAGE:
        verbs = (*USAGE, *OTHER_VERBS)
        hint = did_you_mean(verb, verbs)
        raise InputError(f"there is no verb {verb!r}{hint}; the verbs are {', '.join(verbs)}.")
    if not arguments:
        print(USAGE[verb], end="", file=sys.stderr)
        return 2
    if not {"-h", "--help"}.isdisjoint(arguments):
        print(USAGE[verb])
        if not inside:  # this process prints a list of options and ends
            from unittest.mock import MagicMock

            sys.modules.update((name, MagicMock(name=name)) for name in UNUSED)
    # Before the imports, which take seconds. Torchrun and srun end their ranks themselves.
    if os.environ.get("LOCAL_RANK", "0") != "0" and RANK_ZERO in os.environ:
        end_with_parent(int(os.environ[RANK_ZERO]))
    long = expand([verb, *arguments])
    if not inside:
        sys.argv[1:] = long  # Lightning starts the other ranks with it
    import_module("attnlight.cli.lightning_cli").run(long if inside else None)
    return 0


def _sentence(error: Exception) -> str | None:
    """What the user can mend, in a sentence; None for a fault of the program itself."""
    cause: BaseException | None = error
    while cause is not None:  # jsonargparse wraps what a constructor raises
        if isinstance(cause, InputError):
            return str(cause)
        cause = cause.__cause__ or cause.__context__
    if isinstance(error, ValueError) and str(error).startswith(_REFUSED):
        sentence: str = import_module("attnlight.storage.parsing").one_sentence(str(error))
        return sentence
    if isinstance(error, OSError) and error.errno in _USER_ERRORS:
        return ": ".join(filter(None, [str(error.filename or ""), error.strerror]))
    for pattern, ended in _ENDED.items():
        if isinstance(error, MemoryError | RuntimeError) and re.search(pattern, repr(error)):
            return ended.format(one_line(error))
    # By name: importing Lightning for this would take seconds.
    if any(kind.__name__ == "MisconfigurationException" for kind in type(error).__mro__):
        return one_line(error)
    if isinstance(error, RecursionError):
        frames = [frame for frame, _ in walk_tb(error.__traceback__)]
        if frames[-1].f_globals.get("__name__", "").partition(".")[0] in _READERS:
            return "a configuration is nested too deeply"
    return None


if __name__ == "__main__":
    sys.exit(main())
