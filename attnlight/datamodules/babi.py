"""Generated stories of bAbI: as many questions to train on as asked."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, cast, get_args

from typing_extensions import override

from attnlight.data.babi import CODES, PLACES, WORDS, BabiTask, generate_questions
from attnlight.data.raw_text import RawText
from attnlight.data.sentences import Sentences
from attnlight.data.sources import Dataset, Source, silent
from attnlight.data.splits import MISSING_SPLIT_ADVICE
from attnlight.datamodules.base import CorpusDataModule, CorpusOptions
from attnlight.datamodules.flat_options import flat_options
from attnlight.datamodules.pair import PairDataModule
from attnlight.errors import InputError, require_at_least

COLUMNS = ("story", "question", "answer", "supporting_ids")  # in the order of `Question`


@dataclass(frozen=True)
class Stories(Source):
    """Released questions, or generated ones as rows with the same columns.

    Args:
        drawn: Number of the task, seed of the stories, and number of questions; None: they are read.
        released: Whether they are as `released` of `BabiStories` prepares them: each passage without
            its final full stop, each query without its mark.
    """

    drawn: tuple[BabiTask, int, int] | None = None
    released: bool = False

    @override
    def identity(
        self, column_file: bool = False, hashed: dict[object, object] | None = None
    ) -> dict[str, Any]:
        if self.drawn is None:
            content = super().identity(column_file, hashed)
            del content["drawn"], content["released"]
        else:
            content = dict(zip(("task", "seed", "questions"), self.drawn, strict=True))
        return content | ({"released": True} if self.released else {})

    @override
    def load(self, scratch: Path, advice: str = "") -> Dataset:
        import datasets

        if self.drawn is None:
            rows = super().load(scratch, advice)
            if not (self.released and {*COLUMNS[:2]} <= {*rows.column_names}):
                return rows  # refused where all columns are required
            with silent():
                return rows.map(
                    _without_last_stops, keep_in_memory=True, load_from_cache_file=False
                )
        task, seed, size = self.drawn
        split = list(MISSING_SPLIT_ADVICE).index(str(self.split))

        def generated() -> Iterator[dict[str, Any]]:
            questions = islice(generate_questions(task, seed, split), size)
            rows = (dict(zip(COLUMNS, row, strict=True)) for row in questions)
            return map(_without_last_stops, rows) if self.released else rows

        texts = [datasets.Value("string")]
        places = CODES if task == "copy" else PLACES
        answers = datasets.ClassLabel(names=list(WORDS if self.released else places))
        columns = (texts, texts[0], answers, [datasets.Value("int32")])
        kinds = datasets.Features(dict(zip(COLUMNS, columns, strict=True)))
        with silent():
            return datasets.Dataset.from_generator(generated, kinds, cache_dir=str(scratch))


def _without_last_stops(row: dict[str, Any]) -> dict[str, Any]:
    passage, query, *_ = COLUMNS
    *before, last = row[passage]
    stripped = [*before, last.removesuffix(".")], row[query].removesuffix("?")
    return row | dict(zip((passage, query), stripped, strict=True))


class BabiStories(CorpusDataModule):
    """Generated questions on stories of bAbI tasks 1 to 3, distributed as the released ones, or to copy.

    A passage is a story so far, a query asks where an actor or object is or was, and the classes are
    the six places; in task `copy` a query asks for the code of a person, which is one of ten. Tokens are
    words, full stops and question marks, and case is kept, as in the configurations of the released
    questions. The extra `evidence` is 1 on the tokens of sentences
    that support the answer. Five questions in a row are about one story, the passage of each a
    continuation of the one before; to copy, three to six are about the same passage. Splits share no story.

    `test` gives real questions to test on, with the training split's vocabulary and classes.

    Args:
        task: 1: where an actor is, from one sentence. 2: where an object is, from two. 3: where an
            object was before, from three. `copy`: what the code of a person is, from the one sentence of
            three to six that names the person.
        train_size: Number of training questions.
        validation_size: Number of validation questions.
        test_size: Number of test questions; ignored where `test` is given.
        corpus_seed: Seed of the stories, independent of the training seed.
        test: The test split, in place of generated questions: released ones, with the columns
            `story`, `question`, `answer` and `supporting_ids`. Its split `train+test` is all 2,000.
        released: Prepare questions as Jain & Wallace's released code does: no full stop after the last
            sentence, no question mark, and all 36 words of the three tasks as classes; not to copy.
        sentences: As of `PairDataModule`; passages whose sentences are separate have no boundary tokens.
        tokenizer: As of `PairDataModule`, for models of transformers: story and question are one text.
        common: The options of every corpus.

    Raises:
        InputError: There is no such task, or not as released, or a size or the seed is out of range.
    """

    paired = True

    @flat_options
    def __init__(
        self,
        task: BabiTask = 1,
        train_size: int = 10_000,
        validation_size: int = 1000,
        test_size: int = 1000,
        corpus_seed: int = 0,
        test: Source | None = None,
        released: bool = False,
        sentences: Sentences = "none",
        tokenizer: str | None = None,
        *,
        common: CorpusOptions,
    ) -> None:
        super().__init__(common=common)
        if task not in get_args(BabiTask):
            raise InputError(
                f"task is {task}; expected one of: {', '.join(map(str, get_args(BabiTask)))}"
            )
        if task == "copy" and released:
            raise InputError("released is of the tasks of bAbI: leave it out of task copy.")
        sizes = {"train_size": train_size, "validation_size": validation_size}
        require_at_least(1, **sizes, test_size=test_size)
        require_at_least(0, corpus_seed=corpus_seed)
        counts = zip(MISSING_SPLIT_ADVICE, (train_size, validation_size, test_size), strict=True)
        splits: dict[str, Any] = {
            split: Stories(drawn=(task, corpus_seed, count), released=released)
            for split, count in counts
        }
        if test is not None:
            splits["test"] = Stories(**vars(test), released=True) if released else test
        names = ("passage", "query", "label", "evidence")
        self._pairs = PairDataModule(
            path=type(self).__name__,
            **cast("dict[str, Any]", dict(zip(names, COLUMNS, strict=True))),
            **splits,
            lowercase=False,
            splitting="punctuation",
            sentences=sentences,
            tokenizer=tokenizer,
            boundary_tokens=sentences == "none",
            common=common,
        )
        self.sentence_rules, self.nested = self._pairs.sentence_rules, self._pairs.nested
        self.paired, self.joined = self._pairs.paired, self._pairs.joined

    @property
    @override
    def sources(self) -> dict[str, Source]:
        return self._pairs.sources

    @override
    def evaluate_as(self, encoding: RawText, name: str) -> None:
        super().evaluate_as(encoding, name)
        self._pairs.evaluate_as(encoding, name)

    @override
    def recipe(self) -> dict[str, Any]:
        return self._pairs.recipe()

    @override
    def build(self, folder: Path) -> None:
        self._pairs.build(folder)
