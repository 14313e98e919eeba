"""Find the columns of texts and of labels in a table that nobody has described."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from attnlight.data.columns import is_text, list_element
from attnlight.data.sources import Source
from attnlight.data.tagged import TaggedColumns
from attnlight.errors import InputError

if TYPE_CHECKING:
    from datasets import Dataset

_ROWS_A_CLASS = 2  # fewer rows for each value, on average, are no classes


def find_columns(
    source: Source, taken: Collection[str | None]
) -> tuple[dict[str, str], dict[str, list[str]]]:
    """The columns of texts and labels that a source does not name, and what leaves them open.

    A column called `text`, or `label`, is it. Else labels are the only column of whole numbers, truth
    values or strings with few different values, and texts the only one of strings with many, or of
    lists of strings.

    Args:
        source: The source.
        taken: Columns that have another meaning.

    Returns:
        The columns by option, and for each option without one the columns that it may be.

    Raises:
        InputError: The source cannot be read.
    """
    missing = [] if source.columns else ["text"]
    missing += [] if source.label else ["label"]
    if not missing:
        return {}, {}
    first = source.first_row()
    found = {option: option for option in missing if option in first and option not in taken}
    if len(found) == len(missing):
        return found, {}
    with TemporaryDirectory() as scratch:
        rows = source.load(Path(scratch))
        used = {*taken, *source.columns, str(source.label), *found}
        free = [name for name in rows.column_names if name not in used]
        kinds = {name: _kind(rows, name) for name in free}
    unclear: dict[str, list[str]] = {}
    for option, fits in (("text", ("text", "tokens")), ("label", ("label",))):
        names = [name for name in free if kinds[name] in fits]
        if option not in missing or option in found:
            continue
        if len(names) == 1:
            found[str(kinds[names[0]])] = names[0]
        else:
            unclear[option] = names or free
    if list(kinds.values()).count("tokens") > 1 and "label" in unclear:
        raise InputError(f"{source} has lists of tags: a tagger reads it, as `--model tagger_bilstm`.")
    return found, unclear


def find_tag_columns(
    source: Source, columns: TaggedColumns
) -> tuple[Mapping[str, int | str], Mapping[str, list[str]]]:
    """The columns of words and tags that are not named, and what leaves them open, by option.

    In a column file words are the first column and tags the last, of CoNLL-U the universal parts of
    speech. Elsewhere words are called `tokens` or `words`, or are the only lists of strings; tags are
    the only other lists, apart from `pos_column` where there are more.

    Raises:
        InputError: The source cannot be read.
    """
    named = {"word_column": columns.word_column, "label_column": columns.label_column}
    missing = [option for option, column in named.items() if column is None]
    if missing and source.column_files:
        conllu = source.column_file.suffix == ".conllu"
        numbers = {"word_column": 1 if conllu else 0, "label_column": 3 if conllu else -1}
        return {option: numbers[option] for option in missing}, {}
    first = source.first_row() if missing else {}
    taken = {*named.values(), *(columns.mark_columns or {}).values()}
    lists = [name for name in first if isinstance(first[name], list) and name not in taken]
    if missing and not lists:
        raise InputError(
            f"{source} has no lists of words and of tags: give JSON lines or parquet with a list of each "
            "in a row, or a column file (.conll, .txt, .tsv) with a word and its tag on each line."
        )
    strings = [name for name in lists if all(isinstance(word, str) for word in first[name])]
    words = next(([name] for name in ("tokens", "words") if name in strings), strings)
    tags = [name for name in lists if [name] != words]
    tags = [name for name in tags if name != columns.pos_column] or tags
    candidates = {"word_column": words, "label_column": tags}
    found = {option: candidates[option][0] for option in missing if len(candidates[option]) == 1}
    return found, {option: candidates[option] for option in missing if option not in found}


def _kind(rows: Dataset, name: str) -> str | None:
    """The option that a column fits by its values; None: neither texts, lists of words nor labels."""
    import pyarrow

    kind = rows.features.arrow_schema.field(name).type
    if is_text(list_element(kind)):
        return "tokens"
    if not (is_text(kind) or pyarrow.types.is_integer(kind) or pyarrow.types.is_boolean(kind)):
        return None
    column = rows.select_columns([name]).with_format("arrow")[:][name]
    values = len(column.unique())
    if values <= len(column) / _ROWS_A_CLASS:
        return "label" if values > 1 else None
    return "text" if is_text(kind) else None


def require_found(corpus: str, options: Mapping[str, Sequence[str]]) -> None:
    """Check that no option is left open, which may be one of some columns or splits each.

    Raises:
        InputError: One is; the message names all of them.
    """
    if not options:
        return
    named = [f"{option} ({' or '.join(names)})" for option, names in options.items()]
    example = " ".join(f"--data.{option} {names[0]}" for option, names in options.items())
    raise InputError(
        f"{corpus} leaves open what is meant: set {' and '.join(named)}, such as `{example}`."
    )
