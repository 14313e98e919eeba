"""One prediction beside the scores of its items, for Python, the terminal and HTML."""

import json
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from rich.console import Console, Group
from rich.padding import Padding
from rich.text import Text

from attnlight.errors import InputError, printable
from attnlight.figures.tables import number
from attnlight.report.join_pieces import join_pieces, of_pieces
from attnlight.report.markup import render
from attnlight.storage.model_folder import is_model
from attnlight.storage.run_folder import is_run

_POSITIVE, _NEGATIVE = (86, 180, 233), (230, 159, 0)  # black text has a contrast above 7 on both
_LEGEND = "Blue: weight, or for the prediction; orange: against it. Deeper is larger."
_HIGHEST = 5  # items that are listed with their values


def ranking_verdict(folder: Path, digest: str) -> str:
    """What the verdict card says of attention as a ranking of words, or that it was not measured.

    The folder is that of the model's run, or of a model of transformers; `digest` is the SHA-256 of
    the checkpoint, or of the weights of a model without one.
    """
    path = folder / "report/verdict.json"
    try:
        card = json.loads(path.read_text("utf-8")) if path.is_file() else {"lines": []}
        same = card["lines"] and digest.startswith(str(card["checkpoint"]))
        if same and card["case"] != "unmeasured":
            return f"On the test split: {card['sentence']}"
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise InputError(f"{path} is not a verdict card: `attnlight report` makes one.") from error
    said = "Whether its attention marks the words that matter was not measured"
    if not is_run(folder) and not is_model(folder):
        return f"{said}."
    data = "" if is_run(folder) else " --data FILE"
    return f"{said}: attnlight test {shlex.quote(str(folder))}{data} --tests card"


class Cell(NamedTuple):
    """A piece of a text in the colour of its score: what stands before it, its text and value."""

    before: str
    text: str
    value: str
    colour: tuple[int, int, int]


@dataclass(frozen=True)
class FlipSet:
    """The fewest items whose erasure from attention changes the decision.

    Attributes:
        items: Their places among the items, ascending.
        prediction: The class that is predicted without them.
        exact: Whether no smaller set changes it; else none was found.
    """

    items: list[int]
    prediction: str
    exact: bool


@dataclass(frozen=True)
class WorstCase:
    """The most different attention under which the prediction moves by at most `epsilon`.

    Attributes:
        attention: Weight of each item, mean over heads; of several heads one is changed alone, the
            one that can change most.
        js: Jensen-Shannon divergence of that head from the original, in nats, at most 0.693.
        probabilities: Probability of each class under it.
        epsilon: Largest total variation distance between the predictions.
        exact: Whether no attention is more different; else none was found.
    """

    attention: list[float]
    js: float
    probabilities: dict[str, float]
    epsilon: float
    exact: bool


@dataclass(frozen=True)
class Explanation:
    """A prediction, and what attention and other scores say of its items.

    Attributes:
        text: The text.
        query: Its query, if the model reads one.
        items: What attention weighs: tokens as they stand in the text, or sentences.
        item: Place of the item that is predicted, if predictions are of tokens.
        prediction: The predicted class.
        probabilities: Probability of each class that the text may be answered with.
        attention: Weight of each item, mean over heads.
        scores: Scores of the items for the predicted class, by attribution method; None where the
            method has none.
        flip_set: None if no erasure changes the decision.
        worst_case: None if the worst case is not defined.
        scope: What the model says of the scope of its attention; None if it says nothing.
        verdict: What the verdict card of the model's run says of attention as a ranking of words;
            None if the model was not read from a file.
        spans: [start, end) of each item in the text, by which they are shown there; empty if unknown.
    """

    text: str
    query: str | None
    items: list[str]
    item: int | None
    prediction: str
    probabilities: dict[str, float]
    attention: list[float]
    scores: dict[str, list[float | None]]
    flip_set: FlipSet | None
    worst_case: WorstCase | None
    scope: str | None = None
    verdict: str | None = None
    spans: Sequence[tuple[int, int]] = ()

    def layers(self) -> Iterator[tuple[str, list[Cell], str]]:
        """Each score's name, each piece with its value and colour, and a line on the highest ones."""
        text = self.text if self.spans else ""
        pieces = join_pieces(self.items, [False] * len(self.items), text, self.spans)
        rows: dict[str, list[float | None]] = {"attention": [*self.attention], **self.scores}
        if self.worst_case is not None:
            rows["worst-case attention"] = [*self.worst_case.attention]
        if self.flip_set is not None:
            erased, places = self.flip_set.items, range(len(self.items))
            rows["smallest flip set"] = [float(place in erased) for place in places]
        for name, scores in rows.items():
            values = of_pieces(pieces, scores, largest=name == "smallest flip set")
            sizes = [abs(value or 0.0) for value in values]
            largest = max(sizes, default=0.0)
            cells = []
            for piece, value, size in zip(pieces, values, sizes, strict=True):
                full = _NEGATIVE if (value or 0.0) < 0 else _POSITIVE
                share = size / largest if largest else 0.0
                red, green, blue = (round(255 - (255 - part) * share) for part in full)
                digits = "–" if value is None else number(value)  # noqa: RUF001
                before, written = printable(piece.before), printable(piece.text)
                cells.append(Cell(before, written, digits, (red, green, blue)))
            order = [place for place, piece in enumerate(pieces) if piece.tokens]
            order.sort(key=lambda place: -sizes[place])
            listed = [f"{cells[place].text} {cells[place].value}" for place in order[:_HIGHEST]]
            if name == "smallest flip set":
                listed = [cell.text for cell, size in zip(cells, sizes, strict=True) if size]
            yield name, cells, ", ".join(listed)

    def sentences(self) -> list[str]:
        """What is predicted, the scope of attention, the smallest flip set and the worst case."""
        of = "" if self.item is None else f" of {printable(self.items[self.item].strip())!r}"
        ranked = sorted(self.probabilities.items(), key=lambda pair: -pair[1])[:_HIGHEST]
        shares = ", ".join(f"{name} {number(value)}" for name, value in ranked)
        sentences = [f"Prediction{of}: {self.prediction} ({shares})."]
        if self.scope is not None:
            sentences.append(self.scope)
        if self.flip_set is None:
            sentences.append("Erasing items from attention never changes the decision.")
        else:
            count = len(self.flip_set.items)
            most = "" if self.flip_set.exact else " at most"
            sentences.append(
                f"Erasing{most} {count} of {len(self.items)} items from attention changes the "
                f"decision to {self.flip_set.prediction}."
            )
        if self.worst_case is not None:
            least = "" if self.worst_case.exact else "at least "
            sentences.append(
                f"Another attention that moves the prediction by at most {self.worst_case.epsilon:g} "
                f"differs from this one by {least}{number(self.worst_case.js)} (JS in nats; 0.693 is "
                "the maximum)."
            )
        return list(map(printable, sentences))

    def to_rich(self, coloured: bool) -> Group:
        """The explanation for the terminal, with the items coloured by each score, or once as text."""
        indent, (first, *others) = (0, 0, 0, 2), self.sentences()
        lines: list[Padding | Text] = [Text(first, style="bold")]
        if self.query:
            query = Text(printable(self.query), style="italic")
            lines.append(Padding(query, indent, expand=False))
        if not coloured:
            lines.append(Padding(Text(printable(self.text)), indent, expand=False))
        for name, cells, highest in self.layers():
            lines.append(Text(f"{name}: {highest}", style="dim"))
            line = Text()
            for before, piece, _, (red, green, blue) in cells:
                line.append(before)
                line.append(piece, style=f"rgb(0,0,0) on rgb({red},{green},{blue})")
            if coloured:
                lines.append(Padding(line, indent, expand=False))
        return Group(*lines, *map(Text, others))

    def __str__(self) -> str:
        """What `attnlight explain` prints."""
        return on_terminal([self])

    def _repr_html_(self) -> str:
        """The explanation as HTML: text is escaped, and direction controls are shown."""
        layers, (first, *others) = list(self.layers()), self.sentences()
        others += [] if self.verdict is None else [printable(self.verdict)]
        query = self.query and printable(self.query)
        return str(
            render("explanation.html.jinja", first=first, others=others, layers=layers, query=query)
        )


def on_terminal(explanations: Sequence[Explanation]) -> str:
    """Explanations as standard output shows them; the legend of colours and the verdict stand once."""
    console = Console(highlight=False)
    coloured = console.color_system is not None and not console.no_color
    with console.capture() as capture:
        for one in explanations:
            console.print(one.to_rich(coloured), "")
        if coloured:
            console.print(Text(_LEGEND, style="dim"))
        for verdict in dict.fromkeys(one.verdict for one in explanations if one.verdict):
            console.print(Text(printable(verdict)))
    return capture.get().rstrip()
