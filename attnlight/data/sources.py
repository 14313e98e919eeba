"""The source of a split: a corpus on the hub or a local folder with the same schema."""

import errno
import glob
import os
import ssl
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cache
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from attnlight.data.digests import description, digests
from attnlight.data.without_runs import without_runs
from attnlight.errors import InputError, did_you_mean

Dataset = Any  # of `datasets`, which has no types and takes a second to import
DATA_VARIABLE = "ATTNLIGHT_DATA"
_SECONDS = 10
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_FILES = (".csv", ".tsv", ".json", ".jsonl", ".parquet", ".arrow", ".gz", ".zip", ".zst", ".xz")
Label = str | int | bool
Classes = dict[str, list[Label] | Label]


@dataclass(frozen=True)
class Corpus:
    """A corpus on the hub or in a local folder.

    Args:
        path: Hub id, or a local folder or file that `datasets` can read (CSV, TSV, JSON, JSON
            lines, parquet); folders of runs in it are left out. Loading scripts are not supported:
            for a corpus that needs one, set `revision` to its parquet files.
        name: Configuration of the corpus on the hub.
        revision: Commit, tag or branch on the hub; null: the one that is current when the corpus is
            first prepared on this machine.
        local: Folder under `$ATTNLIGHT_DATA` to read in place of `path` if that variable is set.
    """

    path: str | None = None
    name: str | None = None
    revision: str | None = None
    local: str | None = None


PLACE = tuple(field.name for field in fields(Corpus))  # identify a corpus, without the split


@dataclass(frozen=True)
class TextCorpus(Corpus):
    """A corpus of labelled texts and its columns.

    Args:
        text: Column of texts, or several to be joined with spaces; with `sentences`, by empty
            lines, so that no sentence spans two columns. Null: found (`find_columns`).
        tokens: Column of token lists, in place of `text`; they are joined with spaces and processed
            by the same rules as texts.
        label: Column of labels, whole numbers or strings. Null: found.
    """

    path: str = field()  # required
    text: str | list[str] | None = None
    tokens: str | None = None
    label: str | None = None


@dataclass(frozen=True)
class Source(Corpus):
    """The source of one split; fields that are null default to the datamodule's options.

    If `path` is set, name, revision and local have no such defaults; if `text` or `tokens` is set,
    neither has one.

    Args:
        split: Split of the source, by default the one it is used for; slices like `train[:10%]`
            are supported.
        text: Column of texts, or several to be joined with spaces.
        tokens: Column of token lists, in place of `text`.
        label: Column of labels, whole numbers or strings.
        classes: The source's labels by class name, as in the datamodule; one label needs no list.
    """

    split: str | None = None
    text: str | list[str] | None = None
    tokens: str | None = None
    label: str | None = None
    classes: Classes | None = None

    def with_defaults(self, main: "Source", split: str) -> "Source":
        """This source, with null fields taken from `main` and `split` as the default split."""
        set_fields = {f.name for f in fields(self) if getattr(self, f.name) is not None}
        if "path" in set_fields:
            set_fields.update(PLACE)
        if set_fields & {"text", "tokens"}:
            set_fields.update(("text", "tokens"))
        defaults = {f.name: getattr(main, f.name) for f in fields(main)} | {"split": split}
        return replace(self, **{n: defaults[n] for n in defaults.keys() - set_fields})

    def __str__(self) -> str:
        return f"split {self.split} of {self.folder or self.path}"

    @property
    def columns(self) -> list[str]:
        """Columns that hold the text."""
        if self.tokens is not None:
            return [self.tokens]
        return [self.text] if isinstance(self.text, str) else list(self.text or ())

    @property
    def _reads_local(self) -> bool:
        return bool(os.environ.get(DATA_VARIABLE)) and self.local is not None

    @property
    def folder(self) -> Path | None:
        """The local folder or file to read, or None if the corpus comes from the hub."""
        path = self.path or ""
        folder = Path(path).expanduser()
        if not self._reads_local and folder.suffix in _FILES and not folder.is_dir():
            if not folder.is_file():
                raise InputError(f"there is no corpus file {folder}")
            return folder
        if self._reads_local:
            folder = Path(os.environ[DATA_VARIABLE]).expanduser() / str(self.local)
        elif not folder.is_dir() and not path.startswith((".", "/", "~")) and path.count("/") < 2:
            return None
        if not folder.is_dir():
            reason = f" (${DATA_VARIABLE} is set)" if self._reads_local else ""
            raise InputError(f"there is no corpus folder {folder}{reason}")
        return folder

    def identity(
        self, column_file: bool = False, hashed: dict[object, object] | None = None
    ) -> dict[str, Any]:
        """The parts of the source that determine the split's content, as plain JSON.

        A local folder is identified by its metadata and the names and hashes of the data files that
        `datasets` reads from it for any split, or of the `column_file` alone that the split is; a
        corpus on the hub by id, name and revision. Other splits share what is `hashed`, by folder
        and name.
        """
        content = asdict(self) | {"local": None}
        content["classes"] = self.classes and list(self.classes.items())  # their order matters
        folder = self.folder
        if folder is None:
            return content
        content |= {"path": None, "revision": None}
        content["name"] = None if self._reads_local else self.name
        if column_file:
            file = folder / str(self.split)
            return content | {"files": digests(folder, [file] if file.is_file() else [])}
        hashed = {} if hashed is None else hashed
        if (key := (folder, content["name"])) not in hashed:
            import datasets

            with tempfile.TemporaryDirectory() as scratch, self._input_errors():
                # The library decides which files it reads for any split.
                arguments = self._arguments(Path(scratch))
                splits = datasets.load_dataset_builder(**arguments).config.data_files or {}
                files = [Path(file) for split in splits.values() for file in split]
                hashed[key] = digests(Path(arguments["path"]), files)
        return content | {"files": hashed[key]} | description(folder)

    def splits(self) -> list[str]:
        """Names of the corpus's splits."""
        import datasets

        with tempfile.TemporaryDirectory() as scratch, self._input_errors():
            options = self._arguments(Path(scratch))
            name = options.pop("name")
            return list(datasets.get_dataset_split_names(config_name=name, **options))

    def load(self, scratch: Path, advice: str = "") -> Dataset:
        """The rows of the split, read by memory map; Arrow files of a local corpus are in `scratch`.

        Raises:
            InputError: The corpus cannot be read, or lacks the split, for which there is `advice`.
        """
        import datasets

        with self._input_errors(advice):
            rows = datasets.load_dataset(**self._arguments(scratch), split=self.split)
        if not len(rows):
            raise InputError(f"{self} is empty")
        return rows

    def _arguments(self, scratch: Path) -> dict[str, Any]:
        """Arguments by which `datasets` finds the corpus."""
        folder = self.folder
        if folder is None:
            return {"path": self.path, "name": self.name, "revision": self.revision}
        name, absolute = None if self._reads_local else self.name, folder.absolute()
        arguments: dict[str, Any] = {"name": name, "cache_dir": str(scratch)}
        if folder.is_file():
            arguments["data_files"] = glob.escape(folder.name)
            return arguments | {"path": str(absolute.parent)}
        return arguments | {"path": str(without_runs(absolute, scratch))}

    @contextmanager
    def _input_errors(self, advice: str = "") -> Iterator[None]:
        """Turn errors of `datasets` in the block into an `InputError` that names the corpus."""
        import datasets

        local = self.folder is not None
        try:
            with silent() if local else offline_if_unreachable():
                yield
        except (OSError, ValueError, RuntimeError, datasets.exceptions.DatasetsError) as raised:
            corpus: Path | str | None = self.folder or self.path
            error: BaseException = raised
            general = "error occurred while generating"
            if general in str(error):
                error = error.__cause__ or error
            lines = [line for line in str(error).splitlines() if line and general not in line]
            message = (lines or [type(error).__name__])[0].rstrip(".")
            reason = f"{corpus} cannot be read: {message}"
            if isinstance(error, ConnectionError):
                reason = (
                    f"{corpus} is not a local folder or file, and the hub cannot be reached; "
                    f"connect, or read a local copy by its path or through ${DATA_VARIABLE}"
                )
            elif isinstance(error, OSError) and error.errno in _FULL:
                reason = (
                    f"the prepared texts of {corpus} cannot be written: {error.strerror}; "
                    "set ATTNLIGHT_CACHE to a folder on another disk"
                )
            elif isinstance(error, UnicodeDecodeError):
                reason += "; save it as UTF-8"
            elif message.startswith("Error tokenizing data"):
                reason = (
                    f"lines of {corpus} differ in their columns ({message.partition(': ')[2]}): separate "
                    "these by commas, or by tabs in a file whose name ends in .tsv, and put a text that "
                    "has such a sign in double quotation marks"
                )
            elif message.startswith("Dataset scripts"):
                reason = (
                    f"{corpus} needs a loading script, which `datasets` no longer runs; set "
                    "revision to its parquet files, often `refs/convert/parquet`, or use a copy"
                )
            elif "nknown split" in message:
                available, split = self.splits(), str(self.split).partition("[")[0]
                hint = did_you_mean(split, available)
                reason = f"{corpus} has no split {split!r}{hint}; it has {', '.join(available)}"
                reason += f": {advice}" if advice else ""
            elif "nrecognized instruction" in message:
                reason = f"{corpus} has no split {self.split!r}: {message}"
            elif "corresponds to no data" in message:
                reason = f"{self} is empty"
            elif isinstance(error, datasets.exceptions.DatasetNotFoundError):
                reason = f"{corpus} is not a local folder or file, and on the hub: {message}"
            raise InputError(reason) from raised


def identities(sources: Mapping[str, Source], column_file: bool = False) -> dict[str, Any]:
    """The identity of the source of each split; the files of one corpus are looked for once.

    Other arguments are those of `Source.identity`.
    """
    hashed: dict[object, object] = {}
    return {split: source.identity(column_file, hashed) for split, source in sources.items()}


@contextmanager
def silent() -> Iterator[None]:
    """Hide the progress bars of `datasets` for short operations, and its logs of errors."""
    import datasets

    drawn, level = not datasets.are_progress_bars_disabled(), datasets.logging.get_verbosity()
    datasets.disable_progress_bars()
    datasets.logging.set_verbosity(datasets.logging.CRITICAL)
    try:
        yield
    finally:
        datasets.logging.set_verbosity(level)
        if drawn:
            datasets.enable_progress_bars()


@contextmanager
def offline_if_unreachable() -> Iterator[None]:
    """Read from the hub's local cache within the block if the hub is unreachable.

    `datasets` falls back to its cache as well, but only after five attempts.
    """
    import datasets

    before = datasets.config.HF_HUB_OFFLINE
    datasets.config.HF_HUB_OFFLINE = before or not _is_reachable(datasets.config.HF_ENDPOINT)
    try:
        yield
    finally:
        datasets.config.HF_HUB_OFFLINE = before


@cache
def _is_reachable(endpoint: str) -> bool:
    """Whether the hub responds at all; an HTTP error is a response."""
    try:
        urlopen(Request(endpoint, method="HEAD"), timeout=_SECONDS).close()
    except OSError as error:  # `datasets` uses its own certificates
        uncertified = isinstance(error, URLError) and isinstance(error.reason, ssl.SSLError)
        return uncertified or isinstance(error, HTTPError)
    return True
