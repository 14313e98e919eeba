"""A parser whose complaints are one sentence."""

from __future__ import annotations

import re
from typing import NoReturn

from lightning.pytorch.cli import LightningArgumentParser
from typing_extensions import override

from attnlight.errors import InputError

# What jsonargparse tells of its own workings: each type that it tried, None among them.
_WORKINGS = re.compile(
    r"Does not validate against any of the Union subtypes|Subtypes: .*|Errors:|Given value type: .*"
    r"|(- )?Expected a <class 'NoneType'>|Given value: (NestedArg|Namespace).*"
)


class OneSentenceParser(LightningArgumentParser):
    """Raise `InputError` with one sentence where jsonargparse prints its usage and a page."""

    @override
    def error(self, message: str, ex: Exception | None = None) -> NoReturn:
        if not self.exit_on_error:  # asked by jsonargparse itself, which tries several types
            super().error(message, ex)
        raise InputError(one_sentence(message)) from ex


def one_sentence(message: str) -> str:
    r"""A complaint of jsonargparse without its workings.

    Example:
        >>> one_sentence('Parser key "trainer.max_epochs":\n  Expected a <class \'int\'>')
        'trainer.max_epochs: expected int'
    """
    lines = [line.strip() for line in message.splitlines()]
    told = [line.removeprefix("- ") for line in lines if line and not _WORKINGS.fullmatch(line)]
    sentence = ": ".join(line.rstrip(".:") for line in dict.fromkeys(told))
    sentence = re.sub(r'[Pp]arser key "([\w.+-]+)"', r"\1", sentence)
    sentence = re.sub(r"Expected an? <class '(?:\w+\.)*(\w+)'>", r"Expected \1", sentence)
    return re.sub(r": ([A-Z])(?=\w+ )", lambda found: f": {found[1].lower()}", sentence)
