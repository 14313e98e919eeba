"""Any corpus of passages with queries that `datasets` can read."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from typing_extensions import override

from attnlight.data.columns import is_text, list_element, require_columns
from attnlight.data.documents import DocumentReader
from attnlight.data.labels import feature_names
from attnlight.data.pairs import EVIDENCE, mark_evidence, read_candidates
from attnlight.data.parts import Part
from attnlight.data.sentences import Sentences
from attnlight.data.sources import Dataset, Source
from attnlight.datamodules.text import TextDataModule
from attnlight.errors import InputError


class PairDataModule(TextDataModule):
    """Passages with a query each: questions over a text, hypotheses over a premise.

    A row is a passage, a query and the answer or relation that `label` names. Passage and query are
    encoded by one tokenizer, and its vocabulary is learned from both. `truncate` applies to both, the
    length limits to passages. A query without a token is refused.

    The passage is a text or a list of sentences, which are joined with spaces; with `splitting:
    punctuation` the full stop of each is a token. Passages that are lists may have `evidence`: the
    positions of the sentences that support the answer become `evidence` in `TextBatch.extras`, 1 on
    all tokens of these sentences. Passages from which `truncate` removed a token of a supporting
    sentence are counted (`evidence_cut` in `corpus.json`).

    `validation_fraction` and `test_fraction` choose whole stories (`select_splits`). `subset` chooses
    single pairs, and `also_in` counts them.

    A batch has `query` and `query_mask` (B, M) and, with `candidates`, `allowed_classes` (B, C).
    Rows that are generated rather than read come from a subclass of `Source`, see `BabiStories`.

    Args:
        path: Hub id, or a local folder or file that `datasets` can read.
        passage: Column of passages, strings or lists of sentences, or several columns of strings. Null:
            found (`find_columns`).
        query: Column of queries, or several to be joined with spaces. Null: found.
        candidates: Column of lists of the answers that a row allows, which must contain its label.
            Null: every class is allowed.
        evidence: Column of lists of the positions, from 0, of supporting sentences.
        sentences: `nested`: batches keep the sentences of a passage separate, (B, S, N), for models whose
            items they are; see `TextDataModule`.
        joined: Whether passage and query are one text, as classifiers of transformers read pairs: the
            query follows the passage, `segment` in the extras is 1 on it, only the passage is cut at
            `truncate`, and batches have no query. Null: where `tokenizer` is set, which it needs.
        **kwargs: Arguments of `TextDataModule`, except `text`.

    Raises:
        InputError: Options are out of range or mutually exclusive.
    """

    paired = True

    def __init__(
        self,
        path: str,
        passage: str | list[str] | None = None,
        query: str | list[str] | None = None,
        candidates: str | None = None,
        evidence: str | None = None,
        sentences: Sentences = "none",
        joined: bool | None = None,
        **kwargs: Any,  # noqa: ANN401
    ) -> None:
        super().__init__(path=path, text=passage, sentences=sentences, **kwargs)
        self.query = query
        self.joined = self.tokenizer_path is not None if joined is None else joined
        self.paired = not self.joined
        if self.joined and self.tokenizer_path is None:
            raise InputError(
                "joined is for the texts of a model of transformers: set `tokenizer` to its folder or hub id"
            )
        self.candidates = candidates
        self.evidence = evidence
        queries = [query] if isinstance(query, str) else query or []
        self.other_columns += [*queries, candidates, evidence]
        if evidence is not None:
            if EVIDENCE in self.extras or EVIDENCE in (passage, query):
                raise InputError(
                    f"{EVIDENCE} is a reserved column of prepared corpora with evidence: rename the "
                    "column that passage, query or extras names"
                )
            self.extras.append(EVIDENCE)

    @override
    def _find_columns(
        self, source: Source, **columns: object
    ) -> tuple[dict[str, str], dict[str, Sequence[str]]]:
        found = super()._find_columns(source, passage=source.columns, query=self.query, **columns)
        self.query = found[0].get("query", self.query)
        passage = found[0].get("passage", self._main_source.text)
        self._main_source = replace(self._main_source, text=passage)
        return found

    @override
    def recipe(self) -> dict[str, Any]:
        joined = {"joined": True} if self.joined else {}
        return super().recipe() | {"pairs": [self.query, self.candidates, self.evidence]} | joined

    @override
    def open_split(
        self, rows: Dataset, source: Source, classes: list[str] | None
    ) -> tuple[list[str], Part[DocumentReader]]:
        queries = replace(source, text=self.query, tokens=None)
        options = dict.fromkeys(source.columns, "passage") | {str(source.label): "label"}
        options |= dict.fromkeys(queries.columns, "query")
        named = {"candidates": self.candidates, "evidence": self.evidence}
        options |= {column: option for option, column in named.items() if column is not None}
        require_columns(rows, source, list(options), options)
        passage = source.columns[0]
        kind = list_element(rows.features.arrow_schema.field(passage).type)
        if is_text(kind) and len(source.columns) == 1:
            if self.line_breaks:
                raise InputError(
                    f"line_breaks needs raw text; column {passage} of {source} holds lists"
                )
            source = replace(source, text=None, tokens=passage)
        if self.evidence is not None:
            rows = mark_evidence(rows, source, passage, self.evidence)
        unnamed = feature_names(rows.features[str(source.label)]) is None
        extend = classes is None and source.classes is None and unnamed
        classes, part = super().open_split(rows, source, classes)
        part.queries = DocumentReader(rows, queries, line_breaks=self.line_breaks)
        if self.candidates is not None:
            classes, part.allowed = read_candidates(
                rows, source, self.candidates, classes, part.labels, extend
            )
        return classes, part
