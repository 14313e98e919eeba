"""Find the columns of a table that nobody has described."""

import re
from collections.abc import Collection, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow
import pyarrow.compute as pc

from attnlight.data.columns import is_text, list_element
from attnlight.data.sources import Source
from attnlight.errors import InputError

_TEXTS = "many different strings"
# By option the names that its column is known by, what columns of other names may hold, in words too.
_OPTIONS: dict[str, tuple[Sequence[str], Sequence[str], str]] = {
    "text": (("text",), ("text", "words"), _TEXTS),
    "passage": (("passage", "premise", "sentence1", "question1"), ("text", "words"), _TEXTS),
    "query": (("query", "hypothesis", "sentence2", "question2", "question"), ("text",), _TEXTS),
    "label": (("label",), ("label",), "few different values"),
    "word_column": (("tokens", "words"), ("words",), "lists of words"),
    "label_column": ((), ("words", "numbers"), "lists of tags"),
}

_OTHER_DELIMITER = re.compile(r"[;|\t]")  # in the name of a column, one that was not taken as such


def find_columns(
    source: Source, null: Collection[str], taken: Collection[object], last: str | None = None
) -> tuple[dict[str, str], dict[str, Sequence[str]]]:
    """The columns of options that are `null`, and of options left open those that they may be.

    Columns that have a usual name, then the only one with such values; of several, not `last`. No
    column is `taken` for another purpose. A column of lists becomes `tokens` in place of `text`.
    """
    kinds = _kinds(source, taken) if null else {}
    usual = {option: next((n for n in _OPTIONS[option][0] if n in kinds), None) for option in null}
    found = {option: name for option, name in usual.items() if name is not None}
    unclear: dict[str, Sequence[str]] = {}
    for option in (option for option in null if option not in found):
        _, held, words = _OPTIONS[option]
        names = [n for n in kinds if kinds[n] in held and n not in found.values()]
        names = [n for n in names if n != last] or names
        if len(names) == 1:
            found[option] = names[0]
        else:
            unclear[option] = names or [f"no column has {words}"]
    if "text" in found and kinds[found["text"]] == "words":
        found["tokens"] = found.pop("text")
    if unclear and len(kinds) == 1 and _OTHER_DELIMITER.search(name := next(iter(kinds))):
        raise InputError(
            f"{source.folder or source.path} has only one column, {name!r}: separate its columns by "
            "commas, or by tabs in a file whose name ends in .tsv."
        )
    return found, unclear


def _kinds(source: Source, taken: Collection[object]) -> dict[str, str | None]:
    """What columns hold: `text`, `label`, lists of `words` or `numbers`; None: something else."""
    kinds: dict[str, str | None] = {}
    with TemporaryDirectory() as scratch:
        rows = source.load(Path(scratch))
        for name in (name for name in rows.column_names if name not in taken):
            kind = rows.features.arrow_schema.field(name).type
            listed = "numbers" if pyarrow.types.is_integer(list_element(kind)) else None
            kinds[name] = "words" if is_text(list_element(kind)) else listed
            if not is_text(kind) and not pyarrow.types.is_primitive(kind):
                continue
            column = rows.select_columns([name]).with_format("arrow")[:][name]
            whole = pyarrow.types.is_integer(kind) or pyarrow.types.is_boolean(kind)
            if pyarrow.types.is_floating(kind):  # integers with missing values, as read from CSV
                whole = bool(pc.all(pc.equal(column, pc.round(column))).as_py())
            if is_text(kind) or whole:
                values = len(column.unique())
                many = "text" if is_text(kind) else None
                kinds[name] = many if 2 * values > len(column) else "label" if values > 1 else None
    return kinds
