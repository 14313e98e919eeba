"""What each reading of some contexts would cite, for the page of a run."""

from collections.abc import Sequence

import numpy as np

from attnlight.data.pairs import EVIDENCE
from attnlight.data.rationales import RATIONALE
from attnlight.figures.methods import method_words
from attnlight.figures.tables import Table, class_name
from attnlight.records import RecordFile, read_rows
from attnlight.report.markup import described_table
from attnlight.report.texts import Row, pieces_of, shortened

_TEXT = ("tokens", "items", "query", "text", "offsets", "probabilities", "answer")
_WORDS = {0.0: "no", 1.0: "yes"}


def citations(
    record: RecordFile, texts: RecordFile, chosen: Sequence[Row], classes: Sequence[str] | None
) -> list[Table]:
    """A table of each text: the item that each reading cites, and whether it is necessary and sufficient.

    Empty of a record of another test than `ContextAblation`; without `classes` answers are numbers.
    """
    methods = [name.removeprefix("cited_") for name in record.columns if name.startswith("cited_")]
    if not methods:
        return []
    indices = np.array([*dict.fromkeys(index for index, _ in chosen)])
    names = [f"{x}_{label}" for label in methods for x in ("cited", "necessary", "sufficient")]
    known = [name for name in (*_TEXT, EVIDENCE, RATIONALE) if name in texts.columns]
    measured, shown = (
        {int(row["index"]): row for row in read_rows(file, ["index", *columns], texts=indices)}
        for file, columns in ((record, names), (texts, known))
    )
    found = []
    for index in indices.tolist():
        row, pieces = measured[index], [x for x in pieces_of(shown[index]) if x.tokens]
        items = []  # as people read them
        for number, (start, end) in enumerate(shown[index]["items"], start=1):
            words = (x.before + x.text for x in pieces if start <= x.tokens[0] < end)
            items.append(f"{number}. {''.join(words).strip()}")
        marked = next((shown[index][n] for n in (EVIDENCE, RATIONALE) if n in shown[index]), ())
        spans = enumerate(shown[index]["items"])
        supporting = [place for place, (start, end) in spans if any(marked[start:end])]
        lines = [["marked as supporting", items[place], "", ""] for place in supporting]
        for label in methods:
            place = row[f"cited_{label}"]
            if not np.isnan(place):
                sides = [_WORDS[row[f"{x}_{label}"]] for x in ("necessary", "sufficient")]
                mark = " ✓" if int(place) in supporting else ""
                lines.append([method_words(label), items[int(place)] + mark, *sides])
        answer = class_name(int(np.argmax(shown[index]["probabilities"])), classes)
        answer = shortened(shown[index].get("answer") or answer)
        query = " ".join(shown[index].get("query", ()))
        fields = {"index": index, "query": query, "answer": answer}
        found += [described_table("citations", lines, **fields)] if lines else []
    return found
