"""The Python interface: load a trained model, and run tests on it without a Trainer."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, Any

from markupsafe import escape
from rich.console import Console

from attnlight.api.check import announce_broken, require_tokens
from attnlight.batch import HasAnswers, TextBatch
from attnlight.data.rows import read_rows
from attnlight.errors import InputError, did_you_mean, require_at_least
from attnlight.figures import describe, draw, figure_rows
from attnlight.records import read_metadata, read_record
from attnlight.reference.rows import GivenTexts, encode_rows
from attnlight.reference.trained import TrainedModel, network_of, of_transformers
from attnlight.report.headlines import headline_table, headlines
from attnlight.report.run import stored_records
from attnlight.report.summary import summarise
from attnlight.report.verdict.card import Verdict, verdict_of
from attnlight.storage.hub import cached_id

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from attnlight.callbacks import InterpretabilityTest

_COLUMNS = ["test", "measure", "mean", "low", "high", "n"]


@dataclass(frozen=True)
class Results:
    """The records of some tests, in a temporary folder that is deleted with this object.

    Attributes:
        folder: The folder, of the form of a run's.
    """

    folder: Path
    _temporary: Any = field(default=None, repr=False)

    def _record(self, name: str) -> Path:
        paths = {path.stem: path for path in sorted(self.folder.glob("records/test/*.parquet"))}
        if name not in paths:
            hint = did_you_mean(name, paths)
            raise InputError(f"there is no test {name!r}{hint}; there are {', '.join(paths)}.")
        return paths[name]

    def table(self, test: str | None = None) -> pd.DataFrame:
        """Means with 95 % intervals of all measures, or the rows of one test, one per instance.

        Raises:
            InputError: There is no such test.
        """
        import pandas as pd

        if test is not None:
            columns = read_record(self._record(test)).columns
            return pd.DataFrame({name: list(values) for name, values in columns.items()})
        rows = [
            (record.test, measure, mean.mean, mean.low, mean.high, mean.defined)
            for record in stored_records(self.folder / "records")
            for (measure, _), mean in summarise(record, by_class=False).means.items()
        ]
        return pd.DataFrame(rows, columns=_COLUMNS)

    def headlines(self) -> pd.DataFrame:
        """One mean of each test with its 95 % interval, and what it says."""
        import pandas as pd

        rows = [
            (test, found.measure, *found.mean, found.says)
            for test, found in headlines(self.folder / "records")
        ]
        return pd.DataFrame(rows, columns=[*_COLUMNS, "says"])

    def __str__(self) -> str:
        """The verdict's sentence and the headline of each test."""
        console = Console(highlight=False)
        with console.capture() as capture:
            console.print(self.verdict().sentence, markup=False)
            console.print("", headline_table(self.folder / "records"), sep="\n")
        return capture.get().rstrip()

    def _repr_html_(self) -> str:
        """The same as HTML."""
        import pandas as pd

        with pd.option_context("display.max_colwidth", None):
            return f"<p>{escape(self.verdict().sentence)}</p>{self.headlines().to_html()}"

    def figure(self, test: str) -> Figure | None:
        """The figure of a test; None if it has none.

        Raises:
            InputError: There is no such test.
        """
        path = self._record(test)
        metadata, (rows, _) = read_metadata(path), figure_rows(path, describe(test).columns)
        return draw(test, rows, metadata.get("classes"), metadata)

    def verdict(self) -> Verdict:
        """The verdict card: may this attention be read as an explanation? `print` shows it."""
        return verdict_of(self.folder)

    def report(self, folder: str | Path) -> Path:
        """Write the page, tables and figures into a folder, and return the path of the page."""
        from attnlight.report.page import write_report

        return write_report(self.folder, Path(folder))


def load(path: str | Path) -> TrainedModel:
    """A trained model, ready to read texts.

    Args:
        path: The folder of its run, a checkpoint, the name of a model that comes with attnlight
            (`sst`), the hub id of a run (`org/name`, see `attnlight push`), or the folder or hub id of a
            classifier of transformers.

    Raises:
        InputError: There is no such model, it is damaged, or it has no attention.
    """
    return TrainedModel.of(path)


def run(
    model: Any,  # noqa: ANN401
    data: Any,  # noqa: ANN401
    tests: str
    | InterpretabilityTest
    | Sequence[str | Mapping[str, Any] | InterpretabilityTest] = "card",
    batch_size: int = 64,
    tokenizer: Any = None,  # noqa: ANN401
) -> Results:
    """Run tests on texts; rows are those that `attnlight test` records.

    Of a model that is given with batches, what `check` finds on the first one is said on stderr.

    Args:
        model: What `load` takes or returns, a task, or a classifier or `TextClassificationPipeline` of
            transformers; for batches also any `AttentionModel`.
        data: A list of texts; of pairs of a text and its label; of mappings, such as the rows of a
            `datasets.Dataset`, with `text` (or `passage`, or the words as `tokens`) and, where there
            are any, `query`, `candidates`, `label` (of a tagger `tags`, one for each token) and `pos`;
            or of batches. Or a table of such columns: a DataFrame, or a mapping of lists. The dataset index
            of a row is its place. A label is a class's name, or a number: the name of a class where
            classes are numbers, else its place, from 0, among the names of a `datasets.Dataset` or
            among the model's classes.
        tests: Names of shipped files, as for `--tests`; or a test, or a list of tests, names of their
            classes or mappings of `class_path` and `init_args`. `card`: all that the verdict card reads.
        batch_size: Number of texts read at a time.
        tokenizer: The fast tokenizer of a classifier of transformers, or its folder or hub id.

    Raises:
        InputError: The model cannot be read or is none, the data are empty or are not as above, a test
            is unknown or needs more of the corpus, or `batch_size` is not positive.
    """
    from attnlight.api.recording import build_tests, record_tests

    require_at_least(1, batch_size=batch_size)
    if not isinstance(batch_size, Integral):
        raise InputError(f"batch_size is {batch_size!r}; it must be a whole number of at least 1.")
    rows = read_rows(data, batches=True)
    if not rows:
        raise InputError("there are no data to test on; expected at least one text.")
    reader = of_transformers(model, tokenizer)
    if isinstance(reader, HasAnswers) and not reader.classes and isinstance(rows[0], Mapping):
        named = chain.from_iterable([*row.get("candidates", ()), row.get("label")] for row in rows)
        reader.name_answers(sorted({str(name) for name in named if name is not None}))
    batches, reader = rows, load(reader) if isinstance(reader, str | Path) else reader
    texts = None
    if isinstance(rows[0], TextBatch):
        for batch in rows:
            require_tokens(batch)
    else:
        reader = texts = TrainedModel.of(reader)
        batches = [
            encode_rows(reader, rows[start : start + batch_size], start)
            for start in range(0, len(rows), batch_size)
        ]
    network, chosen = network_of(reader), build_tests(tests)
    if not isinstance(reader, TrainedModel):  # a network that nobody may have checked
        announce_broken(network, batches[0])
    temporary = tempfile.TemporaryDirectory(prefix="attnlight-")
    names: tuple[str, ...] = ("python", type(network).__name__)
    if isinstance(reader, TrainedModel) and reader.path is not None:
        names = cached_id(reader.path) or reader.path.resolve().parts[-2:]
    folder = Path(temporary.name, *names)
    given = GivenTexts(batches, texts, rows)
    if given.cut:
        said = f"{given.cut:,} of {len(rows):,} texts are cut at the model's longest text."
        print(said, file=sys.stderr)
    record_tests(chosen, network, batches, given, reader, folder)
    return Results(folder, temporary)
