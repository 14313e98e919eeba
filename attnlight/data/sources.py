"""Where a split comes from: a corpus on the hub or a local folder of the same schema."""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnlight.errors import InputError

if TYPE_CHECKING:
    from datasets import Dataset

DATA_VARIABLE = "ATTNLIGHT_DATA"
_PLACE = ("path", "name", "revision", "local")
_FRONT_MATTER = re.compile(rb"\s*---[\r\n]+(.*?)[\r\n]+---", re.DOTALL)


@dataclass(frozen=True)
class Source:
    """Where one split comes from; what is null is taken from the datamodule's own arguments.

    A source with a `path` of its own takes none of name, revision and local from there, and one
    with `text` or `tokens` of its own takes neither.

    Args:
        path: Hub id, or a local folder that `datasets` can read.
        name: Configuration of the corpus.
        revision: Commit, tag or branch on the hub.
        local: Folder under `$ATTNLIGHT_DATA` that is read instead, where that variable is set.
        split: Split of the source, by default the one that it is for; slices like `train[:10%]` are understood.
        text: Column of texts, or several to be joined with spaces.
        tokens: Column of token lists, in place of `text`.
        label: Column of labels, whole numbers or strings.
        classes: Class names to the source's labels, as in the datamodule.
    """

    path: str | None = None
    name: str | None = None
    revision: str | None = None
    local: str | None = None
    split: str | None = None
    text: str | list[str] | None = None
    tokens: str | None = None
    label: str | None = None
    classes: dict[str, list[str | int]] | None = None

    def over(self, main: Source, split: str) -> Source:
        """This source, completed by another and by the split that it is for."""
        own = {f.name for f in fields(self) if getattr(self, f.name) is not None}
        if "path" in own:
            own.update(_PLACE)
        if own & {"text", "tokens"}:
            own.update(("text", "tokens"))
        return replace(replace(main, split=split), **{name: getattr(self, name) for name in own})

    def __str__(self) -> str:
        return f"split {self.split} of {self.folder or self.path}"

    @property
    def columns(self) -> list[str]:
        """Columns that hold the text."""
        if self.tokens is not None:
            return [self.tokens]
        return [self.text] if isinstance(self.text, str) else list(self.text or ())

    @property
    def _stands_in(self) -> bool:
        return bool(os.environ.get(DATA_VARIABLE)) and self.local is not None

    @property
    def folder(self) -> Path | None:
        """The local folder to read, or None where the corpus comes from the hub.

        Raises:
            InputError: There is no such folder.
        """
        path = self.path or ""
        folder = Path(path).expanduser()
        if self._stands_in:
            folder = Path(os.environ[DATA_VARIABLE]).expanduser() / str(self.local)
        elif not folder.is_dir() and not path.startswith((".", "/", "~")) and path.count("/") < 2:
            return None
        if not folder.is_dir():
            reason = f" (${DATA_VARIABLE} is set)" if self._stands_in else ""
            raise InputError(f"there is no corpus folder {folder}{reason}")
        return folder

    def identity(self, column_file: bool = False) -> dict[str, Any]:
        """What decides the content of the split, as plain JSON.

        A local folder is known by the names and content of the data files that `datasets` reads
        from it, in every split, and by what its description says of them, wherever the folder lies;
        nothing is loaded. A corpus on the hub is known by id, name and revision: without a revision
        it is the one that was current when the corpus was first prepared here.

        Args:
            column_file: The split is a file of columns in the folder, which alone is read.

        Raises:
            InputError: There is no such folder, or `datasets` cannot read its files.
        """
        folder = self.folder
        if folder is None:
            return self._content()
        if column_file:
            file = folder / str(self.split)
            return self._content(_digests(folder, [file] if file.is_file() else []))
        description = _description(folder)
        return self._content(_digests(folder, self._data_files(folder))) | description

    def former_identity(self) -> dict[str, Any]:
        """`identity` in version 1 of the fingerprint: every file of a local folder counted."""
        folder = self.folder
        return self._content() if folder is None else self._content(_all_digests(folder))

    def _content(self, files: dict[str, str] | None = None) -> dict[str, Any]:
        content = asdict(self)
        content["classes"] = self.classes and list(self.classes.items())  # their order matters
        content["local"] = None
        if files is not None:
            content |= {"path": None, "revision": None, "files": files}
            content["name"] = None if self._stands_in else self.name
        return content

    def _data_files(self, folder: Path) -> list[Path]:
        """The files that `datasets` reads for any split: which they are is its own decision."""
        import datasets

        name = None if self._stands_in else self.name
        with tempfile.TemporaryDirectory() as scratch, self._explained(local=True):
            builder = datasets.load_dataset_builder(str(folder), name, cache_dir=scratch)
        files = builder.config.data_files or {}
        return [Path(file) for split in files.values() for file in split]

    def load(self, scratch: Path) -> Dataset:
        """The rows of the split, read by memory map.

        Args:
            scratch: Folder for the Arrow files of a local corpus. The library's own cache knows
                local files by name and time, and would keep a second copy of them.

        Raises:
            InputError: The corpus cannot be had, or lacks the split.
        """
        import datasets

        folder = self.folder
        place: dict[str, Any] = {"path": self.path, "name": self.name, "revision": self.revision}
        if folder is not None:
            place = {"path": str(folder), "cache_dir": str(scratch)}
            place["name"] = None if self._stands_in else self.name
        with self._explained(local=folder is not None):
            rows = datasets.load_dataset(**place, split=self.split)
        if not len(rows):
            raise InputError(f"{self} is empty")
        return rows

    @contextmanager
    def _explained(self, local: bool) -> Iterator[None]:
        """Turn what `datasets` raises in the block into an `InputError` that names the corpus."""
        import datasets

        try:
            with silent(local):
                yield
        except (OSError, ValueError, RuntimeError, datasets.exceptions.DatasetsError) as error:
            raise InputError(self._explain(error)) from error

    def _explain(self, error: BaseException) -> str:
        corpus = self.folder or self.path
        if "error occurred while generating" in str(error):
            error = error.__cause__ or error
        message = (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")
        if isinstance(error, ConnectionError):
            return (
                f"{corpus} is no local folder and the hub cannot be reached for it ({message}); "
                f"connect, or read a local copy by its path or through ${DATA_VARIABLE}"
            )
        if message.startswith("Dataset scripts"):
            return (
                f"{corpus} needs a loading script, which `datasets` no longer runs; give the "
                "revision of its parquet files, often `refs/convert/parquet`, or another copy"
            )
        if "nknown split" in message or "nrecognized instruction" in message:
            return f"{corpus} has no split {self.split!r}: {message}"
        if "corresponds to no data" in message:
            return f"{self} is empty"
        return f"{corpus} cannot be read: {message}"


def _digests(folder: Path, files: Iterable[Path]) -> dict[str, str]:
    """SHA-256 of files by their names within the folder.

    Raises:
        InputError: One of them cannot be read.
    """
    digests, root = {}, folder.resolve()
    for file in files:
        try:
            state = file.stat()
            digest = _digest(file.resolve(), state.st_size, state.st_mtime_ns)
        except OSError as error:
            raise InputError(f"{file} cannot be read: {error.strerror or error}") from error
        start = folder if file.is_relative_to(folder) else root  # `datasets` resolves the folder
        digests[Path(os.path.relpath(file, start)).as_posix()] = digest
    return digests


def _all_digests(folder: Path) -> dict[str, str]:
    """SHA-256 of every file that is not hidden, by its name within the folder."""
    files: list[Path] = []
    for parent, folders, names in os.walk(folder, followlinks=True):
        folders[:] = [name for name in folders if not name.startswith(".")]
        files += [Path(parent, name) for name in names if not name.startswith(".")]
    return _digests(folder, files)


def _description(folder: Path) -> dict[str, str]:
    """Hash of what a folder says of its data files, such as column types; empty without any.

    `datasets` reads the YAML in front of README.md and two files of its own.
    """
    names = ("README.md", ".huggingface.yaml", "dataset_infos.json")
    try:
        texts = {n: (folder / n).read_bytes() for n in names if (folder / n).is_file()}
    except OSError as error:
        raise InputError(f"{error.filename} cannot be read: {error.strerror or error}") from error
    front = _FRONT_MATTER.match(texts.pop("README.md", b""))
    parts = [*([front[1]] if front else []), *texts.values()]
    return {"description": hashlib.sha256(b"\0".join(parts)).hexdigest()} if parts else {}


@cache  # the splits of a corpus share their folder
def _digest(file: Path, size: int, modified: int) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


@contextmanager
def silent(silence: bool = True) -> Iterator[None]:
    """Keep `datasets` from drawing progress bars for what takes a moment."""
    import datasets

    drawn = not datasets.are_progress_bars_disabled()
    if silence and drawn:
        datasets.disable_progress_bars()
    try:
        yield
    finally:
        if silence and drawn:
            datasets.enable_progress_bars()
