"""Argument parser of the verbs that are not the Trainer's."""

import argparse
import re
from typing import Any, NoReturn

from typing_extensions import override

from attnlight.errors import InputError, did_you_mean


class _Paragraphs(argparse.HelpFormatter):
    """Wrap paragraphs to the terminal; commands and indented lines stay as they are."""

    @override
    def _fill_text(self, text: str, width: int, indent: str) -> str:
        parts = text.split("\n\n")
        for place, part in enumerate(parts):
            if not all(line.startswith(("attnlight ", "  ")) for line in part.splitlines()):
                parts[place] = super()._fill_text(part, width, indent)
        return "\n\n".join(parts)


class VerbParser(argparse.ArgumentParser):
    """Accept only full option names, before or after arguments; raise `InputError` with one sentence."""

    def __init__(self, verb: str, **kwargs: Any) -> None:  # noqa: ANN401
        form = _Paragraphs
        super().__init__(f"attnlight {verb}", allow_abbrev=False, formatter_class=form, **kwargs)

    # Of `RUN --html TEXT`, `argparse` would take RUN for all arguments of the verb.
    parse_args = argparse.ArgumentParser.parse_intermixed_args

    @override
    def error(self, message: str) -> NoReturn:
        unknown = re.match(r"unrecognized arguments: (--[^\s=]+)", message)
        if unknown:
            hint = did_you_mean(unknown[1], self._option_string_actions)
            message = f"there is no option {unknown[1]}{hint}"
        raise InputError(f"{message}; {self.prog} --help lists the options")
