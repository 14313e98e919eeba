"""The verdict card of a run: in five lines, may its attention be read as an explanation?

The rules and the words are in `verdict.yaml`.
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from attnlight.files import write_text
from attnlight.report.verdict_drafts import DECIDERS, NOT_SHOWN, Draft, Drafts, Estimate, rules


@dataclass(frozen=True)
class Line:
    """A line of the card.

    Attributes:
        name: Its name in verdict.yaml.
        question: The question.
        answer: `yes`, `in part`, `no`, `noticed`, `not noticed`, `caution`, `not shown`, `not
            applicable`, `not measured` or `not calibrated for this kind of model`.
        says: What that rests on, in words; may be empty.
        value: The number; None if there is none.
        low: Lower end of its interval.
        high: Upper end of its interval.
        p: p-value of the claim after Holm; None if the line makes none.
        texts: Number of texts that the number rests on.
        share: Their share of the split; None if its size is unknown.
        missing: What was not measured; may be empty.
        command: What would measure it, a command on each line; may be empty.
    """

    name: str
    question: str
    answer: str
    says: str = ""
    value: float | None = None
    low: float | None = None
    high: float | None = None
    p: float | None = None
    texts: int = 0
    share: float | None = None
    missing: str = ""
    command: str = ""

    def __str__(self) -> str:
        """The line as a paragraph."""
        answer = self.answer[0].upper() + self.answer[1:]
        return " ".join(filter(None, (self.question, f"{answer}.", self.says, self.missing)))


@dataclass(frozen=True)
class Verdict:
    """The card of a run.

    Attributes:
        heading: Its question.
        lines: Its lines.
        note: How to read them.
        checkpoint: Hash of the checkpoint that was tested; None if unknown.
    """

    heading: str
    lines: tuple[Line, ...]
    note: str
    checkpoint: str | None = None

    def __getitem__(self, name: str) -> Line:
        """The line of a name."""
        return {line.name: line for line in self.lines}[name]

    def __str__(self) -> str:
        """The card in 80 columns."""
        parts = [self.heading]
        for line in self.lines:
            text = textwrap.fill(str(line), 80, subsequent_indent="  ", break_on_hyphens=False)
            parts.append("\n  ".join([text, *line.command.splitlines()]))
        return "\n\n".join([*parts, textwrap.fill(self.note, 80)])

    def summary(self) -> dict[str, str | float]:
        """Answers, numbers and texts of the lines by key, for loggers."""
        found: dict[str, str | float] = {}
        for line in self.lines:
            numbers = {name: getattr(line, name) for name in ("value", "low", "high")}
            entries = {"answer": line.answer, "text": str(line), **numbers}
            found |= {
                f"verdict/{line.name}_{name}": value
                for name, value in entries.items()
                if value is not None
            }
        return found

    def write(self, folder: Path, corpus: str = "") -> None:
        """Write it as `verdict.json`; of a corpus that the model was not trained on its own file."""
        lines = [{**asdict(line), "text": str(line)} for line in self.lines]
        content = {"version": rules()["version"], **asdict(self), "lines": lines}
        path = folder / f"verdict{corpus and '-'}{corpus}.json"
        write_text(path, json.dumps(content, indent=1) + "\n")


def verdict_of(folder: Path, corpus: str = "", deciders: Path = DECIDERS) -> Verdict:
    """The card of a run, from the records of its test split.

    Args:
        folder: The run folder; it may have no records.
        corpus: Name of the corpus; "" is the corpus of training.
        deciders: The file of measures that may be used with a threshold.

    Raises:
        InputError: The records are of several runs or checkpoints, or one is damaged.
    """
    found = Drafts(folder, corpus, deciders)
    drafts = [found.ranks(), found.smallest_set(), found.uniqueness(), found.words()]
    lines: list[Line] = []
    for items in ("words", "states"):
        lines = _lines(found, [*drafts[:3], found.notices(items), drafts[3]], items)
        if lines[-1].answer == "yes":
            break
    hashes = [entry.get("checkpoint_hash") for entry in found.metadata.values()]
    heading = " ".join(filter(None, (rules()["heading"], corpus and f"On {corpus}.")))
    return Verdict(heading, tuple(lines), rules()["note"], next(filter(None, hashes), None))


def _lines(of: Drafts, drafts: Sequence[Draft], items: str) -> list[Line]:
    """The lines of drafts; claims are tested as Holm does, the best supported one first.

    Args:
        of: What the drafts are from.
        drafts: A draft for each line.
        items: What the lines speak of, `words` or `states`.
    """
    from attnlight.statistics.paired import holm

    level = rules()["level"]
    claims = {
        draft.name: (draft.answer, draft.estimate, draft.bounds)
        for draft in drafts
        if draft.bounds and draft.estimate and draft.estimate.texts >= rules()["least_texts"]
    }
    p_values = {name: found.p_value(*bounds) for name, (_, found, bounds) in claims.items()}
    adjusted = dict(zip(p_values, holm([*p_values.values()]).tolist(), strict=True))
    left, answers, ends = len(claims), {}, {}
    for name in sorted(p_values, key=lambda name: p_values[name]):
        possible, found, (low, high) = claims[name]
        ends[name] = lower, upper = found.interval(1 - level / left)
        sides = (upper < low, low <= lower and upper < high, high <= lower)
        answers[name] = possible[sides.index(True)] if any(sides) else NOT_SHOWN
        left -= any(sides)  # once a claim fails, no other is made with less confidence
    unit = "sentence" if of.net.get("hierarchical") else "word"
    lines: list[Line] = []
    for draft in drafts:
        rule, found = (
            rules()["lines"][draft.name],
            draft.estimate or Estimate(np.nan, np.empty(0), 0),
        )
        low, high = ends.get(draft.name) or found.interval(1 - level)
        answer = answers.get(draft.name, draft.answer)
        says = rule.get(draft.says, "")
        scale, digits = (100, 0) if "{value:.0%}" in says else (1, 2)
        fields = draft.fields | {"items": items, "top": rules()["top"][items], "value": found.value}
        fields["interval"] = f"[{scale * low:.{digits}f}, {scale * high:.{digits}f}]"
        says = says.format(**fields).replace("%", " %")
        if draft.estimate and not found.texts:
            answer, says = NOT_SHOWN, rules()["undefined"]
        elif found.texts:
            total = f" of {of.total:,}" if of.total else ""
            says += f" Rests on {found.texts:,}{total} texts."
        if not isinstance(answer, str):
            answer, says = NOT_SHOWN, f"{says} Fewer than {rules()['least_texts']} show nothing."
        question = rule["question"]
        question = question[items] if isinstance(question, dict) else question.format(items=items)
        words = [question, says, draft.missing]
        question, says, missing = (text.replace("word", unit) for text in words)
        plain = [None if np.isnan(x) else float(x) for x in (found.value, low, high)]
        lines.append(
            Line(
                draft.name,
                question,
                answer,
                says,
                value=plain[0],
                low=plain[1],
                high=plain[2],
                p=adjusted.get(draft.name),
                texts=found.texts,
                share=found.texts / of.total if of.total else None,
                missing=missing,
                command=draft.command,
            )
        )
    return lines
